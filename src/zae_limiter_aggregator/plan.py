"""From what happened to what is to be done about it: so much to be counted, shards to be split and merged. Pure.

Changes may come more than once and in any order within a batch. A snapshot's marker says up to which change of a
shard it has counted, so a batch that comes again adds nothing; only a batch must not come before an earlier one of the
same shard, which neither a log nor a stream ever lets happen.

To split or to merge is never wrong, only wasteful: whoever carries it out looks at the shards as they stand.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import groupby
from typing import NamedTuple

from zae_limiter.core.sharding import wants_split
from zae_limiter.core.timestamp import ms_from_iso
from zae_limiter.core.usage import WINDOW_TYPES, Window, window_at
from zae_limiter.schema.keys import BucketKey
from zae_limiter.schema.usage_item import AddUsage
from zae_limiter_aggregator.records import Batch, BucketChange
from zae_limiter_aggregator.write_rates import Memory, Watch, looked_at

SNAPSHOTS_AT_ONCE = 50
"""How many snapshots are read together; with what they require, they fit one transaction."""

_HOUR_MS = 3_600_000
_WINDOWS = 4096
_MOST_WATCHED = 20_000
_MOST_SURVEYED = 2_000
_SURVEY_APART_MS = 60_000
_TOO_LATE_MS = 60_000
"""A rate of writes that is older than this is no reason to split any more."""
_BEHIND_MS = 30_000
"""Who is further behind than this counts in transactions: at twice the price, in a fifth of the time."""


@dataclass(frozen=True, slots=True)
class Rules:
    """How usage is counted, and what a partition bears.

    ``apart``: a snapshot that exists is added to by a write of its own, which is half the price of a transaction where
    writes are paid for; else all that are counted together are written together.
    """

    window_types: tuple[str, ...] = WINDOW_TYPES
    retention_s: int = 90 * 24 * 3600
    writes_per_s: int = 1_000
    apart: bool = True

    def expiry_s(self, window: Window) -> int:
        """When the snapshot of a window expires."""
        return ms_from_iso(window.end) // 1000 + self.retention_s


class UsageAccount(NamedTuple):
    """What one snapshot counts of one shard."""

    bucket: BucketKey
    window: Window


Accounts = Mapping[UsageAccount, Mapping[str, BucketChange]]
"""The changes that belong to each account, by sequence."""


class Count(NamedTuple):
    """Add to a snapshot what it has not counted yet of these changes, by sequence."""

    account: UsageAccount
    changes: Mapping[str, BucketChange]


class Split(NamedTuple):
    """Make two of a shard that was seen with this count."""

    bucket: BucketKey
    shard_count: int


class Merge(NamedTuple):
    """Look at all shards of a bucket, as many as there may be, and merge those that have stayed calm.

    ``seen`` is what earlier looks have told of each shard.
    """

    bucket: BucketKey
    widest: int
    seen: Mapping[int, Watch]


@dataclass(frozen=True, slots=True)
class BatchPlan:
    """What is to be done about a batch, by which rules. Counts are in groups that can be written together."""

    counts: list[list[Count]]
    splits: list[Split]
    merges: list[Merge]
    rules: Rules


class Survey(NamedTuple):
    """When all shards of a bucket were last looked at, and what is known of each."""

    at_ms: int
    shards: Mapping[int, Watch]


@dataclass(frozen=True, slots=True)
class Memories:
    """What is remembered from batch to batch: of shards, what records told; of whole buckets, what looks told."""

    watches: Memory[BucketKey, Watch] = field(default_factory=lambda: Memory(_MOST_WATCHED))
    surveys: Memory[BucketKey, Survey] = field(default_factory=lambda: Memory(_MOST_SURVEYED))


def plan(batch: Batch, memories: Memories, rules: Rules, now_ms: int) -> BatchPlan:
    """Decide what is to be done about a batch, and remember what it tells of rates."""
    counts = groups(accounts_of(batch.changes, rules.window_types))
    watched = _watch(batch.changes, memories.watches, rules.writes_per_s)
    splits = [
        Split(bucket, watch.shard_count)
        for bucket, watch in watched.items()
        if _is_pressed(watch, rules.writes_per_s) and now_ms - watch.gauge.at_ms <= _TOO_LATE_MS
    ]
    behind = any(now_ms - change.at_ms > _BEHIND_MS for change in batch.changes[-1:])
    merges = _merges(batch.changes, memories.surveys, now_ms)
    return BatchPlan(list(counts), splits, merges, replace(rules, apart=rules.apart and not behind))


def accounts_of(changes: Iterable[BucketChange], window_types: Iterable[str] = WINDOW_TYPES) -> Accounts:
    """Sort changes into the windows they belong to, each once."""
    types = tuple(window_types)
    accounts: dict[UsageAccount, dict[str, BucketChange]] = {}
    for change in changes:
        hour = change.at_ms // _HOUR_MS
        for window_type in types:
            account = UsageAccount(change.bucket, _window(window_type, hour))
            accounts.setdefault(account, {})[change.sequence] = change
    return accounts


def groups(accounts: Accounts) -> Iterator[list[Count]]:
    """Part accounts so that those of a part are of one namespace and no two of one snapshot."""

    def owner(account: UsageAccount) -> tuple[str, int]:
        return account.bucket.namespace_id, account.bucket.shard_id

    for _, same in groupby(sorted(accounts, key=owner), owner):
        alike = [Count(account, accounts[account]) for account in same]
        for start in range(0, len(alike), SNAPSHOTS_AT_ONCE):
            yield alike[start : start + SNAPSHOTS_AT_ONCE]


def addition(account: UsageAccount, changes: Mapping[str, BucketChange], counted: str | None) -> AddUsage | None:
    """What is to be added to a snapshot that has ``counted`` up to a change, None if it has counted them all."""
    fresh = [change for sequence, change in changes.items() if counted is None or sequence > counted]
    if not fresh:
        return None
    spent_milli: Counter[str] = Counter()
    for change in fresh:
        for name, amount in change.spent_milli.items():
            spent_milli[name] += amount
    last = max(change.sequence for change in fresh)
    return AddUsage(account.bucket, account.window, spent_milli, sum(change.writes for change in fresh), last)


def _watch(
    changes: Sequence[BucketChange], watches: Memory[BucketKey, Watch], most_per_s: int
) -> dict[BucketKey, Watch]:
    """Remember what changes tell of the shards they happened to, and return it."""
    watched: dict[BucketKey, Watch] = {}
    for change in changes:
        if change.standing is not None:
            before = watched.get(change.bucket) or watches.get(change.bucket)
            watched[change.bucket] = looked_at(before, change.at_ms, change.standing, most_per_s)
    for bucket, watch in watched.items():
        watches.keep(bucket, watch)
    return watched


def _is_pressed(watch: Watch, most_per_s: int) -> bool:
    return watch.rate is not None and wants_split(watch.rate, most_per_s, watch.shard_count)


def _merges(changes: Sequence[BucketChange], surveys: Memory[BucketKey, Survey], now_ms: int) -> list[Merge]:
    """Decide which buckets of several shards are to be looked at: each now and then, while it is written to."""
    widest: dict[BucketKey, int] = {}
    for change in changes:
        if change.standing is not None and change.standing.shard_count > 1:
            whole = change.bucket._replace(shard_id=0)
            widest[whole] = max(widest.get(whole, 1), change.standing.shard_count)
    merges = []
    for whole, count in widest.items():
        survey = surveys.get(whole)
        if survey is None or not 0 <= now_ms - survey.at_ms < _SURVEY_APART_MS:
            merges.append(Merge(whole, count, {} if survey is None else survey.shards))
    return merges


@lru_cache(_WINDOWS)
def _window(window_type: str, hour: int) -> Window:
    return window_at(window_type, hour * _HOUR_MS)
