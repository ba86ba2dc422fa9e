"""Run the master of a load test: ``python -m zae_limiter.loadtest.master``, in the task of the service.

It executes the run that the bucket names, and then sets the service back to zero, however the run
ended.
"""

import json
import os
import signal
import sys
import tempfile
import time
import traceback
import urllib.request
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

from zae_limiter.core.errors import StorageError, ZAELimiterError
from zae_limiter.infra.clients import FAILURES, Clients, reason_of
from zae_limiter.loadtest.code_bucket import CodeBucket
from zae_limiter.loadtest.costs import PageCosts, WorkerTime, reached_ceiling
from zae_limiter.loadtest.measurements import Measurements
from zae_limiter.loadtest.node_process import NodeProcess, headless_arguments, locust_arguments, target_environment
from zae_limiter.loadtest.orchestrator import LambdaInvoker, MasterAddress, Orchestrator
from zae_limiter.loadtest.run_config import INTERRUPTED, MASTER_ID, RunConfig, RunMode
from zae_limiter.loadtest.run_objects import RunFailure, RunObjects, current_run_id, open_run

BUCKET_VARIABLE = "ZAE_LOADTEST_BUCKET"
STACK_VARIABLE = "ZAE_LOADTEST_STACK"
HOST_VARIABLE = "ZAE_LOADTEST_MASTER_HOST"
PORT_VARIABLE = "ZAE_LOADTEST_MASTER_PORT"
WEB_PORT_VARIABLE = "ZAE_LOADTEST_WEB_PORT"

WORKER_PORT = 5557
WEB_PORT = 8089

_TASK_METADATA_VARIABLE = "ECS_CONTAINER_METADATA_URI_V4"
_METADATA_S = 5.0
_POLL_S = 0.5
_REPORT_EVERY_S = 2.0
_STOP_WITHIN_S = 20.0
_CONNECT_S = 300


@dataclass(frozen=True, slots=True)
class MasterSettings:
    """Where the master runs. ``host`` is None if the metadata of the task has the address."""

    bucket: str
    cluster: str
    service: str
    host: str | None
    port: int
    web_port: int


def settings_of(environ: Mapping[str, str]) -> MasterSettings:
    """Return the settings in the environment variables of the task."""
    return MasterSettings(
        bucket=environ[BUCKET_VARIABLE],
        cluster=environ[STACK_VARIABLE],
        service=f"{environ[STACK_VARIABLE]}-master",
        host=environ.get(HOST_VARIABLE),
        port=int(environ.get(PORT_VARIABLE, WORKER_PORT)),
        web_port=int(environ.get(WEB_PORT_VARIABLE, WEB_PORT)),
    )


def main() -> int:
    """Execute the current run, and return the exit code."""
    # The service ends a task with this signal; raise, so that every `finally` below runs.
    signal.signal(signal.SIGTERM, _interrupt)
    settings = settings_of(os.environ)
    clients = Clients(os.environ.get("AWS_REGION") or os.environ.get("TARGET_REGION"))
    try:
        return _execute(settings, clients)
    finally:
        # A task that ends is started again by its service, so the service has to be at zero first.
        set_service(clients, settings.cluster, settings.service, 0)


def set_service(clients: Clients, cluster: str, service: str, tasks: int) -> None:
    """Set the number of tasks of the service.

    Raises:
        StorageError: AWS refuses the call, or cannot be reached.
    """
    try:
        clients.of("ecs").update_service(cluster=cluster, service=service, desiredCount=tasks)
    except FAILURES as failed:
        raise StorageError(service, reason_of(failed)) from failed


def _execute(settings: MasterSettings, clients: Clients) -> int:
    bucket = CodeBucket(clients, settings.bucket)
    run_id = current_run_id(bucket)
    if run_id is None:
        sys.stderr.write("There is no run to execute.\n")
        return 0
    run = open_run(bucket, run_id)
    # The service starts a task again if it ends early. A run is executed once.
    if run.progress() is not None:
        sys.stderr.write(f"The run {run_id} was executed already.\n")
        return 0
    if run.is_stop_requested():
        sys.stderr.write(f"The run {run_id} was stopped before it began.\n")
        return 0
    run.report_progress(MASTER_ID, {"state": "started"})
    with tempfile.TemporaryDirectory(prefix="zae-loadtest-") as folder:
        master = _Master(settings, clients, run, Path(folder))
        try:
            return master.run()
        finally:
            # Also workers that connect later end, because they see this.
            run.request_stop()


