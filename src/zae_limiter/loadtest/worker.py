"""Handle an invocation of the worker function: run Locust in it, alone or as a worker of a master.

An event has the bucket and a task: to list the user classes of a locust file, or to run users. With
the address of a master, it runs the users that the master assigns, else all users of the run.

Locust runs in a process of its own, so the next invocation of the same sandbox is not affected. An
expected failure is reported in the bucket. It is not raised, because Lambda would invoke the worker
again.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from zae_limiter.core.errors import ZAELimiterError
from zae_limiter.infra.clients import Clients
from zae_limiter.loadtest.code_bucket import CodeBucket
from zae_limiter.loadtest.costs import WorkerTime, reached_ceiling
from zae_limiter.loadtest.measurements import Measurements
from zae_limiter.loadtest.node_process import (
    NodeProcess,
    headless_arguments,
    locust_arguments,
    target_environment,
)
from zae_limiter.loadtest.run_config import INTERRUPTED, KEPT_SHARE, WORKER_TIME_USED, RunMode
from zae_limiter.loadtest.run_objects import RunFailure, RunObjects, open_run, unpack_locust_files

LIST_CLASSES = "list-classes"
RUN = "run"

_POLL_S = 0.25
_REPORT_EVERY_S = 2.0
_STOP_WITHIN_S = 10.0
_SHOWN_LINES = 20
_REPORT_S = 1.5
"""The seconds that are left for the report when Locust is killed."""


class LambdaContext(Protocol):
    """What the handler uses of the context of an invocation."""

    memory_limit_in_mb: int

    def get_remaining_time_in_millis(self) -> int:
        """Return the milliseconds until Lambda ends the invocation."""
        ...


def handler(event: Mapping[str, Any], context: LambdaContext) -> dict[str, Any]:
    """Carry out the task of an event, and return its outcome."""
    # Locust writes below the home folder, and a function may write to the temporary folder only.
    os.environ["HOME"] = tempfile.gettempdir()
    bucket = CodeBucket(Clients(os.environ.get("AWS_REGION")), event["bucket"])
    if event["task"] == LIST_CLASSES:
        return list_classes(bucket, event["file"])
    return LoadWorker(open_run(bucket, event["run_id"]), event, context).run()


class LoadWorker:
    """One invocation: a Locust process, and the reports about it."""

    def __init__(self, run: RunObjects, event: Mapping[str, Any], context: LambdaContext) -> None:
        self._run = run
        self._worker_id: str = event["worker"]
        self._master = event.get("master")
        self._context = context
        self._begun_s = time.monotonic()
        self._kept_s = KEPT_SHARE * context.get_remaining_time_in_millis() / 1000

    def run(self) -> dict[str, Any]:
        """Run Locust until the test ends or has to stop."""
        # Lambda repeats an invocation whose sandbox was lost. Its worker was replaced meanwhile.
        if self._run.progress(self._worker_id) is not None:
            return {"outcome": "repeated"}
        if self._run.is_stop_requested(self._worker_id):
            return {"outcome": "ended", "stopped": INTERRUPTED}
        self._run.report_progress(self._worker_id, {"state": "started"})
        with _scratch() as folder:
            node = NodeProcess(folder)
            try:
                self._start(node, folder)
                stopped = self._watch(node)
            except ZAELimiterError as error:
                return self._fail(node, str(error))
            except BaseException:
                self._fail(node, traceback.format_exc())
                raise
            finally:
                node.stop(self._patience_s())
            return self._finish(node, stopped)

    def _start(self, node: NodeProcess, folder: Path) -> None:
        config = self._run.config
        code = folder / "code"
        self._run.unpack_locust_files(code)
        if self._master is None:
            role = headless_arguments(config)
        else:
            host, port = self._master["host"], self._master["port"]
            role = ["--worker", "--master-host", host, "--master-port", str(port)]
        known = target_environment(config, os.environ.get("AWS_ENDPOINT_URL"))
        known |= {"ZAE_LOADTEST_WORKER": self._worker_id}
        if not os.access(__file__, os.W_OK):
            # The code of a function is read-only, so every process would compile all modules again.
            known["PYTHONPYCACHEPREFIX"] = str(Path(tempfile.gettempdir()) / "zae-loadtest-compiled")
        node.start(locust_arguments(config, *role), code, known)

    def _watch(self, node: NodeProcess) -> str | None:
        """Report progress until Locust ends; return why it has to be stopped before that, None if it ended."""
        reported_s = time.monotonic()
        while node.exit_code is None:
            time.sleep(_POLL_S)
            if self._context.get_remaining_time_in_millis() / 1000 <= self._kept_s:
                return WORKER_TIME_USED
            if time.monotonic() - reported_s >= _REPORT_EVERY_S:
                reported_s = time.monotonic()
                if reason := self._report(node):
                    return reason
        return None

    def _report(self, node: NodeProcess) -> str | None:
        """Report the progress, and return why the worker has to stop now."""
        if self._run.is_stop_requested(self._worker_id):
            return INTERRUPTED
        if self._master is not None:
            # The master reports for all, and knows the cost and the duration of the whole test.
            return None
        measured = node.progress()
        self._run.report_progress(self._worker_id, {"state": "running", "measurements": measured})
        running_s = time.monotonic() - self._begun_s
        spent = WorkerTime(lambda_s=running_s, lambda_memory_mb=self._run.config.limits.memory_mb)
        found = Measurements() if measured is None else Measurements.from_dict(measured)
        return reached_ceiling(self._run.config.ceiling, found, spent, running_s)

    def _patience_s(self) -> float:
        """Return the seconds in which Locust may end, with enough time left to report."""
        return max(0.0, min(_STOP_WITHIN_S, self._context.get_remaining_time_in_millis() / 1000 - _REPORT_S))

    def _finish(self, node: NodeProcess, stopped: str | None) -> dict[str, Any]:
        """Report the result of a process that has ended."""
        result = node.result_of_stop() if stopped is not None else node.result()
        is_headless = self._run.config.mode is RunMode.HEADLESS
        if stopped is None and (node.exit_code or (is_headless and result is None)):
            return self._fail(node, node.failure_reason())
        self._run.report_progress(self._worker_id, {"state": "ended", "stopped": stopped})
        if is_headless:
            self._run.report_result({"measurements": result, "stopped": stopped})
        return {"outcome": "ended", "stopped": stopped}

    def _fail(self, node: NodeProcess, reason: str) -> dict[str, Any]:
        lines = node.last_lines()
        sys.stderr.write("\n".join([*lines, reason, ""]))
        self._run.report_failure(RunFailure(self._worker_id, reason, tuple(lines)))
        return {"outcome": "failed", "reason": reason}


def list_classes(bucket: CodeBucket, file: str) -> dict[str, Any]:
    """Return the user classes of a locust file, as Locust finds them, or why it cannot load the file."""
    with _scratch() as folder:
        try:
            unpack_locust_files(bucket, file, folder)
        except ZAELimiterError as error:
            return {"error": str(error), "log_lines": []}
        command = [sys.executable, "-m", "locust", "-f", file, "--list"]
        known = {**os.environ, "PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry)}
        done = subprocess.run(command, cwd=folder, env=known, capture_output=True, text=True, check=False)
    if done.returncode:
        return {"error": f"Locust cannot load {file}", "log_lines": done.stderr.splitlines()[-_SHOWN_LINES:]}
    return {"classes": [line.strip() for line in done.stdout.splitlines() if line.startswith(" ")]}


@contextmanager
def _scratch() -> Iterator[Path]:
    """Provide an empty folder; the sandbox may be used again, and its storage is small."""
    folder = Path(tempfile.mkdtemp(prefix="zae-loadtest-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
