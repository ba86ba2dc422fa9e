"""Plan what to do about changes: usage to count, shards to split and to merge. Pure.

Changes may be delivered more than once, and in any order within a batch. The marker of a snapshot
says up to which change of a shard it has counted. So a batch that is delivered again adds nothing.
A later batch of a shard must not come before an earlier one, which neither a log nor a stream
allows.

A planned split or merge is never wrong, only wasteful: the shards are read again before the write.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

from zae_limiter.core.lazy_dataclass import dataclass, field, replace
from zae_limiter.core.sharding import wants_split
from zae_limiter.core.timestamp import ms_from_iso
from zae_limiter.core.usage import WINDOW_TYPES, Window, window_at
from zae_limiter.schema.keys import BucketKey
from zae_limiter.schema.usage_item import AddUsage
from zae_limiter_aggregator.records import Batch, BucketChange
from zae_limiter_aggregator.write_rates import Memory, Watch, looked_at

if TYPE_CHECKING:
    from zae_limiter.core.warnings import Marks

SNAPSHOTS_AT_ONCE = 50
"""The number of snapshots that are read together; with their checks they fit into one transaction."""

_HOUR_MS = 3_600_000
_WINDOWS = 4096
_MOST_WATCHED = 20_000
_MOST_SURVEYED = 2_000
_MOST_MARKED = 10_000
_SURVEY_APART_MS = 60_000
_TOO_LATE_MS = 60_000
"""A write rate older than this is not a reason to split."""
_BEHIND_MS = 30_000
"""If the stream is behind its interval by more than this, count in transactions: at twice the price, in a fifth of the
time."""


@dataclass(frozen=True, slots=True)
class Rules:
    """How usage is counted, and how many writes a partition supports.

    ``interval_s`` is how many seconds a record may wait in the stream until it is delivered. If
    ``apart``, an existing snapshot is added to by its own write, at half the price of a transaction.
    Otherwise all snapshots of a group are written in one transaction.
    """

    window_types: tuple[str, ...] = WINDOW_TYPES
    retention_s: int = 90 * 24 * 3600
    writes_per_s: int = 1_000
    interval_s: int = 0
    apart: bool = True

    def expiry_s(self, window: Window) -> int:
        """Return when the snapshot of a window expires, in epoch seconds."""
        return ms_from_iso(window.end) // 1000 + self.retention_s


class UsageAccount(NamedTuple):
    """One shard's part of one snapshot."""

    bucket: BucketKey
    window: Window


Accounts = Mapping[UsageAccount, Mapping[str, BucketChange]]
"""The changes of each account, by sequence."""


class Count(NamedTuple):
    """Add the changes that a snapshot has not counted yet. They are keyed by sequence."""

    account: UsageAccount
    changes: Mapping[str, BucketChange]


class Split(NamedTuple):
    """Split a shard that was seen with this count."""

    bucket: BucketKey
    shard_count: int


class Merge(NamedTuple):
    """Read all shards of a bucket, at least ``widest``, and merge those that stayed calm.

    ``seen`` is what earlier surveys found of each shard.
    """

    bucket: BucketKey
    widest: int
    seen: Mapping[int, Watch]


class ThresholdCheck(NamedTuple):
    """Find the thresholds that these changes of a bucket have reached. Its number of shard is 0."""

    bucket: BucketKey
    changes: list[BucketChange]


@dataclass(frozen=True, slots=True)
class BatchPlan:
    """What to do about a batch, and by which rules. Each group of counts can be written together."""

    counts: list[list[Count]]
    splits: list[Split]
    merges: list[Merge]
    checks: list[ThresholdCheck]
    rules: Rules


class Survey(NamedTuple):
    """When all shards of a bucket were last read, and what is known about each."""

    at_ms: int
    shards: Mapping[int, Watch]


@dataclass(frozen=True, slots=True)
class Memories:
    """What is remembered between batches: rates of shards from records, surveys of whole buckets, and marks.

    ``marks`` are the thresholds that buckets are known to have reached. It saves reading them again.
    """

    watches: Memory[BucketKey, Watch] = field(default_factory=lambda: Memory(_MOST_WATCHED))
    surveys: Memory[BucketKey, Survey] = field(default_factory=lambda: Memory(_MOST_SURVEYED))
    marks: "Memory[BucketKey, Marks]" = field(default_factory=lambda: Memory(_MOST_MARKED))


def plan(batch: Batch, memories: Memories, rules: Rules, now_ms: int) -> BatchPlan:
    """Plan what to do about a batch, and remember its write rates."""
    counts = groups(accounts_of(batch.changes, rules.window_types))
    watched = _watch(batch.changes, memories.watches, rules.writes_per_s)
    splits = [
        Split(bucket, watch.shard_count)
        for bucket, watch in watched.items()
        if _is_pressed(watch, rules.writes_per_s) and now_ms - watch.gauge.at_ms <= _TOO_LATE_MS
    ]
    # The last change is the newest, so it shows how far the stream is behind. It may have waited for
    # the whole interval.
    late_ms = rules.interval_s * 1000 + _BEHIND_MS
    behind = any(now_ms - change.at_ms > late_ms for change in batch.changes[-1:])
    merges = _merges(batch.changes, memories.surveys, now_ms)
    now_rules = replace(rules, apart=rules.apart and not behind)
    return BatchPlan(list(counts), splits, merges, _checks(batch.changes), now_rules)


