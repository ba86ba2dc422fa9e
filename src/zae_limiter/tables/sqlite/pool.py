"""Connections to one SQLite file, each used by one thread at a time; none is open while the process forks.

SQLite keeps the locks a process holds in that process's memory, where a child would find those of its parent and take
them for its own. So every connection is closed before a fork, and opened again when it is asked for.
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

_LOANS_BETWEEN_LOOKS = 16
_PATIENCE_S = 0.01
_LONGEST_TURN_S = 0.5
_GATE_WAIT_S = 0.01
_FORK_WAIT_S = 0.001
_FORK_WAITS = 1000
_NO_LOG = LogIdentity(None, None)

_gate = threading.RLock()
"""Held by who opens a connection, and by who forks."""


Loan = tuple[sqlite3.Cursor, deque[sqlite3.Cursor]]
"""A cursor, and the idle cursors of the same file that it goes back to."""


class Turn:
    """A lock for threads that come back for it at once: one that has waited long goes before them.

    A plain lock would be taken again and again by the thread that has just released it, for a second and more.

    A thread may be interrupted before it can end its turn. So a turn that lasts too long is over: the lock is replaced.
    If its thread is only slow, two threads write at the same time, and SQLite lets one of them try again.
    """

    def __init__(self) -> None:
        # Its release raises in a thread that does not hold it, so every thread may end a turn that it may have.
        self._lock = threading.RLock()
        self._urgent = threading.RLock()
        # Whether a thread that has waited long waits for the next turn.
        self._hurry = False
        self.end = self._lock.release

    def begin(self) -> None:
        """Wait for the turn. ``end`` raises RuntimeError in a thread that does not have it, as after an interrupt."""
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
            # If an interrupt prevents it, the next thread comes this way, and does it.
            self._hurry = False
            try:  # noqa: SIM105 - a context manager could be interrupted before the lock is released
                urgent.release()
            except RuntimeError:
                pass

    def _wait(self) -> None:
        """Wait for the turn, before all others."""
        lock = self._lock
        while not lock.acquire(True, _LONGEST_TURN_S):
            if lock is self._lock:
                self._lock = threading.RLock()
                self.end = self._lock.release
            lock = self._lock


class Pool:
    """Cursors to lend, one per connection; the one given back last is lent first, for its pages are in memory.

    ``turn`` is held by the thread of this process that writes.
    """

    def __init__(self, path: str, wait_s: float) -> None:
        self.turn = Turn()
        self._path = path
        self._idle: deque[sqlite3.Cursor] = deque()
        # Weak: a cursor whose borrower was interrupted before it could give it back is closed with its last reference.
        self._open: WeakSet[sqlite3.Cursor] = WeakSet()
        self.doomed: deque[sqlite3.Cursor] = deque()
        self._loans = 0
        self._closed = False
        # The log of the file in use, known once there is a connection.
        self._log = _NO_LOG
        with _gate:
            self._identity = prepare(path, wait_s)
            _pools.add(self)

    def borrow(self, turn: Turn | None = None) -> Loan:
        """Return a cursor for one caller alone, after waiting for its turn to write if one is given.

        The caller gives it back, also after an error. If it is interrupted, it adds the cursor to ``doomed``. A cursor
        that is lost before that is closed with its last reference.

        Raises:
            Busy: the file was replaced by one that another process keeps locked.
            RepositoryClosedError: the pool is closed.
            StorageError: the file was replaced by one that cannot be used.
            sqlite3.Error: no connection could be made.
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
        """Close every connection, those on loan when they are given back."""
        self._closed = True
        idle, self._idle = self._idle, deque()
        self._drop_all(idle)

    def rest(self) -> None:
        """Close every connection, and wait for those on loan, but not for ever."""
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
            if identity_of(self._path) == self._identity:
                # While a connection is open, SQLite does not delete the log, so it stays this one.
                self._log = log
            return cursor, self._idle

    def _look(self) -> None:
        """Switch to the file that the path leads to now, if the one in use was deleted or replaced."""
        if identity_of(self._path) == self._identity:
            return
        # If this fails, the next call looks again: the new file may lack its tables.
        self._loans = -1
        with _passing_gate():
            if not self._closed and identity_of(self._path) != self._identity:
                self._switch()

    def _switch(self) -> None:
        """Close the connections to a file that was deleted or replaced, and open or create the one of its name.

        Connections on loan are closed when they are given back. The old log is removed before the new file is opened.

        Raises:
            Busy: another process keeps the new file, or its directory, locked.
        """
        if self._open:
            # First: while a connection is open, no other log can have the identity of the old one.
            discard_old_log(self._path, self._identity, self._log)
        self._log = _NO_LOG
        idle, self._idle = self._idle, deque()
        self._drop_all(idle)
        self._identity = prepare(self._path, wait_s=0)

    def _drop_all(self, idle: deque[sqlite3.Cursor]) -> None:
        """Close connections that are not on loan."""
        with suppress(IndexError):
            while True:
                self._drop(idle.pop())

    def drop_doomed(self) -> None:
        """Close the connections whose borrowers were interrupted."""
        for cursor in list(self.doomed):
            self._drop(cursor)
            with suppress(ValueError):
                self.doomed.remove(cursor)

    def _drop(self, cursor: sqlite3.Cursor) -> None:
        """Close the connection of a cursor; what it had not committed is rolled back."""
        if identity_of(self._path) not in (None, self._identity):
            # With its last connection, SQLite leaves the log of a replaced file. The next process would apply it.
            with suppress(Busy, OSError):
                discard_old_log(self._path, self._identity, self._log)
        with suppress(sqlite3.Error):
            cursor.connection.close()
        self._open.discard(cursor)


@contextmanager
def _passing_gate() -> Iterator[None]:
    """Hold the gate, but do not wait for a file that another thread is long in opening.

    Raises:
        Busy: the gate is held by others.
    """
    try:
        # Inside, for an interrupt may strike as soon as it is acquired.
        if not _gate.acquire(timeout=_GATE_WAIT_S):
            raise Busy
        yield
    finally:
        # The release raises if this thread does not hold it.
        with suppress(RuntimeError):
            _gate.release()


def _before_fork() -> None:
    """Close every connection of the process, and let nobody open one."""
    _gate.acquire()
    for pool in list(_pools):
        pool.rest()


def _in_child() -> None:
    """Let the one thread of the child go on: no other is left that could end its turn."""
    for pool in list(_pools):
        pool.turn = Turn()
    _gate.release()


_pools: "WeakSet[Pool]" = WeakSet()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_gate.release, after_in_child=_in_child)
