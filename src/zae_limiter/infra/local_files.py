"""Manage the files of a local AWS: the record of the server, its log, its state, and two locks.

The server holds a lock on its pid file while it runs. So a stale pid file, or one whose number
another process has now, is never mistaken for a server.
"""

import json
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from zae_limiter.core.errors import LocalAwsError
from zae_limiter.core.lazy_dataclass import asdict, dataclass, fields

POLL_S = 0.05
SHOWN_LINES = 20
_TAIL_BYTES = 16_000
_KEPT_LOG_BYTES = 5_000_000
_CHANGE_S = 120.0
_PID_S = 5.0

PROCESS, CONTAINER = "process", "container"


@dataclass(frozen=True, slots=True)
class Server:
    """A local AWS as it was started; ``container`` is the id of its container, None for a process."""

    kind: str
    port: int
    region: str
    started_at: str
    container: str | None = None

    @property
    def endpoint_url(self) -> str:
        """The URL of the server."""
        return f"http://127.0.0.1:{self.port}"


@dataclass(frozen=True, slots=True)
class LocalFiles:
    """The files of one local AWS."""

    directory: Path

    @property
    def log(self) -> Path:
        """The log of the server."""
        return self.directory / "server.log"

    @property
    def state(self) -> Path:
        """The directory of the server's state."""
        return self.directory / "state"

    @property
    def pid_file(self) -> Path:
        """The file with the server's process id, which the server itself writes and locks."""
        return self.directory / "server.pid"

    @property
    def _record(self) -> Path:
        return self.directory / "server.json"

    @contextmanager
    def changing(self) -> Iterator[None]:
        """Hold the lock for starting or stopping the server.

        Raises:
            LocalAwsError: Another command holds it for too long.
        """
        self._make()
        with (self.directory / "change.lock").open("a") as lock:
            if not locked_within(lock.fileno(), _CHANGE_S):
                raise LocalAwsError("another zae-limiter local up or down is in progress; retry when it has ended")
            yield

    def _make(self) -> None:
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise LocalAwsError(f"cannot create the directory {self.directory}: {error.strerror}") from error

    @contextmanager
    def claiming(self) -> Iterator[int | None]:
        """Lock the pid file for a server that is about to start; None if one is running."""
        with self.pid_file.open("a") as lock:
            yield lock.fileno() if _locked(lock.fileno()) else None

    def lives(self) -> bool:
        """Return whether a server process is running."""
        try:
            lock = self.pid_file.open()
        except FileNotFoundError:
            return False
        with lock:
            # A shared lock, so that two checks at the same time do not mistake each other for the
            # server.
            return not _locked(lock.fileno(), shared=True)

    def pid(self) -> int:
        """Return the id of the running process, which writes it at the start.

        Raises:
            LocalAwsError: The file has no process id.
        """
        end = time.monotonic() + _PID_S
        while time.monotonic() < end:
            text = self.pid_file.read_text().strip()
            if text.isdecimal():
                return int(text)
            time.sleep(POLL_S)
        raise LocalAwsError(f"{self.pid_file} has no process id, but a process locks it; stop that process by hand")

    def read_record(self) -> Server | None:
        """Return the server that was started last, None if its record cannot be read."""
        try:
            return _server(json.loads(self._record.read_text(encoding="utf-8")))
        except (OSError, ValueError, LookupError, TypeError):
            return None

    def write_record(self, server: Server) -> None:
        """Replace the record of the server atomically."""
        fresh = self._record.with_suffix(".new")
        fresh.write_text(json.dumps(asdict(server), indent=2) + "\n", encoding="utf-8")
        fresh.replace(self._record)

    def forget_record(self) -> None:
        """Delete the record of the server."""
        self._record.unlink(missing_ok=True)

    def wipe_state(self) -> None:
        """Delete the state of the server, if it has any.

        Raises:
            LocalAwsError: It cannot be deleted, for example because a container wrote it as another user.
        """
        try:
            shutil.rmtree(self.state)
        except FileNotFoundError:
            return
        except OSError as error:
            where = error.filename or self.state
            raise LocalAwsError(
                f"cannot remove {where} ({error.strerror or error}); remove {self.state} by hand"
            ) from error

    def turn_log(self) -> int:
        """Rotate a long log, and return the offset at which the next lines will be written."""
        size = self.log.stat().st_size if self.log.exists() else 0
        if size > _KEPT_LOG_BYTES:
            self.log.replace(self.log.with_suffix(".log.1"))
            return 0
        return size

    def tail(self, lines: int = SHOWN_LINES, start: int = 0) -> list[str]:
        """Return the last lines of the log after the offset ``start``."""
        return LogReader(self.log, start).last(lines)


class LogReader:
    """Read a log while it is written, in whole lines."""

    def __init__(self, path: Path, start: int = 0) -> None:
        self._path = path
        self._seen = start

    def last(self, lines: int) -> list[str]:
        """Return the last lines."""
        whole = self._read(max(self._seen, self._size() - _TAIL_BYTES * (1 + lines // SHOWN_LINES)))
        return whole[max(0, len(whole) - lines) :]

    def new(self) -> list[str]:
        """Return the lines written since the last call; a rotated log is read from its beginning."""
        return self._read(self._seen if self._seen <= self._size() else 0)

    def _size(self) -> int:
        return self._path.stat().st_size if self._path.exists() else 0

    def _read(self, start: int) -> list[str]:
        if not self._path.exists():
            return []
        with self._path.open("rb") as log:
            log.seek(start)
            whole, end, _ = log.read().rpartition(b"\n")
        self._seen = start + len(whole) + len(end)
        return whole.decode(errors="replace").split("\n") if end else []


def _server(found: dict[str, Any]) -> Server:
    if not isinstance(found["port"], int) or not isinstance(found["region"], str):
        raise TypeError("the record is damaged")
    return Server(**{field.name: found[field.name] for field in fields(Server)})


def _locked(descriptor: int, *, shared: bool = False) -> bool:
    """Take a lock if it is free. It is released when the last owner of the open file closes it."""
    try:
        import fcntl
    except ImportError as error:
        raise LocalAwsError("it needs Linux, macOS or WSL") from error
    try:
        fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def locked_within(descriptor: int, seconds: float) -> bool:
    """Take a lock, and wait this many seconds for it; False if another process holds it longer."""
    return holds_within(seconds, lambda: _locked(descriptor))


def holds_within(seconds: float, condition: Callable[[], bool]) -> bool:
    """Wait until a condition holds, for this many seconds at most; False if it does not."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(POLL_S)
    return True
