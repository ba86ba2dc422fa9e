from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.tables.engines import EMBEDDED, ENGINES, FixedClock
from zae_limiter._async.table import Table


@pytest.fixture
def clock() -> FixedClock:
    return FixedClock()


@pytest.fixture(params=ENGINES)
async def table(request: pytest.FixtureRequest, tmp_path: Path, clock: FixedClock) -> AsyncIterator[Table]:
    """Every table there is, behind the port."""
    opened = ENGINES[request.param](tmp_path, clock)
    yield opened
    await opened.close()


@pytest.fixture(params=EMBEDDED)
async def embedded(request: pytest.FixtureRequest, tmp_path: Path, clock: FixedClock) -> AsyncIterator[Table]:
    """The tables of which more is asked than DynamoDB can do."""
    opened = EMBEDDED[request.param](tmp_path, clock)
    yield opened
    await opened.close()
