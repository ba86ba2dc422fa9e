"""The check of the promise: no false alarm, and no fault of 2 % or 5 % that it does not find."""

import math
from itertools import product
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.loadtest.true_bucket import KEY, Demand, TrueBucket, run
from zae_limiter.core.limit import Limit
from zae_limiter.loadtest.measurements import BIN_S, Bin, LimitTally
from zae_limiter.loadtest.promise_check import (
    DemandState,
    Environment,
    Verdict,
    check_limit,
    check_limits,
    judge_demand,
    worst_window,
)

PER_SECOND = Limit.per_second("tps", 1000)
OVER_BY_2 = 9_800
LOSES_5 = 10_526


def largest_excess(tally: LimitTally) -> float:
    """Compute the largest excess directly: try every window."""
    limit = next(iter(tally.limits))
    edges = range(min(tally.bins), max(tally.bins) + 2)
    excesses = []
    for start, end in product(edges, edges):
        last = tally.bins.get(end - 1)
        if end <= start or last is None or last.quickest_take_ms is None:
            continue
        charged_by = math.floor(end - 1 - last.quickest_take_ms / 1000 / BIN_S)
        net = 0
        for number, one in tally.bins.items():
            net += one.taken if number < end else 0
            net += one.charged if number < charged_by else 0
            net -= one.credits_begun if number < end else 0
            net -= one.takes_begun + one.charges_begun - one.credited if number < start else 0
        slack_s = min(tally.longest_s, 1.0) + 0.002
        excesses.append(net - limit.capacity - limit.refill_rate * ((end - start) * BIN_S + slack_s))
    return max(excesses)


small = st.integers(0, 20)
quickest = st.none() | st.integers(0, 400)
bins = st.builds(Bin, small, small, small, small, small, small, quickest, st.none(), st.none())
limits = st.builds(Limit, st.just("tps"), st.integers(1, 30), st.integers(1, 100), st.integers(1, 3))


@given(st.dictionaries(st.integers(0, 12), bins, min_size=1), limits, st.floats(0, 2))
def test_worst_window_of_any_counts_is_the_worst_of_all_windows(
    counts: dict[int, Bin], limit: Limit, longest_s: float
) -> None:
    """One pass finds what trying every window finds."""
    tally = LimitTally(KEY, limits={limit}, longest_s=longest_s, bins=counts)

    found = worst_window(tally)

    if all(one.quickest_take_ms is None for one in counts.values()):
        assert found is None
    else:
        assert found is not None
        assert largest_excess(tally) == pytest.approx(found.excess)


@given(
    st.integers(0, 2**32),
    st.sampled_from([0.0, 0.02, 0.3, 1.5]),
    st.builds(
        Demand,
        calls_per_s=st.sampled_from([20.0, 150.0, 400.0]),
        duration_s=st.sampled_from([2.0, 12.0]),
        largest=st.sampled_from([1, 7, 40]),
        settled=st.sampled_from([0.0, 0.5, 1.0]),
    ),
    st.sampled_from([Limit.per_second("tps", 50), Limit("tps", 400, 100, 1), Limit.per_minute("tps", 6000)]),
)
def test_check_of_a_correct_bucket_never_fails(seed: int, longest_call_s: float, demand: Demand, limit: Limit) -> None:
    """Whatever the demand, the sizes, the settlements and the durations of calls."""
    bucket = TrueBucket(limit, Random(seed), longest_call_s)

    found = check_limit(run(bucket, demand))

    assert Verdict.HELD == found.verdict, found


@pytest.mark.parametrize("settled", [0.0, 0.5])
@pytest.mark.parametrize("longest_call_s", [0.0, 0.05])
def test_check_of_a_bucket_that_admits_2_percent_too_much_fails(longest_call_s: float, settled: float) -> None:
    """In 30 seconds."""
    bucket = TrueBucket(PER_SECOND, Random(1), longest_call_s, taken_of_10_000=OVER_BY_2)

    found = check_limit(run(bucket, Demand(400, 30, 10, settled)))

    assert Verdict.EXCEEDED == found.verdict
    assert found.window is not None
    assert 0 < found.window.excess < 30 * 1000 * 0.03


@pytest.mark.parametrize("settled", [0.0, 0.5])
@pytest.mark.parametrize("longest_call_s", [0.0, 0.05])
def test_check_of_a_bucket_that_loses_5_percent_fails(longest_call_s: float, settled: float) -> None:
    """In 30 seconds, also if it is charged and credited."""
    bucket = TrueBucket(PER_SECOND, Random(1), longest_call_s, taken_of_10_000=LOSES_5)

    found = check_limit(run(bucket, Demand(400, 30, 10, settled)))

    assert Verdict.UNDERUSED == found.verdict
    assert found.stretch is not None
    assert 0.93 < found.stretch.share < 0.97


def test_check_of_a_loss_after_a_large_burst_fails() -> None:
    """The burst ends in the bin of the first rejection, where it is unknown which came first."""
    bucket = TrueBucket(Limit.per_minute("tps", 1000), Random(1), 0.05, taken_of_10_000=LOSES_5)

    assert Verdict.UNDERUSED == check_limit(run(bucket, Demand(400, 80))).verdict


