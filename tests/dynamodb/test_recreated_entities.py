"""Entities that are deleted and created again during a lease, on an engine: the new bucket gets no credit."""

import contextlib
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.dynamodb.faulty_table import CONSUME, LONG_DEADLINE_S, Actor, FaultyTable, WorkFailedError
from tests.dynamodb.ledgers import RESOURCE
from tests.dynamodb.test_shard_throttles import split_by_another
from tests.dynamodb.trees import KINDS


@pytest.fixture(scope="module", params=KINDS)
def faulty(request: pytest.FixtureRequest) -> Iterator[FaultyTable]:
    with ExitStack() as stack:
        yield FaultyTable(request.param, stack)


def recreate(actor: Actor, entity_id: str) -> None:
    """Delete an entity with its buckets, and let another client take from a new one."""
    other = actor.faulty.new_limiter(LONG_DEADLINE_S)
    with contextlib.suppress(Exception):
        other.create_entity(entity_id)
    other.delete_entity(entity_id)
    with other.acquire(entity_id, RESOURCE, CONSUME):
        pass


@pytest.mark.parametrize("sharded", [False, True], ids=["whole", "sharded"])
def test_a_failed_request_credits_no_bucket_created_since(faulty: FaultyTable, sharded: bool):
    """Its tokens were deleted with the old bucket. The new one counts only what others took."""
    actor = faulty.actor()
    actor.take()
    if sharded:
        split_by_another(faulty.new_limiter(LONG_DEADLINE_S), actor)
    with contextlib.suppress(WorkFailedError), actor.acquire():
        recreate(actor, actor.entity_id)
        raise WorkFailedError

    assert CONSUME == actor.used


def test_a_release_credits_no_bucket_created_since(faulty: FaultyTable):
    """A later debit is charged to the new bucket."""
    actor = faulty.actor()
    with actor.acquire() as lease:
        recreate(actor, actor.entity_id)
        lease.release(tpm=10)
        lease.adjust(rpm=2)

    assert {"rpm": 3, "tpm": 10} == actor.used


def test_a_parent_created_since_gets_no_credit(faulty: FaultyTable):
    """Each bucket of a lease has its own creation number: the child gets its credit."""
    actor = faulty.actor()
    actor.have_parent()
    with contextlib.suppress(WorkFailedError), actor.acquire():
        before = actor.used
        above = faulty.ledger.shards(actor.parent_id)[0]
        faulty.ledger.remove(actor.parent_id)
        with faulty.new_limiter(LONG_DEADLINE_S).acquire(actor.parent_id, RESOURCE, CONSUME):
            pass
        raise WorkFailedError

    assert ({"rpm": 2, "tpm": 20}, 2_000) == (before, above["b_rpm_tc"])
    assert CONSUME == actor.used
    assert CONSUME == faulty.ledger.used(actor.parent_id)
