"""A limiter in memory whose clock stands still, and what the tests of sync adapters read from it and from headers."""

import io
from collections.abc import Iterable, Mapping
from typing import Any

from tests.web.reported import check_headers, rate_limits
from zae_limiter import Also, Limit, SyncRateLimiter, SyncRepository

DAY_S = 86_400
LIMITS = [Limit.custom("rpm", 3, 1, DAY_S), Limit.custom("tpm", 1000, 1, DAY_S)]
"""They refill so slowly that no test sees it, on real clocks either."""

TAKEN = {"rpm": 1, "tpm": 100}
"""What the rules of the tests take."""
ALSO = [Also("tool", "search", {"rpm": 2})]
"""What the same rules take besides, for a user whose name starts with ``pair``."""
CHUNK = b"x" * 50_000
PER_CHUNK = 7
"""The tokens that a chunk of a stream costs."""


class StoppedClock:
    def now_ms(self) -> int:
        return 1_700_000_000_000

    def monotonic_s(self) -> float:
        return 1000.0


class Store:
    """A limiter in memory with the limits above as defaults."""

    def __init__(self) -> None:
        self.repository = SyncRepository.open("memory://", clock=StoppedClock())
        self.repository.set_system_defaults(LIMITS)
        self.limiter = SyncRateLimiter(self.repository)

    def used(self, entity: str, resource: str) -> dict[str, int]:
        return used(self.limiter, entity, resource)

    def buckets(self, entity: str) -> list[str]:
        return buckets(self.repository, entity)


class CutOff(io.RawIOBase):
    """The body of a client that has disconnected."""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        raise ConnectionResetError


def also_of(user: str) -> list[Also] | None:
    """Return what a rule takes besides."""
    return ALSO if user.startswith("pair") else None


def used(limiter: SyncRateLimiter, entity: str, resource: str) -> dict[str, int]:
    """Return what a bucket lacks."""
    available = limiter.available(entity, resource)
    return {limit.name: limit.capacity - available[limit.name] for limit in LIMITS}


def buckets(repository: SyncRepository, entity: str) -> list[str]:
    """Return the resources of which an entity has a bucket."""
    return sorted({bucket.resource for bucket in repository.get_buckets(entity)})


def fields(headers: Mapping[str, str] | Iterable[tuple[str, str]]) -> dict[str, dict[str, int | bytes]]:
    """Check all headers, and return the parameters of ``RateLimit-Policy`` and ``RateLimit`` by limit."""
    found = check_headers(headers.items() if isinstance(headers, Mapping) else headers)
    policies, states = rate_limits(found, "ratelimit-policy"), rate_limits(found, "ratelimit")
    return {limit: {**policies[limit], **state} for limit, state in states.items()}
