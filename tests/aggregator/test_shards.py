"""Shards are split and merged as they stand, and no token is made or lost."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.aggregator.stage import NAMESPACE_ID, Stage
from tests.many_shards import grown, level, shaken, total
from tests.one_bucket import NOON, at, stored
from zae_limiter.core.errors import CorruptItemError
from zae_limiter.core.limit import Limit
from zae_limiter.core.outcome import Conflict, Throttled, Unavailable
from zae_limiter.core.sharding import Gauge, is_complete
from zae_limiter.schema.bucket_item import counts_of
from zae_limiter.schema.keys import BucketKey
from zae_limiter.schema.operations import Update
from zae_limiter_aggregator.apply import Ask, Pause, Read, TableAnswer, Transaction, drive, merge, split
from zae_limiter_aggregator.plan import Merge, Rules, Split
from zae_limiter_aggregator.write_rates import Watch

TERMS = stored(Limit.per_minute("rpm", 1_000), Limit.custom("tpm", 7_777, 13, 60))
NAMES = ("rpm", "tpm")
RULES = Rules()
WHOLE = BucketKey(NAMESPACE_ID, "user-1", "gpt-4", 0)
MINUTE_MS = 60_000


def staged(order: list[int], seed: int = 0) -> Stage:
    """A bucket with shards of chance, with debts and overflows, a while later."""
    stage = Stage(NOON)
    items = grown(TERMS, order, at(NOON))
    stage.put((shaken(items, NAMES, seed, 900_000) if seed else items).values())
    return stage


def totals(stage: Stage) -> list[int]:
    return [total(stage.buckets(), name, stage.now_ms) for name in NAMES]


def levels(stage: Stage) -> list[int]:
    """What all shards have, each cut to its share: what overflows is lost whether or not shards are merged."""
    return [sum(level(item, name, stage.now_ms) for item in stage.buckets().values()) for name in NAMES]


def calm_for(stage: Stage, milliseconds: int) -> dict[int, Watch]:
    """What is known of shards that have hardly been written to for so long."""
    past_ms = stage.now_ms - milliseconds
    return {
        shard: Watch(Gauge(past_ms, item["b_wcu_tc"]), item["shard_count"], None, past_ms)
        for shard, item in stage.buckets().items()
    }


orders = st.lists(st.integers(0, 63), max_size=8)
seeds = st.integers(0, 10**6)


@given(orders, seeds, st.integers(0, 63))
def test_a_split_keeps_every_token(order: list[int], seed: int, chosen: int) -> None:
    """The two halves have what the one had, and are of twice its count."""
    stage = staged(order, seed)
    shards = stage.buckets()
    halved = sorted(shard for shard, item in shards.items() if item["shard_count"] < 64)
    shard = halved[chosen % len(halved)]
    before, count = totals(stage), shards[shard]["shard_count"]
    full = any(level(shards[shard], name, stage.now_ms) < shards[shard][f"b_{name}_tk"] for name in NAMES)

    assert stage.run(split(Split(WHOLE._replace(shard_id=shard), count), stage.means))
    after = stage.buckets()
    assert {2 * count} == {after[one]["shard_count"] for one in (shard, shard + count)}
    assert is_complete(counts_of(after.values()))
    if not full:
        assert before == totals(stage)


@pytest.mark.parametrize("planned", [2, 4])
def test_a_shard_that_was_split_meanwhile_is_left_alone(planned: int) -> None:
    """By the time a batch is delivered, a client may have done what it asks for."""
    stage = staged([0])
    shard_count = stage.buckets()[0]["shard_count"]
    done = stage.run(split(Split(WHOLE, planned), stage.means))

    assert (2, planned == 2) == (shard_count, done)


def test_what_is_gone_or_cannot_be_split_further_is_left_alone() -> None:
    """There are at most 64 shards."""
    stage = staged([0, 0, 0, 0, 0, 0])
    most = {shard: item["shard_count"] for shard, item in stage.buckets().items()}[0]

    assert not stage.run(split(Split(WHOLE._replace(entity_id="nobody"), 1), stage.means))
    assert (64, False) == (most, stage.run(split(Split(WHOLE, 64), stage.means)))


def test_a_shard_that_is_written_to_all_the_time_is_split_in_the_end() -> None:
    """Refused, the split is reckoned anew."""
    stage = staged([])
    taken = iter([5_000, 7_000])

    def take(ask: Ask) -> None:
        if isinstance(ask, Transaction) and (amount := next(taken, 0)):
            key = ask.operations[0].key
            stage.table.write(Update(key, add={"b_rpm_tk": -amount - 990_000 * (amount == 5_000)}))

    stage.before = take

    assert stage.run(split(Split(WHOLE, 1), stage.means))
    assert 1_000_000 - 990_000 - 5_000 - 7_000 == totals(stage)[0]


@pytest.mark.parametrize("trouble", [Throttled(), Conflict(), Unavailable(ConnectionError("away"), ambiguous=False)])
def test_a_split_that_does_not_succeed_is_left_to_the_next_batch(trouble: TableAnswer) -> None:
    """It is no failure: nothing was lost."""
    stage = staged([])
    before = stage.buckets()

    def answer(ask: Ask) -> TableAnswer:
        return trouble if isinstance(ask, Transaction) else stage.answer(ask)

    assert not drive(split(Split(WHOLE, 1), stage.means), answer)
    assert before == stage.buckets()


def test_a_split_whose_answer_was_lost_is_not_done_twice() -> None:
    """The shard is found with its new count."""
    stage = staged([])

    def answer(ask: Ask) -> TableAnswer:
        answered = stage.answer(ask)
        return Unavailable(ConnectionError("lost"), ambiguous=True) if isinstance(ask, Transaction) else answered

    drive(split(Split(WHOLE, 1), stage.means), answer)

    assert {0: 2, 1: 2} == counts_of(stage.buckets().values())


@given(orders, seeds)
def test_calm_shards_are_merged_back_to_one(order: list[int], seed: int) -> None:
    """Pair by pair, survey by survey, and no token is made or lost."""
    stage = staged(order, seed)
    before = levels(stage)
    seen = calm_for(stage, 3 * MINUTE_MS)
    merges = [stage.run(merge(Merge(WHOLE, 1, seen), RULES, stage.means)).merged]
    while len(stage.buckets()) > 1:
        seen = calm_for(stage, 3 * MINUTE_MS)
        merges.append(stage.run(merge(Merge(WHOLE, 2, seen), RULES, stage.means)).merged)

    assert len(order) == sum(merges)
    assert before == levels(stage)
    assert {0: 1} == counts_of(stage.buckets().values())


def test_a_bucket_is_merged_once_looks_have_shown_it_calm_for_minutes() -> None:
    """The first look begins; each further one a minute later adds to what is known."""
    stage = staged([0, 0])
    known: dict[int, Watch] = {}
    counts = []
    for _ in range(5):
        surveyed = stage.run(merge(Merge(WHOLE, 4, known), RULES, stage.means))
        known = dict(surveyed.shards)
        counts.append(len(stage.buckets()))
        stage.now_ms += MINUTE_MS

    assert [3, 3, 3, 2, 2] == counts


@pytest.mark.parametrize(("rate", "merged"), [(0, 1), (249, 1), (250, 0), (900, 0)])
def test_a_bucket_that_is_written_to_often_is_not_merged(rate: int, merged: int) -> None:
    """Under a quarter of what a partition takes is calm."""
    stage = staged([0])
    seen = calm_for(stage, 3 * MINUTE_MS)
    for shard, item in stage.buckets().items():
        stage.put([{**item, "b_wcu_tc": item["b_wcu_tc"] + (rate * 180 if shard else 0)}])

    assert merged == stage.run(merge(Merge(WHOLE, 2, seen), RULES, stage.means)).merged


def test_shards_on_other_limits_are_not_merged() -> None:
    """A take will put both on the same; until then they stay apart."""
    stage = staged([0])
    stage.put([{**stage.buckets()[1], "cv": 99}])

    assert 0 == stage.run(merge(Merge(WHOLE, 2, calm_for(stage, 3 * MINUTE_MS)), RULES, stage.means)).merged
    assert 2 == len(stage.buckets())


def test_shards_are_merged_as_they_stand() -> None:
    """What is taken between the look and the write is not forgotten."""
    stage = staged([0])
    stage.put([{**stage.buckets()[1], "b_rpm_tk": 100_000}])
    before = totals(stage)[0]
    taken = iter([5_000])

    def take(ask: Ask) -> None:
        if isinstance(ask, Transaction) and (amount := next(taken, 0)):
            stage.table.write(Update(ask.operations[1].key, add={"b_rpm_tk": -amount}))

    stage.before = take
    surveyed = stage.run(merge(Merge(WHOLE, 2, calm_for(stage, 3 * MINUTE_MS)), RULES, stage.means))

    assert 1 == surveyed.merged
    assert before - 5_000 == totals(stage)[0]


def test_a_merge_that_does_not_succeed_is_left_for_later() -> None:
    """Nothing was lost, and what was seen is remembered."""
    stage = staged([0])
    before = stage.buckets()

    def answer(ask: Ask) -> TableAnswer:
        return Throttled() if isinstance(ask, Transaction) else stage.answer(ask)

    surveyed = drive(merge(Merge(WHOLE, 2, calm_for(stage, 3 * MINUTE_MS)), RULES, stage.means), answer)

    assert (0, {0, 1}, before) == (surveyed.merged, set(surveyed.shards), stage.buckets())


def test_a_bucket_that_is_gone_tells_nothing() -> None:
    """Its entity was deleted since."""
    stage = Stage(NOON)

    assert ({}, 0) == (lambda found: (found.shards, found.merged))(
        stage.run(merge(Merge(WHOLE, 4, {}), RULES, stage.means))
    )


def test_more_shards_than_were_known_of_are_looked_at() -> None:
    """A record may be older than the last split."""
    stage = staged([0, 0, 1])
    surveyed = stage.run(merge(Merge(WHOLE, 2, {}), RULES, stage.means))

    assert set(stage.buckets()) == set(surveyed.shards)
    reads = [ask.keys for ask in stage.asked if isinstance(ask, Read)]
    assert all(not set(one) & set(other) for one, other in pairwise(reads))


def test_a_damaged_shard_is_an_error() -> None:
    """It names the item."""
    stage = staged([0])
    stage.put([{key: value for key, value in stage.buckets()[0].items() if key != "rf"}])

    with pytest.raises(CorruptItemError, match="user-1"):
        stage.run(split(Split(WHOLE, 2), stage.means))
    with pytest.raises(CorruptItemError, match="user-1"):
        stage.run(merge(Merge(WHOLE, 2, {}), RULES, stage.means))


def test_pauses_are_short() -> None:
    """A Lambda is paid for by the time."""
    stage = staged([])

    def answer(ask: Ask) -> TableAnswer:
        return Throttled() if isinstance(ask, Transaction) else stage.answer(ask)

    drive(split(Split(WHOLE, 1), stage.means), answer)
    assert 1.0 > sum(ask.seconds for ask in stage.asked if isinstance(ask, Pause)) > 0
