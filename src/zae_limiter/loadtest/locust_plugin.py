"""Collect the measurements of a Locust test: from the users of a process, and from its workers on a master.

A worker sends what it has measured with Locust's own reports, every three seconds, and the rest
when its users have stopped. The process that ends the test writes all measurements to the file that
`RESULT_VARIABLE` names.
"""

import importlib
import json
import logging
import os
import signal
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn
from weakref import WeakKeyDictionary

import gevent
import locust
import locust.runners
from gevent import GreenletExit
from locust.runners import MasterRunner, WorkerRunner

from zae_limiter._sync.limiter.limiter import SyncRateLimiter
from zae_limiter._sync.repository import SyncRepository
from zae_limiter.core.errors import ZAELimiterError
from zae_limiter.core.location import DynamoLocation, parse_location
from zae_limiter.loadtest.locust_target import NO_TARGET, RUN_URL_VARIABLE, TargetChoice, target_url
from zae_limiter.loadtest.measurements import Measurements
from zae_limiter.loadtest.metering import open_metered_sync, sample_shards
from zae_limiter.loadtest.recorder import Recorder

if TYPE_CHECKING:
    from locust.env import Environment

RESULT_VARIABLE = "ZAE_LOADTEST_RESULT"
"""Path of a file for all measurements, which is written when Locust ends."""
PROGRESS_VARIABLE = "ZAE_LOADTEST_PROGRESS"
"""Path of a file that is replaced every `PROGRESS_S` seconds while Locust runs."""
PROGRESS_S = 1.0
TASK = "TASK"
"""The request type of an exception that a task did not catch."""
FAILURES_LOGGED = 20
"""Locust logs every exception of a task. Further ones would fill the disk."""

_LOGGER = "zae_limiter.locust"
_REPORT = "zae_limiter"
_FINISH = "zae_limiter_finish"
_FINISHED = "zae_limiter_finished"
_FAILED = "zae_limiter_failed"
_ANSWER_S = 10.0
"""A master waits this many seconds for the last report of a worker, after the time that its users have to stop."""
_POLL_S = 0.05
_SHARDS_EVERY_S = 1.0
_PATIENCE_S = 60
_SECONDS_SHOWN = 5

_log = logging.getLogger(_LOGGER)
_collectors: "WeakKeyDictionary[Environment, Collector]" = WeakKeyDictionary()


