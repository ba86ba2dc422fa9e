"""Pauses between tries of what others, or the store itself, stand in the way of."""

from collections.abc import Callable

import zae_limiter.runtime.aio as runtime
from zae_limiter.clock import Clock
from zae_limiter.core.errors import RateLimiterUnavailable


class Backoff:
    """Each about twice as long as the one before, none beyond a deadline; ``bounds_s``: the first and the longest."""

    def __init__(
        self, clock: Clock, jitter: Callable[[], float], until_s: float, bounds_s: tuple[float, float]
    ) -> None:
        self._clock = clock
        self._jitter = jitter
        self._until_s = until_s
        self._next_s, self._longest_s = bounds_s

    async def wait(self) -> bool:
        """Wait for a while; False, without waiting, where that would be too long."""
        pause_s = self._next_s * (0.5 + self._jitter() / 2)
        if self._clock.monotonic_s() + pause_s >= self._until_s:
            return False
        await runtime.sleep(pause_s)
        self._next_s = min(self._longest_s, self._next_s * 2)
        return True

    async def wait_or_give_up(self) -> None:
        """Wait for a while.

        Raises:
            RateLimiterUnavailable: That would be too long.
        """
        if not await self.wait():
            raise RateLimiterUnavailable(TimeoutError("the store takes no writes, or others kept changing the bucket"))
