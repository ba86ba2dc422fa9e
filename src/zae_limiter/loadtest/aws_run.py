"""Run a load test on AWS: start it, follow its objects in the bucket, and stop it. Blocking."""

import json
import secrets
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from zae_limiter.core.errors import StorageError
from zae_limiter.infra.clients import FAILURES, Clients, reason_of
from zae_limiter.loadtest.code_bucket import CodeBucket
from zae_limiter.loadtest.load_options import LoadOutputs
from zae_limiter.loadtest.load_stack import LoadStack
from zae_limiter.loadtest.load_test_error import LoadTestError
from zae_limiter.loadtest.master import WEB_PORT
from zae_limiter.loadtest.master_host import MasterHost, last_log_lines, master_host
from zae_limiter.loadtest.measurements import Measurements
from zae_limiter.loadtest.orchestrator import LambdaInvoker
from zae_limiter.loadtest.run_config import (
    MASTER_ID,
    RunConfig,
    RunMode,
    RunTarget,
    WorkerLimits,
    check_classes,
    check_duration,
    check_workers,
)
from zae_limiter.loadtest.run_objects import RunFailure, RunObjects, require_locust_file
from zae_limiter.loadtest.worker import LIST_CLASSES

HEADLESS_ID = "worker-1"
"""The only worker of a run without a master."""

_POLL_S = 1.0
_TELL_EVERY_S = 5.0
_FAILURES_EVERY_S = 3.0
_STALLED_S = 60.0
_START_FUNCTION_S = 90.0
_STOPPED_S = 40.0


@dataclass(frozen=True, slots=True)
class RunProgress:
    """What a run has reached. ``measured`` is None before the first call, ``workers`` before the first connects."""

    running_s: float
    workers: int
    users: int
    measured: Measurements | None


@dataclass(frozen=True, slots=True)
class RunResult:
    """The measurements of a run. ``stopped`` is why it was stopped before its end, None if it was not.

    ``lost_workers`` ended without being told to. What they measured last is missing.
    """

    measurements: Measurements
    stopped: str | None
    replaced_workers: int
    lost_workers: int


RunListener = Callable[[RunProgress | RunFailure], None]
"""A callback that gets the progress of a run, and the failures of its workers."""


def open_load_test(
    name: str, clients: Clients, endpoint_url: str | None = None, web_port: int = WEB_PORT
) -> "AwsLoadTest":
    """Return the deployed load test of a limiter.

    Raises:
        InfrastructureNotFoundError: There is no load test; the message says how to deploy it.
        StackOperationError: Its stack is incomplete.
    """
    outputs = LoadStack(name, clients).outputs()
    target = RunTarget(outputs.limiter_name, clients.region, endpoint_url)
    return AwsLoadTest(clients, outputs, target, master_host(clients, outputs, web_port))


