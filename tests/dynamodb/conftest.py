from collections.abc import Iterator

import pytest

from tests.dynamodb.engines import ENGINES, Engine, EngineAbsentError, fresh_table_name, running
from tests.dynamodb.proxy import Proxy


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> Engine:
    """Every installed engine."""
    try:
        return running(request.param)
    except EngineAbsentError as absent:
        pytest.skip(str(absent))


@pytest.fixture
def table_name() -> str:
    return fresh_table_name()


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    """A fault proxy in front of the default engine."""
    with Proxy(running().url) as started:
        yield started