def accounts_of(changes: Iterable[BucketChange], window_types: Iterable[str] = WINDOW_TYPES) -> Accounts:
    """Assign changes to the windows they belong to, each change once per window."""
    types = tuple(window_types)
    accounts: dict[UsageAccount, dict[str, BucketChange]] = {}
    for change in changes:
        hour = change.at_ms // _HOUR_MS
        for window_type in types:
            account = UsageAccount(change.bucket, _window(window_type, hour))
            accounts.setdefault(account, {})[change.sequence] = change
    return accounts


def groups(accounts: Accounts) -> Iterator[list[Count]]:
    """Group accounts by namespace, with at most one account per snapshot in a group."""

    # Hazard: a transaction must not write an item twice, and all shards of a bucket share a
    # snapshot. So accounts of different shards are never in one group.
    def owner(account: UsageAccount) -> tuple[str, int]:
        return account.bucket.namespace_id, account.bucket.shard_id

    for _, same in groupby(sorted(accounts, key=owner), owner):
        alike = [Count(account, accounts[account]) for account in same]
        for start in range(0, len(alike), SNAPSHOTS_AT_ONCE):
            yield alike[start : start + SNAPSHOTS_AT_ONCE]


def addition(account: UsageAccount, changes: Mapping[str, BucketChange], counted: str | None) -> AddUsage | None:
    """Return what to add to a snapshot that has ``counted`` up to a sequence, None if it has counted all."""
    # Sequences are padded to one length, so comparing them as text compares them as numbers.
    fresh = [change for sequence, change in changes.items() if counted is None or sequence > counted]
    if not fresh:
        return None
    spent_milli: Counter[str] = Counter()
    for change in fresh:
        for name, amount in change.spent_milli.items():
            spent_milli[name] += amount
    last = max(change.sequence for change in fresh)
    writes = sum(change.writes for change in fresh)
    return AddUsage(account.bucket, account.window, spent_milli, writes, last, _highest(fresh))


def _highest(changes: Sequence[BucketChange]) -> Mapping[str, int] | None:
    """Return the most slots that were in use at a time, in millislots; None without limits of concurrent use."""
    highest: dict[str, int] | None = None
    for change in changes:
        for name, milli in (change.in_use_milli or {}).items():
            highest = highest or {}
            highest[name] = max(milli, highest.get(name, 0))
    return highest


def _watch(
    changes: Sequence[BucketChange], watches: Memory[BucketKey, Watch], most_per_s: int
) -> dict[BucketKey, Watch]:
    """Remember the write rates of the shards that changed, and return them."""
    watched: dict[BucketKey, Watch] = {}
    for change in changes:
        if change.record is not None:
            before = watched.get(change.bucket) or watches.get(change.bucket)
            watched[change.bucket] = looked_at(before, change.at_ms, change.record, most_per_s)
    for bucket, watch in watched.items():
        watches.keep(bucket, watch)
    return watched


def _is_pressed(watch: Watch, most_per_s: int) -> bool:
    return watch.rate is not None and wants_split(watch.rate, most_per_s, watch.shard_count)


def _merges(changes: Sequence[BucketChange], surveys: Memory[BucketKey, Survey], now_ms: int) -> list[Merge]:
    """Decide which buckets with several shards to survey: each at most once a minute, while it is written to."""
    widest: dict[BucketKey, int] = {}
    for change in changes:
        if change.record is not None and change.record.shard_count > 1:
            whole = change.bucket._replace(shard_id=0)
            widest[whole] = max(widest.get(whole, 1), change.record.shard_count)
    merges = []
    for whole, count in widest.items():
        survey = surveys.get(whole)
        if survey is None or not 0 <= now_ms - survey.at_ms < _SURVEY_APART_MS:
            merges.append(Merge(whole, count, {} if survey is None else survey.shards))
    return merges


def _checks(changes: Sequence[BucketChange]) -> list[ThresholdCheck]:
    """Group the changes of buckets with thresholds by bucket; most buckets have none."""
    found: dict[BucketKey, ThresholdCheck] = {}
    for change in changes:
        if change.image is not None:
            whole = change.bucket._replace(shard_id=0)
            found.setdefault(whole, ThresholdCheck(whole, [])).changes.append(change)
    return list(found.values())


@lru_cache(_WINDOWS)
def _window(window_type: str, hour: int) -> Window:
    return window_at(window_type, hour * _HOUR_MS)
