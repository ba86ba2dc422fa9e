"""Cooldowns of throttled shards: a client sends them no writes for a while.

Retries by many clients would keep the partition at its limit. A split needs more write units than one take, so it would
never succeed.
"""

from collections.abc import Callable

import zae_limiter.runtime.aio as runtime
from zae_limiter._async.store.buckets import ShardId
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
        """Begin the cooldown of a shard that was just throttled; it is longer if one has just ended."""
        self.active.keep(shard_id, held(self.active.get(shard_id), self._clock.monotonic_s(), self._jitter()))

    def clear(self) -> None:
        """End all cooldowns."""
        self.active.clear()

    def has(self, shard_id: ShardId) -> bool:
        """Return whether a shard is cooling down."""
        hold = self.active.get(shard_id)
        return hold is not None and self._clock.monotonic_s() < hold.until_s

    def end(self, shard_id: ShardId) -> None:
        """End the cooldown of a shard."""
        self.active.pop(shard_id, None)

    async def wait(self, shard_id: ShardId, until_s: float) -> None:
        """Wait until a shard may be written to.

        Raises:
            RateLimiterUnavailable: The cooldown lasts longer than the deadline.
        """
        while (hold := self.active.get(shard_id)) is not None and self._clock.monotonic_s() < hold.until_s:
            # With jitter, so that not all callers write at the same time: the first may be throttled again.
            opens_s = hold.until_s + self._jitter() * hold.length_s
            if opens_s >= until_s:
                raise RateLimiterUnavailable(TimeoutError("the store takes no writes to the bucket"))
            await runtime.sleep(opens_s - self._clock.monotonic_s())
