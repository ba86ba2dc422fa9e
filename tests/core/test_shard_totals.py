"""Shards combined into one bucket for reading."""

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


def test_fold_of_one_shard_is_its_own_balance() -> None:
    """Its baseline does not change."""
    baseline = Baseline.of(LIMIT, NOON)

    assert Folded(NOON, -3_000, 7_000) == fold([ShardHolding(baseline, -3_000, 7_000)])


def test_fold_moves_balances_to_the_latest_baseline() -> None:
    """Totals are added, and each balance includes the refill until then."""
    old, new = holding(0, 1_000, NOON, 5), holding(1, 2_000, NOON + 6_000, 7)

    assert Folded(NOON + 6_000, 1_000 + old.baseline.earned(NOON + 6_000) + 2_000, 12) == fold([old, new])


def test_fold_cuts_each_shard_at_its_share() -> None:
    """Overflow is lost."""
    old, new = holding(0, 0, NOON - 10**9), holding(1, 0)

    assert Folded(NOON, old.baseline.capacity_milli, 0) == fold([old, new])


@given(later_ms=st.integers(0, 10**4), balances=st.tuples(*[st.integers(-10_000, 0)] * 3))
def test_folded_balance_refills_like_its_shards(later_ms: int, balances: tuple[int, int, int]) -> None:
    """To the millitoken, while no shard is full."""
    shards = [holding(shard, balance) for shard, balance in zip(COUNTS, balances, strict=True)]
    folded = fold(shards)

    whole = Baseline.of(LIMIT, folded.start_ms).level(folded.balance_milli, NOON + later_ms)
    assert whole == sum(one.baseline.level(one.balance_milli, NOON + later_ms) for one in shards)


@pytest.mark.parametrize(
    ("balances", "left"), [((1_000, 2_000, 3_000), 6_000), ((-5_000, 2_000, 0), 2_000), ((-1, -2, -3), -6)]
)
def test_available_of_folded_shards_ignores_a_single_debt(balances: tuple[int, int, int], left: int) -> None:
    """Debts show only if all shards are in debt."""
    shards = [holding(shard, balance) for shard, balance in zip(COUNTS, balances, strict=True)]

    assert left == available(shards, NOON)


def test_limit_that_a_shard_does_not_have_yet_counts_as_full() -> None:
    """The shard gets it full at its next rebase."""
    untouched = [ShardHolding.untouched(LIMIT, NOON, shard, count) for shard, count in COUNTS.items()]

    assert Folded(NOON, LIMIT.capacity_milli, 0) == fold(untouched)