class AwsLoadTest:
    """A deployed load test, which can be run."""

    def __init__(self, clients: Clients, outputs: LoadOutputs, target: RunTarget, host: MasterHost) -> None:
        self._clients = clients
        self._outputs = outputs
        self._target = target
        self._host = host
        self.bucket = CodeBucket(clients, outputs.bucket_name)

    def configure(self, mode: RunMode, file: str, **options: Any) -> RunConfig:
        """Return the configuration of a run, which has not begun.

        Raises:
            ValidationError: The file was not pushed, a class does not exist, or the run is too long for its mode.
            LoadTestError: Locust cannot load the file.
        """
        config = RunConfig(new_run_id(), mode, file, self._target, self._limits(), **options)
        check_duration(config.duration_s, config.limits.time_s, mode)
        check_workers(config.workers, config.limits.most)
        require_locust_file(self.bucket, file)
        if config.classes:
            check_classes(config.classes, self.classes(file), file)
        return config

    def classes(self, file: str) -> list[str]:
        """Return the user classes of a locust file, as the worker function finds them.

        Raises:
            LoadTestError: Locust cannot load the file.
            StorageError: AWS refuses the call, or cannot be reached.
        """
        asked_s = time.time()
        payload = json.dumps({"task": LIST_CLASSES, "bucket": self.bucket.name, "file": file}).encode()
        try:
            answer = self._clients.of("lambda").invoke(FunctionName=self._outputs.function_name, Payload=payload)
        except FAILURES as failed:
            raise StorageError(self._outputs.function_name, reason_of(failed)) from failed
        found = json.loads(answer["Payload"].read())
        if "FunctionError" in answer:
            raise LoadTestError(f"the worker failed: {found.get('errorMessage')}", self._worker_log_lines(asked_s))
        if "error" in found:
            raise LoadTestError(found["error"], found["log_lines"])
        return list(found["classes"])

    def run(self, config: RunConfig, listener: RunListener) -> RunResult:
        """Run a test to its end, and stop everything that it started. An interrupt stops it early.

        Raises:
            LoadTestError: The run failed; the message has the log lines of the part that failed.
            StorageError: AWS refuses a call, or cannot be reached.
            KeyboardInterrupt: It was interrupted before it began.
        """
        run = RunObjects(self.bucket, config)
        try:
            self.begin(run)
            return self._follow(run, listener)
        except KeyboardInterrupt:
            return self.interrupted(run)
        finally:
            self.end(run)

    def page(self, port: int) -> AbstractContextManager[str]:
        """Provide the URL of the web page of a run that has begun, at a port of this machine."""
        return self._host.page(port)

    def begin(self, run: RunObjects) -> None:
        """Start a run, without waiting for it.

        Raises:
            LoadTestError: Another run uses the master.
            MissingPluginError: The run has a web page, and the plugin for the tunnel is not installed.
            StorageError: AWS refuses a call, or cannot be reached.
        """
        if run.config.mode is RunMode.HEADLESS:
            run.begin()
            LambdaInvoker(self._clients, self.bucket.name, run.config, None).invoke(HEADLESS_ID)
            return
        if run.config.mode is RunMode.UI:
            self._host.require_page()
        # Before the first write: the master of another run may be starting, and reads the bucket then.
        self._host.require_free()
        run.begin()
        self._host.start()

    def interrupted(self, run: RunObjects) -> RunResult:
        """Stop a run after an interrupt, and return its result.

        Raises:
            LoadTestError: The run failed, or does not report its result.
            KeyboardInterrupt: It has not begun, so there is no result to wait for.
        """
        run.request_stop()
        if run.progress(_leader(run.config)) is None:
            raise KeyboardInterrupt
        return self._await_stopped(run)

    def end(self, run: RunObjects) -> None:
        """Stop whatever of a run still runs."""
        run.request_stop()
        if run.config.mode is not RunMode.HEADLESS:
            self._host.stop()

    def check(self, run: RunObjects) -> None:
        """Require that the run has not failed.

        Raises:
            LoadTestError: It has.
        """
        failed = run.failure(_leader(run.config))
        if failed is not None:
            raise LoadTestError(failed.reason, failed.log_lines)
        if run.config.mode is not RunMode.HEADLESS and (lost := self._host.failure()) and run.result() is None:
            raise lost

    def _follow(self, run: RunObjects, listener: RunListener) -> RunResult:
        """Report the progress until there is a result."""
        begun_s = changed_s = told_s = looked_s = time.monotonic()
        last: dict[str, Any] | None = None
        told: set[str] = set()
        while (result := run.result()) is None:
            time.sleep(_POLL_S)
            now_s = time.monotonic()
            self.check(run)
            if now_s - looked_s >= _FAILURES_EVERY_S:
                looked_s = now_s
                told |= self._tell_failures(run, told, listener)
            found = run.progress(_leader(run.config))
            if found != last or now_s - told_s >= _TELL_EVERY_S:
                told_s = now_s
                listener(progress_of(found or {}, now_s - begun_s))
            if found != last:
                last, changed_s = found, now_s
            elif now_s - changed_s > (self._start_within_s(run.config) if last is None else _STALLED_S):
                raise self._silent(run.config, now_s - changed_s)
        return result_of(result)

    def _tell_failures(self, run: RunObjects, told: set[str], listener: RunListener) -> set[str]:
        new = set(run.failed_workers()) - told
        for worker_id in sorted(new):
            if failure := run.failure(worker_id):
                listener(failure)
        return new

    def _await_stopped(self, run: RunObjects) -> RunResult:
        """Wait for the result of a run that was told to stop."""
        until_s = time.monotonic() + _STOPPED_S
        while time.monotonic() < until_s:
            if (result := run.result()) is not None:
                return result_of(result)
            self.check(run)
            time.sleep(_POLL_S)
        raise LoadTestError("the run was stopped, but did not report its result")

    def _start_within_s(self, config: RunConfig) -> float:
        return _START_FUNCTION_S if config.mode is RunMode.HEADLESS else self._host.start_within_s

    def _silent(self, config: RunConfig, waited_s: float) -> LoadTestError:
        if config.mode is RunMode.HEADLESS:
            part, lines = "worker", self._worker_log_lines(time.time() - waited_s)
        else:
            part, lines = "master", self._host.log_lines()
        return LoadTestError(f"the {part} has not reported anything for {waited_s:.0f} s", lines)

    def _worker_log_lines(self, since_s: float) -> list[str]:
        return last_log_lines(self._clients, self._outputs.log_group_name, since_s)

    def _limits(self) -> WorkerLimits:
        name = self._outputs.function_name
        try:
            function = self._clients.of("lambda").get_function_configuration(FunctionName=name)
        except FAILURES as failed:
            raise StorageError(name, reason_of(failed)) from failed
        return WorkerLimits(
            function_name=name,
            most=self._outputs.max_workers,
            fewest=self._outputs.min_workers,
            users_per_worker=self._outputs.users_per_worker,
            time_s=self._outputs.lambda_timeout_s,
            memory_mb=function["MemorySize"],
        )


def progress_of(found: dict[str, Any], running_s: float) -> RunProgress:
    """Return the progress that a worker or the master reported."""
    measured = found.get("measurements")
    return RunProgress(
        running_s=running_s,
        workers=found.get("workers", 1),
        users=0 if measured is None else measured.get("users", 0),
        measured=None if measured is None else Measurements.from_dict(measured),
    )


def result_of(found: dict[str, Any]) -> RunResult:
    """Return the result that a worker or the master reported."""
    return RunResult(
        measurements=Measurements.from_dict(found["measurements"]),
        stopped=found.get("stopped"),
        replaced_workers=found.get("replaced_workers", 0),
        lost_workers=found.get("lost_workers", 0),
    )


def new_run_id() -> str:
    """Return an id that no other run has; ids sort by time."""
    return f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(3)}"


def _leader(config: RunConfig) -> str:
    """Return the id of the part that reports the progress of a run."""
    return HEADLESS_ID if config.mode is RunMode.HEADLESS else MASTER_ID
