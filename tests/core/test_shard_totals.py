"""Shards folded into one bucket for those who only look."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zae_limiter.core.bucket import Baseline
from zae_limiter.core.limit import Limit
from zae_limiter.core.shard_totals import Folded, ShardHolding, available, fold

NOON = 1_700_000_000_000
LIMIT = Limit.custom("rpm", 1_001, 997, 60)
COUNTS = {0: 2, 1: 4, 3: 4}


def holding(shard: int, balance: int, start_ms: int = NOON, total: int = 0) -> ShardHolding:
    return ShardHolding(Baseline.of(LIMIT, start_ms, shard, COUNTS[shard]), balance, total)


def test_one_shard_is_the_bucket() -> None:
    """Nothing is brought to another time."""
    baseline = Baseline.of(LIMIT, NOON)

    assert Folded(NOON, -3_000, 7_000) == fold([ShardHolding(baseline, -3_000, 7_000)])


def test_balances_are_brought_to_the_latest_baseline() -> None:
    """Totals are added up, and what a shard has earned until then is in its balance."""
    old, new = holding(0, 1_000, NOON, 5), holding(1, 2_000, NOON + 6_000, 7)

    assert Folded(NOON + 6_000, 1_000 + old.baseline.earned(NOON + 6_000) + 2_000, 12) == fold([old, new])


def test_a_shard_is_brought_no_further_than_its_share() -> None:
    """What flowed over is nobody's."""
    old, new = holding(0, 0, NOON - 10**9), holding(1, 0)

    assert Folded(NOON, old.baseline.capacity_milli, 0) == fold([old, new])


@given(later_ms=st.integers(0, 10**4), balances=st.tuples(*[st.integers(-10_000, 0)] * 3))
def test_what_is_folded_earns_what_the_shards_earn(later_ms: int, balances: tuple[int, int, int]) -> None:
    """To the millitoken, while no shard is full."""
    shards = [holding(shard, balance) for shard, balance in zip(COUNTS, balances, strict=True)]
    folded = fold(shards)

    whole = Baseline.of(LIMIT, folded.start_ms).level(folded.balance_milli, NOON + later_ms)
    assert whole == sum(one.baseline.level(one.balance_milli, NOON + later_ms) for one in shards)


@pytest.mark.parametrize(
    ("balances", "left"), [((1_000, 2_000, 3_000), 6_000), ((-5_000, 2_000, 0), 2_000), ((-1, -2, -3), -6)]
)
def test_a_shard_in_debt_holds_back_no_other(balances: tuple[int, int, int], left: int) -> None:
    """Only where all are in debt it shows."""
    shards = [holding(shard, balance) for shard, balance in zip(COUNTS, balances, strict=True)]

    assert left == available(shards, NOON)


def test_a_limit_that_a_shard_was_not_put_on_yet_is_full_there() -> None:
    """That is what the shard will get when it is."""
    untouched = [ShardHolding.untouched(LIMIT, NOON, shard, count) for shard, count in COUNTS.items()]

    assert Folded(NOON, LIMIT.capacity_milli, 0) == fold(untouched)
