"""What a wait for a bucket costs, how long it takes, and whether it can end in time."""

from math import inf, nan

import pytest

from zae_limiter.core.bucket import Baseline
from zae_limiter.core.errors import ValidationError
from zae_limiter.core.levels import LimitLevel
from zae_limiter.core.limit import Limit
from zae_limiter.core.reserve import Reserve
from zae_limiter.core.status import LimitStatus
from zae_limiter.core.waiting import (
    LimitSupply,
    PaceProgress,
    Queue,
    check_queue,
    check_wait,
    cost_of,
    exceeds_capacity,
    primary_bucket,
    supply_after,
    supply_of,
    wait_s,
)

RPS = LimitSupply(level=500.0, at_s=10.0, rate=1_000.0, capacity=5_000)


def status(name="rps", requested=2, available=0, wait=1.5, exceeded=True, entity="a"):
    limit = Limit.per_second(name, 1, burst=5)
    return LimitStatus(entity, "api", name, limit, available, requested, exceeded, wait)


@pytest.mark.parametrize(
    ("field", "value"),
    [("max_waiting", 0), ("max_waiting", 1.5), ("fair_by", "resource"), ("weights", ["a"]), ("weights", {"a": 0})]
    + [("weights", {"a": value}) for value in (-1, inf, nan, True, "2")],
)
def test_queue_with_invalid_value_is_refused(field, value):
    """Each value of a queue is checked when the queue is made."""
    with pytest.raises(ValidationError, match=field):
        Queue(**{field: value})


def test_queue_by_entity_has_a_flow_and_a_weight_for_each():
    """An entity without a weight has the weight 1."""
    queue = Queue(weights={"gold": 3})

    assert ("gold", 3) == (queue.flow_of("gold"), queue.weight_of("gold"))
    assert ("other", 1.0) == (queue.flow_of("other"), queue.weight_of("other"))


def test_queue_by_arrival_has_one_flow():
    """Without fairness all requests belong to the same flow."""
    queue = Queue(fair_by=None, weights={"gold": 3})

    assert queue.flow_of("a") == queue.flow_of("gold")
    assert 1.0 == queue.weight_of("gold")


def test_value_that_is_no_queue_is_refused():
    """A limiter needs a Queue; a number or a dict is a mistake."""
    queue = Queue()

    assert queue is check_queue(queue)
    with pytest.raises(ValidationError, match="queue"):
        check_queue(5)


@pytest.mark.parametrize("max_wait", [-1, nan, "5", True, None])
def test_wait_that_is_no_number_of_seconds_is_refused(max_wait):
    """A wait is a number from 0, which may be inf."""
    with pytest.raises(ValidationError, match="max_wait"):
        check_wait(max_wait, 0)


@pytest.mark.parametrize("priority", [1.5, "high", True, 1_001])
def test_priority_that_is_no_whole_number_is_refused(priority):
    """A priority is a whole number from -1000 to 1000."""
    with pytest.raises(ValidationError, match="priority"):
        check_wait(inf, priority)


def test_valid_wait_is_accepted():
    """A wait may be 0 or inf, and a priority may be negative."""
    check_wait(0, -5)
    check_wait(inf, 5)


def test_supply_refills_up_to_its_capacity():
    """The level grows by the rate, a tick of the clock behind, and stops at the capacity."""
    assert 500.0 == RPS.available(10.0)
    assert 1_499.0 == pytest.approx(RPS.available(11.0))
    assert 5_000 == RPS.available(100.0)


def test_supply_is_empty_for_the_time_that_it_lacks():
    """The wait is the time to refill what is lacking, a tick of the clock and one millitoken."""
    assert 0.0 == RPS.wait_s(1_500, 11.1)
    assert pytest.approx(0.502) == RPS.wait_s(2_000, 11.0)


def test_supply_without_refill_never_suffices():
    """Without refill, only other requests give tokens back."""
    assert inf == LimitSupply(0.0, 0.0, 0.0, 10).wait_s(1, 5.0)


