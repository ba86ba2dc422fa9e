"""The promise, checked on a ledger of one bucket that shares no code with the limiter.

It knows the attributes of an item and the arithmetic of DESIGN.md, in integers, but neither views nor decisions.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

Item = Mapping[str, Any]
Rate = tuple[int, int]
"""Millitokens, and the milliseconds in which they are refilled."""


class BrokenPromiseError(AssertionError):
    """The limiter broke its promise."""


def require(holds: bool, *details: object) -> None:
    """Raise BrokenPromiseError with these details unless the condition holds."""
    if not holds:
        raise BrokenPromiseError(" ".join(str(one) for one in details))


def limit_names(item: Item) -> list[str]:
    """Return the limits of a bucket, including dormant ones."""
    return [name[2:-3] for name in item if name.startswith("b_") and name.endswith("_tk")]


def rate_of(item: Item, name: str) -> Rate:
    """Return the rate of a limit."""
    return item[f"b_{name}_ra"], item[f"b_{name}_rp"]


def offered(item: Item, name: str, now_ms: int) -> int:
    """Return balance plus earnings, even if that is above the capacity."""
    amount, period = rate_of(item, name)
    since_ms = item["rf"]
    earned = now_ms * amount // period - since_ms * amount // period if now_ms > since_ms else 0
    held: int = item[f"b_{name}_tk"] + earned
    return held


def level(item: Item, name: str, now_ms: int) -> int:
    """Return what is available."""
    return min(item[f"b_{name}_cp"], offered(item, name, now_ms))


def most_earned(rate: Rate, span_ms: int) -> int:
    """Return the most that a limit earns in any span of this length."""
    return -(-span_ms * rate[0] // rate[1])


@dataclass(frozen=True)
class Use:
    """What one applied write is meant to do: takes, debits and credits in millitokens by limit.

    ``may_yield``: the write was tried so often that it may give tokens away.
    """

    kind: str
    takes: Mapping[str, int] = field(default_factory=dict)
    debits: Mapping[str, int] = field(default_factory=dict)
    credits: Mapping[str, int] = field(default_factory=dict)
    may_yield: bool = False

    def net(self, name: str) -> int:
        """Return what the write uses of a limit."""
        return self.takes.get(name, 0) + self.debits.get(name, 0) - self.credits.get(name, 0)


@dataclass(frozen=True)
class Entry:
    """The effect of one write on one limit."""

    time_ms: int
    net: int
    moved: bool
    capacities: tuple[int, ...]
    rates: tuple[Rate, ...]


class Ledger:
    """Every write of one bucket, limit by limit; ``spread_ms`` is the largest clock error plus delay."""

    def __init__(self, spread_ms: int, *, alone: bool) -> None:
        self.spread_ms = spread_ms
        self.alone = alone
        self.entries: dict[str, list[Entry]] = {}
        self.takes = 0

    def record(self, before: Item, after: Item, now_ms: int, use: Use) -> None:
        """Record an applied write, and check everything that must hold after it."""
        self._check_totals(before, after, use)
        for name in {*limit_names(before), *limit_names(after)}:
            self._check_balance(name, before, after, (now_ms, use))
            self._append(name, before, after, (now_ms, use))
        self._check_expiry(after, now_ms)
        for name in use.takes:
            self._check_spans(name)
        self.takes += use.kind == "take"

    def expire(self, item: Item, now_ms: int) -> None:
        """Record that an item expired. No usage may be forgotten with it."""
        for name in limit_names(item):
            rate, capacity = rate_of(item, name), item[f"b_{name}_cp"]
            held = level(item, name, now_ms) + most_earned(rate, self.spread_ms)
            require(held >= capacity, "expired although not full:", name, held, capacity, item)
            self.entries.setdefault(name, []).append(Entry(now_ms, 0, True, (capacity,), (rate,)))

    def _check_totals(self, before: Item, after: Item, use: Use) -> None:
        """The totals count what was used, and nothing else."""
        for name in limit_names(after):
            total = before.get(f"b_{name}_tc", 0) + use.net(name)
            require(total == after[f"b_{name}_tc"], "total of", name, after[f"b_{name}_tc"], "is not", total)
        require(after["b_wcu_tc"] == before.get("b_wcu_tc", 0) + 1, "a write was not counted")

    def _check_balance(self, name: str, before: Item, after: Item, written: tuple[int, Use]) -> None:
        """Only a credit raises a balance, and only a write that may give tokens away loses any."""
        now_ms, use = written
        here, there = f"b_{name}_tk" in before, f"b_{name}_tk" in after
        rates = [rate_of(item, name) for item in (before, after) if f"b_{name}_tk" in item]
        slack = max(most_earned(rate, self.spread_ms) for rate in rates)
        capacity = min(item[f"b_{name}_cp"] for item in (before, after) if f"b_{name}_tk" in item)
        if not there:
            require(
                offered(before, name, now_ms) + slack >= capacity,
                "a limit was removed unfilled:",
                name,
                before,
            )
            return
        now_held = offered(after, name, now_ms)
        spent = use.takes.get(name, 0) + use.debits.get(name, 0)
        if name in use.takes:
            require(now_held + slack >= 0, "a take left a debt:", name, now_held, after)
        if name in use.takes or name in use.debits:
            require(now_held <= capacity - spent + slack, "a write left more than the capacity:", name, now_held, after)
        if here:
            held = offered(before, name, now_ms)
            # Two grids may differ by a millitoken where they meet.
            slack += 1 if before["rf"] != after["rf"] else 0
            require(now_held <= held - use.net(name) + slack, "a balance rose:", name, held, now_held, use)
            lost = min(capacity, held) - use.net(name) - now_held
            allowed = 0 if self.alone else capacity // 64
            require(use.may_yield or lost <= allowed + slack, "tokens were lost:", name, lost, before, after, use)

    def _check_expiry(self, item: Item, now_ms: int) -> None:
        """An item that may expire has no debt."""
        if "ttl" in item:
            for name in limit_names(item):
                slack = most_earned(rate_of(item, name), self.spread_ms)
                require(offered(item, name, now_ms) + slack >= 0, "has an expiry in debt:", name, item)

    def _append(self, name: str, before: Item, after: Item, written: tuple[int, Use]) -> None:
        now_ms, use = written
        items = [item for item in (before, after) if f"b_{name}_tk" in item]
        layouts = [(item["rf"], item["b_" + name + "_cp"], rate_of(item, name)) for item in items]
        moved = len(items) == 1 or layouts[0] != layouts[1]
        if moved or name in use.takes or use.net(name):
            entry = Entry(
                now_ms, use.net(name), moved, tuple(one[1] for one in layouts), tuple(one[2] for one in layouts)
            )
            self.entries.setdefault(name, []).append(entry)

    def _check_spans(self, name: str) -> None:
        """Check every span that ends in the newest take: used <= largest capacity + what it earns."""
        for used, bound, start in self._spans(self.entries[name]):
            require(used <= bound, f"{name}: {used} used, {bound} offered from", start, self.entries[name])

    def _spans(self, entries: list[Entry]) -> Iterator[tuple[int, int, Entry]]:
        end_ms, used, capacity, moves = entries[-1].time_ms, 0, 0, 0
        rates: set[Rate] = set()
        for entry in reversed(entries):
            used += entry.net
            capacity = max(capacity, *entry.capacities)
            rates.update(entry.rates)
            span_ms = end_ms - entry.time_ms + self.spread_ms * (1 + moves + entry.moved)
            moves += entry.moved
            yield used, capacity + max(most_earned(rate, span_ms) for rate in rates) + moves, entry
