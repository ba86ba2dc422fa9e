"""A program that imports Locust, drives its users, and prints what happened as JSON.

Locust replaces parts of the standard library, so it is never imported into the process of the
tests.
"""

from zae_limiter.locust import RateLimiterUser  # isort: skip - Locust patches what the others import

import json
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import gevent
from locust import between, constant_pacing, constant_throughput
from locust.env import Environment

from zae_limiter import Limit, RateLimitExceeded, ValidationError
from zae_limiter.loadtest import locust_plugin
from zae_limiter.loadtest.locust_target import pacing_s
from zae_limiter.runtime.threads import Parallel

LIMITS = [Limit.custom("rpd", 3, 1, 86_400), Limit.custom("tpd", 1_000, 1, 86_400)]
LOCKED_TICKS = 20


class Caller(RateLimiterUser):
    """A user of a store in memory."""

    url = "memory://"


class Stage:
    """An environment with one user and limits, and the events that the user has fired."""

    def __init__(self, kind: type[RateLimiterUser] = Caller) -> None:
        self.environment = Environment(user_classes=[kind])
        self.events: list[dict[str, Any]] = []
        self.environment.events.request.add_listener(self._note)
        self.user = kind(self.environment)
        self.client = self.user.client
        self.client.limiter.set_system_defaults(LIMITS)

    def _note(self, **fields: Any) -> None:
        self.events.append({**fields, "exception": fields["exception"] and type(fields["exception"]).__name__})

    def acquire(self, amount: int = 1, inside: Callable[[Any], object] = lambda _: None) -> str | None:
        """Acquire, and return the name of the error that the caller gets."""
        try:
            with self.client.acquire("user-1", "api", {"rpd": amount}) as lease:
                inside(lease)
        except (RateLimitExceeded, ValidationError, ConnectionError) as error:
            return type(error).__name__
        return None

    def told(self, raised: str | None = None) -> dict[str, Any]:
        """Return the events and the counts of this stage."""
        measured = locust_plugin.collector_of(self.environment).measurements()
        counts = {
            key.limit_name: [tally.taken, tally.charged, tally.given_back] for key, tally in measured.limits.items()
        }
        return {
            "events": [[one["request_type"], one["name"], one["exception"]] for one in self.events],
            "raised": raised,
            "admitted": measured.admitted,
            "rejected": measured.rejected,
            "errors": dict(measured.errors),
            "counts": counts,
            "left": self.client.limiter.available("user-1", "api", LIMITS),
        }


def disconnect(lease: Any) -> None:
    """Fail while the lease is held."""
    raise ConnectionError


def keep_and_disconnect(lease: Any) -> None:
    """Charge what was taken, and more, and fail."""
    lease.commit()
    lease.adjust(tpd=10)
    raise ConnectionError


def acquires() -> dict[str, Any]:
    """Acquire in every way that matters, each on a stage of its own."""
    ways: dict[str, tuple[int, Callable[[Any], object]]] = {
        "admitted": (1, lambda _: None),
        "adjusted": (1, lambda lease: lease.adjust(tpd=50)),
        "adjusted by 0": (1, lambda lease: lease.adjust(tpd=0)),
        "consumed more": (1, lambda lease: lease.consume(tpd=20)),
        "above the capacity": (4, lambda _: None),
        "given back": (2, disconnect),
        "kept": (2, keep_and_disconnect),
    }
    found = {}
    for name, (amount, inside) in ways.items():
        stage = Stage()
        found[name] = stage.told(stage.acquire(amount, inside))
    stage = Stage()
    stage.acquire(3)
    found["rejected"] = stage.told(stage.acquire(1))
    stage = Stage()
    with suppress(ValidationError), stage.client.acquire("user-1", "api", {"unknown": 1}, name="mine"):
        pass
    found["invalid"] = stage.told()
    return found


def other_calls() -> dict[str, Any]:
    """Make every other call of the session."""
    stage = Stage()
    client = stage.client
    answers = [
        client.available("user-1", "api"),
        client.time_until_available("user-1", "api", {"rpd": 1}),
        client.is_available(60),
        client.set_system_defaults(LIMITS),
        client.get_system_defaults() == (LIMITS, None),
        client.delete_system_defaults(),
        client.set_resource_defaults("api", LIMITS),
        client.get_resource_defaults("api") == LIMITS,
        client.list_resources_with_defaults(),
        client.delete_resource_defaults("api"),
        client.set_limits("user-1", LIMITS),
        client.get_limits("user-1", "api"),
        client.delete_limits("user-1"),
        client.create_entity("parent").id,
        client.create_entity("child", parent_id="parent", cascade=True).parent_id,
        client.get_entity("nobody"),
        [child.id for child in client.get_children("parent")],
        client.delete_entity("parent"),
        client.delete_entity("nobody"),
        client.delete_entity("child", name="end"),
    ]
    return {**stage.told(), "answers": answers}


def facts() -> dict[str, Any]:
    """Return what users of one process share, and what their events have."""
    stage = Stage()
    other = Caller(stage.environment)
    stage.acquire(1)
    return {
        "fields": sorted(stage.events[0]),
        "length": stage.events[0]["response_length"],
        "limiter": type(stage.client._limiter).__name__,
        "shared": stage.client.limiter is other.client.limiter,
        "mode": Parallel("auto")._mode,
        "pacing": [pacing_s(wait) for wait in (constant_pacing(2), constant_throughput(4), between(1, 2))],
    }


def paced() -> dict[str, Any]:
    """Let a paced user be late, and return how many of its calls count from when they were due."""

    class PacedCaller(Caller):
        wait_time = constant_pacing(0.01)

    stage = Stage(PacedCaller)
    stage.acquire(0)
    stage.user.wait_time()
    gevent.sleep(0.05)
    stage.acquire(0)
    stage.acquire(0)
    measured = locust_plugin.collector_of(stage.environment).measurements()
    is_late = stage.events[1]["response_time"] >= 40
    return {"scheduled": measured.scheduled, "is late": is_late, "next wait": stage.user.wait_time()}


def locked() -> dict[str, Any]:
    """Acquire while another process locks the file, until another greenlet has run several times."""
    lock = "import sqlite3, sys; c = sqlite3.connect(sys.argv[1], timeout=60); c.execute('BEGIN IMMEDIATE')"
    lock += "; print('locked', flush=True); sys.stdin.read()"
    with TemporaryDirectory() as folder:
        path = Path(folder, "limits.db")

        class FileCaller(Caller):
            url = f"sqlite:///{path}"

        stage = Stage(FileCaller)
        stage.acquire(1)
        command = [sys.executable, "-c", lock, str(path)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
            assert holder.stdout is not None
            assert holder.stdin is not None
            holder.stdout.readline()
            asking = gevent.spawn(stage.acquire, 1)
            ticks = 0
            while ticks < LOCKED_TICKS and not asking.ready():
                gevent.sleep(0.001)
                ticks += 1
            holder.stdin.close()
        asking.join()
        return {"ticks": ticks, "raised": asking.value, "sqlite": sqlite3.sqlite_version}


PROGRAMS = {one.__name__: one for one in (acquires, other_calls, facts, paced, locked)}

if __name__ == "__main__":
    print(json.dumps({name: program() for name, program in PROGRAMS.items()}))  # noqa: T201 - the test reads it
