"""Throttled partitions: a shard that is written too often is split, and an unavailable one is bypassed."""

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import pytest

from tests.dynamodb.faults import KEY_RANGE, Exchange, Fault, Nothing, conflict, throttled
from tests.dynamodb.faulty_table import CONSUME, LONG_DEADLINE_S, Actor, FaultyTable
from tests.dynamodb.ledgers import RESOURCE
from tests.dynamodb.trees import KINDS

TAKES = 20
UNRELATED = 150
# An unavailable shard is tried for a part of the deadline.
SHUT_S = 5.0


@dataclass(frozen=True, slots=True)
class UnavailableShard:
    """Refuse calls of these kinds on one shard of every bucket."""

    shard: int
    targets: tuple[str, ...]

    async def play(self, exchange: Exchange) -> None:
        request = exchange.request
        target = (request.header("x-amz-target") or "").rpartition(".")[2]
        shut = target in self.targets and f'#{RESOURCE}#{self.shard}"'.encode() in request.body
        await (throttled(KEY_RANGE) if shut else Nothing()).play(exchange)


@dataclass(slots=True)
class EveryTenth:
    """Apply a fault to one call in ten."""

    fault: Fault
    count: int = 0

    async def play(self, exchange: Exchange) -> None:
        self.count += 1
        await (Nothing() if self.count % 10 else self.fault).play(exchange)


@pytest.fixture(scope="module", params=KINDS)
def faulty(request: pytest.FixtureRequest) -> Iterator[FaultyTable]:
    with ExitStack() as stack:
        yield FaultyTable(request.param, stack)


def counts(actor: Actor) -> list[int]:
    """Return the shard counts in the shards of an actor's bucket."""
    return [numbers["shard_count"] for numbers in actor.faulty.ledger.shards(actor.entity_id)]


def times(number: int) -> dict[str, int]:
    return {name: number * amount for name, amount in CONSUME.items()}


def test_a_throttled_shard_is_split(faulty: FaultyTable):
    """Meanwhile the other half serves requests, and the request is admitted once."""
    # Each attempt splits at random, so that not all clients do.
    actor = faulty.actor(60.0)
    actor.take()
    faulty.proxy.always(UnavailableShard(0, ("UpdateItem",)))
    actor.take()
    faulty.proxy.clear_faults()

    assert max(counts(actor)) >= 2
    assert times(2) == actor.used


def test_a_shard_is_split_once_for_one_throttle(faulty: FaultyTable):
    """Writes before the split do not count after it."""
    actor = faulty.actor()
    actor.take()
    faulty.proxy.next(throttled(KEY_RANGE), 1, "UpdateItem")
    for _ in range(TAKES):
        actor.take()

    assert counts(actor) in ([1], [2, 2])
    assert times(1 + TAKES) == actor.used


@pytest.mark.parametrize("reasons", [(), ("TableWriteMaxOnDemandThroughputExceeded",)], ids=["none", "table"])
def test_throttles_unrelated_to_the_key_split_nothing(faulty: FaultyTable, reasons: tuple[str, ...]):
    """One write in ten is throttled without a reason or for the whole table, while the shard has few writes."""
    actor = faulty.actor()
    actor.take()
    faulty.proxy.always(EveryTenth(throttled(*reasons)), "UpdateItem")
    for _ in range(UNRELATED):
        actor.take()
    faulty.proxy.clear_faults()

    assert [1] == counts(actor)
    assert times(1 + UNRELATED) == actor.used


def test_a_write_that_conflicts_with_a_transaction_splits_nothing(faulty: FaultyTable):
    """The partition has capacity, and more shards would only cause more transactions."""
    actor = faulty.actor()
    actor.take()
    for _ in range(TAKES):
        faulty.proxy.next(conflict(), 2, "UpdateItem")
        actor.take()

    assert [1] == counts(actor)
    assert times(1 + TAKES) == actor.used


def test_an_unavailable_shard_0_is_bypassed(faulty: FaultyTable):
    """A client that knows only shard 0, which can be neither read nor written, finds the one split from it."""
    actor = faulty.actor()
    actor.take()
    split_by_another(faulty.new_limiter(LONG_DEADLINE_S), actor)
    faulty.shorten_deadlines(SHUT_S)
    faulty.proxy.always(UnavailableShard(0, ("UpdateItem", "GetItem", "TransactWriteItems")))
    for _ in range(3):
        actor.take()
    faulty.clear_faults()

    assert times(4) == actor.used
    assert 30 == faulty.ledger.shards(actor.entity_id)[1]["b_tpm_tc"] // 1000


def split_by_another(limiter: Any, actor: Actor) -> None:
    """Let another client split the bucket."""
    limiter.available(actor.entity_id, RESOURCE)
    run = getattr(limiter, "_run", lambda made: made)
    client = getattr(limiter, "_target", limiter)._client
    bucket = (actor.entity_id, RESOURCE)
    view = run(client.buckets.look((bucket, 0), None, client.until_s()))
    run(client.shards.split((bucket, 0), view, client.until_s()))
