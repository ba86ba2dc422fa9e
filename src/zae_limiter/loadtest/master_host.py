"""Start and stop the master of a run: as a task of the service, or as a process of this machine. Blocking."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any, Protocol

from zae_limiter.core.errors import StorageError
from zae_limiter.infra.clients import FAILURES, Clients, reason_of
from zae_limiter.loadtest import master, tunnel
from zae_limiter.loadtest.load_options import LoadOutputs
from zae_limiter.loadtest.load_test_error import LoadTestError
from zae_limiter.loadtest.locust_process import free_port

_STOP_S = 40.0
_TASK_S = 300.0
_POLL_S = 1.0
_SHOWN_LINES = 40


class MasterHost(Protocol):
    """A place where a master runs."""

    start_within_s: float
    """The seconds after which a master that reports nothing has failed."""

    def require_free(self) -> None:
        """Require that no other run uses the place."""
        ...

    def require_page(self) -> None:
        """Require that this machine can show the web page."""
        ...

    def start(self) -> None:
        """Start the master, without waiting for it."""
        ...

    def stop(self) -> None:
        """Stop the master if it was started here; it may have ended already."""
        ...

    def failure(self) -> LoadTestError | None:
        """Return why the master has ended, with the end of its log; None if it runs or starts."""
        ...

    def log_lines(self) -> list[str]:
        """Return the end of the log of the master."""
        ...

    def page(self, port: int) -> AbstractContextManager[str]:
        """Provide the URL of the web page, at a port of this machine."""
        ...


class FargateHost:
    """Run the master as a task of the stack's service."""

    start_within_s = 300.0

    def __init__(self, clients: Clients, outputs: LoadOutputs) -> None:
        self._clients = clients
        self._outputs = outputs
        # The service lists tasks of earlier runs for an hour.
        self._earlier: frozenset[str] = frozenset()
        # None before the start: then the service belongs to another run.
        self._started_s: float | None = None

    def require_free(self) -> None:
        """Require that no other run uses the service.

        Raises:
            LoadTestError: Another run uses it.
            StorageError: AWS refuses the call, or cannot be reached.
        """
        if self._service()["desiredCount"]:
            raise LoadTestError("another run uses the master; wait for its end, or stop it where it was started")

    def require_page(self) -> None:
        """Require the plugin that forwards a port.

        Raises:
            MissingPluginError: It is not installed.
        """
        tunnel.require_plugin()

    def start(self) -> None:
        """Set the service to one task.

        Raises:
            StorageError: AWS refuses the call, or cannot be reached.
        """
        self._earlier = frozenset(task["taskArn"] for task in self._tasks("STOPPED"))
        self._started_s = time.time()
        self._set(1)

    def stop(self) -> None:
        """Set the service to zero, unless another run uses it."""
        if self._started_s is not None:
            self._set(0)

    def failure(self) -> LoadTestError | None:
        """Return why the last task stopped, with the end of its log; None if none did."""
        stopped = [task for task in self._tasks("STOPPED") if task["taskArn"] not in self._earlier]
        reasons = [task["stoppedReason"] for task in stopped if task.get("stoppedReason")]
        if not reasons:
            return None
        return LoadTestError(f"the task of the master stopped: {reasons[-1]}", self.log_lines())

    def log_lines(self) -> list[str]:
        """Return the end of the log of this run, or why the service has not started a task."""
        lines = last_log_lines(self._clients, self._outputs.master_log_group_name, self._started_s or time.time())
        return lines or [event["message"] for event in self._service().get("events", [])[:1]]

    @contextmanager
    def page(self, port: int) -> Iterator[str]:
        """Forward a port to the page through a tunnel."""
        forwarding = tunnel.PortForwarding(self._target(), master.WEB_PORT, port)
        with tunnel.tunnel(self._clients, forwarding):
            yield f"http://127.0.0.1:{port}"

    def _target(self) -> str:
        """Wait for the task, and return its name in Systems Manager."""
        until_s = time.monotonic() + _TASK_S
        while time.monotonic() < until_s:
            for task in self._tasks("RUNNING"):
                if task["lastStatus"] == "RUNNING" and (found := tunnel.target_of(self._outputs.cluster_name, task)):
                    return found
            if failed := self.failure():
                raise failed
            time.sleep(_POLL_S)
        raise LoadTestError(f"the task of the master did not start within {_TASK_S:.0f} s")

    def _set(self, tasks: int) -> None:
        master.set_service(self._clients, self._outputs.cluster_name, self._outputs.service_name, tasks)

    def _service(self) -> dict[str, Any]:
        cluster, service = self._outputs.cluster_name, self._outputs.service_name
        try:
            found = self._clients.of("ecs").describe_services(cluster=cluster, services=[service])["services"]
        except FAILURES as failed:
            raise StorageError(service, reason_of(failed)) from failed
        if not found:
            raise LoadTestError(f"the service {service} does not exist; deploy the load test again")
        return dict(found[0])

    def _tasks(self, status: str) -> list[dict[str, Any]]:
        ecs, cluster = self._clients.of("ecs"), self._outputs.cluster_name
        try:
            arns = ecs.list_tasks(cluster=cluster, serviceName=self._outputs.service_name, desiredStatus=status)
            found = arns["taskArns"]
            return list(ecs.describe_tasks(cluster=cluster, tasks=found)["tasks"]) if found else []
        except FAILURES as failed:
            raise StorageError(self._outputs.service_name, reason_of(failed)) from failed


