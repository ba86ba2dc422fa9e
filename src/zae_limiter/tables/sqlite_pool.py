"""Connections to one SQLite file, each used by one thread at a time and never carried into a forked process."""

import ctypes
import os
import sqlite3
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar
from weakref import WeakSet

from zae_limiter.core.errors import StorageError, ValidationError
from zae_limiter.tables.sqlite_file import connect, is_busy, prepare

A = TypeVar("A")
R = TypeVar("R")

_LOANS_BETWEEN_LOOKS = 16


class Pool:
    """Cursors to lend, one per connection; the one given back last is lent first, for its pages are in memory.

    ``turn`` is held by the thread of this process that writes.
    """

    def __init__(self, path: str) -> None:
        self.turn = threading.Lock()
        self._path = path
        self._idle: deque[sqlite3.Cursor] = deque()
        self._loans = 0
        self._closed = False
        prepare(path)
        self._identity = _identity(path)
        _POOLS.add(self)

    def lend(self, call: Callable[[sqlite3.Cursor, A], R], argument: A) -> R:
        """Make a call with a cursor for it alone.

        Raises:
            StorageError: the pool is closed, or the file was replaced by one that cannot be used.
            sqlite3.Error: no connection could be made, or the call met it.
        """
        cursor = self._borrow()
        try:
            answer = call(cursor, argument)
        except BaseException as error:
            if isinstance(error, ValidationError) or (isinstance(error, sqlite3.Error) and is_busy(error)):
                self._give_back(cursor)
            else:
                _close(cursor)
            raise
        self._give_back(cursor)
        return answer

    def close(self) -> None:
        """Close every connection, those on loan when they are given back."""
        self._closed = True
        self._drop_idle()

    def abandon(self) -> None:
        """In a forked child: forget the parent's connections without closing them.

        Closing one here would undo locks and unfinished work that are the parent's, so they are kept alive for good.
        """
        for cursor in self._idle:
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(cursor))
        self._idle = deque()
        self.turn = threading.Lock()

    def _borrow(self) -> sqlite3.Cursor:
        """A cursor that nobody else uses."""
        self._loans += 1
        if not self._loans % _LOANS_BETWEEN_LOOKS:
            self._look()
        try:
            return self._idle.pop()
        except IndexError:
            if self._closed:
                raise StorageError(self._path, "it was closed. Open it again.") from None
            return connect(self._path)

    def _give_back(self, cursor: sqlite3.Cursor) -> None:
        """Take back a cursor that is in order, outside a transaction."""
        self._idle.append(cursor)
        if self._closed:
            self._drop_idle()

    def _look(self) -> None:
        """Let go of a file that was deleted or replaced, and make or open the one that is there now."""
        if _identity(self._path) != self._identity and not self._closed:
            self._drop_idle()
            prepare(self._path)
            self._identity = _identity(self._path)

    def _drop_idle(self) -> None:
        """Close the connections that nobody uses."""
        with suppress(IndexError):
            while True:
                _close(self._idle.pop())


def _identity(path: str) -> tuple[int, int] | None:
    """Which file the path leads to, None if to none."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _close(cursor: sqlite3.Cursor) -> None:
    """Close the connection of a cursor; what it had not committed is rolled back."""
    with suppress(sqlite3.Error):
        cursor.connection.close()


def _abandon_all() -> None:
    """Run in every forked child."""
    for pool in list(_POOLS):
        pool.abandon()


_POOLS: "WeakSet[Pool]" = WeakSet()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_abandon_all)
