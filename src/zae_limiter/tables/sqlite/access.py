"""Makes calls with borrowed connections to a SQLite file, and translates their errors."""

import sqlite3
from collections.abc import Callable
from typing import TypeVar

from zae_limiter.core.errors import RateLimiterUnavailable, ValidationError
from zae_limiter.core.outcome import Unavailable
from zae_limiter.tables.blocking import Busy
from zae_limiter.tables.sqlite.checkpoint import WriteAheadLog
from zae_limiter.tables.sqlite.file import is_busy, transaction
from zae_limiter.tables.sqlite.pool import Loan, Pool

A = TypeVar("A")
R = TypeVar("R")


class FileAccess:
    """Calls on one file. Threads of this process take turns to write; no call waits for a lock of another process."""

    def __init__(self, pool: Pool, log: WriteAheadLog) -> None:
        self._pool = pool
        self._log = log

    def reading(self, call: Callable[[sqlite3.Cursor, A], R], argument: A) -> R:
        """Make a call that reads.

        Raises:
            Busy: The file is locked.
            RateLimiterUnavailable: The file cannot be read.
        """
        try:
            return self._use(self._pool.borrow(), call, argument)
        except sqlite3.Error as error:
            if is_busy(error):
                raise Busy from error
            raise RateLimiterUnavailable(error) from error

    def writing(self, call: Callable[[sqlite3.Cursor, A], R], argument: A) -> R | Unavailable:
        """Make a call that writes; threads of this process take turns.

        Raises:
            Busy: The file is locked.
        """
        write_pause = self._log.write_pause
        if write_pause is not None and write_pause.lasts():
            raise Busy
        turn = self._pool.turn
        try:
            # Inside the try statement, because an interrupt may come immediately after the turn has begun.
            return self._use(self._pool.borrow(turn), call, argument)
        except sqlite3.Error as error:
            if is_busy(error):
                raise Busy from error
            return Unavailable(error, ambiguous=False)
        finally:
            try:  # noqa: SIM105 - a context manager could be interrupted before the turn has ended
                turn.end()
            except RuntimeError:
                pass

    def _use(self, loan: Loan, call: Callable[[sqlite3.Cursor, A], R], argument: A) -> R:
        """Make a call with a borrowed cursor, and give the cursor back."""
        try:
            # In a kept snapshot, the call could read what was written before it.
            loan[0].release()
            answer = call(loan[0], argument)
        except (ValidationError, sqlite3.Error) as error:
            self._pool.give_back_after(loan, error)
            raise
        except BaseException:
            # An interrupt, maybe within a transaction. Noted in this frame, because a second interrupt may strike at
            # the start of the next function. Then the next borrower closes the connection.
            self._pool.doomed.append(loan[0])
            self._pool.drop_doomed()
            raise
        self._pool.give_back(loan)
        return answer

    def changing(self, call: Callable[[sqlite3.Cursor, A], None], argument: A) -> None:
        """Make a call that writes and returns nothing, in one transaction.

        Raises:
            Busy: The file is locked.
            RateLimiterUnavailable: The file cannot be written.
        """

        def change(cursor: sqlite3.Cursor, argument: A) -> None:
            with transaction(cursor, "BEGIN IMMEDIATE"):
                call(cursor, argument)

        outcome = self.writing(change, argument)
        if isinstance(outcome, Unavailable):
            raise RateLimiterUnavailable(outcome.cause)

    def after_failure(self, loan: Loan | None, error: ValueError | OverflowError | sqlite3.Error) -> Unavailable | None:
        """Give a cursor back after a failed write; None if the write has to be tried without cache and snapshot.

        Raises:
            Busy: The file is locked.
        """
        if not isinstance(error, sqlite3.Error):
            # The item cannot be encoded; maybe only because the cached row is old.
            if loan is not None:
                self._pool.give_back(loan)
            return None
        is_locked, was_kept = is_busy(error), False
        if loan is not None:
            was_kept = loan[0].snapshot is not None
            loan[0].release()
            self._pool.give_back_after(loan, error)
        if is_locked and was_kept:
            # Another connection has written since the snapshot was opened, or is writing.
            self._pool.snapshots.rest()
            return None
        if is_locked:
            raise Busy from error
        return Unavailable(error, ambiguous=False)
