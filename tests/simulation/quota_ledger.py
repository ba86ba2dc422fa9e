"""The quotas of every bucket, and what must hold for them after every step.

- band: a stored number is in its band, and its epoch never becomes earlier
- refilled: an epoch begins only when the one before has ended, and an even one at an edge that has come
- made: a write charges at least what it counts, and a split, a merge or another schedule gives nothing away
- overdrawn: a take leaves no shard of an enforced quota below zero
- promise: in an epoch, takes + debits - credits are at most the largest amount in force, plus debts on other shards
- expiry, dropped: only what has ended is forgotten
- withheld: after an edge that a client knows, the full amount is available to it
- refused: a soft limit rejects nothing

The ledger knows the arithmetic of DESIGN.md, and the edges of schedules that are simple enough to compute here. Clients
have different time zone data, so their edges differ by a few seconds.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from random import Random
from typing import Any, NamedTuple
from unittest import mock

from tests.many_shards import part_of
from tests.simulation.invariants import BucketId, Violation
from tests.simulation.server import Change, Sent
from tests.simulation.takes import is_bounded, takes
from zae_limiter import RateLimitExceeded
from zae_limiter.core import calendar, quota, quota_level, tracked
from zae_limiter.core.calendar import CalendarSchedule, Period
from zae_limiter.core.outcome import Item
from zae_limiter.schema import bucket_item
from zae_limiter.schema.keys import parse_bucket_pk

BAND = 10**18
MOST = 10**15
"""The most that one write charges to a quota."""

SHIFTS_S = (-2, 0, 0, 0, 3)
"""By how many seconds the edges of a client's time zone data may differ."""

_PERIOD_S = {"h": 3_600, "d": 86_400}


