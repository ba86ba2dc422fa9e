"""The books of a bucket of several shards, kept apart from the code under test, and the promise checked on them.

What all shards hold together is what counts: no write raises it but by what it gives back, and none loses any of it
but where it may. For every span that ends in a take, takes + debits - credits <= the largest capacity + what the span
earns + what is owed at its end, for a debt holds back only the shard it is on.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tests.many_shards import Item, level, offered, part_of, shard_of
from tests.promise.ledger import Rate, Use, limit_names, most_earned, rate_of, require

Items = Mapping[int, Item]


def share_of(item: Item, name: str) -> int:
    """A shard's share of the capacity."""
    return part_of(item[f"b_{name}_cp"], shard_of(item), item["shard_count"])


@dataclass(frozen=True)
class Entry:
    """One write as one limit saw it."""

    time_ms: int
    net: int
    moved: bool
    capacity: int
    rates: frozenset[Rate]


class ShardLedger:
    """Every write of one bucket, limit by limit; ``spread_ms`` is how far clocks and delays part the clients."""

    def __init__(self, spread_ms: int) -> None:
        self.spread_ms = spread_ms
        self.entries: dict[str, list[Entry]] = {}

    def record(self, before: Items, after: Items, now_ms: int, use: Use) -> None:
        """Book a write, of one shard or of several, and check everything that must hold after it."""
        self._check_shards(after)
        names = {name for items in (before, after) for item in items.values() for name in limit_names(item)}
        for name in sorted(names):
            self._check_totals(name, before, after, use)
            self._check_held(name, before, after, (now_ms, use))
            self._book(name, before, after, (now_ms, use))
        for name in use.takes:
            self._check_spans(name, after, now_ms)

    def expire(self, item: Item, now_ms: int) -> None:
        """Book that the only shard went at its time: nothing may be forgotten with it."""
        require(item["shard_count"] == 1, "a shard of several expired:", item)
        for name in limit_names(item):
            held = level(item, name, now_ms) + most_earned(rate_of(item, name), self.spread_ms)
            require(held >= item[f"b_{name}_cp"], "expired though not full:", name, held, item)
        for name in limit_names(item):
            entry = Entry(now_ms, 0, True, item[f"b_{name}_cp"], frozenset({rate_of(item, name)}))
            self.entries.setdefault(name, []).append(entry)

    @staticmethod
    def _check_shards(items: Items) -> None:
        """Every number falls to exactly one shard, and no shard of several expires."""
        owners = [[shard for shard, item in items.items() if n % item["shard_count"] == shard] for n in range(64)]
        require(all(len(one) == 1 for one in owners), "shards overlap or lack:", owners)
        require(len(items) == 1 or not any("ttl" in item for item in items.values()), "a shard is to expire")

    @staticmethod
    def _check_totals(name: str, before: Items, after: Items, use: Use) -> None:
        """The totals are what was used and nothing else; what a shard that goes has counted goes with it."""
        had = sum(item.get(f"b_{name}_tc", 0) for shard, item in before.items() if shard in after)
        has = sum(item.get(f"b_{name}_tc", 0) for item in after.values())
        gone = any(f"b_{name}_tc" in item and f"b_{name}_tc" not in after.get(s, item) for s, item in before.items())
        require(gone or has == had + use.net(name), "total of", name, has, "is not", had, "and", use)

    def _check_held(self, name: str, before: Items, after: Items, written: tuple[int, Use]) -> None:
        """All together never hold more than they did, less what was used; nor less, but where tokens may be given."""
        now_ms, use = written
        touched = [shard for shard in {*before, *after} if before.get(shard) is not after.get(shard)]
        known = [items[shard] for items in (before, after) for shard in touched if name in _names(items.get(shard))]
        if not known or not before:
            return
        loose = self._loose(name, known)
        fresh = sum(share_of(after[s], name) for s in touched if s in before and _gets(name, before[s], after.get(s)))
        gone = sum(
            level(before[s], name, now_ms) for s in touched if s in after and _gets(name, after[s], before.get(s))
        )
        had = _held(name, (before.get(shard) for shard in touched), now_ms) + fresh - gone
        has = _held(name, (after.get(shard) for shard in touched), now_ms)
        require(has <= had - use.net(name) + loose, "they hold more:", name, had, has, use, before, after)
        if name in use.takes:
            for shard in touched:
                left = level(after[shard], name, now_ms)
                took = after[shard][f"b_{name}_tc"] != before[shard].get(f"b_{name}_tc", 0)
                require(not took or left + loose >= 0, "a take left less than nothing:", name, shard, left)
        if use.kind in ("split", "merge"):
            require(has >= had - loose, "tokens were lost:", name, had, has, before, after)
            owed = [_owed(name, items, now_ms) for items in (before, after)]
            require(owed[1] <= owed[0] + loose, "a debt was made:", name, owed, before, after)

    def _loose(self, name: str, items: Iterable[Item]) -> int:
        """What clocks and delays may be off by; and two grids may differ by a millitoken where they meet."""
        return max(most_earned(rate_of(item, name), self.spread_ms) for item in items) + 1 + (self.spread_ms > 0) * 64

    def _book(self, name: str, before: Items, after: Items, written: tuple[int, Use]) -> None:
        now_ms, use = written
        having = [item for items in (before, after) for item in items.values() if name in _names(item)]
        moved = use.kind not in ("take", "debit", "credit") or _frames(before) != _frames(after)
        rates = frozenset(rate_of(item, name) for item in having)
        capacity = max(item[f"b_{name}_cp"] for item in having)
        self.entries.setdefault(name, []).append(Entry(now_ms, use.net(name), moved, capacity, rates))

    def _check_spans(self, name: str, items: Items, now_ms: int) -> None:
        """Every span that ends in the newest take."""
        entries = self.entries[name]
        owed = _owed(name, items, now_ms)
        used = capacity = moves = 0
        rates: set[Rate] = set()
        for entry in reversed(entries):
            used += entry.net
            capacity = max(capacity, entry.capacity)
            rates |= entry.rates
            moves += entry.moved
            span_ms = now_ms - entry.time_ms + self.spread_ms * (1 + moves)
            bound = capacity + max(most_earned(rate, span_ms) for rate in rates) + owed + moves
            bound += (self.spread_ms > 0) * 64
            require(used <= bound, f"{name}: {used} used, {bound} offered from", entry, entries)


def _names(item: Item | None) -> list[str]:
    return limit_names(item) if item else []


def _gets(name: str, without: Item, item: Item | None) -> bool:
    """Whether a shard that lacked a limit has it."""
    return name not in _names(without) and name in _names(item)


def _held(name: str, items: Iterable[Item | None], now_ms: int) -> int:
    return sum(level(item, name, now_ms) for item in items if item and name in _names(item))


def _owed(name: str, items: Items, now_ms: int) -> int:
    return sum(max(0, -offered(item, name, now_ms)) for item in items.values() if name in _names(item))


def _frames(items: Items) -> list[tuple[int, int, int, int]]:
    return sorted((shard, item["rf"], item["shard_count"], item["gn"]) for shard, item in items.items())
