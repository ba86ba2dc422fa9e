"""The table port: what everything above asks of storage. Operations and answers are values.

Reads raise ``RateLimiterUnavailable`` when the table does not answer; writes answer ``Unavailable``. An operation
that no table could carry out (a float, an empty key) raises ``ValidationError``. ``until_s`` is when an answer must be
in, by the clock that never goes back; without it a call has the deadline that the table was opened with.
"""

from collections.abc import Sequence
from typing import Protocol

from zae_limiter.core.bucket import TimeBounds
from zae_limiter.core.outcome import Item, TransactOutcome, WriteOutcome
from zae_limiter.core.status import BackendCapabilities, TableSize
from zae_limiter.schema.operations import Change, Key, Operation, Page, Query, Write


class ChangeLog(Protocol):
    """What buckets have used, logged by the table itself; a deployed table has a stream instead."""

    async def log_changes(self, start: int) -> int | None:
        """Log what some buckets have used so far; return where to go on, None if the log is complete.

        ``start`` is 0 at first.
        """

    async def changes(self, after: int, limit: int) -> list[Change]:
        """The next of the logged changes after a sequence, at most so many, in their order."""

    async def trim(self, up_to: int) -> None:
        """Forget the logged changes up to a sequence, included."""


class ServerTimePort(Protocol):
    """The clock of a server, known by its responses and therefore only within bounds."""

    def narrow(self) -> None:
        """Learn the time better, in the background."""

    def latest_ms(self, local_s: float) -> int | None:
        """The latest it may have shown at a time of the clock that never goes back, None if nothing is known of it."""


class Table(Protocol):
    """One table of items. Items it answers with are never changed, by it or by the caller."""

    @property
    def capabilities(self) -> BackendCapabilities:
        """What the table can do."""

    @property
    def inline(self) -> bool:
        """Whether a write is never suspended half done: a caller that was cancelled has nothing in flight."""

    @property
    def log(self) -> ChangeLog | None:
        """The log of what buckets have used, None if the table keeps none."""

    @property
    def index_lag_s(self) -> float:
        """How long a read that does not ask for the newest may miss what was written; 0 where every read shows it."""

    @property
    def server_time(self) -> ServerTimePort | None:
        """The clock of the server, None where the machine's clock counts."""

    def now(self) -> TimeBounds:
        """The time by the clock that counts: the server's where there is one, else the machine's."""

    async def get(self, key: Key, *, consistent: bool = False, until_s: float | None = None) -> Item | None:
        """The item, None if there is none."""

    async def batch_get(
        self, keys: Sequence[Key], *, consistent: bool = False, until_s: float | None = None
    ) -> list[Item | None]:
        """The items in the order of their keys, None for each that is absent."""

    async def query(self, query: Query) -> Page:
        """One page of a partition of the table or of an index."""

    async def write(self, operation: Write, until_s: float | None = None) -> WriteOutcome:
        """Carry out one operation, if its conditions hold."""

    async def transact(
        self, operations: Sequence[Operation], token: str, *, until_s: float | None = None
    ) -> TransactOutcome:
        """Carry out all of up to 100 operations, or none; the token makes an ambiguous one safe to send again."""

    async def batch_delete(self, keys: Sequence[Key]) -> None:
        """Remove items, without a condition and not as one transaction."""

    async def size(self) -> TableSize | None:
        """How much it holds, None where only the service around the table knows."""

    async def close(self) -> None:
        """Let go of everything; no other call may follow."""