class _Master:
    """One run: a Locust process, its workers, and the reports about it."""

    def __init__(self, settings: MasterSettings, clients: Clients, run: RunObjects, folder: Path) -> None:
        self._settings = settings
        self._clients = clients
        self._run = run
        self._folder = folder
        self._node = NodeProcess(folder)
        self._orchestrator: Orchestrator | None = None
        self._worker_s = 0.0
        self._costs = PageCosts()

    def run(self) -> int:
        """Run Locust until the test ends or has to stop; return the exit code."""
        stopped: str | None = INTERRUPTED
        try:
            self._start()
            stopped = self._watch()
        except KeyboardInterrupt:
            sys.stderr.write("Interrupted.\n")
        except ZAELimiterError as error:
            return self._fail(str(error))
        except BaseException:
            self._fail(traceback.format_exc())
            raise
        finally:
            self._node.stop(_STOP_WITHIN_S)
        return self._finish(stopped)

    def _start(self) -> None:
        config = self._run.config
        code = self._folder / "code"
        self._run.unpack_locust_files(code)
        role: list[str] = []
        if config.mode is not RunMode.STANDALONE:
            address = MasterAddress(self._settings.host or own_address(), self._settings.port)
            invoker = LambdaInvoker(self._clients, self._settings.bucket, config, address)
            self._orchestrator = Orchestrator(self._run, invoker, time.monotonic)
            role += ["--master", "--master-bind-port", str(address.port), "--enable-rebalancing"]
        role += _control_arguments(config, self._settings.web_port)
        known = target_environment(config, os.environ.get("AWS_ENDPOINT_URL"))
        self._node.start(locust_arguments(config, *role), code, known)

    def _watch(self) -> str | None:
        """Steer the workers until Locust ends; return why it has to be stopped before that, None if it ended."""
        begun_s = reported_s = last_s = time.monotonic()
        while self._node.exit_code is None:
            time.sleep(_POLL_S)
            now_s = time.monotonic()
            state = self._node.master_state()
            if self._orchestrator is not None and state is not None:
                self._orchestrator.step(state)
                self._worker_s += (now_s - last_s) * self._orchestrator.worker_count
            last_s = now_s
            if now_s - reported_s >= _REPORT_EVERY_S:
                reported_s = now_s
                if reason := self._report(now_s - begun_s, state):
                    return reason
        return None

    def _report(self, running_s: float, state: dict[str, Any] | None) -> str | None:
        """Report the progress, and return why the run has to stop now."""
        measured = self._node.progress()
        workers = [] if state is None else state["workers"]
        self._run.report_progress(MASTER_ID, {"state": "running", "workers": len(workers), "measurements": measured})
        if self._run.is_stop_requested():
            return INTERRUPTED
        memory_mb = self._run.config.limits.memory_mb
        spent = WorkerTime(lambda_s=self._worker_s, lambda_memory_mb=memory_mb, fargate_s=running_s)
        found = Measurements() if measured is None else Measurements.from_dict(measured)
        self._costs.include(found)
        ceiling = replace(self._run.config.ceiling, spent_usd=self._costs.ended_usd)
        return reached_ceiling(ceiling, found, spent, running_s)

    def _finish(self, stopped: str | None) -> int:
        """Report the result of a process that has ended; return the exit code."""
        result = self._node.result_of_stop() if stopped is not None else self._node.result()
        if stopped is None and (self._node.exit_code or result is None):
            return self._fail(self._node.failure_reason())
        found: dict[str, Any] = {"measurements": result, "stopped": stopped}
        if self._orchestrator is not None:
            found["replaced_workers"] = self._orchestrator.replaced_count
            found["lost_workers"] = self._orchestrator.lost_count
        self._run.report_progress(MASTER_ID, {"state": "ended"})
        self._run.report_result(found)
        return 0

    def _fail(self, reason: str) -> int:
        lines = self._node.last_lines()
        sys.stderr.write("\n".join([*lines, reason, ""]))
        # A run can also fail because the bucket is unavailable.
        with suppress(ZAELimiterError):
            self._run.report_failure(RunFailure(MASTER_ID, reason, tuple(lines)))
        return 1


def own_address() -> str:
    """Return the private address of this task, from its metadata."""
    url = f"{os.environ[_TASK_METADATA_VARIABLE]}/task"
    with urllib.request.urlopen(url, timeout=_METADATA_S) as answer:
        return address_of(json.load(answer))


def address_of(task: Mapping[str, Any]) -> str:
    """Return the first private address in the metadata of a task."""
    return str(task["Containers"][0]["Networks"][0]["IPv4Addresses"][0])


def _control_arguments(config: RunConfig, web_port: int) -> list[str]:
    """Return the arguments that decide when the test starts and ends."""
    match config.mode:
        case RunMode.UI:
            # The tunnel ends in this task, so no other machine needs to reach the page.
            return ["--web-host", "127.0.0.1", "--web-port", str(web_port)]
        case RunMode.DISTRIBUTED:
            expected = ["--expect-workers", str(config.workers), "--expect-workers-max-wait", str(_CONNECT_S)]
            return [*headless_arguments(config), *expected]
        case _:
            return headless_arguments(config)


def _interrupt(_number: int, _frame: FrameType | None) -> NoReturn:
    # A second signal would end the clean-up.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