def test_supply_of_levels_is_exact_to_the_millitoken():
    """The levels of a bucket, and the refill of its limits, are all that a wait depends on."""
    limit = Limit.per_minute("rpm", 60, burst=90)
    level = LimitLevel(Baseline.of(limit, 1_000), 3_001)

    assert {"rpm": LimitSupply(4_001, 7.0, 1_000.0, 90_000)} == supply_of([level], (2_000, 2_000), 7.0)


def test_supply_after_an_admission_lacks_what_was_taken():
    """Limits that the request does not use only refill. What is above the capacity is lost."""
    after = supply_after({"rps": RPS, "rpm": RPS}, {"rps": 1}, 11.0)
    full = supply_after({"rps": RPS}, {"rps": 1}, 20.0)

    assert (-500.0, 500.0) == (after["rps"].level, after["rpm"].level)
    assert pytest.approx(499.0) == after["rps"].available(11.0)
    assert (4_000, 20.0) == (full["rps"].level, full["rps"].at_s)


def test_wait_is_that_of_the_slowest_limit_after_the_demand_ahead():
    """Requests ahead are served first. Limits that are unknown, or of which nothing is asked, cost no time."""
    supply = {"rps": RPS, "slow": LimitSupply(0.0, 10.0, 100.0, 1_000)}

    assert pytest.approx(2.502) == wait_s(supply, {"rps": 2, "slow": 9}, {"rps": 1, "slow": 0, "other": 4}, 10.0)
    assert pytest.approx(10.011) == wait_s(supply, {"rps": 2}, {"rps": 1, "slow": 1}, 10.0)
    assert 0.0 == wait_s({}, {}, {"rps": 1}, 10.0)


def test_request_above_a_capacity_is_recognised():
    """Only limits that the request uses count."""
    assert exceeds_capacity({"rps": RPS}, {"rps": 6})
    assert not exceeds_capacity({"rps": RPS}, {"rps": 5, "other": 99})


def test_cost_is_the_largest_part_of_a_capacity():
    """A request that takes nothing costs nearly nothing, and one of unknown limits costs a whole turn."""
    assert 0.4 == cost_of({"rps": RPS, "big": LimitSupply(0, 0, 1, 100_000)}, {"rps": 2, "big": 3})
    assert 0 < cost_of({"rps": RPS}, {"rps": 0}) < 0.001
    assert 1.0 == cost_of({}, {"rps": 2})


def test_progress_of_a_paced_job_shows_its_speed():
    """The time left follows from the speed so far; it is unknown without a total."""
    progress = PaceProgress(granted=10, total=30, waited_s=4.0, elapsed_s=5.0)

    assert (2.0, 10.0) == (progress.per_second, progress.remaining_s)
    assert progress._replace(total=None).remaining_s is None
    assert 0.0 == progress._replace(elapsed_s=0.0).per_second


def test_primary_bucket_is_that_of_the_longest_wait():
    """A request waits in the queue of the bucket that it has to wait for longest."""
    found = primary_bucket([status(wait=1), status(entity="b", wait=2), status(entity="c", exceeded=False, wait=9)])

    assert ("b", "api") == found
    assert primary_bucket([status(exceeded=False)]) is None


def test_wait_with_a_reserve_is_that_for_the_tokens_and_the_reserve():
    """Half of 5 tokens is rounded up to 3, so 1 token is there once the limit has 4."""
    assert pytest.approx(0.502) == wait_s({"rps": RPS}, {}, {"rps": 1}, 10.0)
    assert pytest.approx(3.502) == wait_s({"rps": RPS}, {}, {"rps": 1}, 10.0, Reserve(1, 2))


def test_request_above_what_a_reserve_leaves_is_recognised():
    """Of 5 tokens, 3 must remain. So a request may have 2."""
    assert exceeds_capacity({"rps": RPS}, {"rps": 3}, Reserve(1, 2))
    assert not exceeds_capacity({"rps": RPS}, {"rps": 2}, Reserve(1, 2))
