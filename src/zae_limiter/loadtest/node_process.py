"""Start a Locust process for a run on AWS, watch it, and stop it. Used by the worker and by the master."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from zae_limiter.loadtest.locust_process import failure_in
from zae_limiter.loadtest.locust_target import RUN_URL_VARIABLE
from zae_limiter.loadtest.measurements import Measurements
from zae_limiter.loadtest.run_config import RunConfig, RunTarget

RESULT_VARIABLE = "ZAE_LOADTEST_RESULT"
PROGRESS_VARIABLE = "ZAE_LOADTEST_PROGRESS"

STOP_S = 3
"""Tasks have this many seconds to end when a test ends, less than a worker keeps for its report."""

_MODULE = "zae_limiter.loadtest.locust_node"
_SHOWN_LINES = 40
_KILLED_S = 10.0


class NodeProcess:
    """A Locust process and its files, which are in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._log = folder / "locust.log"
        self._process: subprocess.Popen[bytes] | None = None
        self._lifeline: int | None = None

    def start(self, arguments: Sequence[str], code: Path, environment: Mapping[str, str]) -> None:
        """Start Locust in the folder ``code`` with these arguments and further environment variables."""
        reading, self._lifeline = os.pipe()
        files = {
            RESULT_VARIABLE: str(self._folder / "result.json"),
            PROGRESS_VARIABLE: str(self._folder / "progress.json"),
            "ZAE_LOADTEST_MASTER_STATE": str(self._folder / "master.json"),
            "ZAE_LOADTEST_LIFELINE": str(reading),
            # The packages of a Lambda function are on the path of this process alone.
            "PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry),
        }
        try:
            with self._log.open("wb") as log:
                self._process = subprocess.Popen(
                    [sys.executable, "-m", _MODULE, *arguments],
                    cwd=code,
                    env={**os.environ, **files, **environment},
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    pass_fds=(reading,),
                    start_new_session=True,
                )
        finally:
            os.close(reading)

    @property
    def exit_code(self) -> int | None:
        """The exit code; None while it runs, or before it was started."""
        return None if self._process is None else self._process.poll()

    @property
    def pid(self) -> int | None:
        """The id of the process; None before it was started."""
        return None if self._process is None else self._process.pid

    def kill(self) -> None:
        """End Locust and its children immediately, without a result."""
        if self._process is not None and self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait(_KILLED_S)

    def stop(self, patience_s: float) -> None:
        """Let Locust end the test and write its result within this many seconds; then kill it."""
        process = self._process
        if process is None:
            return
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        try:
            process.wait(patience_s)
        except subprocess.TimeoutExpired:
            self.kill()
        if self._lifeline is not None:
            os.close(self._lifeline)
            self._lifeline = None

    def progress(self) -> dict[str, Any] | None:
        """Return the measurements so far; None if there are none yet."""
        return _read(self._folder / "progress.json")

    def result(self) -> dict[str, Any] | None:
        """Return all measurements; None if the process did not write them."""
        return _read(self._folder / "result.json")

    def result_of_stop(self) -> dict[str, Any]:
        """Return what a process that was stopped has measured; it may not have begun, or was killed."""
        return self.result() or self.progress() or Measurements().to_dict()

    def master_state(self) -> dict[str, Any] | None:
        """Return the state of a master; None if it has not written it yet."""
        return _read(self._folder / "master.json")

    def failure_reason(self) -> str:
        """Return why a process that has ended failed."""
        code = self.exit_code
        if code is not None and code < 0:
            return f"Locust was killed by signal {-code}"
        return failure_in(self.last_lines()).reason

    def last_lines(self) -> list[str]:
        """Return the last lines of the log."""
        try:
            return self._log.read_text(encoding="utf-8", errors="replace").splitlines()[-_SHOWN_LINES:]
        except FileNotFoundError:
            return []


def locust_arguments(config: RunConfig, *role: str) -> list[str]:
    """Return the arguments of a node; Locust counts failed requests, but does not fail because of them."""
    return ["-f", config.file, "--exit-code-on-error", "0", "--stop-timeout", str(STOP_S), *role, *config.classes]


def headless_arguments(config: RunConfig) -> list[str]:
    """Return the arguments of the node that starts the users and ends the test."""
    paced = ["--users", str(config.users), "--spawn-rate", str(config.spawn_rate)]
    return ["--headless", "--only-summary", *paced, "--run-time", f"{config.duration_s}s"]


def target_environment(config: RunConfig, own_endpoint_url: str | None) -> dict[str, str]:
    """Return the variables that name the limiter to a locust file.

    ``own_endpoint_url`` is the endpoint of this machine. A local AWS has another one for functions
    than for its users.
    """
    target = config.target
    endpoint_url = own_endpoint_url or target.endpoint_url
    url = RunTarget(target.name, target.region, endpoint_url).url
    return {"TARGET_STACK_NAME": target.name, "TARGET_REGION": target.region, RUN_URL_VARIABLE: url}


def _read(path: Path) -> dict[str, Any] | None:
    try:
        return dict(json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return None
