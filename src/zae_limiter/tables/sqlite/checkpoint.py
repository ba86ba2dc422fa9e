"""The write-ahead log beside a SQLite file: its size, and the checkpoints that copy it into the file."""

import os
import sqlite3
import threading
from collections.abc import Callable
from typing import NamedTuple

from zae_limiter.core.checkpoint import (
    WRITE_PAUSE_S,
    CloseOff,
    CopyAgain,
    Leave,
    LogCopy,
    is_crowded,
    is_due,
    is_held_back,
    next_step,
)
from zae_limiter.tables.sqlite.file import is_busy, transaction
from zae_limiter.tables.sqlite.identity import log_of


class WritePause(NamedTuple):
    """A pause of all writers of this process; it ends by itself, even if the checkpoint hangs."""

    monotonic_s: Callable[[], float]
    ends_s: float

    def lasts(self) -> bool:
        """Return whether writers still have to wait."""
        return self.monotonic_s() < self.ends_s


class WriteAheadLog:
    """The log of one file, as one process sees it; `core.checkpoint` decides the steps."""

    def __init__(self, path: str, limit_bytes: int) -> None:
        self._path = log_of(path)
        self._limit_bytes = limit_bytes
        self._tried_bytes = 0
        self.held_back = False
        # None if writers do not have to wait.
        self.write_pause: WritePause | None = None

    @property
    def size_bytes(self) -> int:
        """The size of the log's file, 0 if it does not exist."""
        # The file is not opened: closing it would drop all POSIX locks that this process has on it.
        try:
            return os.stat(self._path).st_size
        except OSError:
            return 0

    def is_due(self, writes: int) -> bool:
        """Return whether to copy the log, after this many writes of this process."""
        return is_due(writes, self.size_bytes, self._tried_bytes, self._limit_bytes)

    def is_crowded(self) -> bool:
        """Return whether writers have to pause until the log is shorter."""
        return not self.held_back and is_crowded(self.size_bytes, self._limit_bytes)

    def bring_in(self, cursor: sqlite3.Cursor, monotonic_s: Callable[[], float]) -> None:
        """Copy the log into the file, and restart it if needed; this waits for the disk, and maybe for readers."""
        copies = 1
        seen = self._copy(cursor)
        try:
            while isinstance(step := next_step(seen, copies, self.held_back, self._limit_bytes), CopyAgain):
                threading.Event().wait(step.wait_s)
                copies += 1
                if seen.is_complete:
                    # The log can only restart while nothing is written. So writers pause for this copy, which has few
                    # pages. If it takes longer because it syncs the file, the pause ends before it.
                    self.write_pause = WritePause(monotonic_s, monotonic_s() + WRITE_PAUSE_S)
                seen = self._copy(cursor, seen)
            self.held_back = step.held_back if isinstance(step, Leave) else self._close_off(cursor, step)
        finally:
            self.write_pause = None
        self._tried_bytes = self.size_bytes if self.held_back else 0

    def _close_off(self, cursor: sqlite3.Cursor, step: CloseOff) -> bool:
        """Restart the log, and return whether readers prevented it."""
        if _closed_off(cursor, step):
            _begin_log(cursor)
            return False
        return is_held_back(self._copy(cursor), self._limit_bytes)

    def _copy(self, cursor: sqlite3.Cursor, before: LogCopy | None = None) -> LogCopy:
        """Copy as many pages as open readers allow, while other connections continue to write."""
        blocked, pages, copied = cursor.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        page_bytes = before.page_bytes if before else cursor.execute("PRAGMA page_size").fetchone()[0]
        # Nothing was written since the last complete copy, so a restart of the log does not have to sync the file.
        is_quiet = before is not None and before.is_complete and before.pages == pages
        return LogCopy(bool(blocked), pages, copied, page_bytes, self.size_bytes, is_quiet)


def _closed_off(cursor: sqlite3.Cursor, step: CloseOff) -> bool:
    """Block writers, copy the rest and restart the log; False if a reader prevents it for too long."""
    cursor.execute(f"PRAGMA busy_timeout = {step.wait_ms}").fetchone()
    try:
        mode = "TRUNCATE" if step.truncates else "RESTART"
        return not cursor.execute(f"PRAGMA wal_checkpoint({mode})").fetchone()[0]
    finally:
        cursor.execute("PRAGMA busy_timeout = 0").fetchone()


def _begin_log(cursor: sqlite3.Cursor) -> None:
    """Make the first write to a restarted log, unless another process is faster.

    SQLite syncs the log at its first write. Made here, on a thread, that write does not block an event loop.
    """
    try:
        with transaction(cursor, "BEGIN IMMEDIATE"):
            version = cursor.execute("PRAGMA user_version").fetchone()[0]
            # This writes the first page, even if the number is the same.
            cursor.execute(f"PRAGMA user_version = {version}")
    except sqlite3.OperationalError as error:
        if not is_busy(error):
            raise
