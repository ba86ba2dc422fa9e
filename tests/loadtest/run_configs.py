"""Configurations of runs for tests."""

from typing import Any

from zae_limiter.loadtest.run_config import RunConfig, RunMode, RunTarget, WorkerLimits

LIMITS = WorkerLimits("my-app-load-worker", most=100, fewest=1, users_per_worker=10, time_s=300, memory_mb=1769)


def a_run(mode: RunMode = RunMode.DISTRIBUTED, file: str = "locustfiles/simple.py", **options: Any) -> RunConfig:
    target = RunTarget("my-app", "eu-west-1")
    return RunConfig("20260101-000000-abc", mode, file, target, LIMITS, **options)
