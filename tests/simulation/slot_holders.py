"""The leases that hold slots, and what must hold for the slots of every bucket after every step.

- slots: on every item, the free slots and all cohorts add up to the shard's share of the capacity
- unbacked: the slots that leases rely on beyond any time are counted in cohorts that end beyond it
- crowded: leases hold at most the largest capacity in force since the oldest of them was taken
- kept: at the end of a run, all slots are free again

A lease relies on its slots until their end at the true time, even if its process has crashed.
"""

from collections.abc import Callable, Sequence
from typing import Any

from tests.many_shards import part_of
from tests.simulation.invariants import BucketId, Violation
from tests.simulation.server import Change, Sent
from zae_limiter.core.outcome import Item
from zae_limiter.schema.keys import parse_bucket_pk


class Holder:
    """The slots that a lease holds of one bucket, and the largest capacities in force since it was opened."""

    __slots__ = ("hold", "most")

    def __init__(self, hold: Any, most: dict[str, int]) -> None:
        self.hold = hold
        self.most = most

    def relies_on(self, name: str, at_ms: int) -> int:
        """Return the slots that do not end before a time, in millislots."""
        return sum(one.milli for one in self.hold.claims if one.name == name and one.end_s * 1000 > at_ms)


class SlotHolders:
    """All items with slots, and the leases that hold them."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._items: dict[BucketId, dict[int, Item]] = {}
        self._holders: dict[BucketId, list[Holder]] = {}
        # When other capacities came into force, and which.
        self._history: dict[BucketId, list[tuple[int, dict[str, int]]]] = {}
        self.opened = self.most_at_once = 0

    def open(self, bucket: BucketId, hold: Any, since_ms: int) -> None:
        """Record that a lease holds slots of a bucket, which it has requested at a time."""
        holders = self._holders.setdefault(bucket, [])
        if not any(one.hold is hold for one in holders):
            holders.append(Holder(hold, self._most_since(bucket, since_ms)))
            self.opened += 1
        self._check(bucket)

    def step(self, now_ms: int, changes: Sequence[Change], sent: Sent) -> None:
        """Record one write or transaction, and check everything that must hold after it."""
        for bucket in {bucket for change in changes if (bucket := self._store(change)) is not None}:
            history, now = self._history.setdefault(bucket, []), self._capacities(bucket)
            if not history or history[-1][1] != now:
                history.append((now_ms, now))
            self._check(bucket)

    def expire(self, now_ms: int, change: Change) -> None:
        """Record that an item expired. No slot may be forgotten with it."""
        bucket = self._store(change)
        for holder in self._holders.get(bucket, ()) if bucket is not None and change.old is not None else ():
            if change.old is not None and holder.hold.birth == change.old.get("bi"):
                for name in {claim.name for claim in holder.hold.claims}:
                    if holder.relies_on(name, now_ms):
                        raise Violation("unbacked", bucket, name, "has expired, but slots are in use", change.old)

    def check_end(self) -> None:
        """Check that all slots are free."""
        for bucket, items in self._items.items():
            for item in items.values():
                for name in _names(item):
                    kept = {end: milli for end, milli in _cohorts(item, name).items() if end * 1000 > self._now_ms()}
                    if any(kept.values()):
                        raise Violation("kept", bucket, name, "has slots in use after the end:", kept)

    def _store(self, change: Change) -> BucketId | None:
        parsed = parse_bucket_pk(change.key.pk) if change.key.sk == "#STATE" else None
        if parsed is None:
            return None
        bucket = parsed.entity_id, parsed.resource
        items = self._items.setdefault(bucket, {})
        if change.new is None:
            items.pop(parsed.shard_id, None)
        else:
            items[parsed.shard_id] = change.new
            _check_sums(change.new, parsed.shard_id)
        return bucket

    def _capacities(self, bucket: BucketId) -> dict[str, int]:
        found: dict[str, int] = {}
        for item in self._items.get(bucket, {}).values():
            for name in _names(item):
                found[name] = max(found.get(name, 0), item[f"b_{name}_cp"])
        return found

    def _most_since(self, bucket: BucketId, since_ms: int) -> dict[str, int]:
        """Return the largest capacities in force since a time."""
        found = self._capacities(bucket)
        for at_ms, capacities in reversed(self._history.get(bucket, [])):
            for name, milli in capacities.items():
                found[name] = max(milli, found.get(name, 0))
            if at_ms <= since_ms:
                break
        return found

    def _check(self, bucket: BucketId) -> None:
        holders = self._holders.get(bucket)
        if not holders:
            return
        now_ms, items, capacities = self._now_ms(), self._items.get(bucket, {}), self._capacities(bucket)
        births = {item.get("bi") for item in items.values()}
        for holder in holders:
            for name, milli in capacities.items():
                holder.most[name] = max(milli, holder.most.get(name, 0))
        alive = [one for one in holders if any(claim.end_s * 1000 > now_ms for claim in one.hold.claims)]
        self._holders[bucket] = alive
        # A bucket that was deleted and created again has other slots.
        alive = [one for one in alive if one.hold.birth in births]
        for name in {claim.name for one in alive for claim in one.hold.claims}:
            self._check_limit((bucket, name), alive, list(items.values()), now_ms)

    def _check_limit(
        self, of: tuple[BucketId, str], holders: Sequence[Holder], items: Sequence[Item], now_ms: int
    ) -> None:
        name = of[1]
        cohorts = [one for item in items for one in _cohorts(item, name).items()]
        ends = {claim.end_s * 1000 - 1 for one in holders for claim in one.hold.claims}
        for at_ms in (now_ms, *(end for end in ends if end > now_ms)):
            relied = sum(one.relies_on(name, at_ms) for one in holders)
            backed = sum(milli for end_s, milli in cohorts if end_s * 1000 > at_ms)
            if relied > backed:
                raise Violation("unbacked", *of, relied, "relied on beyond", at_ms, "of", backed, "at", now_ms, cohorts)
        now = [one for one in holders if one.relies_on(name, now_ms)]
        held, most = sum(one.relies_on(name, now_ms) for one in now), max((one.most[name] for one in now), default=0)
        self.most_at_once = max(self.most_at_once, held // 1000)
        if held > most:
            raise Violation("crowded", *of, held, "held of", most, "at", now_ms)


def _names(item: Item) -> list[str]:
    return [name[2:-3] for name in item if name.startswith("b_") and name.endswith("_hs")]


def _cohorts(item: Item, name: str) -> dict[int, int]:
    prefix = f"b_{name}_h"
    return {
        int(key[len(prefix) :]): item[key] for key in item if key.startswith(prefix) and key[len(prefix) :].isdigit()
    }


def _check_sums(item: Item, shard: int) -> None:
    for name in _names(item):
        cohorts, balance = _cohorts(item, name), item[f"b_{name}_tk"]
        share = part_of(item[f"b_{name}_cp"] // 1000, shard, item["shard_count"]) * 1000
        if balance + sum(cohorts.values()) != share or any(milli < 0 for milli in cohorts.values()):
            raise Violation("slots", item["PK"], name, balance, "free and", cohorts, "in use of", share)