def test_check_of_a_correct_bucket_under_demand_judges_its_share() -> None:
    """The share is close to 100 %."""
    found = check_limit(run(TrueBucket(PER_SECOND, Random(1), 0.05), Demand(400, 30, 10)))

    assert (Verdict.HELD, DemandState.JUDGED) == (found.verdict, found.demand)
    assert found.stretch is not None
    assert 0.99 < found.stretch.share < 1.01


def test_check_of_a_limit_that_never_rejects_does_not_judge_the_share() -> None:
    """Without demand, nothing is promised."""
    found = check_limit(run(TrueBucket(PER_SECOND, Random(1)), Demand(50, 5)))

    assert (Verdict.HELD, DemandState.NO_REJECTIONS) == (found.verdict, found.demand)


def test_check_of_requests_as_large_as_the_capacity_does_not_judge_the_share() -> None:
    """A bucket that one request empties earns nothing while it is full."""
    bucket = TrueBucket(Limit.per_second("tps", 10), Random(1))

    for number in range(300):
        bucket.acquire(10, 1_000_000 + number / 10)

    assert DemandState.SMALL_CAPACITY == check_limit(bucket.tally).demand


def test_check_of_a_short_stretch_does_not_judge_the_share() -> None:
    """The share is not known well enough."""
    found = check_limit(run(TrueBucket(PER_SECOND, Random(1)), Demand(400, 2, 10)))

    assert DemandState.TOO_SHORT == found.demand


def test_stretch_is_split_where_the_bucket_may_have_been_full() -> None:
    """A pause in the demand is not a loss."""
    bucket = TrueBucket(Limit.per_second("tps", 100), Random(1))
    run(bucket, Demand(400, 30))
    pause_s = 60.0
    for number in range(12_000):
        bucket.acquire(1, bucket.at_s + pause_s + 1 / 400)
        pause_s = 0.0 if number else pause_s

    state, stretch = judge_demand(bucket.tally)

    assert DemandState.JUDGED == state
    assert stretch is not None
    assert 0.98 < stretch.share
    assert stretch.end_s - stretch.start_s < 31


def test_check_of_clocks_that_differ_allows_for_the_difference() -> None:
    """Two machines whose clocks are 50 ms apart see a burst closer together than it was."""
    tally = LimitTally(KEY, limits={PER_SECOND})
    tally.take(1000, 100.0, 100.0)
    tally.take(90, 100.05, 100.05)

    assert Verdict.HELD == check_limit(tally).verdict
    tally.take(30, 100.05, 100.05)
    assert Verdict.EXCEEDED == check_limit(tally).verdict
    assert Verdict.HELD == check_limit(tally, environment=Environment(clock_spread_s=0.05)).verdict


def test_check_without_the_calls_of_lost_workers_judges_only_the_upper_bound() -> None:
    """Missing calls look like a loss. Too many calls are too many, whatever is missing."""
    lost = Environment(is_complete=False)
    low = run(TrueBucket(PER_SECOND, Random(1), 0.0, taken_of_10_000=LOSES_5), Demand(400, 30, 10))
    high = run(TrueBucket(PER_SECOND, Random(1), 0.0, taken_of_10_000=OVER_BY_2), Demand(400, 60, 10))

    found = check_limit(low, environment=lost)
    assert (Verdict.HELD, DemandState.INCOMPLETE) == (found.verdict, found.demand)
    assert Verdict.EXCEEDED == check_limit(high, environment=lost).verdict


def test_check_of_several_limits_lists_the_worst_first() -> None:
    """A reader wants to see what failed."""
    good = run(TrueBucket(PER_SECOND, Random(1)), Demand(400, 20, 10))
    bad = run(TrueBucket(PER_SECOND, Random(1), taken_of_10_000=OVER_BY_2), Demand(400, 20, 10))
    idle = run(TrueBucket(PER_SECOND, Random(1)), Demand(5, 20))

    found = check_limits([idle, good, bad], {})

    assert [Verdict.EXCEEDED, Verdict.HELD, Verdict.HELD] == [one.verdict for one in found]
    assert [True, True, False] == [one.rejections > 0 for one in found]


def test_check_of_an_unknown_limit_holds() -> None:
    """Its numbers were never seen, so nothing can be said."""
    assert DemandState.UNKNOWN_LIMIT == check_limit(LimitTally(KEY)).demand


def test_limits_of_concurrent_use_have_no_verdict() -> None:
    """The counts do not say when slots are returned, so takes of a test seem to exceed every capacity."""
    slots = LimitTally(KEY, limits={Limit.concurrent("tps", 2)})
    rate = LimitTally(KEY, limits={PER_SECOND})
    for tally in (slots, rate):
        for second in range(5):
            tally.take(1, second, second + 0.1)
            tally.reject(1, 0, second, second + 0.1)

    assert [PER_SECOND] == [one.limit for one in check_limits([slots, rate], {})]
