"""One delivery of stream records, from reading them to the report: what is planned is carried out, effect by effect.

Usage and the archive must not be lost, so what fails of them is reported and delivered again, from the first record it
concerns on: what comes after it and was counted is known by its marker. A split or a merge that fails is left to
the next batch. What can never succeed, because an item is damaged or forged, is set aside: it is logged with its key,
counted, and holds up nothing.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count as numbers_from
from typing import Any, NamedTuple, Protocol, TypeVar

from zae_limiter.core.bucket import TimeBounds
from zae_limiter.core.errors import CorruptItemError, RateLimiterUnavailable, ValidationError
from zae_limiter_aggregator.apply import ApplyContext, Counted, TableDialogue, count, merge, split
from zae_limiter_aggregator.plan import Count, Memories, Merge, Rules, Survey, plan
from zae_limiter_aggregator.records import Batch, ExpiredEvent, read_all

T = TypeVar("T")

_HOPELESS = (CorruptItemError, ValidationError)
_RESERVED = 0.2
"""The part of the time there is in which nothing new is begun, so that there is always a report."""


class BatchTable(Protocol):
    """What carries out whatever is asked for."""

    def now(self) -> TimeBounds:
        """Return the time by the clock that counts."""

    def run(self, asking: TableDialogue[T], in_time: Callable[[], bool]) -> T:
        """Do whatever is asked for, to the end, or raise when there is no time left."""


class EventArchive(Protocol):
    """Where expired audit events go."""

    def write(self, events: Sequence[ExpiredEvent]) -> None:
        """Keep events, the same as often as they come."""


class Trouble(NamedTuple):
    """What went wrong with what, and whether it is delivered again."""

    what: str
    error: BaseException
    again: bool


@dataclass(frozen=True, slots=True)
class BatchReport:
    """What has come of a delivery; ``first_failure`` is the sequence from which on it is to be delivered again."""

    records: int
    changes: int
    ignored: int
    damaged: int
    snapshots: int
    splits: int
    merges: int
    archived: int
    troubles: Sequence[Trouble]
    first_failure: str | None
    set_aside: int = 0

    def response(self) -> dict[str, Any]:
        """Return what the function answers with: what is to be delivered again, and how much of what was done."""
        failures = [] if self.first_failure is None else [{"itemIdentifier": self.first_failure}]
        return {"batchItemFailures": failures, **self.counts()}

    def counts(self) -> dict[str, int]:
        """Return how much of what was done."""
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
        }


class Worker:
    """Works through deliveries, one after the other, and remembers from one to the next how busy shards are."""

    def __init__(self, table: BatchTable, rules: Rules, archive: EventArchive | None, first_nonce: int) -> None:
        self._table = table
        self._rules = rules
        self._archive = archive
        self._memories = Memories()
        self._means = ApplyContext(numbers_from(first_nonce), table.now)

    def work(self, records: Sequence[Mapping[str, Any]], remaining_s: Callable[[], float]) -> BatchReport:
        """Do what the records of a delivery ask for, as far as there is time."""
        reserve_s = remaining_s() * _RESERVED
        batch = read_all(records)
        planned = plan(batch, self._memories, self._rules, self._table.now()[1])
        effects = _Effects(self._table, planned.rules, self._means, lambda: remaining_s() > reserve_s)
        # Pressure does not wait. Merges do.
        splits = sum(effects.tried(f"split {one.bucket}", split(one, self._means)) or 0 for one in planned.splits)
        snapshots = sum(effects.counted(group) for group in planned.counts)
        archived = 0 if self._archive is None else effects.archived(self._archive, batch)
        merges = sum(self._merged(effects, one) for one in planned.merges)
        return BatchReport(
            records=len(records),
            changes=len(batch.changes),
            ignored=batch.ignored,
            damaged=len(batch.damaged),
            snapshots=snapshots,
            splits=splits,
            merges=merges,
            archived=archived,
            troubles=[*_unread(batch), *effects.troubles],
            first_failure=_first(batch, effects.failed),
            set_aside=len(batch.damaged) + effects.set_aside,
        )

    def _merged(self, effects: "_Effects", merging: Merge) -> int:
        """Look at a bucket, and remember what is known of it, and that it had its turn though the look failed."""
        surveyed = effects.tried(f"merge {merging.bucket}", merge(merging, self._rules, self._means))
        known = merging.seen if surveyed is None else surveyed.shards
        self._memories.surveys.keep(merging.bucket, Survey(self._table.now()[0], known))
        return 0 if surveyed is None else surveyed.merged


class _Effects:
    """The effects of one delivery: carried out one by one, and what went wrong with them."""

    def __init__(self, table: BatchTable, rules: Rules, means: ApplyContext, in_time: Callable[[], bool]) -> None:
        self._table = table
        self._rules = rules
        self._means = means
        self._in_time = in_time
        self.troubles: list[Trouble] = []
        self.failed: set[str] = set()
        self.set_aside = 0

    def tried(self, what: str, asking: TableDialogue[T]) -> T | None:
        """Carry out what is not lost if it fails; None if it did, or there is no time for it."""
        if not self._in_time():
            return None
        try:
            return self._table.run(asking, self._in_time)
        except Exception as error:  # noqa: BLE001 - one effect must not stop the others
            self.set_aside += isinstance(error, _HOPELESS)
            self.troubles.append(Trouble(what, error, again=False))
            return None

    def counted(self, counts: Sequence[Count]) -> int:
        """Count a group, and where one of it is damaged, each by itself; return how many snapshots were added to."""
        if not self._in_time():
            return self._fail(counts, TimeoutError("no time is left"), 0)
        try:
            counted = self._table.run(count(counts, self._rules, self._means), self._in_time)
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
        """Archive the events before the first record that is delivered again, for those after it are too."""
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
    """The first record, as it was delivered, of those that failed."""
    wanted = set(failed)
    return next((sequence for padded, sequence in batch.order.items() if padded in wanted), None)


def _before(batch: Batch, failed: set[str]) -> Iterator[ExpiredEvent]:
    """The events that stand before every record that failed."""
    places = {padded: place for place, padded in enumerate(batch.order)}
    first = min((places[sequence] for sequence in failed), default=len(places))
    return (one for one in batch.expired if places[one.sequence] < first)