class StoredQuota(NamedTuple):
    """One quota of one shard as stored: its number, its share of the amount, and its schedule."""

    name: str
    qk: int
    share: int
    amount: int
    schedule: str
    soft: bool
    total: int

    @property
    def epoch(self) -> int:
        """The epoch of the stored number."""
        return (BAND // 2 - self.qk) // BAND

    @property
    def spent(self) -> int:
        """What is spent in that epoch."""
        return -BAND * self.epoch - self.qk

    def level(self, epoch: int) -> int:
        """Return what is left in an epoch; an epoch that has not begun here has the whole share."""
        return self.share - self.spent if self.epoch == epoch else self.share

    def ends_s(self) -> int:
        """Return the earliest second at which a client may know that the epoch has ended."""
        # Within the tolerance, an edge is the one that the epoch has taken already.
        same_s = 0 if self.epoch % 2 else _period_s(self.schedule) // 4
        after_s = self.epoch // 2 + same_s
        return min(next_edge_s(self.schedule, after_s - shift_s) + shift_s for shift_s in SHIFTS_S)


class QuotaLedger:
    """All items with quotas, and what was charged in each of their epochs."""

    def __init__(self, acted: Callable[..., None], forgot: Callable[..., None]) -> None:
        self._acted = acted
        self._forgot = forgot
        self._items: dict[BucketId, dict[int, Item]] = {}
        # What was charged, and the largest amount in force, by bucket, limit and epoch.
        self._charged: dict[tuple[BucketId, str], dict[int, int]] = {}
        self._most: dict[tuple[BucketId, str], dict[int, int]] = {}
        self.edges = self.takes = self.judged = 0

    def step(self, now_ms: int, changes: Sequence[Change], sent: Sent) -> None:
        """Record one write or transaction, and check everything that must hold after it."""
        grouped: dict[BucketId, list[Change]] = {}
        for change in changes:
            parsed = parse_bucket_pk(change.key.pk) if change.key.sk == "#STATE" else None
            if parsed is not None:
                self._count_soft_rates((parsed.entity_id, parsed.resource), change, sent)
            if parsed is not None and any(_has_quotas(item) for item in (change.old, change.new)):
                grouped.setdefault((parsed.entity_id, parsed.resource), []).append(change)
        for bucket, moves in grouped.items():
            self._check(bucket, moves, sent)

    def expire(self, now_ms: int, change: Change) -> None:
        """Record that an item expired. What was spent in a period that lasts must not be forgotten."""
        parsed = parse_bucket_pk(change.key.pk)
        if parsed is None or change.old is None:
            return
        bucket = parsed.entity_id, parsed.resource
        for name in _soft_rates(change.old):
            self._forgot(bucket, name, False)
        if not _has_quotas(change.old):
            return
        for stored in _quotas(change.old, parsed.shard_id):
            if stored.spent and now_ms < stored.ends_s() * 1000:
                raise Violation("expiry", bucket, stored.name, "was spent in a period that lasts:", change.old, now_ms)
        self._remove(bucket, [change])

    def judge(self, sender: str, at_s: int, error: RateLimitExceeded) -> None:
        """Check a rejection of a client whose earliest time was ``at_s`` when its request began.

        Raises:
            Violation: A quota had the whole amount, or only soft limits were exceeded.
        """
        exceeded = [status for status in error.statuses if status.exceeded]
        if exceeded and not any(status.limit.enforce for status in exceeded):
            raise Violation("refused", "only soft limits were exceeded:", exceeded)
        for status in exceeded:
            limit = status.limit
            if limit.schedule is None or not limit.enforce or status.requested > limit.capacity:
                continue
            shards = self._items.get((status.entity_id, status.resource), {})
            # The earliest time may become a little earlier by a response that comes meanwhile.
            begin_s = edge_s(limit.schedule.text, at_s - 1 - shift_of(sender)) + shift_of(sender)
            stored = [
                one for shard, item in shards.items() for one in _quotas(item, shard) if one.name == status.limit_name
            ]
            fits = stored and all(
                one.amount == limit.capacity and one.schedule == limit.schedule.text for one in stored
            )
            if fits and len(stored) == len(shards) and all(2 * begin_s - one.epoch >= 1_800 for one in stored):
                whole = "refused although nothing was spent since", begin_s, "at", at_s
                raise Violation("withheld", status.entity_id, status.resource, limit, *whole, stored)
            self.judged += 1

    def _check(self, bucket: BucketId, moves: Sequence[Change], sent: Sent) -> None:
        shards = self._items.setdefault(bucket, {})
        if all(change.new is None for change in moves):
            return self._remove(bucket, moves)
        before = {_number(change): _by_name(change.old, change) for change in moves if change.old is not None}
        for change in moves:
            if change.new is None:
                shards.pop(_number(change), None)
            else:
                shards[_number(change)] = change.new
        after = {_number(change): _by_name(change.new, change) for change in moves if change.new is not None}
        for name in sorted({name for shard in (*before.values(), *after.values()) for name in shard}):
            old = {shard: found[name] for shard, found in before.items() if name in found}
            new = {shard: found[name] for shard, found in after.items() if name in found}
            if len(moves) > 1 and moves[0].operation is not None and len(before) + len(after) == 3:
                _check_reshaped((bucket, name), old, new)
            else:
                for change in moves:
                    self._check_one((bucket, name), old.get(_number(change)), new.get(_number(change)), change, sent)
            self._note_amounts(bucket, name)
            self._check_promise((bucket, name), moves)
        return None

    def _count_soft_rates(self, bucket: BucketId, change: Change, sent: Sent) -> None:
        """Record what a write used of soft rate limits."""
        old, new = change.old or {}, change.new or {}
        for name in _soft_rates(old) | _soft_rates(new):
            total = f"b_{name}_tc"
            if total not in new:
                self._forgot(bucket, name, bool(new))
            elif new[total] != old.get(total, 0) and (change.old is not None or new["shard_count"] == 1):
                self._acted(bucket, name, new[total] - old.get(total, 0), sent.unanswered)

    def _check_one(
        self,
        of: tuple[BucketId, str],
        old: StoredQuota | None,
        new: StoredQuota | None,
        change: Change,
        sent: Sent,
    ) -> None:
        """Check what a write did to one quota of one shard."""
        low_s = sent.time_bounds[0] // 1000
        if new is None:
            if old is None:
                # Only another shard has it yet.
                return
            if old.spent and low_s < old.ends_s():
                raise Violation("dropped", *of, "was spent in a period that lasts:", old, sent)
            self._forgot(of[0], of[1], True)
            return
        counted = new.total - (0 if old is None else old.total)
        if new.spent < 0 or counted % 1000:
            raise Violation("band", *of, new, "after", old, counted, sent)
        carried = 0 if old is None else self._carried(of, old, new, sent)
        if new.spent - carried < min(counted // 1000, MOST):
            raise Violation("made", *of, counted, "counted:", new, "after", old, sent)
        if counted > 0 and takes(change) and is_bounded(change, f"b_{of[1]}_qk") and not new.soft:
            self.takes += 1
            if new.spent > new.share:
                raise Violation("overdrawn", *of, new, "after", old, sent)
        charged = self._charged.setdefault(of, {})
        charged[new.epoch] = charged.get(new.epoch, 0) + new.spent
        if old is not None and carried:
            charged[old.epoch] -= carried
        if counted:
            self._acted(*of, counted, sent.unanswered)

    def _carried(self, of: tuple[BucketId, str], old: StoredQuota, new: StoredQuota, sent: Sent) -> int:
        """Return what is still spent after a write of what was spent before."""
        if new.epoch == old.epoch:
            return old.spent
        if new.epoch < old.epoch:
            raise Violation("band", *of, "went back to an earlier epoch:", new, "after", old, sent)
        if new.schedule == old.schedule:
            self._check_begun(of, old, new, sent)
            return 0
        # A changed schedule begins an epoch, but gives nothing back.
        return old.spent if sent.time_bounds[0] // 1000 < old.ends_s() else 0

    def _check_begun(self, of: tuple[BucketId, str], old: StoredQuota, new: StoredQuota, sent: Sent) -> None:
        """Check that a new epoch is an edge that has come, and that the one before has ended by then."""
        self.edges += 1
        low_s = sent.time_bounds[0] // 1000
        shifts = [
            shift_s
            for shift_s in SHIFTS_S
            if edge_s(new.schedule, new.epoch // 2 - shift_s) == new.epoch // 2 - shift_s
        ]
        if new.epoch % 2 or not shifts or new.epoch // 2 < old.ends_s():
            raise Violation("refilled", *of, "before its end:", old, "by", new, sent)
        proven = any(one.epoch >= new.epoch for one in self._stored(*of))
        if low_s < new.epoch // 2 and not proven:
            raise Violation("refilled", *of, "before the edge:", old, "by", new, sent)

    def _check_promise(self, of: tuple[BucketId, str], moves: Sequence[Change]) -> None:
        stored = list(self._stored(*of))
        if not any(takes(change) and is_bounded(change, f"b_{of[1]}_qk") for change in moves) or not stored:
            return
        if len(stored) < len(self._items[of[0]]):
            # A shard has dropped the quota after its period, and with it a debt.
            return
        # The debts of a shard that is in a later epoch already are not known any more.
        epoch = max(one.epoch for one in stored)
        if not all(one.soft for one in stored):
            owed = sum(max(0, -one.level(epoch)) for one in stored)
            charged, most = self._charged.get(of, {}).get(epoch, 0), self._most[of][epoch]
            if charged > most + owed:
                raise Violation("promise", *of, charged, "charged of", most, "plus debts of", owed, stored)

    def _note_amounts(self, bucket: BucketId, name: str) -> None:
        most = self._most.setdefault((bucket, name), {})
        stored = list(self._stored(bucket, name))
        for one in stored:
            for epoch in {other.epoch for other in stored}:
                most[epoch] = max(most.get(epoch, 0), one.amount)

    def _stored(self, bucket: BucketId, name: str) -> Iterator[StoredQuota]:
        for shard, item in self._items.get(bucket, {}).items():
            yield from (one for one in _quotas(item, shard) if one.name == name)

    def _remove(self, bucket: BucketId, moves: Sequence[Change]) -> None:
        self._items.pop(bucket, None)
        for name in {one.name for change in moves for one in _quotas(change.old or {}, 0)}:
            self._charged.pop((bucket, name), None)
            self._forgot(bucket, name, False)


def _check_reshaped(of: tuple[BucketId, str], old: dict[int, StoredQuota], new: dict[int, StoredQuota]) -> None:
    """Check that a split or a merge gives nothing away."""
    both = [*old.values(), *new.values()]
    if not both:
        return
    epoch = max(one.epoch for one in both)
    had, has = (sum(one.level(epoch) for one in shards.values()) for shards in (old, new))
    # A shard that was only read in an older epoch is full in the newer one.
    if has > had or any(one.epoch > epoch for one in both):
        raise Violation("made", *of, "had", had, "then", has, old, new)


def shift_of(process: str) -> int:
    """Return by how many seconds the edges of a process differ."""
    return Random(f"time zone data of {process}").choice(SHIFTS_S)


@contextmanager
def time_zone_data() -> Iterator[None]:
    """Give each simulated process time zone data of its own, while the block runs."""
    real = calendar.period_at
    shifts: dict[str, int] = {}

    def period_at(schedule: CalendarSchedule, now_s: int) -> Period:
        loop: Any = asyncio._get_running_loop()
        name = getattr(loop, "name", "")
        if name not in shifts:
            shifts[name] = shift_of(name)
        shift_s = shifts[name]
        begin_s, end_s = real(schedule, now_s - shift_s)
        return begin_s + shift_s, end_s + shift_s

    patches = [mock.patch.object(owner, "period_at", period_at) for owner in (quota, quota_level, tracked, bucket_item)]
    for patch in patches:
        patch.start()
    try:
        yield
    finally:
        for patch in patches:
            patch.stop()


def edge_s(schedule: str, at_s: int) -> int:
    """Return the last edge of an hourly or daily schedule in UTC."""
    start, clock, _ = schedule.split(" ")
    period_s, begin_s = _PERIOD_S[start], int(clock[:2]) * 3_600 + int(clock[2:]) * 60
    return (at_s - begin_s) // period_s * period_s + begin_s


def next_edge_s(schedule: str, at_s: int) -> int:
    """Return the first edge after a time."""
    return edge_s(schedule, at_s) + _period_s(schedule)


def _period_s(schedule: str) -> int:
    return _PERIOD_S[schedule.split(" ")[0]]


def _number(change: Change) -> int:
    return int(change.key.pk.rpartition("#")[2])


def _has_quotas(item: Item | None) -> bool:
    return item is not None and any(name.endswith("_qk") for name in item)


def _soft_rates(item: Item) -> set[str]:
    return {key[2:-3] for key in item if key.endswith("_sf") and f"b_{key[2:-3]}_qk" not in item}


def _by_name(item: Item | None, change: Change) -> dict[str, StoredQuota]:
    return {one.name: one for one in _quotas(item or {}, _number(change))}


def _quotas(item: Item, shard: int) -> Iterable[StoredQuota]:
    for key in [key for key in item if key.endswith("_qk")]:
        name = key[2:-3]
        amount = item[f"b_{name}_qa"]
        share = part_of(amount, shard, item["shard_count"])
        soft, total = item.get(f"b_{name}_sf", False), item[f"b_{name}_tc"]
        yield StoredQuota(name, item[key], share, amount, item[f"b_{name}_qs"], soft, total)
