"""A snapshot that a connection keeps open between quick writes.

Without one, a write takes six locks of SQLite. Two note a snapshot in the log, two read in it, and two write. In a
snapshot that is open already, it takes only the last two. SQLite refuses the write if another connection has written
since the snapshot was opened.

An open snapshot keeps the log from being shortened. So it is renewed after some writes. It is only kept while a process
writes all the time.
"""

import sqlite3
import threading
from collections.abc import Callable
from contextlib import suppress

WRITES_PER_SNAPSHOT = 64
_RENEWALS_AFTER_LOSING = 16
_TICK_S = 0.01
_QUIET_TICKS = 4


class KeepingCursor(sqlite3.Cursor):
    """The cursor of a connection, which can keep a snapshot open between two statements."""

    snapshot: sqlite3.Cursor | None = None

    def keep(self) -> None:
        """Open a snapshot; statements are executed in it until it is released."""
        # SQLite ends a read transaction with the last unfinished statement, and this one has more rows.
        self.snapshot = self.connection.execute("SELECT 1 FROM sqlite_master")

    def release(self) -> None:
        """End the snapshot, so that the next statement sees all that was written."""
        if self.snapshot is not None:
            # Closed before it is forgotten: after an interrupt in between, a traceback may keep a forgotten cursor.
            self.snapshot.close()
            self.snapshot = None


class KeptSnapshots:
    """Decides when the writing connection of a file keeps a snapshot.

    A thread watches while snapshots are kept, because no writer knows that its write was the last for some time.
    """

    def __init__(self) -> None:
        self.is_watched = False
        self._renewals = 0
        # No snapshot is kept for this many renewals.
        self._resting = 0
        self._is_paused = False

    def renew(self, cursor: KeepingCursor) -> None:
        """Release the snapshot of a cursor that has just written, and open the next one if that is allowed."""
        self._renewals += 1
        if self._resting:
            self._resting -= 1
        # The write is committed, so an error here must not look like one of the write.
        with suppress(sqlite3.Error):
            cursor.release()
            if self.is_watched and not self._is_paused and not self._resting:
                cursor.keep()

    def rest(self) -> None:
        """Keep no snapshot for many writes, because another connection has written."""
        self._resting = _RENEWALS_AFTER_LOSING

    def pause(self) -> None:
        """Keep no snapshot until ``resume``; one that is open is released by one of the next writes."""
        self._is_paused = True

    def resume(self) -> None:
        """Allow snapshots again."""
        self._is_paused = False

    def watch(self, release: Callable[[], None]) -> bool:
        """Allow snapshots until there are few writes, and call ``release`` whenever there are; this waits.

        False if another thread watches already.
        """
        if self.is_watched:
            return False
        self.is_watched = True
        try:
            quiet_ticks, before, wait = 0, self._renewals, threading.Event().wait
            while quiet_ticks < _QUIET_TICKS:
                wait(_TICK_S)
                quiet_ticks = 0 if before != self._renewals else quiet_ticks + 1
                before = self._renewals
                if quiet_ticks:
                    release()
        finally:
            self.is_watched = False
        return True
