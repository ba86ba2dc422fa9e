"""What a load test costs, and when it must stop."""

import pytest

from zae_limiter.loadtest.costs import Ceiling, PageCosts, WorkerTime, capacity_cost, reached_ceiling, worker_usd
from zae_limiter.loadtest.measurements import Measurements


def test_cost_of_a_million_calls_is_that_of_their_units() -> None:
    """As docs/operations/costs.md says: one write unit for each call, and reads at a fifth of the price."""
    measured = Measurements(admitted=1000, write_units=900, refused_write_units=100, read_units=500)

    cost = capacity_cost(measured)

    assert 0.625 + 0.0625 == pytest.approx(cost.usd_per_million_calls)
    assert 0.0006875 == pytest.approx(cost.usd)


def test_cost_without_calls_has_no_price_of_a_million() -> None:
    """There is nothing to divide by."""
    assert capacity_cost(Measurements()).usd_per_million_calls is None


def test_cost_of_workers_is_their_time_and_size() -> None:
    """1,000 s of a function with 1 GB, and an hour of a task with 1 vCPU and 2 GB."""
    assert 0.0166667 == pytest.approx(worker_usd(WorkerTime(lambda_s=1000, lambda_memory_mb=1024)))
    assert 0.04937 == pytest.approx(worker_usd(WorkerTime(fargate_s=3600)))


@pytest.mark.parametrize(
    ("write_units", "lambda_s", "elapsed_s", "reason"),
    [
        (0, 0, 100, None),
        (7_000_000, 0, 100, None),
        (8_000_000, 0, 100, "it has cost USD 5.00, and --max-usd is 5"),
        (7_999_000, 100, 100, "it has cost USD 5.00, and --max-usd is 5"),
        (0, 0, 600, "it has run for 600 s, and --max-duration is 600 s"),
    ],
)
def test_ceiling_is_reached_by_units_workers_or_time(
    write_units: int, lambda_s: float, elapsed_s: float, reason: str | None
) -> None:
    """Units of the table and time of the workers count together."""
    measured, time = Measurements(write_units=write_units), WorkerTime(lambda_s=lambda_s)

    assert reason == reached_ceiling(Ceiling(5.0, 600), measured, time, elapsed_s)


def test_ceiling_includes_what_earlier_runs_of_the_test_have_spent() -> None:
    """A tuning is several runs, and its options hold for all of them."""
    measured = Measurements(write_units=4_000_000)
    by_cost, by_time = Ceiling(5.0, 600, spent_usd=2.5), Ceiling(5.0, 600, spent_s=550)

    assert "it has cost USD 5.00, and --max-usd is 5" == reached_ceiling(by_cost, measured, WorkerTime(), 50)
    assert "it has run for 600 s, and --max-duration is 600 s" == reached_ceiling(by_time, measured, WorkerTime(), 50)


def test_costs_of_a_page_are_those_of_all_its_tests() -> None:
    """Each test on the page measures from zero."""
    costs = PageCosts()
    for write_units in (0, 1_000_000, 2_000_000, 0, 800_000):
        costs.include(Measurements(write_units=write_units))

    assert (1.25, 0.5) == (costs.ended_usd, costs.last_usd)


def test_ceiling_without_a_duration_is_reached_by_cost_alone() -> None:
    """A test may take any time then."""
    assert reached_ceiling(Ceiling(5.0), Measurements(), WorkerTime(), 1e6) is None
