"""The table port over the embedded tables: calls run in this thread, and are repeated while the file is busy.

The waiting is done here and not by the tables. So a caller is cancelled between two attempts, with nothing in flight,
and a lock of another process never blocks the event loop. Every 256 writes, a sweep or a checkpoint may be started.

A long read is made in slices, and other tasks of the loop run between two slices.
"""  # generated from _async by tools/mirror.py; do not edit

import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TypeVar

import zae_limiter.runtime.threads as runtime
from zae_limiter._sync.backoff import Backoff, Pauses
from zae_limiter.clock import Clock
from zae_limiter.core.bucket import TimeBounds
from zae_limiter.core.errors import RateLimiterUnavailable, StorageError
from zae_limiter.core.lazy_dataclass import replace
from zae_limiter.core.outcome import Item, TransactOutcome, Unavailable, WriteOutcome
from zae_limiter.core.status import BackendCapabilities, TableSize
from zae_limiter.process import renew_in_copies
from zae_limiter.schema.operations import Change, Key, Operation, Page, Query, Update, Write
from zae_limiter.tables.blocking import BlockingTable, Busy
from zae_limiter.tables.totals import HOUR_MS

_log = logging.getLogger("zae_limiter")

A = TypeVar("A")
R = TypeVar("R")

_LONGEST_WAIT_S = 0.005
_WAITS = Pauses(0.0002, _LONGEST_WAIT_S, immediate=True)
_WRITES_BETWEEN_UPKEEP = 256
# Writes are quick if there are 4,000 a second.
_QUICK_MS = _WRITES_BETWEEN_UPKEEP // 4
_SWEEP_EVERY_MS = 60_000
_LONGEST_UPKEEP_MS = 600_000
# A sweep checks four items per write, so it is faster than any creation of items.
_ITEMS_PER_SWEEP = 4 * _WRITES_BETWEEN_UPKEEP
_KEYS_PER_DELETE = 100
# A slice makes fewer objects than the garbage collector's threshold for a young collection. With more, objects would
# survive several collections, until a full collection stops everything during a report.
_BUCKETS_PER_LOOK = 8
_ITEMS_PER_PAGE = 50
_KEYS_IN_PASSING = 32
"""A read of more keys than this belongs to a report and not to an acquire."""
# An operation of a transaction usually changes several pages: those of an item, its key and its index entries.
_WRITES_PER_OPERATION = 4
_LOG_PAUSES = 20
_HELD_BACK_EVERY_MS = 60_000


