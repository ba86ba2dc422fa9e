"""Measure the steps of a tuning on AWS: run after run, each in one Lambda function. Blocking."""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from zae_limiter.loadtest.aws_run import AwsLoadTest, new_run_id
from zae_limiter.loadtest.costs import WorkerTime, capacity_cost, worker_usd
from zae_limiter.loadtest.load_test_error import LoadTestError
from zae_limiter.loadtest.measurements import Latencies, Measurements
from zae_limiter.loadtest.recorder import ACQUIRE, RATE_LIMITED
from zae_limiter.loadtest.run_config import KEPT_SHARE, RunMode
from zae_limiter.loadtest.tuning import (
    FEWEST_REQUESTS,
    TuningGoal,
    TuningResult,
    TuningStep,
    next_baseline_s,
    next_users,
    tuned,
)

_MOST_PARTS = 10
"""A baseline has at most this many parts, because a locust file may make no calls at all."""


@dataclass(frozen=True, slots=True)
class TuningPlan:
    """The users to tune: their classes in a locust file, the goal, and how many seconds to measure.

    ``max_usd`` and ``max_duration_s`` are for all runs together; None for any time.
    """

    file: str
    classes: tuple[str, ...]
    goal: TuningGoal
    step_s: int
    baseline_s: int
    max_usd: float
    max_duration_s: int | None = None


class AwsTuning:
    """A tuning of the workers of one load test."""

    def __init__(self, test: AwsLoadTest, plan: TuningPlan, listener: Callable[[str], None]) -> None:
        """Prepare a tuning.

        Raises:
            ValidationError: The file or a class does not exist, or a step is too long for the function.
            LoadTestError: Locust cannot load the file.
        """
        self._test = test
        self._plan = plan
        self._listener = listener
        longest_s = max(plan.step_s, plan.baseline_s)
        self._config = test.configure(
            RunMode.HEADLESS,
            plan.file,
            classes=plan.classes,
            duration_s=longest_s,
            max_usd=plan.max_usd,
            max_duration_s=plan.max_duration_s,
        )
        self._spent_usd = 0.0
        self._begun_s = time.monotonic()

    def tune(self) -> TuningResult:
        """Measure the baseline, then bisect.

        Raises:
            LoadTestError: A run failed, or the users make too few calls.
        """
        baseline = self._baseline()
        steps: list[TuningStep] = []
        while (users := next_users(baseline, steps, self._plan.goal)) is not None:
            self._listener(f"measuring {users} users for {self._plan.step_s} s")
            steps.append(step_of(self._measure(users, self._plan.step_s), users, self._plan.step_s))
        return tuned(baseline, steps, self._plan.goal)

    def _baseline(self) -> TuningStep:
        """Measure one user until there are enough requests."""
        longest_s = int((1 - KEPT_SHARE) * self._config.limits.time_s)
        measured, measured_s = Measurements(), 0
        next_s = self._plan.baseline_s
        for _ in range(_MOST_PARTS):
            self._listener(f"measuring the baseline, 1 user for {next_s} s")
            measured.merge(self._measure(1, next_s))
            measured_s += next_s
            more_s = next_baseline_s(calls_of(measured).count, measured_s, longest_s)
            if more_s is None:
                return step_of(measured, 1, measured_s)
            next_s = more_s
        made = calls_of(measured).count
        raise LoadTestError(f"one user made {made} calls in {measured_s} s; a baseline needs {FEWEST_REQUESTS}")

    def _measure(self, users: int, duration_s: int) -> Measurements:
        begun_s = time.monotonic()
        config = replace(
            self._config,
            run_id=new_run_id(),
            users=users,
            spawn_rate=float(users),
            duration_s=duration_s,
            spent_usd=self._spent_usd,
            spent_s=begun_s - self._begun_s,
        )
        result = self._test.run(config, lambda _: None)
        if result.stopped is not None:
            raise LoadTestError(f"the tuning was stopped with {users} users: {result.stopped}")
        ran = WorkerTime(lambda_s=time.monotonic() - begun_s, lambda_memory_mb=config.limits.memory_mb)
        self._spent_usd += capacity_cost(result.measurements).usd + worker_usd(ran)
        return result.measurements


def step_of(measured: Measurements, users: int, duration_s: int) -> TuningStep:
    """Return what a run says about its number of users."""
    calls = calls_of(measured)
    return TuningStep(users, calls.count, calls.percentile_ms(0.5) or 0.0, calls.count / duration_s)


def calls_of(measured: Measurements) -> Latencies:
    """Return the latencies of all acquires; those of all calls if there are none."""
    acquires = [measured.latencies[name] for name in (ACQUIRE, RATE_LIMITED) if name in measured.latencies]
    every = Latencies()
    for latencies in acquires or measured.latencies.values():
        every.merge(latencies)
    return every
