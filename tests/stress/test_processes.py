"""Real processes on one SQLite file admit no more than the limit, lose nothing, and use nearly all of the offer.

STRESS_SECONDS makes the runs longer.
"""

import os
import time

import pytest

from tests.stress.fleet import (
    Admission,
    Rejection,
    demand_s,
    fleet_of,
    most_allowed,
    most_in_any_window,
    offered,
    taken,
)
from zae_limiter import Limit

SECONDS = float(os.environ.get("STRESS_SECONDS", "10"))
THREADS = 8


@pytest.mark.parametrize(
    ("kind", "processes", "rate", "seconds"), [("threads", 4, 2_000, SECONDS), ("tasks", 2, 1_000, SECONDS / 4)]
)
def test_processes_under_demand_admit_98_percent_of_the_offer_and_no_more(tmp_path, kind, processes, rate, seconds):
    """Each process has eight threads or tasks."""
    # A machine that cannot create enough demand shows nothing; the limit is lowered until it can.
    for halvings in range(8):
        limit = Limit.per_second("rps", rate >> halvings)
        with fleet_of(tmp_path / str(halvings), limit) as fleet:
            fleet.start(kind, processes, THREADS)
            fleet.work_for(seconds)
            codes = fleet.exit_codes()
            admissions, rejections = fleet.all_admissions(), fleet.all_rejections()

            assert [0] * processes == codes
            assert len(admissions) == fleet.consumed()
            assert most_in_any_window(admissions, limit) <= most_allowed(admissions, limit)
            assert fleet.is_sound()
        if demand_s(rejections) > seconds / 2:
            break

    assert taken(admissions, rejections, limit) >= 0.98 * offered(rejections, limit)


def test_killed_process_leaves_the_file_sound_and_the_others_working(tmp_path):
    """At most one take per thread of the killed process is missing in its log."""
    limit = Limit.per_second("rps", 300)
    with fleet_of(tmp_path, limit) as fleet:
        fleet.start("threads", 4, THREADS)
        fleet.work_for(SECONDS / 4)
        fleet.kill(0)
        killed_ns = time.time_ns()
        time.sleep(SECONDS / 4)
        fleet.work_until(lambda: all(admitted_since(fleet, killed_ns)[1:]) and fleet.all_rejections())
        codes = fleet.exit_codes()
        admissions, rejections = fleet.all_admissions(), fleet.all_rejections()
        after = admitted_since(fleet, killed_ns)

        assert [-9, 0, 0, 0] == codes
        assert 0 == after[0]
        assert all(after[1:])
        assert 0 <= fleet.consumed() - len(admissions) <= THREADS
        assert most_in_any_window(admissions, limit) <= most_allowed(admissions, limit)
        assert taken(admissions, rejections, limit) >= 0.98 * offered(rejections, limit) - THREADS
        assert fleet.is_sound()
        assert fleet.takes_one_more()


def admitted_since(fleet, since_ns):
    """Return how many acquires each process began after a time and was admitted."""
    return [sum(one.before_ns > since_ns for one in fleet.admissions(number)) for number in range(4)]


@pytest.mark.parametrize(
    ("times_ms", "expected"),
    [
        ([(0, 1)], 0.99),
        ([(0, 10), (0, 10), (2, 5)], 2.9),
        ([(0, 10), (1_000, 1_010)], 0.9),
        ([(0, 1), (0, 1), (900, 901), (901, 902)], 1.99),
    ],
)
def test_largest_window_counts_admissions_less_their_earnings(times_ms, expected):
    """The limit of this example earns ten tokens per second."""
    admissions = [Admission(before * 1_000_000, after * 1_000_000) for before, after in times_ms]

    assert pytest.approx(expected) == most_in_any_window(admissions, Limit.per_second("rps", 10))


@pytest.mark.parametrize(
    ("admitted_ms", "rejected_ms", "expected"),
    [
        (range(10), [50, 151], (10, 11)),
        ([*range(10), 100], [50, 151], (11, 11)),
        ([*range(12), 100], [50, 151], (11, 11)),
        ([*range(10), 100, 200], [50, 151], (11, 11)),
        (range(10), [50, 151, 5_151], (10, 21)),
    ],
)
def test_offer_between_rejections_is_a_full_bucket_plus_its_earnings(admitted_ms, rejected_ms, expected):
    """A bucket of ten earns ten per second, is full at first, and earns at most ten while there are no requests."""
    limit = Limit.per_second("rps", 10)
    admissions = [Admission(one * 1_000_000, (one + 1) * 1_000_000) for one in admitted_ms]
    rejections = [Rejection((one - 1) * 1_000_000, one * 1_000_000, 10) for one in rejected_ms]

    assert pytest.approx(expected) == (taken(admissions, rejections, limit), offered(rejections, limit))
