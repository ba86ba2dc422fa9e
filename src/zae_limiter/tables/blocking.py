"""What the two embedded tables have in common: calls that answer at once or raise ``Busy``, and never wait."""

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from zae_limiter.core.outcome import Item, TransactOutcome, WriteOutcome
from zae_limiter.core.status import TableSize
from zae_limiter.schema.operations import Change, Key, Operation, Page, Query, Write


class Busy(Exception):  # noqa: N818 - an answer that the port waits for, no error a user meets
    """Another process or thread holds the file; nothing was read or changed, and the same call may be made again."""


class Swept(NamedTuple):
    """How many items a sweep removed, and whether it has come to the end of the table."""

    removed: int
    finished: bool


class BlockingTable(Protocol):
    """An embedded table. Every call may raise ``Busy``, having done nothing."""

    upkeep_waits: bool
    """Whether ``sweep`` and ``checkpoint`` may wait for a disk or another process, and so belong on a thread."""

    hour: int
    """The hour, counted from the epoch, that writes fall into; whoever knows the time sets it."""

    def get(self, key: Key) -> Item | None:
        """The item, None if there is none."""

    def batch_get(self, keys: Sequence[Key]) -> list[Item | None]:
        """The items in the order of their keys, None for each that is absent, all as of one moment."""

    def query(self, query: Query) -> Page:
        """One page of a partition of the table or of an index."""

    def write(self, operation: Write) -> WriteOutcome:
        """Carry out one operation, if its conditions hold."""

    def transact(self, operations: Sequence[Operation]) -> TransactOutcome:
        """Carry out all operations, or none."""

    def batch_delete(self, keys: Sequence[Key]) -> None:
        """Remove items, without a condition."""

    def sweep(self, now_s: int, limit: int) -> Swept:
        """Look at the next ``limit`` items, and remove those whose ``ttl`` is past."""

    def log_open(self, start: int, limit: int) -> int | None:
        """Log what about ``limit`` buckets have used so far; return where to go on, None after the last."""

    def changes(self, after: int, limit: int) -> list[Change]:
        """The next of the logged changes after a sequence, at most so many, in their order."""

    def trim(self, up_to: int) -> None:
        """Forget the logged changes up to a sequence, included."""

    def size(self) -> TableSize:
        """How much the table holds, expired items that no sweep has come to among it."""

    def wants_checkpoint(self) -> bool:
        """Say whether enough was written for a checkpoint."""

    def is_crowded(self) -> bool:
        """Say whether writers have to pause until a checkpoint is over."""

    def held_back_bytes(self) -> int | None:
        """Return the size of the log if others kept the last checkpoint from shortening it, else None."""

    def checkpoint(self, monotonic_s: Callable[[], float]) -> None:
        """Bring what was written to where it is kept for good."""

    def close(self) -> None:
        """Let go of everything; no other call may follow."""
