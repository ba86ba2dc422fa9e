"""Compute one limit on its baseline: what it has earned, its level, and when a request would be admitted.

All numbers are integers, in millitokens and milliseconds. The stored balance is the balance *as of
the baseline*. The baseline does not move when tokens are taken or earned. Refill is never written:
it is read from an absolute grid, so repeated reads lose nothing to rounding. ``bucket_changes``
handles several limits together.
"""

from zae_limiter.core.lazy_dataclass import dataclass
from zae_limiter.core.limit import Limit
from zae_limiter.core.quota import view_at
from zae_limiter.core.sharding import least_whole, share

TimeBounds = tuple[int, int]
"""The earliest and the latest possible true time, in milliseconds. They are equal if the clock is exact."""


def grid(at_ms: int, amount_milli: int, period_ms: int) -> int:
    """Return the millitokens a limit has offered from time zero up to ``at_ms``."""
    return at_ms * amount_milli // period_ms


@dataclass(frozen=True, slots=True)
class LimitShare:
    """One limit on one shard, at any time. ``capacity_milli`` is the shard's share; the refill is undivided.

    All buckets with the same limit share one of these.
    """

    limit: Limit
    name: str
    capacity_milli: int
    amount_milli: int
    period_ms: int
    shard: int
    shard_count: int

    @classmethod
    def of(cls, limit: Limit, shard: int = 0, shard_count: int = 1) -> "LimitShare":
        """Return one shard's share of a limit."""
        if limit.hold_seconds or limit.schedule is not None:
            # Whole slots: halves of a slot could only be taken together, in a transaction. A quota stores whole units.
            return cls(limit, limit.name, share(limit.capacity, shard, shard_count) * 1000, 0, 1, shard, shard_count)
        capacity = share(limit.capacity_milli, shard, shard_count)
        return cls(limit, limit.name, capacity, limit.refill_amount_milli, limit.refill_period_ms, shard, shard_count)

    def offered(self, at_ms: int) -> int:
        """Return the shard's share of the grid at ``at_ms``."""
        # The same as ``grid``, inlined because it runs for every limit of every acquire.
        whole = at_ms * self.amount_milli // self.period_ms
        return whole if self.shard_count == 1 else share(whole, self.shard, self.shard_count)


class OfShare:
    """The level of a limit that has a share, and no baseline: slots and quotas."""

    __slots__ = ()

    share: LimitShare

    @property
    def name(self) -> str:
        """The limit's name."""
        return self.share.name

    @property
    def limit(self) -> Limit:
        """The limit, undivided."""
        return self.share.limit


@dataclass(slots=True)
class Baseline:
    """One limit of one shard, and the time its balance is counted from.

    ``grid_milli`` is what the limit had offered by then. A baseline is made for each use and never
    stored: a bucket stores the two numbers.
    """

    share: LimitShare
    start_ms: int
    grid_milli: int

    @classmethod
    def of(cls, limit: Limit, start_ms: int, shard: int = 0, shard_count: int = 1) -> "Baseline":
        """Return the limit's baseline at ``start_ms``, on one shard of a bucket."""
        part = LimitShare.of(limit, shard, shard_count)
        return cls(part, start_ms, part.offered(start_ms))

    @property
    def limit(self) -> Limit:
        """The limit, undivided."""
        return self.share.limit

    @property
    def name(self) -> str:
        """The limit's name."""
        return self.share.name

    @property
    def capacity_milli(self) -> int:
        """The shard's share of the capacity."""
        return self.share.capacity_milli

    @property
    def shard(self) -> int:
        """The shard's number."""
        return self.share.shard

    @property
    def shard_count(self) -> int:
        """The number of shards if every shard had been split as often as this one."""
        return self.share.shard_count

    def earned(self, now_ms: int) -> int:
        """Return the millitokens earned since the baseline, 0 if ``now_ms`` is not after it."""
        # Hazard: a client whose clock is behind the baseline would compute a negative refill.
        return self.share.offered(now_ms) - self.grid_milli if now_ms > self.start_ms else 0

    def level(self, balance_milli: int, now_ms: int) -> int:
        """Return the millitokens available at ``now_ms``; a negative level is debt. A quota has its own balance."""
        if self.share.limit.schedule is not None:
            return view_at(
                balance_milli, self.share.capacity_milli // 1000, self.share.limit.schedule, now_ms // 1000
            ).level_milli
        return min(self.share.capacity_milli, balance_milli + self.earned(now_ms))

    def ready_ms(self, balance_milli: int, needed_milli: int) -> int:
        """Return the first millisecond at which the level reaches ``needed_milli``, 0 if it did at the baseline.

        The caller must not ask for more than the capacity, because the level never reaches it.
        """
        lacking = needed_milli - balance_milli
        if lacking <= 0:
            return 0
        part = self.share
        offered = least_whole(self.grid_milli + lacking, part.shard, part.shard_count)
        # Round up: one millisecond earlier, the grid has not offered enough yet.
        return -(-offered * part.period_ms // part.amount_milli)
