"""A token bucket in simulated time whose calls take time, and which may be faulty."""

from dataclasses import dataclass, field
from random import Random

from zae_limiter.core.limit import Limit
from zae_limiter.loadtest.measurements import LimitKey, LimitTally

KEY = LimitKey("user", "api", "tps")


@dataclass(slots=True)
class TrueBucket:
    """Applies each call at a random time between its start and its end.

    ``taken_of_10_000`` is what a take of 10,000 tokens costs: 9,800 over-admits by 2 %, and 10,526
    loses 5 %.
    """

    limit: Limit
    random: Random
    longest_call_s: float = 0.0
    taken_of_10_000: int = 10_000
    level: float = 0.0
    at_s: float = 0.0
    tally: LimitTally = field(init=False)

    def __post_init__(self) -> None:
        self.level = float(self.limit.capacity)
        self.tally = LimitTally(KEY, limits={self.limit})

    def acquire(self, amount: int, applied_s: float) -> bool:
        """Take, or reject."""
        began_s, ended_s = self._call(applied_s)
        if self.level < amount:
            self.tally.reject(amount, int(self.level // 1), began_s, ended_s)
            return False
        self.level -= amount * self.taken_of_10_000 / 10_000
        self.tally.take(amount, began_s, ended_s)
        return True

    def settle(self, change: int, applied_s: float) -> None:
        """Charge, or give back if negative."""
        began_s, ended_s = self._call(applied_s)
        self.level = min(self.limit.capacity, self.level - change)
        self.tally.settle(change, began_s, ended_s)

    def _call(self, applied_s: float) -> tuple[float, float]:
        earned = self.limit.refill_rate * (applied_s - self.at_s)
        self.level = min(self.limit.capacity, self.level + earned)
        self.at_s = applied_s
        before_s, after_s = (self.random.uniform(0, self.longest_call_s / 2) for _ in range(2))
        return applied_s - before_s, applied_s + after_s


@dataclass(frozen=True, slots=True)
class Demand:
    """Calls per second for some seconds, of 1 to ``largest`` tokens; a share of them is settled by -10 to 10 tokens."""

    calls_per_s: float
    duration_s: float
    largest: int = 1
    settled: float = 0.0


def run(bucket: TrueBucket, demand: Demand) -> LimitTally:
    """Send the calls of a demand to a bucket."""
    random = bucket.random
    now_s = bucket.at_s = 1_000_000.0
    while now_s < 1_000_000 + demand.duration_s:
        now_s += random.expovariate(demand.calls_per_s)
        amount = random.randint(1, demand.largest)
        if bucket.acquire(amount, now_s) and random.random() < demand.settled:
            bucket.settle(random.randint(-amount, 10), now_s)
    return bucket.tally
