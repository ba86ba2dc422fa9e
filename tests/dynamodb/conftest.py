from collections.abc import Awaitable, Callable, Iterator

import pytest

from tests.dynamodb.cost_cases import Case, CostScenario, run_case
from tests.dynamodb.engines import ENGINES, Engine, EngineAbsentError, fresh_table_name, running
from tests.dynamodb.proxy import Proxy
from tests.dynamodb.spending import OPENINGS, Cost, CostLedger

# ministack reports no ConsumedCapacity for BatchGetItem.
UNTOLD = {"ministack": {"BatchGetItem"}, "dynoxide": set()}

Play = Callable[[CostScenario], Awaitable[None]]


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


@pytest.fixture(params=OPENINGS)
def ledger_of(request: pytest.FixtureRequest, engine: Engine) -> Callable[..., Awaitable[CostLedger]]:
    """Run a case with an async or sync client; assert that the engine reports what the rules bill."""

    async def play(scenario: Play, *, speculative_writes: bool = True) -> CostLedger:
        ledger = await run_case(Case("", scenario, speculative_writes), engine, request.param)
        for entry in ledger.entries:
            silent = entry.refused or entry.verb in UNTOLD[engine.name]
            assert (None if silent else entry.billed) == entry.reported
        return ledger

    return play


@pytest.fixture
def cost_of(ledger_of: Callable[..., Awaitable[CostLedger]]) -> Callable[..., Awaitable[Cost]]:
    async def cost(scenario: Play, **options: bool) -> Cost:
        return (await ledger_of(scenario, **options)).cost()

    return cost
