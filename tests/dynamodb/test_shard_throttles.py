"""Partitions that take no more writes: one that is written to too often is split, and one that is shut is bypassed."""

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import pytest

from tests.dynamodb.faults import KEY_RANGE, Exchange, Fault, Nothing, conflict, throttled
from tests.dynamodb.ledgers import RESOURCE
from tests.dynamodb.stage import CONSUME, PATIENT_S, Actor, Stage
from tests.dynamodb.trees import KINDS

TAKES = 20
UNRELATED = 150
# A shard that is shut is tried for a part of the deadline.
SHUT_S = 5.0


@dataclass(frozen=True, slots=True)
class ShardShut:
    """One shard of every bucket takes no calls of these kinds."""

    shard: int
    targets: tuple[str, ...]

    async def play(self, exchange: Exchange) -> None:
        request = exchange.request
        target = (request.header("x-amz-target") or "").rpartition(".")[2]
        shut = target in self.targets and f'#{RESOURCE}#{self.shard}"'.encode() in request.body
        await (throttled(KEY_RANGE) if shut else Nothing()).play(exchange)


@dataclass(slots=True)
class EveryTenth:
    """A fault that one call in ten meets."""

    fault: Fault
    count: int = 0

    async def play(self, exchange: Exchange) -> None:
        self.count += 1
        await (Nothing() if self.count % 10 else self.fault).play(exchange)


@pytest.fixture(scope="module", params=KINDS)
def stage(request: pytest.FixtureRequest) -> Iterator[Stage]:
    with ExitStack() as stack:
        yield Stage(request.param, stack)


def counts(actor: Actor) -> list[int]:
    """The counts of the shards of an actor's bucket."""
    return [numbers["shard_count"] for numbers in actor.stage.ledger.shards(actor.entity_id)]


def times(number: int) -> dict[str, int]:
    return {name: number * amount for name, amount in CONSUME.items()}


def test_a_shard_that_takes_no_writes_is_split(stage: Stage):
    """The half that it does not have serves meanwhile, and the request is admitted once."""
    # Whether it splits at a try is left to chance, so that not all clients do.
    actor = stage.actor(60.0)
    actor.take()
    stage.proxy.always(ShardShut(0, ("UpdateItem",)))
    actor.take()
    stage.proxy.calm()

    assert max(counts(actor)) >= 2
    assert times(2) == actor.used


def test_a_shard_is_split_once_for_one_throttle(stage: Stage):
    """What was written before the split says nothing of after it."""
    actor = stage.actor()
    actor.take()
    stage.proxy.next(throttled(KEY_RANGE), 1, "UpdateItem")
    for _ in range(TAKES):
        actor.take()

    assert counts(actor) in ([1], [2, 2])
    assert times(1 + TAKES) == actor.used


@pytest.mark.parametrize("reasons", [(), ("TableWriteMaxOnDemandThroughputExceeded",)], ids=["none", "table"])
def test_throttles_unrelated_to_the_key_split_nothing(stage: Stage, reasons: tuple[str, ...]):
    """One write in ten is throttled, for no reason or because of the whole table: the shard's own writes are few."""
    actor = stage.actor()
    actor.take()
    stage.proxy.always(EveryTenth(throttled(*reasons)), "UpdateItem")
    for _ in range(UNRELATED):
        actor.take()
    stage.proxy.calm()

    assert [1] == counts(actor)
    assert times(1 + UNRELATED) == actor.used


def test_a_write_in_the_way_of_a_transaction_splits_nothing(stage: Stage):
    """The item is held for a moment, and its partition has room: shards would only make more transactions."""
    actor = stage.actor()
    actor.take()
    for _ in range(TAKES):
        stage.proxy.next(conflict(), 2, "UpdateItem")
        actor.take()

    assert [1] == counts(actor)
    assert times(1 + TAKES) == actor.used


def test_shard_0_is_bypassed_while_it_is_shut(stage: Stage):
    """Who knew only shard 0, which can be neither read nor written now, finds the one that was split off it."""
    actor = stage.actor()
    actor.take()
    split_by_another(stage.new_limiter(PATIENT_S), actor)
    stage.hurry(SHUT_S)
    stage.proxy.always(ShardShut(0, ("UpdateItem", "GetItem", "TransactWriteItems")))
    for _ in range(3):
        actor.take()
    stage.calm()

    assert times(4) == actor.used
    assert 30 == stage.ledger.shards(actor.entity_id)[1]["b_tpm_tc"] // 1000


def split_by_another(limiter: Any, actor: Actor) -> None:
    """Another client splits the bucket."""
    limiter.available(actor.entity_id, RESOURCE)
    run = getattr(limiter, "_run", lambda made: made)
    client = getattr(limiter, "_target", limiter)._client
    bucket = (actor.entity_id, RESOURCE)
    view = run(client.buckets.look((bucket, 0), None, client.until_s()))
    run(client.shards.split((bucket, 0), view, client.until_s()))
