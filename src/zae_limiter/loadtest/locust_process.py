"""Run Locust on this machine: as a child process, so that its changes to the standard library stay there."""

import contextlib
import importlib.util
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from zae_limiter.core.errors import ValidationError, ZAELimiterError
from zae_limiter.core.location import without_credentials
from zae_limiter.installation import missing_extra
from zae_limiter.loadtest.locust_target import RUN_URL_VARIABLE
from zae_limiter.loadtest.measurements import Measurements

STOP_S = 5
"""Tasks have this many seconds to end when a test ends."""
_END_S = 20.0
"""Locust is killed if it has not ended this many seconds after an interrupt."""
_POLL_S = 0.1
_SHOWN_LINES = 15
# As in locust_plugin, which only a Locust process imports.
_RESULT_VARIABLE = "ZAE_LOADTEST_RESULT"
_PROGRESS_VARIABLE = "ZAE_LOADTEST_PROGRESS"
_OWN_ERROR = re.compile(r"/ERROR/zae_limiter\.locust: (.+)")
_ERROR = re.compile(r"/(?:ERROR|CRITICAL)/[\w.]+: (.+)")
_LISTED = "Available Users:"


@dataclass(frozen=True, slots=True)
class LocustTest:
    """A Locust file and what of it runs: all user classes if ``classes`` is empty. One process has no master."""

    file: Path
    url: str
    classes: Sequence[str] = ()
    processes: int = 1


@dataclass(frozen=True, slots=True)
class LoadShape:
    """How many users call, how many are started per second, and for how many seconds they run."""

    users: int
    spawn_rate: float
    duration_s: int


@dataclass(frozen=True, slots=True)
class LocustProgress:
    """The state of a running test. ``measured`` is None before the first call, and never has all details."""

    elapsed_s: float
    users: int
    measured: Measurements | None


@dataclass(frozen=True, slots=True)
class LocustResult:
    """The measurements of a test that has ended, or was interrupted."""

    measured: Measurements
    is_interrupted: bool


class LocustFailedError(ZAELimiterError):
    """Locust could not run the test. ``lines`` are the last lines of its output."""

    def __init__(self, reason: str, lines: Sequence[str] = ()) -> None:
        self.reason = reason
        self.lines = list(lines)
        super().__init__(reason)

    def __str__(self) -> str:
        return f"the load test failed: {self.reason}"


