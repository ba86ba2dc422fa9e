from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.dynamodb import engines
from tests.tables.deviations import DEVIATIONS
from tests.tables.engines import EMBEDDED, TABLES, FixedClock, dynamo
from zae_limiter._async.table import Table


@pytest.fixture
def clock() -> FixedClock:
    return FixedClock()


@pytest.fixture(params=TABLES)
async def table(request: pytest.FixtureRequest, tmp_path: Path, clock: FixedClock) -> AsyncIterator[Table]:
    """Every implementation of the table port, one after the other."""
    opened = await _opened(request.param, tmp_path, clock)
    yield opened
    await opened.close()


@pytest.fixture(params=EMBEDDED)
async def embedded(request: pytest.FixtureRequest, tmp_path: Path, clock: FixedClock) -> AsyncIterator[Table]:
    """The embedded tables, for rules that DynamoDB does not have to meet."""
    opened = EMBEDDED[request.param](tmp_path, clock)
    yield opened
    await opened.close()


@pytest.fixture(params=engines.ENGINES)
async def deployed(request: pytest.FixtureRequest, tmp_path: Path, clock: FixedClock) -> AsyncIterator[Table]:
    """The DynamoDB table on every engine, for rules that embedded tables do not have to meet."""
    opened = await _opened(request.param, tmp_path, clock)
    yield opened
    await opened.close()


async def _opened(name: str, directory: Path, clock: FixedClock) -> Table:
    if name in EMBEDDED:
        return EMBEDDED[name](directory, clock)
    try:
        return await dynamo(name)
    except engines.EngineAbsentError as absent:
        pytest.skip(str(absent))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests that an engine is known to fail as strict xfail."""
    for item in items:
        for deviation in DEVIATIONS:
            if isinstance(item, pytest.Function) and deviation.meets(item.originalname, _parameters(item)):
                item.add_marker(pytest.mark.xfail(reason=deviation.why, raises=AssertionError, strict=True))


def _parameters(item: pytest.Function) -> dict[str, object]:
    return item.callspec.params if hasattr(item, "callspec") else {}
