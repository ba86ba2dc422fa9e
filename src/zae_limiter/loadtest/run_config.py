"""Describe a run of a load test on AWS: its configuration, its checks, and the names of its objects. Pure."""

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Self

from zae_limiter.core.errors import ValidationError
from zae_limiter.core.location import DynamoLocation, dynamo_url
from zae_limiter.loadtest.costs import Ceiling
from zae_limiter.loadtest.worker_fleet import CONNECT_WITHIN_S

CURRENT_RUN_KEY = "control/current-run.json"
"""Names the run that the master of the service executes."""

LONGEST_UI_S = 3600
"""A run with a web page ends after this many seconds, even if its page is left open."""
INTERRUPTED = "it was interrupted"
"""Why a run was stopped, if its user or its service did so."""
WORKER_TIME_USED = "the time of the Lambda function was nearly used up"
KEPT_SHARE = 0.1
"""A worker stops when this share of its time is left, so that it can report."""


class RunMode(StrEnum):
    """Where the users of a run are, and what controls them."""

    HEADLESS = "headless"
    """All users in one Lambda function."""
    DISTRIBUTED = "distributed"
    """A master in the service, users in Lambda functions."""
    STANDALONE = "standalone"
    """All users in the task of the service."""
    UI = "ui"
    """A master with a web page; its user decides how many users there are."""


@dataclass(frozen=True, slots=True)
class RunTarget:
    """The limiter under test."""

    name: str
    region: str
    endpoint_url: str | None = None

    @property
    def url(self) -> str:
        """The URL of its table."""
        return dynamo_url(DynamoLocation(self.name, self.region, self.endpoint_url))


@dataclass(frozen=True, slots=True)
class WorkerLimits:
    """The function that runs workers: how many, for how long, and with how much memory."""

    function_name: str
    most: int
    fewest: int
    users_per_worker: int
    time_s: int
    memory_mb: int


@dataclass(frozen=True, slots=True)
class RunConfig:
    """The content of ``runs/{run_id}/run.json``. ``max_duration_s`` is None if only the duration ends the run.

    ``spent_usd`` and ``spent_s`` are those of earlier runs of the same tuning.
    """

    run_id: str
    mode: RunMode
    file: str
    target: RunTarget
    limits: WorkerLimits
    classes: tuple[str, ...] = ()
    users: int = 20
    spawn_rate: float = 10.0
    duration_s: int = 60
    workers: int = 1
    max_usd: float = 5.0
    max_duration_s: int | None = None
    spent_usd: float = 0.0
    spent_s: float = 0.0
    connect_within_s: float = CONNECT_WITHIN_S

    def to_dict(self) -> dict[str, Any]:
        """Return the fields, ready for JSON."""
        return dataclasses.asdict(self) | {"mode": str(self.mode), "classes": list(self.classes)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Return the configuration of `to_dict`; unknown fields of a newer client are ignored."""
        known = {field.name: data[field.name] for field in dataclasses.fields(cls) if field.name in data}
        known["mode"] = RunMode(known["mode"])
        known["target"] = RunTarget(**known["target"])
        known["limits"] = WorkerLimits(**known["limits"])
        known["classes"] = tuple(known["classes"])
        return cls(**known)

    @property
    def ceiling(self) -> Ceiling:
        """What the run may cost and how long it may take; Locust ends it by itself after its duration."""
        longest_s = LONGEST_UI_S if self.mode is RunMode.UI else None
        return Ceiling(self.max_usd, self.max_duration_s or longest_s, self.spent_usd, self.spent_s)

    def key(self, name: str) -> str:
        """Return the key of one of the run's objects."""
        return f"runs/{self.run_id}/{name}"


def run_key(run_id: str) -> str:
    """Return the key of a run's configuration."""
    return f"runs/{run_id}/run.json"


def progress_name(worker_id: str) -> str:
    """Return the name of the object in which a worker, or the master, reports its progress."""
    return f"progress-{worker_id}.json"


def failure_name(worker_id: str) -> str:
    """Return the name of the object in which a worker, or the master, reports why it failed."""
    return f"failure-{worker_id}.json"


def stop_name(worker_id: str | None = None) -> str:
    """Return the name of the object whose existence ends one worker, or the whole run."""
    return "stop" if worker_id is None else f"stop-{worker_id}"


RESULT_NAME = "result.json"
MASTER_ID = "master"
"""The id under which the master reports progress and failures."""


def check_duration(duration_s: int, worker_time_s: int, mode: RunMode) -> None:
    """Require that a run in one Lambda function ends before its function does.

    Raises:
        ValidationError: The duration is above 90 % of the function's time.
    """
    longest_s = int((1 - KEPT_SHARE) * worker_time_s)
    if mode is RunMode.HEADLESS and duration_s > longest_s:
        reason = (
            f"one Lambda function can run for at most {longest_s} s of its {worker_time_s} s; "
            "pass --workers N, whose workers are replaced in time, or --standalone"
        )
        raise ValidationError("duration", duration_s, reason)


def check_workers(workers: int, most: int) -> None:
    """Require that a stack allows this many workers.

    Raises:
        ValidationError: It allows fewer.
    """
    if workers > most:
        deploy = f"zae-limiter loadtest deploy -n NAME -C DIR --max-workers {workers}"
        reason = f"the stack allows at most {most}; raise it with: {deploy}"
        raise ValidationError("workers", workers, reason)


def check_classes(named: Iterable[str], existing: Iterable[str], file: str) -> None:
    """Require that a locust file has all these classes.

    Raises:
        ValidationError: A class does not exist; the message lists those that do.
    """
    known = sorted(existing)
    unknown = sorted(set(named) - set(known))
    if unknown:
        listed = ", ".join(known) or "no user class"
        raise ValidationError("class", ", ".join(unknown), f"{file} has: {listed}")


def check_file(file: str, existing: Iterable[str]) -> None:
    """Require that a locust file was pushed.

    Raises:
        ValidationError: The file is not in the bucket; the message lists those that are.
    """
    known = sorted(name for name in existing if name.endswith(".py"))
    if file not in known:
        listed = ", ".join(known) or "no file"
        reason = f"was not pushed; the bucket has: {listed}. Push with: zae-limiter loadtest push -n NAME -C DIR"
        raise ValidationError("file", file, reason)
