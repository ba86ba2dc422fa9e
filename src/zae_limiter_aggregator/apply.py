"""What is planned, carried out step by step. Nothing is waited for here.

Each function is a generator that asks for one thing at a time and is sent the answer, so that whoever has a table
carries it out: a Lambda one call after the other, an embedded table in place, a simulation in its own time. Reads are
answered with items in the order of their keys, writes and transactions with what the table port answers; a read
that fails is raised in the generator, or ends it.

All of it may end between any two steps and begin again: a snapshot is added to only on condition that its marker is as
it was seen, and shards are split and merged only as they were seen. What only splits and merges need is imported by
them: they are rare, and it would be a third of what a cold start imports.
"""

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

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
from zae_limiter.schema import keys, namespace_item, usage_item
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
    """Read items. The answer has each in its place, None for one that is absent."""

    keys: tuple[Key, ...]
    consistent: bool


class Transaction(NamedTuple):
    """Carry out all operations, or none; after a lost answer it may be sent again with its token."""

    operations: tuple[Operation, ...]
    token: str


class Pause(NamedTuple):
    """Wait about so long. The answer is None."""

    seconds: float


Ask = Read | Write | Transaction | Pause
Outcome = WriteOutcome | TransactOutcome
TableAnswer = Sequence[Item | None] | Outcome | None
TableDialogue = Generator[Ask, Any, T]
"""Something under way: it asks, is sent answers, and returns what it has come to."""


class ApplyContext(NamedTuple):
    """What carrying out needs besides a table: numbers that no other write bears, and the time."""

    nonces: Iterator[int]
    now: "Callable[[], TimeBounds]"


@dataclass(frozen=True, slots=True)
class Counted:
    """How many snapshots were added to, and what could not be counted, with the cause if there is one."""

    added: int
    left: Sequence[Count]
    cause: BaseException | None = None


@dataclass(frozen=True, slots=True)
class Surveyed:
    """What is known of each shard of a bucket after all were looked at, and how many pairs were merged."""

    shards: Mapping[int, Watch]
    merged: int


def drive(asking: TableDialogue[T], answer_to: Callable[[Ask], TableAnswer]) -> T:
    """Answer everything that is asked for, one thing after the other, to the end."""
    answer: TableAnswer = None
    while True:
        try:
            ask = asking.send(answer)
        except StopIteration as end:
            result: T = end.value
            return result
        answer = answer_to(ask)


def count(counts: Sequence[Count], rules: Rules, means: ApplyContext) -> TableDialogue[Counted]:
    """Add to snapshots of one namespace what they have not counted yet; of a purged namespace nothing is counted.

    A write that found a snapshot other than it was seen, or whose answer was lost, is decided on again from the
    snapshot as it stands: if it was carried out after all, the marker says so.

    Raises:
        CorruptItemError: A snapshot, or the record of the namespace, is damaged.
    """
    left, added, consistent = list(counts), 0, False
    outcomes: list[Outcome] = []
    for attempt in range(_MOST_TRIES):
        first, *items = yield Read(_keys_to_count(left), consistent)
        namespace = None if first is None else namespace_item.from_item(first)
        if namespace is None or namespace.status is NamespaceStatus.PURGING:
            # That is to be sure, for what is not counted now never will be.
            if consistent:
                return Counted(added, ())
            consistent = True
            continue
        additions = _additions(left, items, rules)
        outcomes = yield from _add(namespace, additions, rules, means)
        left = [one.of for one, outcome in zip(additions, outcomes, strict=True) if not _is_done(outcome)]
        added += len(additions) - len(left)
        away = next((one for one in outcomes if isinstance(one, Unavailable) and not one.ambiguous), None)
        if not left or away is not None:
            return Counted(added, left, None if away is None else away.cause)
        if any(isinstance(outcome, Throttled | Conflict) for outcome in outcomes):
            yield _pause(attempt)
        consistent = True
    return Counted(added, left, TimeoutError(f"usage could not be counted in {_MOST_TRIES} tries: {outcomes[:3]}"))


def split(splitting: Split, means: ApplyContext) -> TableDialogue[bool]:
    """Make two of a shard, unless it is not what it was when that was planned; False if it was not done.

    Raises:
        CorruptItemError: The shard is damaged.
    """
    from zae_limiter.core.splitting import split as halved
    from zae_limiter.schema import bucket_writes

    for attempt in range(_MOST_SPLIT_TRIES):
        (view,) = yield from _views([_key(splitting.bucket)], means, consistent=True)
        if view is None or view.layout.shard_count != splitting.shard_count:
            return False
        decided = halved(view, means.now())
        if decided is None:
            return False
        operations = bucket_writes.split(view, decided, next(means.nonces))
        outcome = yield Transaction(operations, f"split-{next(means.nonces)}")
        if isinstance(outcome, Committed):
            return True
        if isinstance(outcome, Throttled | Conflict):
            yield _pause(attempt)
    return False


