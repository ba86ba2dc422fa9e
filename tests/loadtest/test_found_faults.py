"""A faulty limiter is found by its report, and a correct one is not: real limiters in simulated time."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.dynamodb.trees import AsyncTree, SyncTree
from tests.loadtest.simulated_clock import SimulatedClock
from tests.loadtest.simulated_test import Losing, OverAdmitting, SimulatedUsers
from zae_limiter import Limit, SyncRateLimiter, SyncRepository
from zae_limiter.loadtest.promise_check import DemandState, Verdict
from zae_limiter.loadtest.report import LoadReport, report_of

PROMISED = Limit.per_second("tps", 1000)
OVER_BY_2 = Limit.per_second("tps", 1020)
CONSUME = {"tps": 10}
DURATION_S = 25.0

TREES: dict[str, Callable[[], Any]] = {"sync": SyncTree, "async": AsyncTree}
Opener = Callable[[Limit], Any]
"""Opens a limiter; the async one is called through a loop of its own."""


@pytest.fixture
def clock() -> SimulatedClock:
    return SimulatedClock()


@pytest.fixture(params=[("memory", "sync"), ("memory", "async"), ("sqlite", "sync")], ids="-".join)
def opened(request: pytest.FixtureRequest, clock: SimulatedClock, tmp_path: Path) -> Iterator[Opener]:
    """Open a limiter with this limit in force; a file is shared by all that are opened."""
    store, kind = request.param
    url = "memory://" if store == "memory" else f"sqlite:///{tmp_path / 'load.db'}"
    with ExitStack() as stack:
        tree = stack.enter_context(TREES[kind]())

        def open_with(limit: Limit) -> Any:
            repository = tree.open(url, clock=clock)
            stack.callback(repository.close)
            repository.set_system_defaults([limit])
            return tree.limiter(repository)

        yield open_with


def shares(report: LoadReport) -> list[float]:
    return [one.stretch.share for one in report.limits if one.stretch is not None]


def test_report_of_a_limiter_that_admits_2_percent_too_much_fails(opened: Opener, clock: SimulatedClock) -> None:
    """It names the limit and the window."""
    limiter = OverAdmitting(opened(OVER_BY_2), {"tps": PROMISED})

    report = report_of(SimulatedUsers([limiter], clock, CONSUME).run(DURATION_S))

    assert not report.held
    assert [Verdict.EXCEEDED] == [one.verdict for one in report.limits]


def test_report_of_a_limiter_that_loses_5_percent_fails(opened: Opener, clock: SimulatedClock) -> None:
    """It names the limit and its share."""
    report = report_of(SimulatedUsers([Losing(opened(PROMISED))], clock, CONSUME).run(DURATION_S))

    assert not report.held
    assert [Verdict.UNDERUSED] == [one.verdict for one in report.limits]
    assert 0.93 < shares(report)[0] < 0.97


@pytest.mark.parametrize(("adjusts", "fails"), [(0.0, 0.0), (0.5, 0.0), (0.2, 0.15)])
def test_report_of_the_limiter_itself_holds(
    opened: Opener, clock: SimulatedClock, adjusts: float, fails: float
) -> None:
    """Also with adjustments, and with calls that fail and give everything back."""
    users = SimulatedUsers([opened(PROMISED)], clock, CONSUME, adjusts=adjusts, fails=fails)

    report = report_of(users.run(DURATION_S * (2 if fails else 1)))

    assert report.held, report.limits
    assert [DemandState.JUDGED] == [one.demand for one in report.limits]
    assert 0.98 < shares(report)[0] < 1.02


@pytest.mark.parametrize("adjusts", [0.0, 0.5])
def test_report_of_two_processes_on_a_file_holds(clock: SimulatedClock, tmp_path: Path, adjusts: float) -> None:
    """Each sees half of the calls; merged, they see what the limit offers."""
    with ExitStack() as stack:
        limiters = []
        for _ in range(2):
            repository = stack.enter_context(SyncRepository.open(f"sqlite:///{tmp_path / 'load.db'}", clock=clock))
            repository.set_system_defaults([PROMISED])
            limiters.append(SyncRateLimiter(repository))
        measured = SimulatedUsers(limiters, clock, CONSUME, adjusts=adjusts).run(DURATION_S)

    report = report_of(measured)

    assert report.held, report.limits
    assert [DemandState.JUDGED] == [one.demand for one in report.limits]


def test_report_of_two_processes_that_do_not_share_a_limit_fails(clock: SimulatedClock) -> None:
    """Two limiters in memory admit twice as much."""
    with ExitStack() as stack:
        limiters = []
        for _ in range(2):
            repository = stack.enter_context(SyncRepository.open("memory://", clock=clock))
            repository.set_system_defaults([PROMISED])
            limiters.append(SyncRateLimiter(repository))
        measured = SimulatedUsers(limiters, clock, CONSUME).run(DURATION_S)

    assert [Verdict.EXCEEDED] == [one.verdict for one in report_of(measured).limits]


@pytest.mark.parametrize("faulty", [False, True])
def test_report_of_a_cascade_checks_the_shared_parent(opened: Opener, clock: SimulatedClock, faulty: bool) -> None:
    """The parent is under demand, its children are not; a parent that loses tokens is found."""
    limiter = opened(PROMISED)
    limiter.create_entity("project")
    children = [f"key-{number}" for number in range(4)]
    for child in children:
        limiter.create_entity(child, parent_id="project", cascade=True)
    called = Losing(limiter) if faulty else limiter

    report = report_of(SimulatedUsers([called], clock, CONSUME, children).run(DURATION_S))

    parent = next(one for one in report.limits if one.key.entity_id == "project")
    assert faulty is not report.held
    assert DemandState.JUDGED == parent.demand
    assert (Verdict.UNDERUSED if faulty else Verdict.HELD) == parent.verdict
