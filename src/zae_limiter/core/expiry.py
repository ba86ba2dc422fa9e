"""When a bucket expires.

Only buckets of default limits expire, only unsharded ones, and never one with a limit in debt: a bucket that is
created anew starts full, so expiry must find it full, or debt would be forgiven.
"""

LEAST_MULTIPLIER = 2


def expiry_s(now_ms: int, fill_time_ms: int, multiplier: int) -> int:
    """Return when a bucket used at ``now_ms``, whose slowest limit fills in ``fill_time_ms``, may go; epoch seconds."""
    return (now_ms + multiplier * fill_time_ms) // 1000 + 1
