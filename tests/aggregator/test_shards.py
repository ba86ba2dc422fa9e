"""Shards are split and merged with their current content, and no token is created or lost."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.aggregator.simulated_table import NAMESPACE_ID, SimulatedTable
from tests.many_shards import grown, level, shaken, total
from tests.one_bucket import NOON, at, stored
from zae_limiter.core.errors import CorruptItemError
from zae_limiter.core.limit import Limit
from zae_limiter.core.outcome import Conflict, Throttled, Unavailable
from zae_limiter.core.sharding import Gauge, is_complete
from zae_limiter.schema.bucket_item import counts_of
from zae_limiter.schema.keys import BucketKey
from zae_limiter.schema.operations import Update
from zae_limiter_aggregator.apply import Pause, Read, TableAnswer, TableRequest, Transaction, drive, merge, split
from zae_limiter_aggregator.plan import Merge, Rules, Split
from zae_limiter_aggregator.write_rates import Watch

TERMS = stored(Limit.per_minute("rpm", 1_000), Limit.custom("tpm", 7_777, 13, 60))
NAMES = ("rpm", "tpm")
RULES = Rules()
WHOLE = BucketKey(NAMESPACE_ID, "user-1", "gpt-4", 0)
MINUTE_MS = 60_000


def staged(order: list[int], seed: int = 0) -> SimulatedTable:
    """Return a bucket with random shards, with debts and overflows, some time later."""
    simulated = SimulatedTable(NOON)
    items = grown(TERMS, order, at(NOON))
    simulated.put((shaken(items, NAMES, seed, 900_000) if seed else items).values())
    return simulated


def totals(simulated: SimulatedTable) -> list[int]:
    return [total(simulated.buckets(), name, simulated.now_ms) for name in NAMES]


def levels(simulated: SimulatedTable) -> list[int]:
    """Return the tokens of all shards, each capped to its share.

    An overflow is lost whether or not shards are merged.
    """
    return [sum(level(item, name, simulated.now_ms) for item in simulated.buckets().values()) for name in NAMES]


def calm_for(simulated: SimulatedTable, milliseconds: int) -> dict[int, Watch]:
    """Return survey results of shards with a low write rate for this long."""
    past_ms = simulated.now_ms - milliseconds
    return {
        shard: Watch(Gauge(past_ms, item["b_wcu_tc"]), item["shard_count"], None, past_ms)
        for shard, item in simulated.buckets().items()
    }


orders = st.lists(st.integers(0, 63), max_size=8)
seeds = st.integers(0, 10**6)


@given(orders, seeds, st.integers(0, 63))
def test_a_split_keeps_every_token(order: list[int], seed: int, chosen: int) -> None:
    """Both halves have what the shard had, and twice its shard count."""
    simulated = staged(order, seed)
    shards = simulated.buckets()
    halved = sorted(shard for shard, item in shards.items() if item["shard_count"] < 64)
    shard = halved[chosen % len(halved)]
    before, count = totals(simulated), shards[shard]["shard_count"]
    full = any(level(shards[shard], name, simulated.now_ms) < shards[shard][f"b_{name}_tk"] for name in NAMES)

    assert simulated.run(split(Split(WHOLE._replace(shard_id=shard), count), simulated.context))
    after = simulated.buckets()
    assert {2 * count} == {after[one]["shard_count"] for one in (shard, shard + count)}
    assert is_complete(counts_of(after.values()))
    if not full:
        assert before == totals(simulated)


@pytest.mark.parametrize("planned", [2, 4])
def test_a_shard_that_was_split_meanwhile_is_not_split_again(planned: int) -> None:
    """A client may have split it before the batch was delivered."""
    simulated = staged([0])
    shard_count = simulated.buckets()[0]["shard_count"]
    done = simulated.run(split(Split(WHOLE, planned), simulated.context))

    assert (2, planned == 2) == (shard_count, done)


def test_a_missing_or_maximally_split_shard_is_not_split() -> None:
    """There are at most 64 shards."""
    simulated = staged([0, 0, 0, 0, 0, 0])
    most = {shard: item["shard_count"] for shard, item in simulated.buckets().items()}[0]

    assert not simulated.run(split(Split(WHOLE._replace(entity_id="nobody"), 1), simulated.context))
    assert (64, False) == (most, simulated.run(split(Split(WHOLE, 64), simulated.context)))


def test_a_split_of_a_constantly_written_shard_succeeds_eventually() -> None:
    """A refused split is computed again."""
    simulated = staged([])
    taken = iter([5_000, 7_000])

    def take(ask: TableRequest) -> None:
        if isinstance(ask, Transaction) and (amount := next(taken, 0)):
            key = ask.operations[0].key
            simulated.table.write(Update(key, add={"b_rpm_tk": -amount - 990_000 * (amount == 5_000)}))

    simulated.before = take

    assert simulated.run(split(Split(WHOLE, 1), simulated.context))
    assert 1_000_000 - 990_000 - 5_000 - 7_000 == totals(simulated)[0]


@pytest.mark.parametrize(
    "trouble", [Throttled(), Conflict(), Unavailable(ConnectionError("unavailable"), ambiguous=False)]
)
def test_a_split_that_fails_is_left_to_the_next_batch(trouble: TableAnswer) -> None:
    """It is not an error: nothing was lost."""
    simulated = staged([])
    before = simulated.buckets()

    def answer(ask: TableRequest) -> TableAnswer:
        return trouble if isinstance(ask, Transaction) else simulated.answer(ask)

    assert not drive(split(Split(WHOLE, 1), simulated.context), answer)
    assert before == simulated.buckets()


def test_a_split_with_a_lost_answer_is_not_applied_twice() -> None:
    """The shard already has its new count."""
    simulated = staged([])

    def answer(ask: TableRequest) -> TableAnswer:
        answered = simulated.answer(ask)
        return Unavailable(ConnectionError("lost"), ambiguous=True) if isinstance(ask, Transaction) else answered

    drive(split(Split(WHOLE, 1), simulated.context), answer)

    assert {0: 2, 1: 2} == counts_of(simulated.buckets().values())


@given(orders, seeds)
def test_shards_with_low_rates_are_merged_back_to_one(order: list[int], seed: int) -> None:
    """Each survey merges pairs, and no token is created or lost."""
    simulated = staged(order, seed)
    before = levels(simulated)
    seen = calm_for(simulated, 3 * MINUTE_MS)
    merges = [simulated.run(merge(Merge(WHOLE, 1, seen), RULES, simulated.context)).merged]
    while len(simulated.buckets()) > 1:
        seen = calm_for(simulated, 3 * MINUTE_MS)
        merges.append(simulated.run(merge(Merge(WHOLE, 2, seen), RULES, simulated.context)).merged)

    assert len(order) == sum(merges)
    assert before == levels(simulated)
    assert {0: 1} == counts_of(simulated.buckets().values())


def test_a_bucket_is_merged_after_several_surveys_with_low_rates() -> None:
    """The first survey starts the measurement, and each one a minute later continues it."""
    simulated = staged([0, 0])
    known: dict[int, Watch] = {}
    counts = []
    for _ in range(5):
        surveyed = simulated.run(merge(Merge(WHOLE, 4, known), RULES, simulated.context))
        known = dict(surveyed.shards)
        counts.append(len(simulated.buckets()))
        simulated.now_ms += MINUTE_MS

    assert [3, 3, 3, 2, 2] == counts


@pytest.mark.parametrize(("rate", "merged"), [(0, 1), (249, 1), (250, 0), (900, 0)])
def test_a_bucket_with_a_high_rate_is_not_merged(rate: int, merged: int) -> None:
    """A low rate is under a quarter of the limit of a partition."""
    simulated = staged([0])
    seen = calm_for(simulated, 3 * MINUTE_MS)
    for shard, item in simulated.buckets().items():
        simulated.put([{**item, "b_wcu_tc": item["b_wcu_tc"] + (rate * 180 if shard else 0)}])

    assert merged == simulated.run(merge(Merge(WHOLE, 2, seen), RULES, simulated.context)).merged


def test_shards_with_different_limits_are_not_merged() -> None:
    """A later take updates both to the same limits."""
    simulated = staged([0])
    simulated.put([{**simulated.buckets()[1], "cv": 99}])

    assert (
        0 == simulated.run(merge(Merge(WHOLE, 2, calm_for(simulated, 3 * MINUTE_MS)), RULES, simulated.context)).merged
    )
    assert 2 == len(simulated.buckets())


def test_a_merge_uses_the_current_content_of_the_shards() -> None:
    """Tokens taken between the read and the write are kept."""
    simulated = staged([0])
    simulated.put([{**simulated.buckets()[1], "b_rpm_tk": 100_000}])
    before = totals(simulated)[0]
    taken = iter([5_000])

    def take(ask: TableRequest) -> None:
        if isinstance(ask, Transaction) and (amount := next(taken, 0)):
            simulated.table.write(Update(ask.operations[1].key, add={"b_rpm_tk": -amount}))

    simulated.before = take
    surveyed = simulated.run(merge(Merge(WHOLE, 2, calm_for(simulated, 3 * MINUTE_MS)), RULES, simulated.context))

    assert 1 == surveyed.merged
    assert before - 5_000 == totals(simulated)[0]


def test_a_merge_that_fails_is_left_for_later() -> None:
    """Nothing was lost, and the survey results are kept."""
    simulated = staged([0])
    before = simulated.buckets()

    def answer(ask: TableRequest) -> TableAnswer:
        return Throttled() if isinstance(ask, Transaction) else simulated.answer(ask)

    surveyed = drive(merge(Merge(WHOLE, 2, calm_for(simulated, 3 * MINUTE_MS)), RULES, simulated.context), answer)

    assert (0, {0, 1}, before) == (surveyed.merged, set(surveyed.shards), simulated.buckets())


def test_a_survey_of_a_missing_bucket_is_empty() -> None:
    """Its entity was deleted."""
    simulated = SimulatedTable(NOON)

    assert ({}, 0) == (lambda found: (found.shards, found.merged))(
        simulated.run(merge(Merge(WHOLE, 4, {}), RULES, simulated.context))
    )


def test_a_survey_reads_more_shards_than_were_known() -> None:
    """A record may be older than the last split."""
    simulated = staged([0, 0, 1])
    surveyed = simulated.run(merge(Merge(WHOLE, 2, {}), RULES, simulated.context))

    assert set(simulated.buckets()) == set(surveyed.shards)
    reads = [ask.keys for ask in simulated.asked if isinstance(ask, Read)]
    assert all(not set(one) & set(other) for one, other in pairwise(reads))


def test_a_damaged_shard_raises_an_error() -> None:
    """The error names the item."""
    simulated = staged([0])
    simulated.put([{key: value for key, value in simulated.buckets()[0].items() if key != "rf"}])

    with pytest.raises(CorruptItemError, match="user-1"):
        simulated.run(split(Split(WHOLE, 2), simulated.context))
    with pytest.raises(CorruptItemError, match="user-1"):
        simulated.run(merge(Merge(WHOLE, 2, {}), RULES, simulated.context))


def test_pauses_between_attempts_are_short() -> None:
    """Lambda is billed by time."""
    simulated = staged([])

    def answer(ask: TableRequest) -> TableAnswer:
        return Throttled() if isinstance(ask, Transaction) else simulated.answer(ask)

    drive(split(Split(WHOLE, 1), simulated.context), answer)
    assert 1.0 > sum(ask.seconds for ask in simulated.asked if isinstance(ask, Pause)) > 0
