"""What a client remembers of one namespace: bucket views and limits in force. Nothing in here waits.

Both are bounded: the oldest entries go first, and what is gone is read again.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

from zae_limiter.core.config import Resolution
from zae_limiter.core.status import CacheStats, OnUnavailable
from zae_limiter.core.view import Terms
from zae_limiter.schema.bucket_item import BucketView

BucketId = tuple[str, str]
"""Entity and resource."""

MOST_ENTRIES = 100_000

K = TypeVar("K")
V = TypeVar("V")


class Bounded(dict[K, V], Generic[K, V]):
    """A dictionary that forgets its oldest eighth when it grows too large."""

    __slots__ = ("_most",)

    def __init__(self, most: int = MOST_ENTRIES) -> None:
        super().__init__()
        self._most = most

    def keep(self, key: K, value: V) -> None:
        """Remember a value."""
        self[key] = value
        if len(self) > self._most:
            for oldest in _first(list(self), self._most // 8 + 1):
                self.pop(oldest, None)


def _first(keys: list[K], count: int) -> Iterator[K]:
    yield from keys[:count]


@dataclass(frozen=True, slots=True)
class KnownLimits:
    """Limits in force as last read, the terms that follow from them, and when to read them again.

    ``terms`` is None where no limits are configured, which is remembered too.
    """

    resolution: Resolution
    terms: Terms | None
    expires_ms: int


class NamespaceCaches:
    """The memory of one client for one namespace, shared by every repository of that namespace."""

    def __init__(self, most: int = MOST_ENTRIES) -> None:
        self.views: Bounded[BucketId, BucketView] = Bounded(most)
        self.limits: Bounded[BucketId, KnownLimits] = Bounded(most)
        self.own_terms: Bounded[tuple[object, ...], Terms] = Bounded(most)
        self.on_unavailable: OnUnavailable | None = None
        self.hits = 0
        self.misses = 0

    def forget_limits(self) -> None:
        """Read all limits again when they are next needed."""
        self.limits.clear()

    def forget_limits_of(self, entity_id: str) -> None:
        """Read one entity's limits again when they are next needed."""
        for key in [key for key in list(self.limits) if key[0] == entity_id]:
            self.limits.pop(key, None)

    def stats(self, ttl_seconds: float) -> CacheStats:
        """Say how the memory of limits is doing."""
        return CacheStats(self.hits, self.misses, len(self.limits), ttl_seconds)