class Collector:
    """The limiter, the recorder and all measurements of one Locust environment."""

    def __init__(self, environment: "Environment") -> None:
        self.recorder = Recorder()
        self._environment = environment
        self._total = Measurements()
        self._opening = threading.Lock()
        self._limiters: dict[str, SyncRateLimiter] = {}
        # The workers whose last report a master waits for.
        self._unfinished: set[str] = set()
        self._has_failed = False

    def limiter(self, choice: TargetChoice) -> SyncRateLimiter:
        """Return the limiter of a user, which all users of the process share. Without one, stop the test.

        Raises:
            GreenletExit: There is no limiter, and the test stops.
            ZAELimiterError: There is no limiter, and no test to stop.
        """
        url = target_url(choice, os.environ)
        if url is None:
            self.stop_test(NO_TARGET)
        with self._opening:
            found = self._limiters.get(url)
            if found is None:
                try:
                    found = self._open(url)
                except ZAELimiterError as error:
                    self.stop_test(str(error))
                self._limiters[url] = found
        return found

    def _open(self, url: str) -> SyncRateLimiter:
        repository = open_metered_sync(url, self.recorder)
        gevent.spawn(self._watch_shards, repository)
        return SyncRateLimiter(repository)

    def _watch_shards(self, repository: SyncRepository) -> NoReturn:
        while True:
            gevent.sleep(_SHARDS_EVERY_S)
            sample_shards(repository.scope, self.recorder)

    def measurements(self) -> Measurements:
        """Return everything that was measured so far."""
        self._total.merge(self.recorder.take_measurements())
        return self._total

    def stop_test(self, reason: str) -> NoReturn:
        """Stop the test for a reason that is logged, and end the greenlet that calls.

        Raises:
            GreenletExit: Always.
        """
        runner = self._environment.runner
        if isinstance(runner, WorkerRunner):
            runner.send_message(_FAILED, {"reason": reason})
        else:
            self._fail(reason)
        raise GreenletExit(reason)

    def listen(self) -> None:
        """Add the listeners of this environment, for the role that its runner has."""
        # Locust's events have no types.
        events: Any = self._environment.events
        runner = self._environment.runner
        events.test_start.add_listener(self._on_test_start)
        events.user_error.add_listener(self._on_user_error)
        events.quit.add_listener(self._on_quit)
        if isinstance(runner, WorkerRunner):
            events.report_to_master.add_listener(self._on_report_to_master)
            events.test_stop.add_listener(self._on_worker_stopped)
            runner.register_message(_FINISH, self._on_finish)
        else:
            self._write_progress_in_background()
        if isinstance(runner, MasterRunner):
            events.worker_report.add_listener(self._on_worker_report)
            events.test_stopping.add_listener(self._on_master_stopping)
            runner.register_message(_FINISHED, self._on_finished)
            runner.register_message(_FAILED, self._on_failed)

    def _on_test_start(self, **_: object) -> None:
        self.recorder.take_measurements()
        self._total = Measurements()

    def _on_user_error(self, exception: BaseException, **_: object) -> None:
        # The session has counted its own errors.
        if not isinstance(exception, ZAELimiterError):
            now_s = time.time()
            self.recorder.failed(TASK, exception, now_s, now_s)

    def _on_report_to_master(self, data: dict[str, Any], **_: object) -> None:
        data[_REPORT] = self.recorder.take_measurements().to_dict()

    def _on_worker_report(self, data: dict[str, Any], **_: object) -> None:
        found = data.pop(_REPORT, None)
        if found is not None:
            self._total.merge(Measurements.from_dict(found))

    def _on_worker_stopped(self, **_: object) -> None:
        runner = self._environment.runner
        if isinstance(runner, WorkerRunner):
            runner.send_message(_FINISHED, self.recorder.take_measurements().to_dict())

    def _on_finish(self, **_: object) -> None:
        """Stop the users of a worker, which then sends its last report."""
        runner = self._environment.runner
        if runner is not None:
            runner.stop()

    def _on_master_stopping(self, **_: object) -> None:
        """Wait for the last report of every worker, because Locust gives them only half a second."""
        runner = self._environment.runner
        if not isinstance(runner, MasterRunner):
            return
        self._unfinished = {client.id for client in (*runner.clients.running, *runner.clients.spawning)}
        runner.send_message(_FINISH)
        until_s = time.monotonic() + self._environment.stop_timeout + _ANSWER_S
        while self._unfinished & set(runner.clients) and time.monotonic() < until_s:
            gevent.sleep(_POLL_S)

    def _on_finished(self, msg: Any, **_: object) -> None:
        self._total.merge(Measurements.from_dict(msg.data))
        self._unfinished.discard(msg.node_id)

    def _on_failed(self, msg: Any, **_: object) -> None:
        self._fail(str(msg.data["reason"]))

    def _fail(self, reason: str) -> None:
        """Log the reason once, and stop; without a web page, end Locust."""
        runner = self._environment.runner
        if runner is None or self._has_failed:
            return
        self._has_failed = True
        _log.error(reason)
        self._environment.process_exit_code = 1
        # In a greenlet of its own, because stopping ends the greenlets of the users, and this may be one of them.
        gevent.spawn(runner.quit if self._environment.web_ui is None else self._stop_and_allow_another)

    def _stop_and_allow_another(self) -> None:
        assert self._environment.runner is not None, "a test runs"
        self._environment.runner.stop()
        self._has_failed = False

    def _on_quit(self, **_: object) -> None:
        if isinstance(self._environment.runner, WorkerRunner):
            return
        path = os.environ.get(RESULT_VARIABLE)
        if path:
            write_json(Path(path), self.measurements().to_dict())

    def _write_progress_in_background(self) -> None:
        path = os.environ.get(PROGRESS_VARIABLE)
        if path:
            gevent.spawn(self._write_progress, Path(path), os.getppid())

    def _write_progress(self, path: Path, parent: int) -> None:
        while True:
            gevent.sleep(PROGRESS_S)
            users = 0 if self._environment.runner is None else self._environment.runner.user_count
            write_json(path, progress_of(self.measurements(), users))
            if os.getppid() != parent:
                # The command that started this test was killed.
                os.kill(os.getpid(), signal.SIGTERM)
                return


class FirstRecords(logging.Filter):
    """Lets only the first records of a logger pass."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self._left = most

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether the record is one of the first."""
        self._left -= 1
        return self._left >= 0


def collector_of(environment: "Environment") -> Collector:
    """Return the collector of an environment, with its listeners."""
    found = _collectors.get(environment)
    if found is None:
        found = _collectors[environment] = Collector(environment)
        found.listen()
    return found


def install() -> None:
    """Collect the measurements of the Locust that imports this; also on a master, which has no users."""
    if may_use_dynamodb(os.environ.get(RUN_URL_VARIABLE)):
        # This takes a second or more, in which no greenlet runs. During a test, the master would give up the worker.
        importlib.import_module("zae_limiter._sync.dynamodb_table")
        importlib.import_module("zae_limiter.aws.account")
    init: Any = locust.events.init
    init.add_listener(_on_init)
    if os.environ.get(RESULT_VARIABLE):
        logging.getLogger("locust.user.task").addFilter(FirstRecords(FAILURES_LOGGED))


def may_use_dynamodb(run_url: str | None) -> bool:
    """Return whether users may call DynamoDB. Without the URL of a run, each user class decides later."""
    return run_url is None or isinstance(parse_location(run_url), DynamoLocation)


def progress_of(measured: Measurements, users: int) -> dict[str, Any]:
    """Return the measurements so far, without what grows with the length of a test, and the number of users."""
    everything = measured.to_dict() | {"limits": [], "shards": {}}
    return everything | {"seconds": everything["seconds"][-_SECONDS_SHOWN:], "users": users}


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Replace a file; a reader sees the old content or the new one."""
    written = path.with_suffix(f".{os.getpid()}")
    written.write_text(json.dumps(content), encoding="utf-8")
    written.replace(path)


def _on_init(environment: "Environment", **_: object) -> None:
    collector_of(environment)
    if environment.parsed_options is not None and environment.parsed_options.processes:
        # A master gives up workers after this many seconds of silence. These are its own children, on a busy machine.
        locust.runners.HEARTBEAT_LIVENESS = _PATIENCE_S
    # The event loop has cached the time at which Locust was imported, and a run time would count from there.
    gevent.get_hub().loop.update_now()
