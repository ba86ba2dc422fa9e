"""The write-ahead log beside a SQLite file: its size, and how it is brought into the file."""

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
    """A moment in which writers of this process wait; it ends by itself."""

    monotonic_s: Callable[[], float]
    ends_s: float

    def lasts(self) -> bool:
        """Say whether writers still wait."""
        return self.monotonic_s() < self.ends_s


class WriteAheadLog:
    """The log of one file, as one process sees it. It carries out what ``core.checkpoint`` decides."""

    def __init__(self, path: str, limit_bytes: int) -> None:
        self._path = log_of(path)
        self._limit_bytes = limit_bytes
        self._tried_bytes = 0
        self.held_back = False
        # None if writers need not wait.
        self.write_pause: WritePause | None = None

    @property
    def size_bytes(self) -> int:
        """The size of the log's file, 0 if there is none."""
        # A stat only. Opening and closing SQLite's files here would drop the locks that this process has on them.
        try:
            return os.stat(self._path).st_size
        except OSError:
            return 0

    def is_due(self, writes: int) -> bool:
        """Say whether to bring the log in, after this many writes of this process."""
        return is_due(writes, self.size_bytes, self._tried_bytes, self._limit_bytes)

    def is_crowded(self) -> bool:
        """Say whether writers have to pause until the log is shorter."""
        return not self.held_back and is_crowded(self.size_bytes, self._limit_bytes)

    def bring_in(self, cursor: sqlite3.Cursor, monotonic_s: Callable[[], float]) -> None:
        """Copy the log into the file, and let it begin again where that is needed; this syncs, and may wait."""
        copies = 1
        seen = self._copy(cursor)
        try:
            while isinstance(step := next_step(seen, copies, self.held_back, self._limit_bytes), CopyAgain):
                threading.Event().wait(step.wait_s)
                copies += 1
                if seen.is_complete:
                    # The last pages are few, so this copy is short unless it syncs the file. Writers then go on.
                    self.write_pause = WritePause(monotonic_s, monotonic_s() + WRITE_PAUSE_S)
                seen = self._copy(cursor, seen)
            self.held_back = step.held_back if isinstance(step, Leave) else self._close_off(cursor, step)
        finally:
            self.write_pause = None
        self._tried_bytes = self.size_bytes if self.held_back else 0

    def _close_off(self, cursor: sqlite3.Cursor, step: CloseOff) -> bool:
        """Let the log begin again, and return whether it is held back."""
        if _closed_off(cursor, step):
            _begin_log(cursor)
            return False
        return is_held_back(self._copy(cursor), self._limit_bytes)

    def _copy(self, cursor: sqlite3.Cursor, before: LogCopy | None = None) -> LogCopy:
        """Copy as much as readers allow, while others go on writing."""
        blocked, pages, copied = cursor.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        page_bytes = before.page_bytes if before else cursor.execute("PRAGMA page_size").fetchone()[0]
        is_quiet = before is not None and before.is_complete and before.pages == pages
        return LogCopy(bool(blocked), pages, copied, page_bytes, self.size_bytes, is_quiet)


def _closed_off(cursor: sqlite3.Cursor, step: CloseOff) -> bool:
    """Hold writers up, copy the rest, and let the log begin again; False if a reader prevents it for too long."""
    cursor.execute(f"PRAGMA busy_timeout = {step.wait_ms}").fetchone()
    try:
        mode = "TRUNCATE" if step.truncates else "RESTART"
        return not cursor.execute(f"PRAGMA wal_checkpoint({mode})").fetchone()[0]
    finally:
        cursor.execute("PRAGMA busy_timeout = 0").fetchone()


def _begin_log(cursor: sqlite3.Cursor) -> None:
    """Make the first write to a log that begins again, unless another process is faster.

    SQLite syncs the log with the first write. An event loop would wait for the disk.
    """
    try:
        with transaction(cursor, "BEGIN IMMEDIATE"):
            version = cursor.execute("PRAGMA user_version").fetchone()[0]
            # Writes the first page, also if the number is the same.
            cursor.execute(f"PRAGMA user_version = {version}")
    except sqlite3.OperationalError as error:
        if not is_busy(error):
            raise
