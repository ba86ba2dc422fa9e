"""A single fault of a transaction over several shards: it is applied once, however often it was sent."""

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.dynamodb.faults import Fault, Stall, conflict
from tests.dynamodb.faulty_table import FAULTS, LONG_DEADLINE_S, Actor, FaultyTable
from tests.dynamodb.ledgers import RESOURCE
from tests.dynamodb.test_shard_throttles import split_by_another
from tests.dynamodb.trees import KINDS

# A stalled call is given up after half of the deadline.
STALLED_S = 2.0
# More than half of the available tokens.
LARGE = {"rpm": 600, "tpm": 10}
ALL = {**FAULTS, "conflict": conflict()}


@pytest.fixture(scope="module", params=KINDS)
def faulty(request: pytest.FixtureRequest) -> Iterator[FaultyTable]:
    with ExitStack() as stack:
        yield FaultyTable(request.param, stack)


def plant(faulty: FaultyTable, fault: Fault) -> None:
    """Inject a fault into the next transaction."""
    faulty.shorten_deadlines(STALLED_S if isinstance(fault, Stall) else LONG_DEADLINE_S)
    faulty.proxy.next(fault, 1, "TransactWriteItems")


def sharded(faulty: FaultyTable) -> Actor:
    """Return an actor whose bucket has two shards, and whose client has cached that."""
    actor = faulty.actor()
    actor.take()
    split_by_another(faulty.new_limiter(LONG_DEADLINE_S), actor)
    actor.take()
    return actor


@pytest.mark.parametrize("fault", ALL.values(), ids=ALL)
def test_a_request_larger_than_one_shard_is_charged_once(faulty: FaultyTable, fault: Fault):
    """The fate of the first answer makes no difference."""
    actor = sharded(faulty)
    plant(faulty, fault)
    with actor.limiter.acquire(actor.entity_id, RESOURCE, LARGE):
        pass

    assert {"rpm": 602, "tpm": 30} == actor.used


@pytest.mark.parametrize("fault", ALL.values(), ids=ALL)
def test_a_debit_over_several_shards_is_charged_once(faulty: FaultyTable, fault: Fault):
    """The fate of the first answer makes no difference."""
    actor = sharded(faulty)
    with actor.acquire() as lease:
        lease.adjust(rpm=700)
        plant(faulty, fault)

    assert {"rpm": 703, "tpm": 30} == actor.used
    # A stored balance lacks only the refill since, which is close to nothing.
    assert min(one["b_rpm_tk"] for one in faulty.ledger.shards(actor.entity_id)) > -1_000


@pytest.mark.parametrize("fault", ALL.values(), ids=ALL)
def test_a_split_with_a_fault_is_made_once(faulty: FaultyTable, fault: Fault):
    """All tokens are kept, on two shards or still on one."""
    actor = faulty.actor()
    actor.take()
    another = faulty.new_limiter(LONG_DEADLINE_S)
    another._client._deadline_s = STALLED_S
    faulty.proxy.next(fault, 1, "TransactWriteItems")
    split_by_another(another, actor)
    actor.take()
    shards = faulty.ledger.shards(actor.entity_id)

    assert [one["shard_count"] for one in shards] in ([1], [2, 2])
    assert {"rpm": 2, "tpm": 20} == actor.used
    assert 998_000 == sum(one["b_rpm_tk"] for one in shards)
