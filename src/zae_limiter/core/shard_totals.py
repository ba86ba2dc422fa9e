"""Add up the shards of a bucket for reports. Nothing here takes from a bucket or writes to it."""

from collections.abc import Sequence

from zae_limiter.core.bucket import Baseline
from zae_limiter.core.lazy_dataclass import dataclass
from zae_limiter.core.limit import Limit


@dataclass(frozen=True, slots=True)
class ShardHolding:
    """One shard's part of one limit: its balance as of its baseline, and the total it has counted."""

    baseline: Baseline
    balance_milli: int
    total_milli: int

    @classmethod
    def untouched(cls, limit: Limit, start_ms: int, shard: int, shard_count: int) -> "ShardHolding":
        """Return the part of a shard that does not have the limit yet: its full share, which it will get."""
        baseline = Baseline.of(limit, start_ms, shard, shard_count)
        return cls(baseline, baseline.capacity_milli, 0)


@dataclass(frozen=True, slots=True)
class Folded:
    """The sum of all shards for one limit, as of the latest of their baselines."""

    start_ms: int
    balance_milli: int
    total_milli: int


def fold(holdings: Sequence[ShardHolding]) -> Folded:
    """Return the sum of shards. From then on it earns what the undivided limit earns."""
    start_ms = max(holding.baseline.start_ms for holding in holdings)
    balance = sum(holding.baseline.level(holding.balance_milli, start_ms) for holding in holdings)
    return Folded(start_ms, balance, sum(holding.total_milli for holding in holdings))


def available(holdings: Sequence[ShardHolding], now_ms: int) -> int:
    """Return the millitokens that can be taken now; negative if every shard is in debt.

    A shard in debt does not reduce what the others have.
    """
    levels = [holding.baseline.level(holding.balance_milli, now_ms) for holding in holdings]
    return sum(levels) if max(levels) < 0 else sum(level for level in levels if level > 0)
