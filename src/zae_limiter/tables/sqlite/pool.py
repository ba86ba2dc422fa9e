"""Connections to one SQLite file, each used by one thread at a time; none is open while the process forks.

SQLite stores the locks of a process in its memory. A forked child would take its parent's locks for its own. So every
connection is closed before a fork, and opened again when it is needed.
"""

import os
import sqlite3
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from weakref import WeakSet

from zae_limiter.core.errors import RepositoryClosedError, ValidationError
from zae_limiter.tables.blocking import Busy
from zae_limiter.tables.sqlite.file import connect, is_busy, prepare
from zae_limiter.tables.sqlite.identity import LogIdentity, discard_old_log, identity_of, log_identity
from zae_limiter.tables.sqlite.snapshot import KeepingCursor, KeptSnapshots

_LOANS_BETWEEN_LOOKS = 16
"""Every this many calls, the pool checks whether the file was replaced."""
_PATIENCE_S = 0.01
"""A thread that has waited this many seconds for its turn goes before all others."""
_LONGEST_TURN_S = 0.5
"""A turn that lasts this many seconds counts as interrupted."""
_GATE_WAIT_S = 0.01
_FORK_WAIT_S = 0.001
_FORK_WAITS = 1000
_NO_LOG = LogIdentity(None, None)

_gate = threading.RLock()
"""Held by a thread that opens a connection or forks, so that no connection is opened during a fork."""


Loan = tuple[KeepingCursor, deque[KeepingCursor]]
"""A cursor, and the idle cursors of the same file that it goes back to."""


class Turn:
    """A lock that prefers a thread that has waited long.

    The thread that has just released a plain lock often acquires it again, and others wait for a second or more.

    An interrupt may stop a thread before it ends its turn. So the lock is replaced if a turn lasts too long. If the
    thread was only slow, two threads write at the same time. SQLite then lets one of them fail with ``Busy``.
    """

    def __init__(self) -> None:
        # An RLock: its release raises in a thread that does not hold it. An interrupted thread may not know if it does.
        self._lock = threading.RLock()
        self._urgent = threading.RLock()
        # Whether a thread that has waited long gets the next turn.
        self._hurry = False
        self.end = self._lock.release

    def begin(self) -> None:
        """Wait for the turn.

        After an interrupt, call ``end`` anyway: it raises RuntimeError in a thread that does not have the turn.
        """
        lock = self._lock
        if not self._hurry and (lock.acquire(False) or lock.acquire(True, _PATIENCE_S)):
            return
        urgent = self._urgent
        try:
            if not urgent.acquire(True, _LONGEST_TURN_S):
                self._urgent = threading.RLock()
            self._hurry = True
            self._wait()
        finally:
            # If an interrupt prevents this, `_hurry` sends the next thread here, which resets it.
            self._hurry = False
            try:  # noqa: SIM105 - a context manager could be interrupted before the lock is released
                urgent.release()
            except RuntimeError:
                pass

    def _wait(self) -> None:
        """Wait for the turn before all others; replace the lock if its holder was probably interrupted."""
        lock = self._lock
        while not lock.acquire(True, _LONGEST_TURN_S):
            if lock is self._lock:
                self._lock = threading.RLock()
                self.end = self._lock.release
            lock = self._lock


