"""The comparison of two revisions: its statistics, its verdicts, and one real measurement of every case."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from bench import against
from bench.against import Interval, interval_of, ratios_of, table

ROOT = Path(__file__).parent.parent.parent


def test_interval_of_forty_ratios_is_between_the_14th_and_the_27th():
    """The ranks of the 95 % interval of a median, as tables of order statistics give them."""
    ratios = [1 + number / 100 for number in range(1, 41)]

    found = interval_of(list(reversed(ratios)))

    assert Interval(pytest.approx(1.205), ratios[13], ratios[26]) == found


@pytest.mark.parametrize("count", [1, 2, 5])
def test_interval_of_few_ratios_is_their_whole_range(count: int):
    """Too few ratios exclude nothing."""
    ratios = [1.0 + number for number in range(count)]

    found = interval_of(ratios)

    assert (ratios[0], ratios[-1]) == (found.low, found.high)


def test_interval_of_six_ratios_leaves_none_out():
    """One of six lies below the median by chance in 1.6 % of all samples, so the ends are the extremes."""
    assert (1.0, 6.0) == (interval_of([3.0, 1.0, 6.0, 2.0, 5.0, 4.0]).low, interval_of([6.0, *range(1, 6)]).high)


@pytest.mark.parametrize(("low", "met"), [(1.02, True), (1.03, True), (1.031, False)])
def test_bound_is_met_if_the_lower_end_is_at_or_below_it(low: float, met: bool):
    """The median itself may be above the bound while the interval reaches down to it."""
    assert met == Interval(1.05, low, 1.08).meets(1.03)


def test_ratios_are_taken_round_by_round_for_cases_of_both_revisions():
    """A case that one revision lacks is left out."""
    rounds = [({"a": 2.0, "new": 1.0}, {"a": 1.0}), ({"a": 3.0, "new": 1.0}, {"a": 2.0})]

    assert {"a": [2.0, 1.5]} == ratios_of(rounds)


def test_table_names_what_is_not_met_and_by_how_much():
    """The verdict is on the lower end of the interval."""
    rounds = [({"slow": 1.133, "same": 1.0}, {"slow": 1.0, "same": 1.0})] * 40

    _, slow, same = table(rounds, 1.03).splitlines()

    assert slow.endswith("1.133 to 1.133  NOT MET, by 10.0%")
    assert same.endswith("1.000 to 1.000  met")


def test_worker_measures_every_case_it_is_asked_for():
    """A real run of few calls: each case gives a positive time."""
    done = subprocess.run(
        [sys.executable, str(against.WORKER), "--calls", "16", "--only", "sync"],
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        check=True,
    )

    found = json.loads(done.stdout)
    assert {"memory sync, one entity", "SQLite sync, one entity", "memory async, cascade"} <= found.keys()
    assert all(time_us > 0 for time_us in found.values())


def test_unknown_revision_is_named():
    """The command ends before it installs anything."""
    with pytest.raises(SystemExit, match="no revision 'no-such-revision'"):
        against.commit_of("no-such-revision")
