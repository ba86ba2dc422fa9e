"""When a bucket may expire, and what a write does to the time it does.

Only buckets of default limits expire, only unsharded ones, and never one with a limit in debt: a bucket that is
created anew starts full, so expiry must find it full, or debt would be forgiven.
"""

from dataclasses import dataclass

LEAST_MULTIPLIER = 2


@dataclass(frozen=True, slots=True)
class Keep:
    """Leave the time of expiry as it is."""


@dataclass(frozen=True, slots=True)
class Clear:
    """Take the time of expiry away: the item stays."""


@dataclass(slots=True)
class ExpireAt:
    """Set the time of expiry."""

    epoch_s: int


Expiry = Keep | Clear | ExpireAt

KEEP = Keep()
CLEAR = Clear()


def expires_at(now_ms: int, fill_time_ms: int, multiplier: int) -> ExpireAt:
    """Return the expiry of a bucket used at ``now_ms``, whose slowest limit fills in ``fill_time_ms``."""
    return ExpireAt((now_ms + multiplier * fill_time_ms) // 1000 + 1)
