"""The native driver on real stores, for fractions of a second."""

import time
from pathlib import Path
from typing import Any

import pytest

from zae_limiter import (
    AmountExceedsCapacityError,
    Limit,
    NoLimitsInForceError,
    RateLimiter,
    Repository,
    SyncRepository,
    ValidationError,
)
from zae_limiter.loadtest.native_driver import NativeProgress, NativeRun, Workload
from zae_limiter.loadtest.recorder import Recorder
from zae_limiter.loadtest.report import LatencyBasis, report_of

GENEROUS = [Limit.per_second("rps", 1_000_000)]
SCARCE = [Limit.per_second("rps", 100)]


async def test_closed_loop_in_memory_measures_service_time() -> None:
    """Users call without a pause, and nothing is scheduled."""
    run = NativeRun(Workload({"rps": 1}, limits=GENEROUS, duration_s=0.3, users=3))

    report = report_of(await run.on_url("memory://"))

    assert report.measured.admitted > 3
    assert LatencyBasis.SERVICE == report.latency_basis
    assert report.held


async def test_open_loop_sends_every_call_of_its_schedule() -> None:
    """Latencies count from the schedule, and the number of calls does not depend on the speed of the store."""
    run = NativeRun(Workload({"rps": 1}, limits=GENEROUS, duration_s=0.5, rate=100))

    report = report_of(await run.on_url("memory://"))

    assert 50 == report.measured.admitted + report.measured.unsent
    assert LatencyBasis.SCHEDULED == report.latency_basis


class StallingRecorder(Recorder):
    """A recorder that blocks the event loop for 0.3 s after the tenth call."""

    def admitted(self, *call: Any, **named: Any) -> None:
        super().admitted(*call, **named)
        if self.so_far()[0] == 10:
            time.sleep(0.3)


async def test_open_loop_of_a_blocked_driver_counts_the_wait() -> None:
    """A stall of the event loop delays all calls that were due in it: no coordinated omission."""
    run = NativeRun(Workload({"rps": 1}, limits=GENEROUS, duration_s=0.6, rate=100), StallingRecorder())

    latencies = (await run.on_url("memory://")).latencies["ACQUIRE"]

    sizes = [size for size, count in latencies.counts.items() for _ in range(count)]
    assert sum(1.01**size > 50 for size in sizes) >= 20
    assert latencies.longest_ms > 250


async def test_open_loop_that_is_too_fast_reports_unsent_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    """A driver at its limit must not look like a slow store."""
    monkeypatch.setattr("zae_limiter.loadtest.native_driver._GRACE_S", 0.0)
    run = NativeRun(Workload({"rps": 1}, limits=GENEROUS, duration_s=0.2, rate=10_000_000))

    measured = await run.on_url("memory://")

    assert 2_000_000 == measured.unsent + measured.attempts
    assert measured.unsent > 0


async def test_driver_with_cascade_creates_children_below_one_parent(tmp_path: Path) -> None:
    """A second run uses the same entities."""
    url = f"sqlite:///{tmp_path / 'load.db'}"
    workload = Workload({"rps": 1}, limits=SCARCE, duration_s=0.2, entities=2, cascade=True, adjust=True)

    await NativeRun(workload).on_url(url)
    measured = await NativeRun(workload).on_url(url)

    with SyncRepository.open(url) as repository:
        children = [child.id for child in repository.get_children("loadtest")]
    assert ["loadtest-child-1", "loadtest-child-2"] == sorted(children)
    assert [True] == [tally.is_ancestor for key, tally in measured.limits.items() if key.entity_id == "loadtest"]
    assert report_of(measured).held


async def test_driver_without_limits_in_a_file_says_so(tmp_path: Path) -> None:
    """A command can store them; in memory no command could, so there the driver does."""
    with pytest.raises(NoLimitsInForceError):
        await NativeRun(Workload({"rps": 1}, duration_s=0.1)).on_url(f"sqlite:///{tmp_path / 'load.db'}")

    measured = await NativeRun(Workload({"rps": 1}, duration_s=0.1)).on_url("memory://")

    assert [Limit.per_second("rps", 1000)] == list(next(iter(measured.limits.values())).limits)


async def test_driver_in_memory_stores_a_limit_for_calls_that_take_nothing() -> None:
    """A limit of nothing is invalid."""
    measured = await NativeRun(Workload({"rps": 0}, duration_s=0.05, users=1)).on_url("memory://")

    assert measured.admitted > 0
    assert [] == list(measured.errors)


@pytest.mark.parametrize(
    ("consume", "error"), [({"rps": 101}, AmountExceedsCapacityError), ({"rpm": 1}, ValidationError)]
)
async def test_driver_of_an_impossible_call_does_not_begin(consume: dict[str, int], error: type[Exception]) -> None:
    """Otherwise every call would fail."""
    with pytest.raises(error):
        await NativeRun(Workload(consume, limits=SCARCE)).on_url("memory://")


@pytest.mark.parametrize("wrong", [{"entities": 0}, {"users": 0}, {"rate": -1.0}, {"duration_s": float("inf")}])
def test_workload_with_a_wrong_number_is_refused(wrong: dict[str, float]) -> None:
    """The error names it."""
    with pytest.raises(ValidationError, match="above 0"):
        Workload({"rps": 1}, **wrong)  # type: ignore[arg-type]  # the values are wrong on purpose


@pytest.mark.parametrize("rate", [None, 200.0])
async def test_driver_that_is_stopped_ends_early_with_its_measurements(rate: float | None) -> None:
    """Ctrl-C ends a test with a report."""
    seen: list[NativeProgress] = []
    run = NativeRun(Workload({"rps": 1}, limits=GENEROUS, duration_s=3600, rate=rate), listener=seen.append)

    def stop_later(progress: NativeProgress) -> None:
        seen.append(progress)
        run.stop.set()

    run.listener = stop_later
    measured = await run.on_url("memory://")

    assert measured.admitted >= seen[0].admitted > 0
    assert 0 == measured.unsent


async def test_driver_counts_errors_of_the_store() -> None:
    """A store that is closed meanwhile fails every call, and the test goes on."""
    repository = await Repository.open("memory://")
    limiter = RateLimiter(repository)
    await repository.set_system_defaults(SCARCE)
    await repository.close()

    measured = await NativeRun(Workload({"rps": 1}, duration_s=0.1, users=1)).on_limiter(limiter)

    assert {"ACQUIRE RepositoryClosedError"} == set(measured.errors)
    assert measured.errors.total() == measured.attempts
