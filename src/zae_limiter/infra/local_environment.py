"""Provide the environment of the local AWS: a virtual environment of its own, created at the first start.

The server requires one exact version of botocore. In an environment of its own, it does not decide
which version the user has. An environment without its marker is incomplete, and is created again.
"""

import importlib.util
import os
import shutil
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from zae_limiter.core.errors import LocalAwsError
from zae_limiter.core.lazy_dataclass import dataclass
from zae_limiter.infra.local_files import SHOWN_LINES, locked_within

REQUIREMENTS = ("ministack==1.5.33", "hypercorn==0.18.0")

_CREATE_S = 600.0
_MARKER = "complete"
_OTHERWISE = "or run it in a container: zae-limiter local up --docker"

# Settings of the user's installer that would install elsewhere.
_DIVERTING = (
    "PIP_TARGET",
    "PIP_PREFIX",
    "PIP_ROOT",
    "PIP_USER",
    "PIP_PYTHON",
    "PYTHONHOME",
    "PYTHONPATH",
    "VIRTUAL_ENV",
)


def server_python(say: Callable[[str], None]) -> Path:
    """Return the interpreter that runs the server, and create its environment if it has none.

    An environment that has the server already, such as a developer's, is used as it is. Nothing is
    installed into it, so nothing in it changes.

    Raises:
        LocalAwsError: The environment cannot be created.
    """
    if importlib.util.find_spec("ministack") is not None:
        return Path(sys.executable)
    return LocalEnvironment(default_environment()).provide(say)


def default_environment() -> Path:
    """Return the directory of the environment; each set of versions has one of its own."""
    from platformdirs import user_cache_path

    versions = "-".join(requirement.replace("==", "-") for requirement in REQUIREMENTS)
    name = f"{versions}-py{sys.version_info.major}.{sys.version_info.minor}"
    return Path(user_cache_path("zae-limiter", appauthor=False)) / "local" / name


@dataclass(frozen=True, slots=True)
class LocalEnvironment:
    """The virtual environment in a directory."""

    directory: Path

    @property
    def python(self) -> Path:
        """The interpreter of the environment."""
        return self.directory / "bin" / "python"

    def is_complete(self) -> bool:
        """Return whether all was installed, and the interpreter it was made from still exists."""
        return (self.directory / _MARKER).exists() and self.python.exists()

    def provide(self, say: Callable[[str], None]) -> Path:
        """Return the interpreter of the environment, and create the environment if it is incomplete.

        Raises:
            LocalAwsError: There is no installer, no index, or no permission.
        """
        if not self.is_complete():
            with self._creating():
                if not self.is_complete():
                    self._create(say)
        return self.python

    @contextmanager
    def _creating(self) -> Iterator[None]:
        """Hold the lock for creating it, which another start may have."""
        try:
            self.directory.parent.mkdir(parents=True, exist_ok=True)
            lock = self.directory.with_name(f"{self.directory.name}.lock").open("a")
        except OSError as error:
            raise LocalAwsError(f"cannot create {self.directory}: {error.strerror}; {_OTHERWISE}") from error
        with lock:
            if not locked_within(lock.fileno(), _CREATE_S):
                raise LocalAwsError(f"another command is installing its server into {self.directory}; retry later")
            yield

    def _create(self, say: Callable[[str], None]) -> None:
        say(f"installing its server ({REQUIREMENTS[0]}) into {self.directory}, once")
        self._make_empty()
        _run([*self._installer(say), *REQUIREMENTS], say, self._install_failure)
        (self.directory / _MARKER).write_text("\n".join(REQUIREMENTS) + "\n", encoding="utf-8")

    def _make_empty(self) -> None:
        try:
            import venv

            shutil.rmtree(self.directory, ignore_errors=True)
            venv.create(self.directory, with_pip=False, symlinks=True)
        except ImportError as error:
            raise LocalAwsError(f"this Python has no module venv; install it, {_OTHERWISE}") from error
        except (OSError, subprocess.CalledProcessError) as error:
            raise LocalAwsError(f"cannot create {self.directory}: {error}; {_OTHERWISE}") from error

    def _installer(self, say: Callable[[str], None]) -> list[str]:
        """Return the installer: uv, the pip of this environment, or else a pip of its own."""
        if uv := shutil.which("uv"):
            return [uv, "pip", "install", "--python", str(self.python)]
        if importlib.util.find_spec("pip") is not None:
            return [sys.executable, "-m", "pip", "--python", str(self.python), "install"]
        _run([str(self.python), "-m", "ensurepip"], say, _no_installer)
        return [str(self.python), "-m", "pip", "install"]

    def _install_failure(self, lines: Sequence[str]) -> LocalAwsError:
        """Return the error for an installer that failed; its last lines have the reason."""
        advice = f"The first start needs a package index. Make one reachable and retry, {_OTHERWISE}"
        return LocalAwsError(f"its server could not be installed into {self.directory}. {advice}", lines)


def _no_installer(lines: Sequence[str]) -> LocalAwsError:
    """Return the error for a Python without pip, as some systems package it."""
    return LocalAwsError(
        f"its server cannot be installed without pip; install pip or uv and retry, {_OTHERWISE}", lines
    )


def _run(command: list[str], say: Callable[[str], None], failure: Callable[[Sequence[str]], LocalAwsError]) -> None:
    """Run an installer, report each line of its output, and raise the failure with its last lines."""
    known = {name: value for name, value in os.environ.items() if name not in _DIVERTING}
    quiet = {"PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_NO_INPUT": "1", "PIP_PROGRESS_BAR": "off", "PIP_USER": "0"}
    last: deque[str] = deque(maxlen=SHOWN_LINES)
    try:
        running = subprocess.Popen(
            command,
            env={**known, **quiet},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
    except OSError as error:
        raise failure([f"{command[0]}: {error.strerror}"]) from error
    with running:
        try:
            for line in running.stdout or ():
                last.append(line.rstrip())
                say(line.strip())
        except BaseException:
            # The environment has no marker, so the next start creates it again.
            running.kill()
            raise
    if running.returncode:
        raise failure(tuple(last))
