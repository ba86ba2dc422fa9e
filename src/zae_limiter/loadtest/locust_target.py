"""Decide which limiter a Locust user calls, and how its users are paced. Nothing here imports Locust."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import FunctionType

from zae_limiter.core.location import DynamoLocation, dynamo_url

RUN_URL_VARIABLE = "ZAE_LOADTEST_URL"
"""The URL of a run that a command has started. It takes precedence over what a Locust file says."""
NO_TARGET = (
    "No limiter was selected. Pass --host NAME to Locust, set stack_name or url in the user class, "
    "or set TARGET_STACK_NAME or ZAE_LIMITER_URL"
)
_DEFAULT_REGION = "us-east-1"
# A wait time that Locust's `constant_pacing` and `constant_throughput` return, and its only variable.
_PACED = "constant_pacing.<locals>.wait_time_func"
_INTERVAL = "wait_time"


@dataclass(frozen=True, slots=True)
class TargetChoice:
    """What a user class and the options of Locust say about the limiter; None if they say nothing."""

    stack_name: str | None
    region: str | None
    url: str | None
    host: str | None


def target_url(choice: TargetChoice, environ: Mapping[str, str]) -> str | None:
    """Return the URL of the limiter, None if nothing selects one. A host is the name of a stack, or a URL."""
    chosen = environ.get(RUN_URL_VARIABLE) or choice.url
    if chosen:
        return chosen
    name = choice.stack_name or choice.host or environ.get("TARGET_STACK_NAME")
    if not name:
        return environ.get("ZAE_LIMITER_URL") or None
    if "://" in name:
        return name
    region = choice.region or environ.get("TARGET_REGION") or _DEFAULT_REGION
    return dynamo_url(DynamoLocation(name, region, None))


def pacing_s(wait_time: object) -> float | None:
    """Return the seconds between two tasks of a paced user; None if its wait time is of another kind."""
    if not isinstance(wait_time, FunctionType) or wait_time.__qualname__ != _PACED:
        return None
    names, cells = wait_time.__code__.co_freevars, wait_time.__closure__ or ()
    interval = dict(zip(names, cells, strict=True)).get(_INTERVAL)
    return None if interval is None else float(interval.cell_contents)


class Schedule:
    """The times at which the tasks of one paced user are due.

    A task that begins late does not move the tasks after it. The user then skips its waits until it
    has caught up. The first task is due when it begins, and the schedule starts when it has ended.
    """

    def __init__(self, interval_s: float, clock: Callable[[], float] = time.time) -> None:
        self._interval_s = interval_s
        self._clock = clock
        self._due_s: float | None = None
        self._is_new = True

    def wait_s(self) -> float:
        """Return the seconds until the next task is due; 0 if it is late."""
        now_s = self._clock()
        self._due_s = (now_s if self._due_s is None else self._due_s) + self._interval_s
        self._is_new = True
        return max(0.0, self._due_s - now_s)

    def take_due_s(self) -> float | None:
        """Return the time at which this task was due; None if a call of it has asked before."""
        if not self._is_new:
            return None
        self._is_new = False
        return self._clock() if self._due_s is None else self._due_s
