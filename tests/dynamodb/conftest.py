import pytest

from tests.dynamodb.engines import ENGINES, Engine, EngineAbsentError, fresh_table_name, running


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> Engine:
    """Every engine that is installed here."""
    try:
        return running(request.param)
    except EngineAbsentError as absent:
        pytest.skip(str(absent))


@pytest.fixture
def table_name() -> str:
    return fresh_table_name()
