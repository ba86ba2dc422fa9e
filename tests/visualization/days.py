"""Days of realistic usage, written through the limiter with a clock that tests set."""

import math
from pathlib import Path

from zae_limiter import Limit, SyncRateLimiter, SyncRepository

START_MS = 1_768_176_000_000  # 2026-01-12T00:00:00Z, a Monday
HOUR_MS = 3_600_000
LIMITS = [Limit.per_hour("rph", 1_000_000), Limit.per_hour("tph", 1_000_000_000)]


class SetClock:
    """A clock that does not move until it is set."""

    def __init__(self, now_ms: int = START_MS) -> None:
        self.time_ms = now_ms

    def now_ms(self) -> int:
        return self.time_ms

    def monotonic_s(self) -> float:
        return self.time_ms / 1000


def requests_of(hour: int, size: int) -> int:
    """Return the requests of an entity in an hour: none at night, most after noon, few on weekends."""
    of_day, day = hour % 24, hour // 24 % 7
    if not 6 <= of_day <= 21:
        return 0
    busy = math.sin((of_day - 5) / 18 * math.pi) * (0.25 if day >= 5 else 1)
    return round(size * busy) + (hour * 7 + size) % 5


def write_days(path: Path, sizes: dict[str, int], hours: int, resource: str = "gpt-4") -> dict[str, dict[int, int]]:
    """Write the usage of several entities to a file, and return the requests of each, by hour from the start."""
    clock = SetClock()
    written: dict[str, dict[int, int]] = {entity_id: {} for entity_id in sizes}
    with SyncRepository.open(f"sqlite:///{path}", clock=clock) as repository:
        limiter = SyncRateLimiter(repository)
        for hour in range(hours):
            clock.time_ms = START_MS + hour * HOUR_MS + 60_000
            for entity_id, size in sizes.items():
                requests = requests_of(hour, size)
                if requests:
                    consume = {"rph": requests, "tph": requests * 731}
                    with limiter.acquire(entity_id, resource, consume, limits=LIMITS):
                        written[entity_id][hour] = requests
        # Reading counts the usage, each hour in its own window.
        repository.get_usage_snapshots(next(iter(sizes)))
    return written
