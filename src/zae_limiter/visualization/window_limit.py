"""Compare the usage of a window with the limit in force."""

from zae_limiter.core.limit import Limit
from zae_limiter.core.timestamp import ms_from_iso
from zae_limiter.core.usage import Window


def window_limit(limit: Limit, window: Window) -> int | None:
    """Return how many tokens a limit allows in a window, beyond the burst with which it may begin.

    None for a limit of concurrent use: any number of takes may follow each other.

    A window that is shorter than the period of the limit may use the tokens of the whole period.
    """
    if limit.is_concurrent:
        return None
    seconds = (ms_from_iso(window.end) - ms_from_iso(window.start)) // 1000
    period = limit.refill_period_seconds
    return max(1, limit.refill_amount * max(seconds, period) // period)
