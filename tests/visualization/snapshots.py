"""Usage snapshots for tests."""

from zae_limiter import UsageSnapshot
from zae_limiter.core.timestamp import ms_from_iso
from zae_limiter.core.usage import window_at


def snapshot(
    start: str, counters: dict[str, int], *, kind: str = "hourly", entity_id: str = "user-1", resource: str = "gpt-4"
) -> UsageSnapshot:
    """Return the usage of the window that contains a time."""
    window = window_at(kind, ms_from_iso(start))
    return UsageSnapshot(entity_id, resource, window.start, window.end, kind, counters, len(counters))
