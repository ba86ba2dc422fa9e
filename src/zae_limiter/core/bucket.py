"""One limit on its baseline: what it has earned, its level, and when a request would be admitted.

Integers only: millitokens and milliseconds. The stored balance is the one *as of the baseline*, which does not move
when tokens are taken or earned; refill is never written but read off an absolute grid, so nothing is lost to rounding
however often a bucket is looked at. What several limits do together is ``composite``'s business.
"""

from dataclasses import dataclass

from zae_limiter.core.limit import Limit
from zae_limiter.core.sharding import least_whole, share

Moment = tuple[int, int]
"""The earliest and the latest the true time may be, in milliseconds; the two are equal where the clock is sure."""


def grid(at_ms: int, amount_milli: int, period_ms: int) -> int:
    """Return the millitokens a limit has offered from time zero up to ``at_ms``."""
    return at_ms * amount_milli // period_ms


@dataclass(frozen=True, slots=True)
class Baseline:
    """One limit of one shard, and the time its balance is counted from.

    ``capacity_milli`` is the shard's share; ``grid_milli`` is the shard's share of the grid at the baseline.
    """

    limit: Limit
    name: str
    capacity_milli: int
    amount_milli: int
    period_ms: int
    start_ms: int
    grid_milli: int
    shard: int
    shard_count: int

    @classmethod
    def of(cls, limit: Limit, start_ms: int, shard: int = 0, shard_count: int = 1) -> "Baseline":
        """Return the limit's baseline at ``start_ms``, on one shard of a bucket."""
        amount, period = limit.refill_amount_milli, limit.refill_period_ms
        return cls(
            limit=limit,
            name=limit.name,
            capacity_milli=share(limit.capacity_milli, shard, shard_count),
            amount_milli=amount,
            period_ms=period,
            start_ms=start_ms,
            grid_milli=share(grid(start_ms, amount, period), shard, shard_count),
            shard=shard,
            shard_count=shard_count,
        )

    def earned(self, now_ms: int) -> int:
        """Return what has been earned since the baseline; nothing if ``now_ms`` is not after it."""
        if now_ms <= self.start_ms:
            return 0
        offered = now_ms * self.amount_milli // self.period_ms
        if self.shard_count != 1:
            offered = share(offered, self.shard, self.shard_count)
        return offered - self.grid_milli

    def level(self, balance_milli: int, now_ms: int) -> int:
        """Return what is available at ``now_ms``; below zero the limit is in debt."""
        return min(self.capacity_milli, balance_milli + self.earned(now_ms))

    def ready_ms(self, balance_milli: int, needed_milli: int) -> int:
        """Return the first millisecond at which the level reaches ``needed_milli``, 0 if it did at the baseline.

        It is the caller's to ask for no more than the capacity: more is never reached.
        """
        lacking = needed_milli - balance_milli
        if lacking <= 0:
            return 0
        offered = least_whole(self.grid_milli + lacking, self.shard, self.shard_count)
        return -(-offered * self.period_ms // self.amount_milli)
