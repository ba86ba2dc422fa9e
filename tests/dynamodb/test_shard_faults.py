"""A fault met once by a transaction over several shards: it is carried out once, however often it was sent."""

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.dynamodb.faults import Fault, Stall, conflict
from tests.dynamodb.ledgers import RESOURCE
from tests.dynamodb.stage import FAULTS, PATIENT_S, Actor, Stage
from tests.dynamodb.test_shard_throttles import split_by_another
from tests.dynamodb.trees import KINDS

# A stalled call is given up after half of the deadline.
STALLED_S = 2.0
# More than half of what there is.
LARGE = {"rpm": 600, "tpm": 10}
ALL = {**FAULTS, "conflict": conflict()}


@pytest.fixture(scope="module", params=KINDS)
def stage(request: pytest.FixtureRequest) -> Iterator[Stage]:
    with ExitStack() as stack:
        yield Stage(request.param, stack)


def plant(stage: Stage, fault: Fault) -> None:
    """Make the next transaction go wrong."""
    stage.hurry(STALLED_S if isinstance(fault, Stall) else PATIENT_S)
    stage.proxy.next(fault, 1, "TransactWriteItems")


def sharded(stage: Stage) -> Actor:
    """An actor whose bucket has two shards, and who knows it."""
    actor = stage.actor()
    actor.take()
    split_by_another(stage.new_limiter(PATIENT_S), actor)
    actor.take()
    return actor


@pytest.mark.parametrize("fault", ALL.values(), ids=ALL)
def test_a_request_larger_than_a_share_is_charged_once(stage: Stage, fault: Fault):
    """Whatever became of the first answer."""
    actor = sharded(stage)
    plant(stage, fault)
    with actor.limiter.acquire(actor.entity_id, RESOURCE, LARGE):
        pass

    assert {"rpm": 602, "tpm": 30} == actor.used


@pytest.mark.parametrize("fault", ALL.values(), ids=ALL)
def test_a_debit_that_is_spread_is_charged_once(stage: Stage, fault: Fault):
    """Whatever became of the first answer."""
    actor = sharded(stage)
    with actor.acquire() as lease:
        lease.adjust(rpm=700)
        plant(stage, fault)

    assert {"rpm": 703, "tpm": 30} == actor.used
    # A balance is less than what is there by what was earned since, which is next to nothing.
    assert min(one["b_rpm_tk"] for one in stage.ledger.shards(actor.entity_id)) > -1_000


@pytest.mark.parametrize("fault", ALL.values(), ids=ALL)
def test_a_split_is_made_once(stage: Stage, fault: Fault):
    """What there was is there, on two shards or still on one."""
    actor = stage.actor()
    actor.take()
    another = stage.new_limiter(PATIENT_S)
    another._client._deadline_s = STALLED_S
    stage.proxy.next(fault, 1, "TransactWriteItems")
    split_by_another(another, actor)
    actor.take()
    shards = stage.ledger.shards(actor.entity_id)

    assert [one["shard_count"] for one in shards] in ([1], [2, 2])
    assert {"rpm": 2, "tpm": 20} == actor.used
    assert 998_000 == sum(one["b_rpm_tk"] for one in shards)
