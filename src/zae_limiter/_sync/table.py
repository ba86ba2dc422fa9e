"""The table port: the interface of storage that everything above uses. Operations and outcomes are values.

If the table does not respond, reads raise ``RateLimiterUnavailable``, and writes return ``Unavailable``. An operation
that no table could carry out (a float, an empty key) raises ``ValidationError``. ``until_s`` is the deadline by the
monotonic clock. If it is None, a call has the deadline that the table was opened with.
"""  # generated from _async by tools/mirror.py; do not edit

from collections.abc import Sequence
from typing import Protocol

from zae_limiter.core.bucket import TimeBounds
from zae_limiter.core.outcome import Item, TransactOutcome, WriteOutcome
from zae_limiter.core.status import BackendCapabilities, TableSize
from zae_limiter.schema.operations import Change, Key, Operation, Page, Query, Update, Write


class ChangeLog(Protocol):
    """A log of what buckets have used, kept by an embedded table; a deployed table has a stream instead."""

    def log_changes(self, start: int) -> int | None:
        """Log what some buckets have used; return the start of the next call, None if the log is complete.

        ``start`` is 0 in the first call.
        """

    def changes(self, after: int, limit: int) -> list[Change]:
        """Return at most ``limit`` logged changes after a sequence number, in order."""

    def trim(self, up_to: int) -> None:
        """Delete the logged changes up to and including a sequence number."""


class ServerTimePort(Protocol):
    """The clock of a server, known from its responses and therefore only within bounds."""

    def narrow(self) -> None:
        """Narrow the bounds in the background."""

    def latest_ms(self, local_s: float) -> int | None:
        """Return the latest time it may have shown at ``local_s`` of the monotonic clock, None if unknown."""


class TogetherPort(Protocol):
    """Writes that an embedded table makes in place: one without waiting, or several items in one step."""

    def write_now(self, operation: Update) -> WriteOutcome | None:
        """Carry out one update if its conditions hold; None if the table would have to wait."""

    def update_all(self, updates: Sequence[Update]) -> Sequence[Item] | None:
        """Apply updates of different items that exist, all or none, and return the new items.

        None if nothing was written: a condition does not hold, an item is absent, or the table would have to wait. The
        updates change no key, and remove at most one attribute each.
        """


class Table(Protocol):
    """One table of items; neither the table nor the caller changes an item that was returned."""

    @property
    def capabilities(self) -> BackendCapabilities:
        """The features of the table."""

    @property
    def inline(self) -> bool:
        """Whether a write is never suspended halfway, so that a cancelled caller has nothing in flight."""

    @property
    def log(self) -> ChangeLog | None:
        """The log of what buckets have used, None if the table has no log."""

    @property
    def together(self) -> TogetherPort | None:
        """The writes that are made in place, None if the table makes none."""

    @property
    def index_lag_s(self) -> float:
        """The seconds for which an index or an eventually consistent read may miss a write; 0 if none ever does."""

    @property
    def server_time(self) -> ServerTimePort | None:
        """The clock of the server, None if the machine's clock is used."""

    def now(self) -> TimeBounds:
        """Return the time by the server's clock, or by the machine's if the table is embedded."""

    def get(self, key: Key, *, consistent: bool = False, until_s: float | None = None) -> Item | None:
        """Return the item, None if it does not exist."""

    def batch_get(
        self, keys: Sequence[Key], *, consistent: bool = False, until_s: float | None = None
    ) -> list[Item | None]:
        """Return the items in the order of their keys, None for each that does not exist."""

    def query(self, query: Query) -> Page:
        """Return one page of a partition of the table or of an index."""

    def write(self, operation: Write, until_s: float | None = None) -> WriteOutcome:
        """Carry out one operation if its conditions hold."""

    def transact(
        self, operations: Sequence[Operation], token: str, *, until_s: float | None = None
    ) -> TransactOutcome:
        """Carry out up to 100 operations, all or none; with its token, a transaction is safe to repeat."""

    def batch_delete(self, keys: Sequence[Key]) -> None:
        """Remove items unconditionally, not in one transaction."""

    def size(self) -> TableSize | None:
        """Return the size of the table, None for DynamoDB."""

    def for_thread(self) -> "Table":
        """Return the same table for calls from another thread with a loop of its own, which closes it."""

    def close(self) -> None:
        """Release everything; no other call may follow."""