class Pool:
    """Cursors to lend, one per connection; the one that was used last is lent first, because its pages are cached.

    A thread of this process holds ``turn`` while it writes.
    """

    def __init__(self, path: str, wait_s: float) -> None:
        self.turn = Turn()
        self.snapshots = KeptSnapshots()
        self._path = path
        self._idle: deque[KeepingCursor] = deque()
        # Weak: a cursor that an interrupted caller did not give back is closed with its last reference.
        self._open: WeakSet[KeepingCursor] = WeakSet()
        # Cursors of interrupted callers, which are still to be closed.
        self.doomed: deque[KeepingCursor] = deque()
        self._loans = 0
        self._closed = False
        # The log of the current file; known once there is a connection.
        self._log = _NO_LOG
        with _gate:
            self._identity = prepare(path, wait_s)
            _pools.add(self)

    def borrow(self, turn: Turn | None = None) -> Loan:
        """Return a cursor for one caller alone, after waiting for its turn to write if one is given.

        The caller gives it back, also after an error. If it is interrupted, it adds the cursor to ``doomed``. A cursor
        that is lost before that is closed with its last reference.

        Raises:
            Busy: The file was replaced by one that another process keeps locked.
            RepositoryClosedError: The pool is closed.
            StorageError: The file was replaced by one that cannot be used.
            sqlite3.Error: No connection could be made.
        """
        if turn is not None:
            turn.begin()
        self._loans += 1
        if not self._loans % _LOANS_BETWEEN_LOOKS:
            self._look()
        if self.doomed:
            self.drop_doomed()
        idle = self._idle
        try:
            return idle.pop(), idle
        except IndexError:
            return self._connect()

    def give_back(self, loan: Loan) -> None:
        """Take back a cursor that is in order, outside a transaction."""
        cursor, idle = loan
        idle.append(cursor)
        # The file was replaced or closed during the call, so this cursor belongs to the old file.
        if idle is not self._idle:
            # The pool has switched to another file meanwhile.
            self._drop_all(idle)

    def give_back_after(self, loan: Loan, error: ValidationError | sqlite3.Error) -> None:
        """Take back a cursor after an error; its connection is closed unless the file was only busy."""
        if isinstance(error, ValidationError) or is_busy(error):
            self.give_back(loan)
        else:
            self._drop(loan[0])

    def close(self) -> None:
        """Close every connection; those in use are closed when they are given back."""
        self._closed = True
        idle, self._idle = self._idle, deque()
        self._drop_all(idle)

    def release_snapshots(self) -> None:
        """Release the snapshots of idle connections. A thread that writes meanwhile may keep its own."""
        idle = self._idle
        for _ in range(len(idle)):
            with suppress(IndexError):
                cursor = idle.popleft()
                cursor.release()
                self.give_back((cursor, idle))

    def release_all_snapshots(self) -> None:
        """Release the snapshots of all connections, after waiting for the turn of a thread that keeps one."""
        turn = self.turn
        try:
            turn.begin()
            self.release_snapshots()
        finally:
            with suppress(RuntimeError):
                turn.end()

    def rest(self) -> None:
        """Close every connection before a fork; wait at most about a second for those in use."""
        for _ in range(_FORK_WAITS):
            self._drop_all(self._idle)
            if not self._open:
                return
            threading.Event().wait(_FORK_WAIT_S)

    def _connect(self) -> Loan:
        """Return a cursor of a new connection."""
        with _passing_gate():
            if self._closed:
                raise RepositoryClosedError(self._path)
            if identity_of(self._path) != self._identity:
                self._switch()
            cursor = connect(self._path, self._identity)
            self._open.add(cursor)
            log = log_identity(self._path)
            # Checked after the log was read: if the file was replaced meanwhile, it may be the log of the new file.
            if identity_of(self._path) == self._identity:
                # While a connection is open, SQLite does not delete the log, so it stays this one.
                self._log = log
            return cursor, self._idle

    def _look(self) -> None:
        """Switch to the current file at the path if the old one was deleted or replaced."""
        if identity_of(self._path) == self._identity:
            return
        # If the switch fails, the next call checks again: the new file may lack its tables.
        self._loans = -1
        with _passing_gate():
            if not self._closed and identity_of(self._path) != self._identity:
                self._switch()

    def _switch(self) -> None:
        """Close the connections to a file that was deleted or replaced, and open or create the new one.

        Connections in use are closed when they are given back. The old log is removed before the new file is opened.

        Raises:
            Busy: Another process keeps the new file, or its directory, locked.
        """
        if self._open:
            # Before the connections are closed: until then the inode of the old log cannot be reused, so its identity
            # is reliable.
            discard_old_log(self._path, self._identity, self._log)
        self._log = _NO_LOG
        idle, self._idle = self._idle, deque()
        self._drop_all(idle)
        self._identity = prepare(self._path, wait_s=0)

    def _drop_all(self, idle: deque[KeepingCursor]) -> None:
        """Close idle connections."""
        with suppress(IndexError):
            while True:
                self._drop(idle.pop())

    def drop_doomed(self) -> None:
        """Close the connections of interrupted callers."""
        for cursor in list(self.doomed):
            self._drop(cursor)
            with suppress(ValueError):
                self.doomed.remove(cursor)

    def _drop(self, cursor: KeepingCursor) -> None:
        """Close the connection of a cursor; an open transaction is rolled back."""
        if identity_of(self._path) not in (None, self._identity):
            # SQLite does not delete the log of a replaced file with its last connection. The next process would apply
            # that log to the new file.
            with suppress(Busy, OSError):
                discard_old_log(self._path, self._identity, self._log)
        with suppress(sqlite3.Error):
            # SQLite would keep a connection with an unfinished statement open.
            cursor.release()
            cursor.connection.close()
        self._open.discard(cursor)


@contextmanager
def _passing_gate() -> Iterator[None]:
    """Hold the gate; do not wait long for another thread that opens a file.

    Raises:
        Busy: Another thread holds the gate.
    """
    try:
        # Inside the try statement, because an interrupt may come immediately after the gate is acquired.
        if not _gate.acquire(timeout=_GATE_WAIT_S):
            raise Busy
        yield
    finally:
        # The release raises if this thread does not hold the gate.
        with suppress(RuntimeError):
            _gate.release()


def _before_fork() -> None:
    """Close every connection of the process, and keep other threads from opening one."""
    _gate.acquire()
    for pool in list(_pools):
        pool.rest()


def _in_child() -> None:
    """Replace the turns and release the gate: the threads that held a turn do not exist in the child."""
    for pool in list(_pools):
        pool.turn = Turn()
        pool.snapshots = KeptSnapshots()
    _gate.release()


_pools: "WeakSet[Pool]" = WeakSet()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_gate.release, after_in_child=_in_child)
