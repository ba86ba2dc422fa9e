"""Carry out a plan step by step, without waiting.

Each function is a generator. It yields one request at a time and is sent the response. So the
caller decides how to carry it out. A Lambda makes calls, an embedded table applies it in place, and
a simulation uses its own time. A read is answered with items in the order of their keys. Writes and
transactions are answered with the outcomes of a table. A failed read is raised in the generator, or
ends it.

Every function may be stopped between two steps and started again. A snapshot is added to only if
its marker is as it was seen. Shards are split and merged only as they were seen. Splits and merges
import their modules themselves: they are rare, and the imports would be a third of a cold start.
"""

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from zae_limiter.core.lazy_dataclass import dataclass
from zae_limiter.core.namespace import Namespace, NamespaceStatus
from zae_limiter.core.outcome import (
    Applied,
    Committed,
    Conflict,
    Item,
    Throttled,
    TransactOutcome,
    Unavailable,
    WriteOutcome,
)
from zae_limiter.schema import keys, namespace_item, usage_item, version_item
from zae_limiter.schema.operations import ItemExists, Key, Operation, Update, Write
from zae_limiter_aggregator.plan import Count, Merge, Rules, Split, addition
from zae_limiter_aggregator.records import BucketRecord
from zae_limiter_aggregator.write_rates import Watch, looked_at, pairs_to_merge

if TYPE_CHECKING:
    from zae_limiter.core.bucket import TimeBounds
    from zae_limiter.schema.bucket_item import BucketView

_MOST_TRIES = 16
_MOST_SPLIT_TRIES = 4
_MOST_MERGE_TRIES = 3
_FIRST_PAUSE_S = 0.05
_LONGEST_PAUSE_S = 1.0

T = TypeVar("T")


class Read(NamedTuple):
    """Read items. The response has them in order, None for an absent item."""

    keys: tuple[Key, ...]
    consistent: bool


class Transaction(NamedTuple):
    """Apply all operations, or none. After a lost response it may be sent again with its token."""

    operations: tuple[Operation, ...]
    token: str


class Pause(NamedTuple):
    """Wait about this many seconds. The response is None."""

    seconds: float


TableRequest = Read | Write | Transaction | Pause
Outcome = WriteOutcome | TransactOutcome
TableAnswer = Sequence[Item | None] | Outcome | None
TableDialogue = Generator[TableRequest, Any, T]
"""A generator that yields requests, is sent responses, and returns its result."""


class ApplyContext(NamedTuple):
    """What is needed besides a table: nonces that no other write has, and the clock."""

    nonces: Iterator[int]
    now: "Callable[[], TimeBounds]"


@dataclass(frozen=True, slots=True)
class Counted:
    """The number of snapshots that were added to, what is still uncounted, and the cause, None if unknown."""

    added: int
    left: Sequence[Count]
    cause: BaseException | None = None


@dataclass(frozen=True, slots=True)
class Surveyed:
    """What is known about each shard of a bucket after all were read, and how many pairs were merged."""

    shards: Mapping[int, Watch]
    merged: int


def drive(dialogue: TableDialogue[T], answer_to: Callable[[TableRequest], TableAnswer]) -> T:
    """Answer all requests, one after the other, and return the result."""
    answer: TableAnswer = None
    while True:
        try:
            ask = dialogue.send(answer)
        except StopIteration as end:
            result: T = end.value
            return result
        answer = answer_to(ask)


def stored_kinds() -> TableDialogue[Mapping[str, str]]:
    """Read which kinds of items the table may store, each with a version that knows it.

    Raises:
        CorruptItemError: The version record is damaged.
    """
    (found,) = yield Read((version_item.key(),), False)
    return {} if found is None else version_item.kinds_of(found)


