"""Real processes on one SQLite file: nothing over-admitted, nothing lost, and under demand all there is.

STRESS_SECONDS makes the runs longer.
"""

import os
import time

import pytest

from tests.stress.fleet import Admission, available, fleet_of, most_allowed, most_in_any_window
from zae_limiter import Limit

SECONDS = float(os.environ.get("STRESS_SECONDS", "10"))
THREADS = 8


def test_processes_with_threads_share_out_all_there_is(tmp_path):
    """Four processes of eight threads each admit no more than was offered, and at least 98 % of it."""
    limit = Limit.per_second("rps", 2_000)
    with fleet_of(tmp_path, limit) as fleet:
        fleet.start("threads", 4, THREADS)
        fleet.work_for(SECONDS)
        codes = fleet.exit_codes()
        admissions = fleet.all_admissions()

        assert [0] * 4 == codes
        assert len(admissions) == fleet.consumed()
        assert most_in_any_window(admissions, limit) <= most_allowed(admissions, limit)
        assert len(admissions) >= 0.98 * available(admissions, limit, fleet.until_ns)
        assert fleet.is_sound()


def test_a_process_that_is_killed_breaks_nothing(tmp_path):
    """The others go on, the file is sound, and of each of its threads at most one take went unlogged."""
    limit = Limit.per_second("rps", 300)
    with fleet_of(tmp_path, limit) as fleet:
        fleet.start("threads", 4, THREADS)
        fleet.work_for(SECONDS / 2)
        time.sleep(SECONDS / 4)
        fleet.kill(0)
        killed_ns = time.time_ns()
        codes = fleet.exit_codes()
        admissions = fleet.all_admissions()
        after = [sum(one.before_ns > killed_ns for one in fleet.admissions(number)) for number in range(4)]

        assert [-9, 0, 0, 0] == codes
        assert 0 == after[0]
        assert all(after[1:])
        assert 0 <= fleet.consumed() - len(admissions) <= THREADS
        assert most_in_any_window(admissions, limit) <= most_allowed(admissions, limit)
        assert len(admissions) >= 0.98 * available(admissions, limit, fleet.until_ns) - THREADS
        assert fleet.is_sound()
        assert fleet.takes_one_more()


def test_processes_with_tasks_share_out_all_there_is(tmp_path):
    """Event loops, too: two processes of eight tasks each."""
    limit = Limit.per_second("rps", 1_000)
    with fleet_of(tmp_path, limit) as fleet:
        fleet.start("tasks", 2, 8)
        fleet.work_for(SECONDS / 4)
        codes = fleet.exit_codes()
        admissions = fleet.all_admissions()

        assert [0] * 2 == codes
        assert len(admissions) == fleet.consumed()
        assert most_in_any_window(admissions, limit) <= most_allowed(admissions, limit)
        assert len(admissions) >= 0.98 * available(admissions, limit, fleet.until_ns)


@pytest.mark.parametrize(
    ("times_ms", "expected"),
    [
        ([(0, 1)], 0.99),
        ([(0, 10), (0, 10), (2, 5)], 2.9),
        ([(0, 10), (1_000, 1_010)], 0.9),
        ([(0, 1), (0, 1), (900, 901), (901, 902)], 1.99),
    ],
)
def test_windows_are_counted_as_the_promise_says(times_ms, expected):
    """The most that was taken in any window, less what ten tokens a second earn in it."""
    admissions = [Admission(before * 1_000_000, after * 1_000_000) for before, after in times_ms]

    assert pytest.approx(expected) == most_in_any_window(admissions, Limit.per_second("rps", 10))
