"""Process one delivery of stream records: read them, plan, carry out each effect, and report.

Usage and archived events must not be lost. So a failure of these is reported, and Lambda delivers
the batch again from the first failed record. Later records that were already counted are recognized
by their markers. A split or merge that fails is left to the next batch. A record or item that is
damaged or forged can never succeed. It is set aside: logged with its key, counted, and not
delivered again.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import count as numbers_from
from typing import Any, NamedTuple, Protocol, TypeVar

from zae_limiter.core.bucket import TimeBounds
from zae_limiter.core.errors import (
    CorruptItemError,
    RateLimiterUnavailable,
    ValidationError,
    ZAELimiterError,
)
from zae_limiter.core.lazy_dataclass import dataclass, replace
from zae_limiter.core.version import unknown_kind
from zae_limiter.core.version_errors import UnknownKindError
from zae_limiter_aggregator.apply import ApplyContext, Counted, TableDialogue, count, merge, split, stored_kinds
from zae_limiter_aggregator.plan import Count, Memories, Merge, Rules, Survey, plan
from zae_limiter_aggregator.records import Batch, ExpiredEvent, read_all

T = TypeVar("T")

_HOPELESS = (CorruptItemError, ValidationError)
_RESERVED = 0.2
"""The part of the remaining time in which no new effect starts, so that there is always a report."""


class BatchTable(Protocol):
    """A table that carries out requests."""

    def now(self) -> TimeBounds:
        """Return the earliest and the latest possible server time."""

    def run(self, dialogue: TableDialogue[T], in_time: Callable[[], bool]) -> T:
        """Carry out all requests of a dialogue; raise an error when no time is left."""


class EventArchive(Protocol):
    """The destination of expired audit events."""

    def write(self, events: Sequence[ExpiredEvent]) -> None:
        """Store events; repeated calls with the same events have no further effect."""


class Trouble(NamedTuple):
    """What failed, its error, and whether it is delivered again."""

    what: str
    error: BaseException
    again: bool


@dataclass(frozen=True, slots=True)
class BatchReport:
    """The result of a delivery; it is delivered again from ``first_failure`` on, not at all if that is None.

    ``slots_in_use`` is the highest number of slots in use of any shard, None if no record had slots.
    """

    records: int
    changes: int
    ignored: int
    damaged: int
    snapshots: int = 0
    splits: int = 0
    merges: int = 0
    archived: int = 0
    troubles: Sequence[Trouble] = ()
    first_failure: str | None = None
    set_aside: int = 0
    slots_in_use: int | None = None

    def response(self) -> dict[str, Any]:
        """Return the response of the function: what is to be delivered again, and the counts."""
        failures = [] if self.first_failure is None else [{"itemIdentifier": self.first_failure}]
        return {"batchItemFailures": failures, **self.counts()}

    def counts(self) -> dict[str, int]:
        """Return the counts, by name; a table without slots has no count of them, and so no metric."""
        slots = {} if self.slots_in_use is None else {"slots_in_use": self.slots_in_use}
        return {
            "records": self.records,
            "changes": self.changes,
            "ignored": self.ignored,
            "damaged": self.damaged,
            "snapshots": self.snapshots,
            "splits": self.splits,
            "merges": self.merges,
            "archived": self.archived,
            "troubles": len(self.troubles),
            "set_aside": self.set_aside,
            **slots,
        }


class Worker:
    """Process deliveries one after the other, and remember the write rates of shards in between."""

    def __init__(self, table: BatchTable, rules: Rules, archive: EventArchive | None, first_nonce: int) -> None:
        self._table = table
        self._rules = rules
        self._archive = archive
        self._memories = Memories()
        self._context = ApplyContext(numbers_from(first_nonce), table.now)

    def work(self, records: Sequence[Mapping[str, Any]], remaining_s: Callable[[], float]) -> BatchReport:
        """Process the records of a delivery, as far as there is time.

        If the table stores a kind of items that this function would misread, nothing is processed. The delivery is then
        repeated, so that an update of the function loses nothing.
        """
        reserve_s = remaining_s() * _RESERVED
        batch = read_all(records)
        report = BatchReport(len(records), len(batch.changes), batch.ignored, len(batch.damaged))
        refusal = self._refusal(batch, lambda: remaining_s() > reserve_s)
        if refusal is not None:
            trouble = Trouble("kinds of stored items", refusal, again=True)
            # The delivery is repeated as a whole.
            return replace(report, troubles=[trouble], first_failure=next(iter(batch.order.values()), None))
        planned = plan(batch, self._memories, self._rules, self._table.now()[1])
        effects = _Effects(self._table, planned.rules, self._context, lambda: remaining_s() > reserve_s)
        # Split first, because a throttled shard cannot wait. Merge last, because a merge can.
        splits = sum(effects.tried(f"split {one.bucket}", split(one, self._context)) or 0 for one in planned.splits)
        snapshots = sum(effects.counted(group) for group in planned.counts)
        archived = 0 if self._archive is None else effects.archived(self._archive, batch)
        merges = sum(self._merged(effects, one) for one in planned.merges)
        return replace(
            report,
            snapshots=snapshots,
            splits=splits,
            merges=merges,
            archived=archived,
            troubles=[*_unread(batch), *effects.troubles],
            first_failure=_first(batch, effects.failed),
            set_aside=len(batch.damaged) + effects.set_aside,
            slots_in_use=_slots_in_use(batch),
        )

    def _refusal(self, batch: Batch, in_time: Callable[[], bool]) -> ZAELimiterError | None:
        """Return why this function must not process a batch: an unknown kind of items, or no answer; None if it may."""
        if not batch.changes:
            return None
        try:
            kinds = self._table.run(stored_kinds(), in_time)
        except ZAELimiterError as error:
            return error
        unknown = unknown_kind(kinds)
        return None if unknown is None else UnknownKindError(unknown, kinds[unknown], "of this aggregator")

    def _merged(self, effects: "_Effects", merging: Merge) -> int:
        """Survey a bucket and remember the result; a failed survey also counts as its turn."""
        surveyed = effects.tried(f"merge {merging.bucket}", merge(merging, self._rules, self._context))
        known = merging.seen if surveyed is None else surveyed.shards
        self._memories.surveys.keep(merging.bucket, Survey(self._table.now()[0], known))
        return 0 if surveyed is None else surveyed.merged


class _Effects:
    """The effects of one delivery, carried out one by one, and their failures."""

    def __init__(self, table: BatchTable, rules: Rules, context: ApplyContext, in_time: Callable[[], bool]) -> None:
        self._table = table
        self._rules = rules
        self._context = context
        self._in_time = in_time
        self.troubles: list[Trouble] = []
        self.failed: set[str] = set()
        self.set_aside = 0

    def tried(self, what: str, dialogue: TableDialogue[T]) -> T | None:
        """Carry out an effect that may be dropped; None if it failed or there is no time for it."""
        if not self._in_time():
            return None
        try:
            return self._table.run(dialogue, self._in_time)
        except Exception as error:  # noqa: BLE001 - one effect must not stop the others
            self.set_aside += isinstance(error, _HOPELESS)
            self.troubles.append(Trouble(what, error, again=False))
            return None

    def counted(self, counts: Sequence[Count]) -> int:
        """Count a group, or each of its members alone if one is damaged; return the number of snapshots added to."""
        if not self._in_time():
            return self._fail(counts, TimeoutError("no time left"), 0)
        try:
            counted = self._table.run(count(counts, self._rules, self._context), self._in_time)
        except _HOPELESS as error:
            if len(counts) > 1:
                return sum(self.counted([one]) for one in counts)
            self.set_aside += 1
            self.troubles.append(Trouble(_named(counts), error, again=False))
            return 0
        except Exception as error:  # noqa: BLE001 - one effect must not stop the others
            return self._fail(counts, error, 0)
        return self._settled(counted)

    def archived(self, archive: EventArchive, batch: Batch) -> int:
        """Archive the events before the first failed record; later ones are delivered again anyway."""
        events = list(_before(batch, self.failed))
        if not events:
            return 0
        try:
            archive.write(events)
        except Exception as error:  # noqa: BLE001 - one effect must not stop the others
            self.troubles.append(Trouble(f"archive of {len(events)} events", error, again=True))
            self.failed |= {one.sequence for one in events}
            return 0
        return len(events)

    def _settled(self, counted: Counted) -> int:
        if not counted.left:
            return counted.added
        return self._fail(counted.left, counted.cause or RateLimiterUnavailable(None), counted.added)

    def _fail(self, counts: Sequence[Count], error: BaseException, added: int) -> int:
        self.troubles.append(Trouble(_named(counts), error, again=True))
        self.failed.update(sequence for one in counts for sequence in one.changes)
        return added


def _slots_in_use(batch: Batch) -> int | None:
    """Return the highest number of slots in use of any limit and shard, None if no record has slots."""
    highest = [milli for change in batch.changes if change.in_use_milli for milli in change.in_use_milli.values()]
    return -(-max(highest) // 1000) if highest else None


def _named(counts: Sequence[Count]) -> str:
    bucket, window = counts[0].account
    more = f" and {len(counts) - 1} more" if len(counts) > 1 else ""
    return f"usage of {bucket.namespace_id}/{bucket.entity_id} {bucket.resource} in {window.key}{more}"


def _unread(batch: Batch) -> list[Trouble]:
    return [
        Trouble(f"record {one.sequence} {one.key}".strip(), ValueError(one.reason), again=False)
        for one in batch.damaged
    ]


def _first(batch: Batch, failed: Iterable[str]) -> str | None:
    """Return the sequence, as it was delivered, of the first failed record; None if none failed."""
    wanted = set(failed)
    return next((sequence for padded, sequence in batch.order.items() if padded in wanted), None)


def _before(batch: Batch, failed: set[str]) -> Iterator[ExpiredEvent]:
    """Return the events before the first failed record."""
    places = {padded: place for place, padded in enumerate(batch.order)}
    first = min((places[sequence] for sequence in failed), default=len(places))
    return (one for one in batch.expired if places[one.sequence] < first)
