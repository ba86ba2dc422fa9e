"""Measure the tokens that each key used during the demo, from usage snapshots."""

from collections.abc import Iterable
from typing import Self

from zae_limiter._async.limiter.limiter import RateLimiter
from zae_limiter.cli.demo.scenario import RESOURCE
from zae_limiter.core.usage import window_at

_WINDOW_TYPE = "hourly"


class DemoMeter:
    """Read usage before and after the run; the difference is the usage of the run.

    Other demos on the same table use the same keys, and are counted too.
    """

    def __init__(self, limiter: RateLimiter, since: str, before: dict[str, int]) -> None:
        self._limiter = limiter
        self._since = since
        self._before = before

    @classmethod
    async def start(cls, limiter: RateLimiter, keys: Iterable[str], now_ms: int) -> Self:
        """Read the usage of this hour before the run; older windows may expire meanwhile and are omitted."""
        since = window_at(_WINDOW_TYPE, now_ms).start
        return cls(limiter, since, {key: await _tokens(limiter, key, since) for key in keys})

    async def usage(self) -> dict[str, int]:
        """Return the tokens that each key has used since the start, in this hour and those that followed."""
        return {key: await _tokens(self._limiter, key, self._since) - used for key, used in self._before.items()}


async def _tokens(limiter: RateLimiter, key: str, since: str) -> int:
    # A run takes at most an hour, so all windows fit on one page.
    hours, _ = await limiter.get_usage_snapshots(
        entity_id=key, resource=RESOURCE, window_type=_WINDOW_TYPE, start_time=since
    )
    return sum(hour.counters.get("tpm", 0) for hour in hours)