class LocalHost:
    """Run the master as a process of this machine, for a local AWS that cannot start containers."""

    start_within_s = 60.0

    def __init__(self, clients: Clients, outputs: LoadOutputs, web_port: int = master.WEB_PORT) -> None:
        self._clients = clients
        self._outputs = outputs
        self._web_port = web_port
        self._process: subprocess.Popen[bytes] | None = None
        self._log: Path | None = None

    def require_free(self) -> None:
        """Require nothing: each run has a process and ports of its own."""

    def require_page(self) -> None:
        """Require nothing: the process serves the page on this machine."""

    def start(self) -> None:
        """Start the process; its workers run on this machine too."""
        known = {
            master.BUCKET_VARIABLE: self._outputs.bucket_name,
            master.STACK_VARIABLE: self._outputs.cluster_name,
            master.HOST_VARIABLE: "127.0.0.1",
            master.PORT_VARIABLE: str(free_port()),
            master.WEB_PORT_VARIABLE: str(self._web_port),
            "AWS_REGION": self._clients.region,
            "AWS_ENDPOINT_URL": str(self._clients.of("ecs").meta.endpoint_url),
        }
        number, path = tempfile.mkstemp(prefix="zae-loadtest-", suffix=".log")
        self._log = Path(path)
        with os.fdopen(number, "wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "zae_limiter.loadtest.master"],
                env={**os.environ, **known},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def stop(self) -> None:
        """Let the process end its run, then kill it if it does not."""
        process, log = self._process, self._log
        if process is None or log is None:
            return
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(_STOP_S)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        log.unlink(missing_ok=True)

    def wait(self, within_s: float) -> None:
        """Wait until the process has ended, at most this many seconds."""
        if self._process is not None:
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(within_s)

    def failure(self) -> LoadTestError | None:
        """Return why the process ended; None if it runs, or ended well."""
        if self._process is None or not self._process.poll():
            return None
        return LoadTestError(f"the master ended with exit code {self._process.returncode}", self.log_lines())

    def log_lines(self) -> list[str]:
        """Return the end of what the process printed."""
        if self._log is None:
            return []
        return self._log.read_text(encoding="utf-8", errors="replace").splitlines()[-_SHOWN_LINES:]

    @contextmanager
    def page(self, port: int) -> Iterator[str]:
        """Return the page of the process, which has the port itself."""
        yield f"http://127.0.0.1:{self._web_port}"


def master_host(clients: Clients, outputs: LoadOutputs, web_port: int = master.WEB_PORT) -> MasterHost:
    """Return where the master of a stack runs: on AWS in its service, else on this machine."""
    if clients.is_local("ecs"):
        return LocalHost(clients, outputs, web_port)
    return FargateHost(clients, outputs)


def last_log_lines(clients: Clients, group: str, since_s: float) -> list[str]:
    """Return the last lines of a log group since a time, none if they cannot be read."""
    try:
        pages = clients.of("logs").get_paginator("filter_log_events")
        found = [
            line
            for page in pages.paginate(logGroupName=group, startTime=int(since_s * 1000))
            for event in page["events"]
            for line in str(event["message"]).splitlines()
        ]
    except FAILURES:
        return []
    return found[-_SHOWN_LINES:]
