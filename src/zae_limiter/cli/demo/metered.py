"""Read the tokens that each key used during the demo, from usage snapshots."""

from collections.abc import Iterable

from zae_limiter._async.limiter.limiter import RateLimiter
from zae_limiter.cli.demo.scenario import RESOURCE
from zae_limiter.core.usage import window_at

_WINDOW_TYPE = "hourly"


async def read_usage(limiter: RateLimiter, keys: Iterable[str], start_ms: int) -> dict[str, int]:
    """Return the tokens that each key has used, in the hour of the start and those that followed."""
    since = window_at(_WINDOW_TYPE, start_ms).start
    return {key: await _tokens(limiter, key, since) for key in keys}


async def _tokens(limiter: RateLimiter, key: str, since: str) -> int:
    # A run takes about an hour at most, so all windows fit on one page.
    hours, _ = await limiter.get_usage_snapshots(
        entity_id=key, resource=RESOURCE, window_type=_WINDOW_TYPE, start_time=since
    )
    return sum(hour.counters.get("tpm", 0) for hour in hours)
