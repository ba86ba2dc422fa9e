"""Run Locust as one node of a test on AWS: ``python -m zae_limiter.loadtest.locust_node``, with Locust's arguments.

It adds to Locust what the parent process needs. A worker sends its id to the master. A master
writes its state and the ids of connected workers to a file. Each node ends with its parent.
"""

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gevent
import gevent.socket
import locust
import locust.main
from locust.runners import STATE_MISSING, STATE_RUNNING, STATE_STOPPED, MasterRunner, WorkerRunner

WORKER_VARIABLE = "ZAE_LOADTEST_WORKER"
"""The id of this worker."""
MASTER_STATE_VARIABLE = "ZAE_LOADTEST_MASTER_STATE"
"""The path to which a master writes its state."""
LIFELINE_VARIABLE = "ZAE_LOADTEST_LIFELINE"
"""The number of an inherited pipe that closes when the parent ends."""

_WORKER_FIELD = "zae_worker"
_WRITE_EVERY_S = 0.5
_SHUTDOWN_S = 10.0


class MasterState:
    """The state of a master as its parent sees it."""

    def __init__(self, runner: MasterRunner, path: Path) -> None:
        self._runner = runner
        self._path = path
        self._ids: dict[str, str] = {}
        self._started_s: float | None = None

    def begin(self, **_: Any) -> None:
        """Note when the test started; a test that is resumed started before."""
        if self._started_s is None:
            self._started_s = time.monotonic()

    def hear(self, client_id: str, data: dict[str, Any], **_: Any) -> None:
        """Note the id that a worker sends with its report."""
        if _WORKER_FIELD in data:
            self._ids[client_id] = data[_WORKER_FIELD]

    def resume(self, **_: Any) -> None:
        """Continue a test that stopped because the last worker was lost. A web page has its own button for that."""
        if (
            self._run_time_s is not None
            and self._runner.state == STATE_STOPPED
            and self._started_s is not None
            and not self._is_over()
        ):
            # Locust adds the worker after this event.
            gevent.spawn_later(_WRITE_EVERY_S, self._start_again)

    def _start_again(self) -> None:
        # In this state, Locust adds users to a test instead of starting another one.
        self._runner.update_state(STATE_RUNNING)
        self._runner.start(self._runner.target_user_count, self._runner.spawn_rate)

    def keep_written(self) -> None:
        """Write the state again and again."""
        while True:
            self._write()
            gevent.sleep(_WRITE_EVERY_S)

    @property
    def _run_time_s(self) -> float | None:
        """The duration of the test; None if a web page decides."""
        options = self._runner.environment.parsed_options
        return None if options is None else options.run_time

    def _is_over(self) -> bool:
        """Whether the test ends now or has ended, so that a worker that leaves is not replaced."""
        if self._run_time_s is None:
            return False
        return self._started_s is not None and time.monotonic() - self._started_s >= self._run_time_s - _WRITE_EVERY_S

    def _write(self) -> None:
        connected = [one.id for one in self._runner.clients.all if one.state != STATE_MISSING]
        state = {
            "state": self._runner.state,
            "target_users": self._runner.target_user_count,
            "users": self._runner.user_count,
            "is_over": self._is_over(),
            "workers": [self._ids[client_id] for client_id in connected if client_id in self._ids],
        }
        fresh = self._path.with_suffix(".new")
        fresh.write_text(json.dumps(state), encoding="utf-8")
        fresh.replace(self._path)


def main() -> None:
    """Run Locust with these additions."""
    # Locust's events and its main function have no types.
    events: Any = locust.events
    run_locust: Any = locust.main.main
    if lifeline := os.environ.get(LIFELINE_VARIABLE):
        gevent.spawn(_end_with_parent, int(lifeline))
    if worker_id := os.environ.get(WORKER_VARIABLE):
        # Before the first report, which is sent as soon as the worker is connected.
        events.report_to_master.add_listener(_naming(worker_id))
    events.init.add_listener(_prepare)
    sys.argv[0] = "locust"
    run_locust()


def _naming(worker_id: str) -> Callable[..., None]:
    def name(client_id: str, data: dict[str, Any], **_: Any) -> None:
        data[_WORKER_FIELD] = worker_id

    return name


def _prepare(environment: Any, runner: Any, **_: Any) -> None:
    match runner:
        case MasterRunner() if path := os.environ.get(MASTER_STATE_VARIABLE):
            state = MasterState(runner, Path(path))
            environment.events.test_start.add_listener(state.begin)
            environment.events.worker_report.add_listener(state.hear)
            environment.events.worker_connect.add_listener(state.resume)
            gevent.spawn(state.keep_written)
        case WorkerRunner():
            # Listeners of this event are called in reverse order, so before Locust's own.
            environment.events.quitting.add_listener(_report_last)
        case _:
            pass


def _report_last(environment: Any, **_: Any) -> None:
    """Stop the users, after which a worker sends its last measurements. Locust would first leave the master."""
    environment.runner.stop()


def _end_with_parent(lifeline: int) -> None:
    gevent.socket.wait_read(lifeline)
    os.kill(os.getpid(), signal.SIGTERM)
    gevent.sleep(_SHUTDOWN_S)
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main()
