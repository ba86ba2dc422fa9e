"""One limit on its baseline: refill, level, and the time at which a level is reached."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from tests import strategies as some
from zae_limiter.core.bucket import Baseline, grid
from zae_limiter.core.limit import Limit

places = st.sampled_from([1, 2, 4, 64]).flatmap(lambda count: st.tuples(st.integers(0, count - 1), st.just(count)))
balances = st.integers(-(10**22), 10**22)
spans_ms = st.integers(0, 10**12)


@given(limit=some.limits, times=st.lists(some.times_ms, min_size=2), place=places)
def test_refill_in_several_steps_equals_refill_in_one_step(
    limit: Limit, times: list[int], place: tuple[int, int]
) -> None:
    """However often a bucket is moved to a new baseline, nothing is lost to rounding."""
    times.sort()
    steps = [Baseline.of(limit, start, *place).earned(end) for start, end in pairwise(times)]

    assert Baseline.of(limit, times[0], *place).earned(times[-1]) == sum(steps)


@given(limit=some.limits, start=some.times_ms, now=some.times_ms)
def test_refill_differs_from_the_exact_rate_by_less_than_a_millitoken(limit: Limit, start: int, now: int) -> None:
    """This holds over any time."""
    earned = Baseline.of(limit, start).earned(now)
    exact = max(0, now - start) * limit.refill_amount_milli

    assert abs(earned * limit.refill_period_ms - exact) < limit.refill_period_ms


@given(limit=some.limits, start=some.times_ms, span_ms=spans_ms, count=st.sampled_from([2, 8, 64]))
def test_refill_of_all_shards_equals_the_refill_of_the_bucket(
    limit: Limit, start: int, span_ms: int, count: int
) -> None:
    """The refill is divided like the capacity."""
    shards = [Baseline.of(limit, start, shard, count) for shard in range(count)]

    assert limit.capacity_milli == sum(shard.capacity_milli for shard in shards)
    assert Baseline.of(limit, start).earned(start + span_ms) == sum(shard.earned(start + span_ms) for shard in shards)


@given(limit=some.limits, start=some.times_ms, back_ms=spans_ms, place=places)
def test_refill_before_the_baseline_is_zero(limit: Limit, start: int, back_ms: int, place: tuple[int, int]) -> None:
    """A clock that is behind takes nothing away."""
    assert 0 == Baseline.of(limit, start, *place).earned(start - back_ms)


@given(limit=some.limits, start=some.times_ms, balance=balances, span_ms=spans_ms, place=places)
def test_level_is_balance_plus_refill_up_to_the_capacity(
    limit: Limit, start: int, balance: int, span_ms: int, place: tuple[int, int]
) -> None:
    """Overflow is lost, and a level may be negative."""
    baseline = Baseline.of(limit, start, *place)
    level = baseline.level(balance, start + span_ms)

    assert min(baseline.capacity_milli, balance + baseline.earned(start + span_ms)) == level


@given(limit=some.limits, start=some.times_ms, data=st.data(), place=places)
def test_ready_is_the_first_millisecond_at_which_the_level_is_reached(
    limit: Limit, start: int, data: st.DataObject, place: tuple[int, int]
) -> None:
    """A millisecond earlier it is not; the same holds for shards."""
    baseline = Baseline.of(limit, start, *place)
    needed = data.draw(st.integers(0, baseline.capacity_milli))
    balance = data.draw(st.integers(needed - baseline.capacity_milli - 10**6, needed - 1))

    ready = baseline.ready_ms(balance, needed)

    assert start < ready
    assert baseline.level(balance, ready) >= needed
    assert baseline.level(balance, ready - 1) < needed


@given(limit=some.limits, start=some.times_ms, needed=balances, more=st.integers(0, 10**9))
def test_ready_is_zero_if_the_balance_is_enough(limit: Limit, start: int, needed: int, more: int) -> None:
    """There is no wait."""
    assert 0 == Baseline.of(limit, start).ready_ms(needed + more, needed)


@given(limit=some.limits, start=some.times_ms)
def test_baseline_without_a_shard_is_shard_0_of_one(limit: Limit, start: int) -> None:
    """The defaults mean the whole bucket."""
    assert Baseline.of(limit, start, 0, 1) == Baseline.of(limit, start)


def test_slow_limit_refills_exactly_next_to_a_fast_one() -> None:
    """One token a day, with a new baseline every ten milliseconds for two minutes."""
    slow = Limit.per_day("slow", 1)
    start = 1_700_000_000_000
    times = range(start, start + 120_000, 10)

    earned = sum(Baseline.of(slow, now).earned(now + 10) for now in times)

    assert grid(start + 120_000, 1_000, 86_400_000) - grid(start, 1_000, 86_400_000) == earned
    assert earned in (1, 2)
