"""The promise over several shards, checked on a ledger with arithmetic of its own.

The shards are counted together: only a credit raises their sum, and only a write that may give tokens away loses any of
it. For every span that ends in a take, takes + debits - credits <= the largest capacity + what the span earns + the
debts at its end. A debt is added because it blocks only its own shard.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tests.many_shards import Item, level, offered, part_of, shard_of
from tests.promise.ledger import Rate, Use, limit_names, most_earned, rate_of, require

Items = Mapping[int, Item]


def share_of(item: Item, name: str) -> int:
    """Return a shard's share of the capacity."""
    return part_of(item[f"b_{name}_cp"], shard_of(item), item["shard_count"])


@dataclass(frozen=True)
class Entry:
    """The effect of one write on one limit."""

    time_ms: int
    net: int
    moved: bool
    capacity: int
    rates: frozenset[Rate]


class ShardLedger:
    """Every write of one bucket, limit by limit; ``spread_ms`` is the largest clock error plus delay."""

    def __init__(self, spread_ms: int) -> None:
        self.spread_ms = spread_ms
        self.entries: dict[str, list[Entry]] = {}

    def record(self, before: Items, after: Items, now_ms: int, use: Use) -> None:
        """Record a write to one shard or several, and check everything that must hold after it."""
        self._check_shards(after)
        names = {name for items in (before, after) for item in items.values() for name in limit_names(item)}
        for name in sorted(names):
            self._check_totals(name, before, after, use)
            self._check_held(name, before, after, (now_ms, use))
            self._append(name, before, after, (now_ms, use))
        for name in use.takes:
            self._check_spans(name, after, now_ms)

    def expire(self, item: Item, now_ms: int) -> None:
        """Record that the only shard expired. No usage may be forgotten with it."""
        require(item["shard_count"] == 1, "one of several shards expired:", item)
        for name in limit_names(item):
            held = level(item, name, now_ms) + most_earned(rate_of(item, name), self.spread_ms)
            require(held >= item[f"b_{name}_cp"], "expired although not full:", name, held, item)
        for name in limit_names(item):
            entry = Entry(now_ms, 0, True, item[f"b_{name}_cp"], frozenset({rate_of(item, name)}))
            self.entries.setdefault(name, []).append(entry)

    @staticmethod
    def _check_shards(items: Items) -> None:
        """Every number belongs to exactly one shard, and no shard of several expires."""
        owners = [[shard for shard, item in items.items() if n % item["shard_count"] == shard] for n in range(64)]
        require(all(len(one) == 1 for one in owners), "shards do not cover every number once:", owners)
        require(len(items) == 1 or not any("ttl" in item for item in items.values()), "a shard of several has a ttl")

    @staticmethod
    def _check_totals(name: str, before: Items, after: Items, use: Use) -> None:
        """The totals count what was used, and nothing else; a deleted shard takes its own totals with it."""
        had = sum(item.get(f"b_{name}_tc", 0) for shard, item in before.items() if shard in after)
        has = sum(item.get(f"b_{name}_tc", 0) for item in after.values())
        gone = any(f"b_{name}_tc" in item and f"b_{name}_tc" not in after.get(s, item) for s, item in before.items())
        require(gone or has == had + use.net(name), "total of", name, has, "is not", had, "and", use)

    def _check_held(self, name: str, before: Items, after: Items, written: tuple[int, Use]) -> None:
        """All shards together never hold more than before, less what was used. They hold less only if allowed."""
        now_ms, use = written
        touched = [shard for shard in {*before, *after} if before.get(shard) is not after.get(shard)]
        known = [items[shard] for items in (before, after) for shard in touched if name in _names(items.get(shard))]
        if not known or not before:
            return
        slack = self._slack(name, known)
        fresh = sum(share_of(after[s], name) for s in touched if s in before and _gets(name, before[s], after.get(s)))
        gone = sum(
            level(before[s], name, now_ms) for s in touched if s in after and _gets(name, after[s], before.get(s))
        )
        had = _held(name, (before.get(shard) for shard in touched), now_ms) + fresh - gone
        has = _held(name, (after.get(shard) for shard in touched), now_ms)
        require(has <= had - use.net(name) + slack, "the shards hold more:", name, had, has, use, before, after)
        if name in use.takes:
            for shard in touched:
                left = level(after[shard], name, now_ms)
                took = after[shard][f"b_{name}_tc"] != before[shard].get(f"b_{name}_tc", 0)
                require(not took or left + slack >= 0, "a take left a debt:", name, shard, left)
        if use.kind in ("split", "merge"):
            require(has >= had - slack, "tokens were lost:", name, had, has, before, after)
            owed = [_owed(name, items, now_ms) for items in (before, after)]
            require(owed[1] <= owed[0] + slack, "a debt was created:", name, owed, before, after)

    def _slack(self, name: str, items: Iterable[Item]) -> int:
        """Return what clock errors and delays may earn, plus a millitoken for two grids that meet."""
        return max(most_earned(rate_of(item, name), self.spread_ms) for item in items) + 1 + (self.spread_ms > 0) * 64

    def _append(self, name: str, before: Items, after: Items, written: tuple[int, Use]) -> None:
        now_ms, use = written
        having = [item for items in (before, after) for item in items.values() if name in _names(item)]
        moved = use.kind not in ("take", "debit", "credit") or _layouts(before) != _layouts(after)
        rates = frozenset(rate_of(item, name) for item in having)
        capacity = max(item[f"b_{name}_cp"] for item in having)
        self.entries.setdefault(name, []).append(Entry(now_ms, use.net(name), moved, capacity, rates))

    def _check_spans(self, name: str, items: Items, now_ms: int) -> None:
        """Check every span that ends in the newest take."""
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
    """Return whether a shard that lacked a limit now has it."""
    return name not in _names(without) and name in _names(item)


def _held(name: str, items: Iterable[Item | None], now_ms: int) -> int:
    return sum(level(item, name, now_ms) for item in items if item and name in _names(item))


def _owed(name: str, items: Items, now_ms: int) -> int:
    return sum(max(0, -offered(item, name, now_ms)) for item in items.values() if name in _names(item))


def _layouts(items: Items) -> list[tuple[int, int, int, int]]:
    return sorted((shard, item["rf"], item["shard_count"], item["gn"]) for shard, item in items.items())