def count(counts: Sequence[Count], rules: Rules, context: ApplyContext) -> TableDialogue[Counted]:
    """Add what snapshots of one namespace have not counted yet. Nothing is counted for a purged namespace.

    A write may find a changed snapshot, or its response may be lost. Then the snapshot is read
    again and the decision is repeated. If the write was applied after all, the marker shows it.

    Raises:
        CorruptItemError: A snapshot, or the record of the namespace, is damaged.
    """
    left, added, consistent = list(counts), 0, False
    outcomes: list[Outcome] = []
    for attempt in range(_MOST_TRIES):
        first, *items = yield Read(_keys_to_count(left), consistent)
        namespace = None if first is None else namespace_item.from_item(first)
        if namespace is None or namespace.status is NamespaceStatus.PURGING:
            # Hazard: usage that is skipped here is lost for ever. So confirm with a consistent read
            # that the namespace is gone.
            if consistent:
                return Counted(added, ())
            consistent = True
            continue
        additions = _additions(left, items, rules)
        outcomes = yield from _add(namespace, additions, rules, context)
        # An ambiguous write stays in the list. If it was applied, the next read finds its marker,
        # and ``_additions`` leaves it out. So it is never added twice.
        left = [one.of for one, outcome in zip(additions, outcomes, strict=True) if not _is_done(outcome)]
        added += len(additions) - len(left)
        away = next((one for one in outcomes if isinstance(one, Unavailable) and not one.ambiguous), None)
        if not left or away is not None:
            return Counted(added, left, None if away is None else away.cause)
        if any(isinstance(outcome, Throttled | Conflict) for outcome in outcomes):
            yield pause(attempt)
        # An eventually consistent read could return the same old marker again.
        consistent = True
    return Counted(added, left, TimeoutError(f"usage was not counted after {_MOST_TRIES} tries: {outcomes[:3]}"))


def split(splitting: Split, context: ApplyContext) -> TableDialogue[bool]:
    """Split a shard, unless it has changed since that was planned; False if it was not split.

    Raises:
        CorruptItemError: The shard is damaged.
    """
    from zae_limiter.core.splitting import split as halved
    from zae_limiter.schema import bucket_writes

    for attempt in range(_MOST_SPLIT_TRIES):
        (view,) = yield from _views([_key(splitting.bucket)], context, consistent=True)
        if view is None or view.layout.shard_count != splitting.shard_count:
            return False
        decided = halved(view, context.now())
        if decided is None:
            return False
        operations = bucket_writes.split(view, decided, next(context.nonces))
        outcome = yield Transaction(operations, f"split-{next(context.nonces)}")
        if isinstance(outcome, Committed):
            return True
        if isinstance(outcome, Throttled | Conflict):
            yield pause(attempt)
    return False


def merge(merging: Merge, rules: Rules, context: ApplyContext) -> TableDialogue[Surveyed]:
    """Read all shards of a bucket, and merge those that have been calm for long enough.

    Raises:
        CorruptItemError: A shard is damaged.
    """
    views = yield from all_shards(merging.bucket, merging.widest, context)
    at_ms = context.now()[0]
    shards = {}
    for shard, view in views.items():
        record = BucketRecord(view.layout.shard_count, view.writes)
        shards[shard] = looked_at(merging.seen.get(shard), at_ms, record, rules.writes_per_s)
    done = 0
    for staying, leaving in pairs_to_merge(shards):
        done += yield from _join(views[staying], views[leaving], context)
    return Surveyed(shards, done)


class _Addition(NamedTuple):
    """A write that adds to a snapshot, and whether it creates it."""

    of: Count
    write: Update
    begins: bool


def _keys_to_count(counts: Sequence[Count]) -> tuple[Key, ...]:
    """Return the keys of the namespace's record and of the snapshots."""
    registered = namespace_item.reverse_key(counts[0].account.bucket.namespace_id)
    return (registered, *(usage_item.snapshot_key(*count.account) for count in counts))


