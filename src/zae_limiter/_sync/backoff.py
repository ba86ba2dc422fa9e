"""Pauses between attempts, if other clients or the store prevent a call for the moment."""  # generated from _async by tools/mirror.py; do not edit

from collections.abc import Callable
from math import inf
from typing import NamedTuple

import zae_limiter.runtime.threads as runtime
from zae_limiter.clock import Clock
from zae_limiter.core.errors import RateLimiterUnavailable


class Pauses(NamedTuple):
    """The first and the longest pause; each may be up to twice as long as the one before.

    Half of a pause is random, and with ``full_jitter`` all of it. If ``immediate``, a pause of 0 s precedes the first.
    """

    first_s: float
    longest_s: float
    full_jitter: bool = False
    immediate: bool = False


class Backoff:
    """Waits between attempts, until a deadline if there is one."""

    def __init__(self, clock: Clock, jitter: Callable[[], float], pauses: Pauses, until_s: float = inf) -> None:
        self._clock = clock
        self._jitter = jitter
        self._pauses = pauses
        self._until_s = until_s
        self._next_s = 0.0 if pauses.immediate else pauses.first_s

    def wait(self) -> bool:
        """Wait; return False without waiting if the deadline leaves no time for a pause and another attempt."""
        full_jitter = self._pauses.full_jitter
        # With full jitter a pause may be close to zero. Its longest possible value must fit before the deadline: an
        # attempt at the last moment would time out and hide the earlier error.
        pause_s = self._next_s if full_jitter else self._draw_s()
        if self._clock.monotonic_s() + pause_s >= self._until_s:
            return False
        self._sleep(self._draw_s() if full_jitter else pause_s)
        return True

    def wait_to_deadline(self) -> bool:
        """Wait, at most until the deadline; return False without waiting if the deadline has passed."""
        left_s = self._until_s - self._clock.monotonic_s()
        if left_s <= 0:
            return False
        self._sleep(min(left_s, self._draw_s()))
        return True

    def wait_or_give_up(self) -> None:
        """Wait before another attempt.

        Raises:
            RateLimiterUnavailable: The deadline leaves no time for a pause and another attempt.
        """
        if not self.wait():
            raise RateLimiterUnavailable(
                TimeoutError("the store takes no writes, or other clients kept changing the bucket")
            )

    def _draw_s(self) -> float:
        return self._next_s * (self._jitter() if self._pauses.full_jitter else 0.5 + self._jitter() / 2)

    def _sleep(self, pause_s: float) -> None:
        runtime.sleep(pause_s)
        self._next_s = min(self._pauses.longest_s, self._next_s * 2 or self._pauses.first_s)
