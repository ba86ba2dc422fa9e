"""An acquire from three buckets takes from all or from none, whatever fails, and wherever its caller is cancelled."""

import gc
import warnings
from collections.abc import Iterator

import pytest

from tests.model import __main__ as command
from tests.model.choices import every_run
from tests.model.several import ADMITTED, CASES, FAILED, GIVEN_BACK, Case, explore_several
from tests.mutations.catalogue import mutation_named

# A process may die before a coroutine begins, and the garbage collector may run at any time.
pytestmark = pytest.mark.filterwarnings("ignore:coroutine '_completed' was never awaited:RuntimeWarning")

NOTICED = {
    "create over another": "networked, cold",
    "take that is not counted": "networked, warm",
    "credit sent again": "networked, given back",
    "credit of a take that was not seen": "networked, warm",
    "lease that credits twice": "direct, given back",
    "settlement repeated as a whole after a cancellation": "networked, given back",
    "take of a cancelled caller is kept": "networked, warm",
    "other buckets not credited back": "direct, cold",
    "one of the other buckets not credited back": "networked, warm",
    "buckets of a cancelled caller not credited back": "networked, warm",
    "bucket that occurs twice charged once": "networked, also",
    "one level not charged": "networked, warm",
    "bucket across resources not charged": "direct, cold",
}
"""Broken rules of an acquire from several buckets, and a case that notices each."""


@pytest.fixture(autouse=True)
def collected() -> Iterator[None]:
    """Collect what dead processes have left: coroutines that never began, of which Python warns."""
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        gc.collect()


@pytest.mark.parametrize("case", CASES, ids=str)
def test_every_combination_of_two_faults_conserves_the_tokens_of_each_bucket(case: Case) -> None:
    """An admitted request is charged to every bucket. Any other is charged to none, unless a fault explains it."""
    explored = explore_several(case)

    assert explored.violation is None
    assert {GIVEN_BACK if case.gives_back else ADMITTED, FAILED} == explored.told.keys()
    assert explored.died > 5


@pytest.mark.parametrize(("name", "case"), NOTICED.items(), ids=NOTICED)
def test_broken_rule_of_several_buckets_violates_the_conservation(name: str, case: str) -> None:
    """Every rule prevents something that a run with at most two faults shows."""
    (chosen,) = [one for one in CASES if one.name == case]
    with mutation_named(name).applied():
        explored = explore_several(chosen)

    assert explored.violation is not None


def test_two_faults_of_a_take_with_a_bypass_leave_nothing_counted_for_a_cancelled_caller() -> None:
    """Use of a call that was cancelled is not counted, whether a bucket was charged for it or not."""
    (chosen,) = [one for one in CASES if one.name == "networked, bypass"]

    assert explore_several(chosen, 2).violation is None


def test_every_run_yields_each_combination_of_choices_once() -> None:
    """With one deviation of three choices with three options, there are seven runs."""
    runs = []
    for choices in every_run(1):
        runs.append("".join(choices.choose("a", "b", "c") for _ in range(3)))

    assert ["aaa", "aab", "aac", "aba", "aca", "baa", "caa"] == sorted(runs)


def test_command_prints_one_line_per_case_and_returns_0(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The exit code is 0 if every combination of faults conserves the tokens."""
    monkeypatch.setattr(command, "CASES", [one for one in CASES if one.name in ("direct, warm", "direct, cold")])

    assert 0 == command.main(["--several"])
    assert ["direct, warm", "direct, cold"] == [line[:12] for line in capsys.readouterr().out.splitlines()]
