"""Entities that are deleted and created again during a lease, on an engine: their new bucket gets no credit of it."""

import contextlib
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.dynamodb.ledgers import RESOURCE
from tests.dynamodb.stage import CONSUME, PATIENT_S, Actor, Stage, WorkFailedError
from tests.dynamodb.test_shard_throttles import split_by_another
from tests.dynamodb.trees import KINDS


@pytest.fixture(scope="module", params=KINDS)
def stage(request: pytest.FixtureRequest) -> Iterator[Stage]:
    with ExitStack() as stack:
        yield Stage(request.param, stack)


def recreate(actor: Actor, entity_id: str) -> None:
    """Delete an entity with its buckets, and let another client take from a new one."""
    other = actor.stage.new_limiter(PATIENT_S)
    with contextlib.suppress(Exception):
        other.create_entity(entity_id)
    other.delete_entity(entity_id)
    with other.acquire(entity_id, RESOURCE, CONSUME):
        pass


@pytest.mark.parametrize("sharded", [False, True], ids=["whole", "sharded"])
def test_failed_request_credits_no_bucket_that_was_created_since(stage: Stage, sharded: bool):
    """What it took went with the bucket that was deleted; the new one counts what others took from it."""
    actor = stage.actor()
    actor.take()
    if sharded:
        split_by_another(stage.new_limiter(PATIENT_S), actor)
    with contextlib.suppress(WorkFailedError), actor.acquire():
        recreate(actor, actor.entity_id)
        raise WorkFailedError

    assert CONSUME == actor.used


def test_release_credits_no_bucket_that_was_created_since(stage: Stage):
    """Neither does a credit that goes alone; a debit is charged to the new bucket."""
    actor = stage.actor()
    with actor.acquire() as lease:
        recreate(actor, actor.entity_id)
        lease.release(tpm=10)
        lease.adjust(rpm=2)

    assert {"rpm": 3, "tpm": 10} == actor.used


def test_parent_that_was_created_since_gets_no_credit(stage: Stage):
    """Each bucket of a lease has a birth number of its own: the child gets its credit."""
    actor = stage.actor()
    actor.have_parent()
    with contextlib.suppress(WorkFailedError), actor.acquire():
        before = actor.used
        above = stage.ledger.shards(actor.parent_id)[0]
        stage.ledger.remove(actor.parent_id)
        with stage.new_limiter(PATIENT_S).acquire(actor.parent_id, RESOURCE, CONSUME):
            pass
        raise WorkFailedError

    assert ({"rpm": 2, "tpm": 20}, 2_000) == (before, above["b_rpm_tc"])
    assert CONSUME == actor.used
    assert CONSUME == stage.ledger.used(actor.parent_id)