class LocustProcess:
    """A Locust that runs. Leaving it ends the process, and the workers that it has started."""

    def __init__(self, arguments: Sequence[str], url: str, folder: Path) -> None:
        self._result, self._progress = folder / "result.json", folder / "progress.json"
        self._started_s = time.monotonic()
        self._log: IO[str] = (folder / "locust.log").open("w+", encoding="utf-8", errors="replace")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "locust", *arguments],
            env=_environment(os.environ, url, self._result, self._progress),
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=subprocess.STDOUT,
            # Ctrl-C in a terminal reaches this process alone, which then asks Locust to end.
            start_new_session=True,
        )

    def is_running(self) -> bool:
        """Return whether Locust has not ended yet."""
        return self._process.poll() is None

    def progress(self) -> LocustProgress:
        """Return how far the test is."""
        elapsed_s = time.monotonic() - self._started_s
        found = _read_json(self._progress)
        if found is None:
            return LocustProgress(elapsed_s, 0, None)
        return LocustProgress(elapsed_s, int(found["users"]), Measurements.from_dict(found))

    def interrupt(self) -> None:
        """Ask Locust to stop its users, write its measurements and end."""
        # Python would raise SIGINT in any greenlet, and one whose error is never looked at loses it. Locust handles
        # SIGTERM in a greenlet of its own.
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGTERM)

    def wait(self, within_s: float) -> None:
        """Wait until Locust has ended, at most this many seconds."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(within_s)

    def measurements(self) -> Measurements | None:
        """Return what the whole test measured; None if Locust did not write it."""
        found = _read_json(self._result)
        return None if found is None else Measurements.from_dict(found)

    def failure(self) -> LocustFailedError | None:
        """Return why Locust failed; None if it runs, or has ended well."""
        if not self._process.poll():
            return None
        return failure_in(self.output())

    def output(self) -> list[str]:
        """Return the lines that Locust has written."""
        self._log.seek(0)
        return [line for line in self._log.read().splitlines() if line.strip()]

    def close(self) -> None:
        """End Locust and its workers immediately, if they still run."""
        # The whole session, because a master that is killed leaves its workers behind.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if hasattr(os, "killpg"):
                os.killpg(self._process.pid, signal.SIGKILL)
            else:
                self._process.kill()
        self._process.wait()
        self._log.close()


def run_locust(
    test: LocustTest, shape: LoadShape, listener: Callable[[LocustProgress], None] = lambda _: None
) -> LocustResult:
    """Run a test to its end, and return what it measured. Ctrl-C ends it early, a second one immediately.

    Raises:
        MissingExtraError: Locust is not installed.
        LocustFailedError: Locust did not run the test.
        KeyboardInterrupt: It was interrupted before the first call, or twice.
    """
    with _started([*file_arguments(test), *shape_arguments(shape)], test.url) as process:
        is_interrupted = False
        try:
            while process.is_running():
                listener(process.progress())
                process.wait(_POLL_S)
        except KeyboardInterrupt:
            is_interrupted = True
            process.interrupt()
            process.wait(STOP_S + _END_S)
        measured, failure = process.measurements(), process.failure()
        if failure is not None and not is_interrupted:
            raise failure
        if measured is None or measured.started_s is None:
            if is_interrupted:
                raise KeyboardInterrupt
            raise LocustFailedError("no user made a call", process.output()[-_SHOWN_LINES:])
        return LocustResult(measured, is_interrupted)


@contextlib.contextmanager
def serving_locust(test: LocustTest, port: int) -> Iterator[LocustProcess]:
    """Serve Locust's web page at a port of this machine, until the block ends.

    Raises:
        MissingExtraError: Locust is not installed.
    """
    # The page shows the host. Which limiter is called is decided by the environment.
    shown = ["--host", without_credentials(test.url), "--users", "20", "--spawn-rate", "10"]
    page = ["--web-host", "127.0.0.1", "--web-port", str(port), "--class-picker", *shown]
    with _started([*file_arguments(test), *page], test.url) as process:
        yield process


def user_classes(file: Path) -> list[str]:
    """Return the names of the user classes of a Locust file.

    Raises:
        MissingExtraError: Locust is not installed.
        LocustFailedError: The file cannot be loaded.
    """
    require_locust()
    command = [sys.executable, "-m", "locust", "-f", str(file), "--list"]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode:
        raise failure_in([line for line in (done.stdout + done.stderr).splitlines() if line.strip()])
    listed = done.stdout.partition(_LISTED)[2]
    return [line.strip() for line in listed.splitlines() if line.strip()]


def require_classes(names: Sequence[str], file: Path) -> None:
    """Require that a Locust file has the user classes that are to run; it is loaded only if there are names.

    Raises:
        MissingExtraError: Locust is not installed.
        LocustFailedError: The file cannot be loaded.
        ValidationError: It has no such class; the message lists those that exist.
    """
    known = user_classes(file) if names else []
    unknown = [name for name in names if name not in known]
    if unknown:
        raise ValidationError("class", ", ".join(unknown), f"{file.name} has: {', '.join(known) or 'no user class'}")


def require_locust() -> None:
    """Require that Locust is installed, without importing it.

    Raises:
        MissingExtraError: It is not.
    """
    if importlib.util.find_spec("locust") is None:
        raise missing_extra("bench", "locust")


def file_arguments(test: LocustTest) -> list[str]:
    """Return the arguments of Locust that select what runs."""
    arguments = ["-f", str(test.file), *test.classes, "--stop-timeout", str(STOP_S), "--exit-code-on-error", "0"]
    if test.processes > 1:
        # Another test on this machine may use the default port.
        port = str(free_port())
        arguments += ["--processes", str(test.processes), "--master-bind-host", "127.0.0.1"]
        arguments += ["--master-bind-port", port, "--master-port", port]
    return arguments


def shape_arguments(shape: LoadShape) -> list[str]:
    """Return the arguments of a test without a web page."""
    counts = ["--users", str(shape.users), "--spawn-rate", f"{shape.spawn_rate:g}"]
    return ["--headless", "--only-summary", *counts, "--run-time", f"{shape.duration_s}s"]


def failure_in(output: Sequence[str]) -> LocustFailedError:
    """Return the error that the output of a failed Locust describes."""
    text = "\n".join(output)
    own, others = _OWN_ERROR.findall(text), _ERROR.findall(text)
    if own:
        return LocustFailedError(own[-1])
    if others and "Traceback" not in text:
        return LocustFailedError(others[-1], output[-_SHOWN_LINES:])
    return LocustFailedError(output[-1].strip() if output else "Locust wrote nothing", output[-_SHOWN_LINES:])


def free_port() -> int:
    """Return a port of this machine that no process listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def answers(port: int) -> bool:
    """Return whether a process of this machine accepts connections at a port."""
    with socket.socket() as probe:
        probe.settimeout(_POLL_S)
        return probe.connect_ex(("127.0.0.1", port)) == 0


@contextlib.contextmanager
def _started(arguments: Sequence[str], url: str) -> Iterator[LocustProcess]:
    require_locust()
    with tempfile.TemporaryDirectory(prefix="zae-limiter-load-", ignore_cleanup_errors=True) as folder:
        process = LocustProcess(arguments, url, Path(folder))
        try:
            yield process
        finally:
            process.close()


def _environment(environ: Mapping[str, str], url: str, result: Path, progress: Path) -> dict[str, str]:
    own = {RUN_URL_VARIABLE: url, _RESULT_VARIABLE: str(result), _PROGRESS_VARIABLE: str(progress)}
    return {**environ, **own, "PYTHONUNBUFFERED": "1"}


def _read_json(path: Path) -> dict[str, Any] | None:
    try:
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    return found
