"""Shards that were throttled a moment ago: a client sends them no writes for a while.

Writes to a full partition are refused, and still keep it full. A write of more than one unit, such as the split that
would help, would then never find room.
"""  # generated from _async by tools/mirror.py; do not edit

from collections.abc import Callable

import zae_limiter.runtime.threads as runtime
from zae_limiter._sync.store.buckets import ShardId
from zae_limiter.caches.buckets import Bounded
from zae_limiter.clock import Clock
from zae_limiter.core.errors import RateLimiterUnavailable
from zae_limiter.core.sharding import Hold, held


class ThrottleCooldowns:
    """The shards that one client sends no writes to for now; ``active`` has some of them, or is empty."""

    def __init__(self, clock: Clock, jitter: Callable[[], float]) -> None:
        self._clock = clock
        self._jitter = jitter
        self.active: Bounded[ShardId, Hold] = Bounded()

    def begin(self, shard_id: ShardId) -> None:
        """Leave a shard alone that took no write just now, the longer the more often that happened."""
        self.active.keep(shard_id, held(self.active.get(shard_id), self._clock.monotonic_s(), self._jitter()))

    def clear(self) -> None:
        """Forget all holds."""
        self.active.clear()

    def has(self, shard_id: ShardId) -> bool:
        """Say whether a shard is to be left alone for now."""
        hold = self.active.get(shard_id)
        return hold is not None and self._clock.monotonic_s() < hold.until_s

    def end(self, shard_id: ShardId) -> None:
        """Forget a hold: the shard takes writes again."""
        self.active.pop(shard_id, None)

    def wait(self, shard_id: ShardId, until_s: float) -> None:
        """Wait until a shard may be written to.

        Raises:
            RateLimiterUnavailable: That would be too long.
        """
        while (hold := self.active.get(shard_id)) is not None and self._clock.monotonic_s() < hold.until_s:
            # Not all at once: the first may find that the hold has to last.
            opens_s = hold.until_s + self._jitter() * hold.length_s
            if opens_s >= until_s:
                raise RateLimiterUnavailable(TimeoutError("the store takes no writes to the bucket"))
            runtime.sleep(opens_s - self._clock.monotonic_s())
