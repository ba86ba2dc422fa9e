"""What is kept of the local AWS in a directory: the record of the server, its log, its state, and two locks.

The server holds a lock on its pid file for as long as it lives, so a pid file that was left behind, or whose number
another process has now, is never taken for a server.
"""

import json
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from zae_limiter.core.errors import LocalAwsError

POLL_S = 0.05
SHOWN_LINES = 20
_TAIL_BYTES = 16_000
_KEPT_LOG_BYTES = 5_000_000
_CHANGE_S = 120.0
_PID_S = 5.0

PROCESS, CONTAINER = "process", "container"


@dataclass(frozen=True, slots=True)
class Server:
    """A local AWS as it was started; ``container`` is the id of its container, if it runs in one."""

    kind: str
    port: int
    region: str
    started_at: str
    container: str | None = None

    @property
    def endpoint_url(self) -> str:
        """Where it answers."""
        return f"http://127.0.0.1:{self.port}"


@dataclass(frozen=True, slots=True)
class LocalFiles:
    """The files of one local AWS."""

    directory: Path

    @property
    def log(self) -> Path:
        """What the server says."""
        return self.directory / "server.log"

    @property
    def state(self) -> Path:
        """What the server keeps."""
        return self.directory / "state"

    @property
    def pid_file(self) -> Path:
        """The number of the server's process, written and locked by itself."""
        return self.directory / "server.pid"

    @property
    def _record(self) -> Path:
        return self.directory / "server.json"

    @contextmanager
    def changing(self) -> Iterator[None]:
        """Start or stop the server, one at a time.

        Raises:
            LocalAwsError: somebody else is at it, and does not come to an end.
        """
        self._make()
        with (self.directory / "change.lock").open("a") as lock:
            if not _locked_within(lock.fileno(), _CHANGE_S):
                raise LocalAwsError("another zae-limiter local up or down is under way; try again when it has ended")
            yield

    def _make(self) -> None:
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise LocalAwsError(f"cannot keep its files in {self.directory}: {error.strerror}") from error

    @contextmanager
    def claiming(self) -> Iterator[int | None]:
        """Lock the pid file for a server that is about to start; None if one lives."""
        with self.pid_file.open("a") as lock:
            yield lock.fileno() if _locked(lock.fileno()) else None

    def lives(self) -> bool:
        """Say whether a server's process lives."""
        try:
            lock = self.pid_file.open()
        except FileNotFoundError:
            return False
        with lock:
            # Two who look at once do not take each other for the server.
            return not _locked(lock.fileno(), shared=True)

    def pid(self) -> int:
        """Return the number of the process that lives; it is written in the first moments of its life.

        Raises:
            LocalAwsError: the file does not tell.
        """
        end = time.monotonic() + _PID_S
        while time.monotonic() < end:
            text = self.pid_file.read_text().strip()
            if text.isdecimal():
                return int(text)
            time.sleep(POLL_S)
        raise LocalAwsError(f"{self.pid_file} does not tell the process that holds it; end that by hand")

    def read_record(self) -> Server | None:
        """Return the server that was started last, if its record can be read."""
        try:
            return _server(json.loads(self._record.read_text(encoding="utf-8")))
        except (OSError, ValueError, LookupError, TypeError):
            return None

    def write_record(self, server: Server) -> None:
        """Remember a server; what is read is the old record or the new one."""
        fresh = self._record.with_suffix(".new")
        fresh.write_text(json.dumps(asdict(server), indent=2) + "\n", encoding="utf-8")
        fresh.replace(self._record)

    def forget_record(self) -> None:
        """Remember no server."""
        self._record.unlink(missing_ok=True)

    def wipe_state(self) -> None:
        """Remove what the server has kept, if it has kept anything.

        Raises:
            LocalAwsError: It cannot be removed, as when a container has written it as another user.
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
        """Put a log that has grown long aside, and return where the next words will stand."""
        size = self.log.stat().st_size if self.log.exists() else 0
        if size > _KEPT_LOG_BYTES:
            self.log.replace(self.log.with_suffix(".log.1"))
            return 0
        return size

    def tail(self, lines: int = SHOWN_LINES, start: int = 0) -> list[str]:
        """Return the last lines of the log, of what stands after ``start`` in it."""
        return LogReader(self.log, start).last(lines)


class LogReader:
    """Reads a log that is being written, whole lines at a time."""

    def __init__(self, path: Path, start: int = 0) -> None:
        self._path = path
        self._seen = start

    def last(self, lines: int) -> list[str]:
        """Return the last lines there are."""
        whole = self._read(max(self._seen, self._size() - _TAIL_BYTES * (1 + lines // SHOWN_LINES)))
        return whole[max(0, len(whole) - lines) :]

    def new(self) -> list[str]:
        """Return what was written since; a log that was put aside is read from its beginning."""
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
    """Take a lock if nobody has it; it is free again when the last who has the open file closes it."""
    try:
        import fcntl
    except ImportError as error:
        raise LocalAwsError("it needs Linux, macOS or WSL") from error
    try:
        fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _locked_within(descriptor: int, seconds: float) -> bool:
    end = time.monotonic() + seconds
    while not _locked(descriptor):
        if time.monotonic() > end:
            return False
        time.sleep(POLL_S)
    return True
