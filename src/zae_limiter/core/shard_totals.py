"""The shards of a bucket folded into one for those who only look: nothing here is taken from or written to."""

from collections.abc import Sequence
from dataclasses import dataclass

from zae_limiter.core.bucket import Baseline
from zae_limiter.core.limit import Limit


@dataclass(frozen=True, slots=True)
class ShardHolding:
    """What one shard has of one limit: a balance as of its baseline, and the total it has counted."""

    baseline: Baseline
    balance_milli: int
    total_milli: int

    @classmethod
    def untouched(cls, limit: Limit, start_ms: int, shard: int, shard_count: int) -> "ShardHolding":
        """Return what a shard has of a limit that it was not put on yet: its share, for that is what it will get."""
        baseline = Baseline.of(limit, start_ms, shard, shard_count)
        return cls(baseline, baseline.capacity_milli, 0)


@dataclass(frozen=True, slots=True)
class Folded:
    """What all shards have of one limit, as of the latest of their baselines."""

    start_ms: int
    balance_milli: int
    total_milli: int


def fold(holdings: Sequence[ShardHolding]) -> Folded:
    """Return what shards have together. What they earn from then on is what the undivided limit earns."""
    start_ms = max(holding.baseline.start_ms for holding in holdings)
    balance = sum(holding.baseline.level(holding.balance_milli, start_ms) for holding in holdings)
    return Folded(start_ms, balance, sum(holding.total_milli for holding in holdings))


def available(holdings: Sequence[ShardHolding], now_ms: int) -> int:
    """Return what can be taken now; below zero if every shard is in debt, for one in debt holds back no other."""
    levels = [holding.baseline.level(holding.balance_milli, now_ms) for holding in holdings]
    return sum(levels) if max(levels) < 0 else sum(level for level in levels if level > 0)