def merge(merging: Merge, rules: Rules, means: ApplyContext) -> TableDialogue[Surveyed]:
    """Look at all shards of a bucket, and merge those that have been calm for long enough.

    Raises:
        CorruptItemError: A shard is damaged.
    """
    views = yield from _all_shards(merging, means)
    at_ms = means.now()[0]
    shards = {}
    for shard, view in views.items():
        standing = BucketRecord(view.layout.shard_count, view.writes)
        shards[shard] = looked_at(merging.seen.get(shard), at_ms, standing, rules.writes_per_s)
    done = 0
    for staying, leaving in pairs_to_merge(shards):
        done += yield from _join(views[staying], views[leaving], means)
    return Surveyed(shards, done)


class _Addition(NamedTuple):
    """A write that adds to a snapshot, and whether it begins it."""

    of: Count
    write: Update
    begins: bool


def _keys_to_count(counts: Sequence[Count]) -> tuple[Key, ...]:
    """The keys of the namespace's record and of the snapshots."""
    registered = namespace_item.reverse_key(counts[0].account.bucket.namespace_id)
    return (registered, *(usage_item.snapshot_key(*count.account) for count in counts))


def _additions(counts: Sequence[Count], items: Sequence[Item | None], rules: Rules) -> list[_Addition]:
    """Return what is to be added to snapshots as they were seen."""
    additions = []
    for one, item in zip(counts, items, strict=True):
        counted = usage_item.last_counted(item or {}, one.account.bucket.shard_id)
        usage = addition(one.account, one.changes, counted)
        if usage is not None:
            write = usage_item.add(usage, counted, rules.expiry_s(one.account.window))
            additions.append(_Addition(one, write, item is None))
    return additions


def _add(
    namespace: Namespace, additions: Sequence[_Addition], rules: Rules, means: ApplyContext
) -> TableDialogue[list[Outcome]]:
    """Add to snapshots, and return what came of each.

    Only to begin one it must be sure that the namespace is not being purged: what is purged cannot be added to.
    """
    together = [one for one in additions if one.begins or not rules.apart]
    common: TransactOutcome | None = None
    if together:
        check: Operation = namespace_item.require_unchanged(namespace)
        common = yield Transaction((check, *(one.write for one in together)), f"usage-{next(means.nonces)}")
    outcomes: list[Outcome] = []
    away = common if isinstance(common, Unavailable) else None
    for one in additions:
        if common is not None and (one.begins or not rules.apart):
            outcomes.append(common)
            continue
        # While one waits for an answer that does not come, the others would too.
        outcome = away or (yield _only_if_there(one.write))
        outcomes.append(outcome)
        away = outcome if isinstance(outcome, Unavailable) else None
    return outcomes


def _only_if_there(write: Update) -> Update:
    return Update(write.key, write.add, write.set, write.remove, (ItemExists(), *write.when))


def _is_done(outcome: object) -> bool:
    return isinstance(outcome, Applied | Committed)


def _all_shards(merging: Merge, means: ApplyContext) -> "TableDialogue[dict[int, BucketView]]":
    """Look at all shards of a bucket, as many as those that are found tell of."""
    views: dict[int, BucketView] = {}
    looked, widest = 0, merging.widest
    while looked < widest:
        numbers = range(looked, widest)
        wanted = [_key(merging.bucket._replace(shard_id=number)) for number in numbers]
        found = yield from _views(wanted, means, consistent=False)
        views |= {number: view for number, view in zip(numbers, found, strict=True) if view is not None}
        looked, widest = widest, max((view.layout.shard_count for view in views.values()), default=0)
    return views


def _join(stays: "BucketView", goes: "BucketView", means: ApplyContext) -> TableDialogue[bool]:
    """Make one shard of two; False if they are not one shard's halves on the same limits, or others were faster."""
    from zae_limiter.core.splitting import merge as merged
    from zae_limiter.schema import bucket_writes

    for attempt in range(_MOST_MERGE_TRIES):
        if attempt:
            found = yield from _views([stays.layout.key, goes.layout.key], means, consistent=True)
            if found[0] is None or found[1] is None:
                return False
            stays, goes = found[0], found[1]
        decided = merged(stays, goes, means.now())
        if decided is None:
            return False
        operations = bucket_writes.merge(stays, goes, decided, next(means.nonces))
        outcome = yield Transaction(operations, f"merge-{next(means.nonces)}")
        if isinstance(outcome, Committed):
            return True
        if isinstance(outcome, Throttled | Conflict):
            yield _pause(attempt)
    return False


def _views(wanted: Iterable[Key], means: ApplyContext, *, consistent: bool) -> "TableDialogue[list[BucketView | None]]":
    """Look at shards, None for one that is absent."""
    from zae_limiter.schema.bucket_item import view_of

    items = yield Read(tuple(wanted), consistent)
    seen_ms = means.now()[1]
    return [None if item is None else view_of(item, seen_ms, None) for item in items]


def _key(bucket: keys.BucketKey) -> Key:
    return Key(keys.pk_bucket(*bucket), keys.sk_state())


def _pause(attempt: int) -> Pause:
    return Pause(min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2**attempt))