def _additions(counts: Sequence[Count], items: Sequence[Item | None], rules: Rules) -> list[_Addition]:
    """Return the writes that add what is missing to snapshots as they were seen."""
    additions = []
    for one, item in zip(counts, items, strict=True):
        counted = usage_item.last_counted(item or {}, one.account.bucket.shard_id)
        usage = addition(one.account, one.changes, counted)
        if usage is not None:
            write = usage_item.add(usage, counted, rules.expiry_s(one.account.window), item)
            additions.append(_Addition(one, write, item is None))
    return additions


def _add(
    namespace: Namespace, additions: Sequence[_Addition], rules: Rules, context: ApplyContext
) -> TableDialogue[list[Outcome]]:
    """Add to snapshots, and return the outcome of each.

    A new snapshot is written in a transaction that checks that the namespace is not being purged.
    An existing one needs no such check: its write requires that it still exists.
    """
    together = [one for one in additions if one.begins or not rules.apart]
    common: TransactOutcome | None = None
    if together:
        check: Operation = namespace_item.require_unchanged(namespace)
        common = yield Transaction((check, *(one.write for one in together)), f"usage-{next(context.nonces)}")
    outcomes: list[Outcome] = []
    away = common if isinstance(common, Unavailable) else None
    for one in additions:
        if common is not None and (one.begins or not rules.apart):
            outcomes.append(common)
            continue
        # If one write is not answered in time, the others would not be either.
        outcome = away or (yield _only_if_there(one.write))
        outcomes.append(outcome)
        away = outcome if isinstance(outcome, Unavailable) else None
    return outcomes


def _only_if_there(write: Update) -> Update:
    # Hazard: a purge may delete the snapshot after it was read. Without this condition the update
    # would create it again, in a purged namespace.
    return Update(write.key, write.add, write.set, write.remove, (ItemExists(), *write.when))


def _is_done(outcome: object) -> bool:
    return isinstance(outcome, Applied | Committed)


def all_shards(bucket: keys.BucketKey, widest: int, context: ApplyContext) -> "TableDialogue[dict[int, BucketView]]":
    """Read all shards of a bucket, at least ``widest``; the counts in those that are found say how many there are."""
    views: dict[int, BucketView] = {}
    looked = 0
    while looked < widest:
        numbers = range(looked, widest)
        wanted = [_key(bucket._replace(shard_id=number)) for number in numbers]
        found = yield from _views(wanted, context, consistent=False)
        views |= {number: view for number, view in zip(numbers, found, strict=True) if view is not None}
        looked, widest = widest, max((view.layout.shard_count for view in views.values()), default=0)
    return views


def _join(stays: "BucketView", goes: "BucketView", context: ApplyContext) -> TableDialogue[bool]:
    """Merge two shards; False if they are not halves of one shard with the same limits, or others were faster."""
    from zae_limiter.core.splitting import merge as merged
    from zae_limiter.schema import bucket_writes

    for attempt in range(_MOST_MERGE_TRIES):
        if attempt:
            found = yield from _views([stays.layout.key, goes.layout.key], context, consistent=True)
            if found[0] is None or found[1] is None:
                return False
            stays, goes = found[0], found[1]
        decided = merged(stays, goes, context.now())
        if decided is None:
            return False
        operations = bucket_writes.merge(stays, goes, decided, next(context.nonces))
        outcome = yield Transaction(operations, f"merge-{next(context.nonces)}")
        if isinstance(outcome, Committed):
            return True
        if isinstance(outcome, Throttled | Conflict):
            yield pause(attempt)
    return False


def _views(
    wanted: Iterable[Key], context: ApplyContext, *, consistent: bool
) -> "TableDialogue[list[BucketView | None]]":
    """Read shards; None for an absent one."""
    from zae_limiter.schema.bucket_item import view_of

    items = yield Read(tuple(wanted), consistent)
    seen_ms = context.now()[1]
    return [None if item is None else view_of(item, seen_ms, None) for item in items]


def _key(bucket: keys.BucketKey) -> Key:
    return Key(keys.pk_bucket(*bucket), keys.sk_state())


def pause(attempt: int) -> Pause:
    """Return the pause before a repeated attempt."""
    return Pause(min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2**attempt))
