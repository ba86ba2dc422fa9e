"""Compute when a bucket expires.

Only unsharded buckets of default limits, or of limits that the caller passes, expire. A bucket with
a limit in debt never does. A bucket that is created again starts full. So a bucket may expire only
when it is full, or its debt would be forgiven.
"""

LEAST_MULTIPLIER = 2


def expiry_s(used_ms: int, fill_time_ms: int, multiplier: int) -> int:
    """Return when a bucket that was used at ``used_ms`` may expire, in epoch seconds.

    ``fill_time_ms`` is the fill time of its slowest limit. ``used_ms`` must not be before the
    bucket's baseline: a limit earns nothing before it. A client whose clock is behind would
    otherwise expire the bucket before it is full.
    """
    return (used_ms + multiplier * fill_time_ms) // 1000 + 1