class EmbeddedTable:
    """A table in the memory of this process or in a SQLite file."""

    capabilities = BackendCapabilities()
    inline = True
    index_lag_s = 0.0
    server_time = None

    def __init__(self, table: BlockingTable, clock: Clock, deadline_s: float, jitter: Callable[[], float]) -> None:
        self._table = table
        self._clock = clock
        self._deadline_s = deadline_s
        self._jitter = jitter
        self._writes_to_upkeep = _WRITES_BETWEEN_UPKEEP
        self._sweep_due_ms = 0
        self._held_back_due_ms = 0
        self._upkeep_runs = False
        self._upkeep_lost_ms = 0
        self._kept_up_ms = now_ms = clock.now_ms()
        self._turn_hour(now_ms)
        renew_in_copies(self)

    def renew(self, *, restored: bool) -> None:
        """Note in a forked child that no upkeep runs: the thread of the parent does not exist here."""
        if not restored:
            self._upkeep_runs = False

    @property
    def log(self) -> "EmbeddedTable":
        """The log of what buckets have used."""
        return self

    @property
    def together(self) -> "EmbeddedTable":
        """The writes of several items in one step."""
        return self

    def update_all(self, updates: Sequence[Update]) -> Sequence[Item] | None:
        """Apply updates of different items that exist, all or none, and return the new items; None if nothing was."""
        self._writes_to_upkeep -= len(updates)
        if self._writes_to_upkeep <= 0:
            self._keep_up()
        try:
            return self._table.update_all(updates)
        except Busy:
            return None

    def now(self) -> TimeBounds:
        """Return the machine's time, which every process that shares the table has in common."""
        now_ms = self._clock.now_ms()
        if now_ms >= self._hour_ends_ms:
            self._turn_hour(now_ms)
        return now_ms, now_ms

    def get(self, key: Key, *, consistent: bool = False, until_s: float | None = None) -> Item | None:
        """Return the item, None if it does not exist; every read is consistent."""
        try:
            return self._table.get(key)
        except Busy:
            return self._read_when_free(self._table.get, key, until_s)

    def batch_get(
        self, keys: Sequence[Key], *, consistent: bool = False, until_s: float | None = None
    ) -> list[Item | None]:
        """Return the items in the order of their keys, None for each that does not exist, from one snapshot."""
        if len(keys) > _KEYS_IN_PASSING:
            self._give_way()
        try:
            return self._table.batch_get(keys)
        except Busy:
            return self._read_when_free(self._table.batch_get, keys, until_s)

    def query(self, query: Query) -> Page:
        """Return one page of a partition of the table or of an index, with at most 50 items."""
        if query.limit is None or query.limit > _ITEMS_PER_PAGE:
            query = replace(query, limit=_ITEMS_PER_PAGE)
        self._give_way()
        return self._call(self._table.query, query)

    def write(self, operation: Write, until_s: float | None = None) -> WriteOutcome:
        """Carry out one operation if its conditions hold."""
        self._writes_to_upkeep -= 1
        if self._writes_to_upkeep <= 0:
            self._keep_up()
        try:
            return self._table.write(operation)
        except Busy:
            return self._write_when_free(self._table.write, operation, until_s)

    def transact(
        self, operations: Sequence[Operation], token: str, *, until_s: float | None = None
    ) -> TransactOutcome:
        """Carry out all operations, or none; the token is not used, because no outcome is ambiguous here."""
        self._count(len(operations))
        try:
            return self._table.transact(operations)
        except Busy:
            return self._write_when_free(self._table.transact, operations, until_s)

    def batch_delete(self, keys: Sequence[Key]) -> None:
        """Remove items, 100 at a time, so that neither this loop nor other writers wait long."""
        self.now()
        for start in range(0, len(keys), _KEYS_PER_DELETE):
            some = keys[start : start + _KEYS_PER_DELETE]
            self._count(len(some))
            self._call(self._table.batch_delete, some)
            runtime.sleep(0)

    def log_changes(self, start: int) -> int | None:
        """Log what some buckets have used; return the start of the next call, None if the log is complete."""
        self.now()
        self._give_way()
        self._count(_BUCKETS_PER_LOOK)
        return self._call(lambda first: self._table.log_open(first, _BUCKETS_PER_LOOK), start)

    def changes(self, after: int, limit: int) -> list[Change]:
        """Return at most ``limit`` logged changes after a sequence number, in order."""
        self._give_way()
        return self._call(lambda sequence: self._table.changes(sequence, limit), after)

    def trim(self, up_to: int) -> None:
        """Delete the logged changes up to and including a sequence number."""
        self._call(self._table.trim, up_to)

    def size(self) -> TableSize:
        """Return the size of the table; a file is measured on a thread.

        A long write-ahead log is shortened first, so that the result shows whether other programs prevent it.
        """
        if self._table.upkeep_waits:
            if not self._upkeep_runs and self._table.wants_checkpoint():
                self._upkeep_runs = True
                runtime.in_thread(self._tidy, False)
            with suppress(Busy):
                return runtime.in_thread(self._table.size)
        return self._read_when_free(lambda _: self._table.size(), None)

    def for_thread(self) -> "EmbeddedTable":
        """Return this table: its calls never wait for a loop."""
        return self

    def close(self) -> None:
        """Release everything; no other call may follow."""
        if self._table.upkeep_waits:
            runtime.in_thread(self._table.close)
        else:
            self._table.close()

    def _call(self, call: Callable[[A], R], argument: A) -> R:
        """Make a call that no acquire waits for, and repeat it until the file is free."""
        try:
            return call(argument)
        except Busy:
            return self._read_when_free(call, argument)

    def _read_when_free(self, call: Callable[[A], R], argument: A, until_s: float | None = None) -> R:
        """Repeat a call until the file is free.

        Raises:
            RateLimiterUnavailable: The file stayed busy until the deadline.
        """
        try:
            return self._when_free(call, argument, until_s)
        except TimeoutError as late:
            raise RateLimiterUnavailable(late) from late

    def _write_when_free(
        self, call: Callable[[A], R], argument: A, until_s: float | None = None
    ) -> R | Unavailable:
        """Repeat a write until the file is free; after the deadline return Unavailable, and nothing was written."""
        try:
            return self._when_free(call, argument, until_s)
        except TimeoutError as late:
            return Unavailable(late, ambiguous=False)

    def _when_free(self, call: Callable[[A], R], argument: A, until_s: float | None) -> R:
        """Repeat a call after growing pauses until it does not raise Busy.

        Raises:
            TimeoutError: The deadline has passed.
        """
        started_s = self._clock.monotonic_s()
        if until_s is None:
            until_s = started_s + self._deadline_s
        backoff = Backoff(self._clock, self._jitter, _WAITS, until_s)
        while backoff.wait_to_deadline():
            with suppress(Busy):
                return call(argument)
        raise TimeoutError(f"the file was locked by another program for {self._clock.monotonic_s() - started_s:.1f} s")

    def _turn_hour(self, now_ms: int) -> None:
        """Set the current hour of the table."""
        self._table.hour = hour = now_ms // HOUR_MS
        self._hour_ends_ms = (hour + 1) * HOUR_MS

    def _count(self, operations: int) -> None:
        """Count operations other than single writes, before they are carried out."""
        self._writes_to_upkeep -= _WRITES_PER_OPERATION * operations
        if self._writes_to_upkeep <= 0:
            self._keep_up()

    def _keep_up(self) -> None:
        """Start a sweep or a checkpoint if one is due, and pause if the write-ahead log is too long."""
        self._writes_to_upkeep = _WRITES_BETWEEN_UPKEEP
        now_ms = self._clock.now_ms()
        if now_ms < self._hour_ends_ms - HOUR_MS:
            # The clock was set back.
            self._turn_hour(now_ms)
        if now_ms - self._kept_up_ms < _QUICK_MS and self._table.wants_snapshots():
            runtime.in_background(self._table.keep_snapshots)
        self._kept_up_ms = now_ms
        sweeps = now_ms >= self._sweep_due_ms
        if now_ms >= self._upkeep_lost_ms:
            # An interrupt may have come between setting the flag and starting the upkeep. It would never run again.
            self._upkeep_runs = False
        if not self._upkeep_runs and (sweeps or self._table.wants_checkpoint()):
            self._upkeep_lost_ms = now_ms + _LONGEST_UPKEEP_MS
            self._upkeep_runs = True
            if self._table.upkeep_waits:
                runtime.in_background(self._tidy, sweeps)
            else:
                self._tidy(sweeps)
        self._pause()

    def _give_way(self) -> None:
        """Let other tasks run before the next slice of a report, and let background upkeep end.

        A checkpoint blocks writers until its thread has had the interpreter lock several times. A report would delay
        that.
        """
        runtime.sleep(0)
        for _ in range(_LOG_PAUSES):
            if not self._upkeep_runs:
                return
            runtime.sleep(_LONGEST_WAIT_S)

    def _pause(self) -> None:
        """Wait up to 0.1 s for a background checkpoint while the write-ahead log is close to its limit."""
        for _ in range(_LOG_PAUSES):
            if not (self._upkeep_runs and self._table.is_crowded()):
                return
            # The next write of any task pauses too. Otherwise other tasks would continue at full speed.
            self._writes_to_upkeep = 0
            runtime.sleep(_LONGEST_WAIT_S)

    def _tidy(self, sweeps: bool) -> None:
        """Run a checkpoint if one is due, and remove expired items.

        Errors are ignored: a busy file is retried later, and a closed one needs no upkeep. The next call to the table
        raises any other error.
        """
        try:
            self._shorten_log()
            now_ms = self._clock.now_ms()
            if sweeps and self._table.sweep(now_ms // 1000, _ITEMS_PER_SWEEP).finished:
                self._sweep_due_ms = now_ms + _SWEEP_EVERY_MS
            self._shorten_log()
        except (Busy, RateLimiterUnavailable, StorageError):
            pass
        finally:
            self._upkeep_runs = False

    def _shorten_log(self) -> None:
        """Run a checkpoint if one is due, and warn at most once a minute if other programs prevent it."""
        if not self._table.wants_checkpoint():
            return
        self._table.checkpoint(self._clock.monotonic_s)
        size_bytes = self._table.held_back_bytes()
        now_ms = self._clock.now_ms()
        if size_bytes is not None and now_ms >= self._held_back_due_ms:
            self._held_back_due_ms = now_ms + _HELD_BACK_EVERY_MS
            _log.warning(
                "The write-ahead log cannot be shortened: %s MiB. Another program probably keeps a read transaction "
                "open on the file, such as a SQLite shell or a copy in progress. End that transaction.",
                size_bytes // 2**20,
            )
