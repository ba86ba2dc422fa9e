"""The interface of the two embedded tables: their calls never wait; they return, or raise ``Busy``."""

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from zae_limiter.core.outcome import Item, TransactOutcome, WriteOutcome
from zae_limiter.core.status import TableSize
from zae_limiter.schema.operations import Change, Key, Operation, Page, Query, Update, Write


class Busy(Exception):  # noqa: N818 - the embedded table retries it, so it is no error for a user
    """Another process or thread has locked the file; nothing was read or changed, and the call may be repeated."""


class Swept(NamedTuple):
    """The number of items a sweep removed, and whether it has reached the end of the table."""

    removed: int
    finished: bool


class BlockingTable(Protocol):
    """An embedded table. Every call may raise ``Busy``; it has then changed nothing."""

    upkeep_waits: bool
    """Whether ``sweep`` and ``checkpoint`` may wait for a disk or another process, and so need a thread."""

    hour: int
    """The current hour in hours since the epoch; a table reads no clock, so its owner sets it."""

    def get(self, key: Key) -> Item | None:
        """Return the item, None if it does not exist."""

    def batch_get(self, keys: Sequence[Key]) -> list[Item | None]:
        """Return the items in the order of their keys, None for each that does not exist, from one snapshot."""

    def query(self, query: Query) -> Page:
        """Return one page of a partition of the table or of an index."""

    def write(self, operation: Write) -> WriteOutcome:
        """Carry out one operation if its conditions hold."""

    def transact(self, operations: Sequence[Operation]) -> TransactOutcome:
        """Carry out all operations, or none."""

    def update_all(self, updates: Sequence[Update]) -> Sequence[Item] | None:
        """Apply updates of different items that exist, all or none, and return the new items; None if nothing was.

        The updates change no key, and remove at most one attribute each.
        """

    def batch_delete(self, keys: Sequence[Key]) -> None:
        """Remove items unconditionally."""

    def sweep(self, now_s: int, limit: int) -> Swept:
        """Check the next ``limit`` items and remove those that have expired."""

    def log_open(self, start: int, limit: int) -> int | None:
        """Log the usage of about ``limit`` open buckets; return the start of the next call, None after the last."""

    def changes(self, after: int, limit: int) -> list[Change]:
        """Return at most ``limit`` logged changes after a sequence number, in order."""

    def trim(self, up_to: int) -> None:
        """Delete the logged changes up to and including a sequence number."""

    def size(self) -> TableSize:
        """Return the size of the table, including expired items that no sweep has removed yet."""

    def wants_checkpoint(self) -> bool:
        """Return whether enough was written for a checkpoint."""

    def is_crowded(self) -> bool:
        """Return whether writers have to pause until a checkpoint is complete."""

    def held_back_bytes(self) -> int | None:
        """Return the size of the log if other processes prevented the last checkpoint, else None."""

    def checkpoint(self, monotonic_s: Callable[[], float]) -> None:
        """Copy the write-ahead log into the file."""

    def wants_snapshots(self) -> bool:
        """Return whether ``keep_snapshots`` would make quick writes cheaper."""

    def keep_snapshots(self) -> None:
        """Make writes cheaper until there are few of them; this waits, so it needs a thread."""

    def close(self) -> None:
        """Release everything; no other call may follow."""
