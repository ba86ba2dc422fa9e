"""When a bucket expires.

Only buckets of default limits expire, only unsharded ones, and never one with a limit in debt: a bucket that is
created anew starts full, so expiry must find it full, or debt would be forgiven.
"""

LEAST_MULTIPLIER = 2


def expiry_s(used_ms: int, fill_time_ms: int, multiplier: int) -> int:
    """Return when a bucket used at ``used_ms``, whose slowest limit fills in ``fill_time_ms``, may go; epoch seconds.

    ``used_ms`` must not be before the baseline of the bucket. A limit earns nothing before its baseline, so a client
    whose clock is behind would date the expiry before the bucket is full.
    """
    return (used_ms + multiplier * fill_time_ms) // 1000 + 1
