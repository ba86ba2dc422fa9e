"""What a client remembers of one namespace: bucket views and limits in force. Nothing in here waits.

Both are bounded: the oldest entries go first, and what is gone is read again.
"""

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
            for oldest in list(self)[: self._most // 8 + 1]:
                self.pop(oldest, None)


@dataclass(frozen=True, slots=True)
class KnownLimits:
    """Limits in force as last read, the terms that follow from them, when they were read, and when to read them again.

    ``terms`` is None where no limits are configured, which is remembered too.
    """

    resolution: Resolution
    terms: Terms | None
    read_ms: int
    expires_ms: int


class Remembered:
    """What a client remembers of one bucket: the limits in force, and the bucket as last seen."""

    __slots__ = ("limits", "view")

    def __init__(self) -> None:
        self.limits: KnownLimits | None = None
        self.view: BucketView | None = None


class NamespaceCaches:
    """The memory of one client for one namespace, shared by every repository of that namespace."""

    def __init__(self, most: int = MOST_ENTRIES) -> None:
        self.buckets: Bounded[BucketId, Remembered] = Bounded(most)
        self.own_terms: Bounded[tuple[object, ...], Terms] = Bounded(most)
        self.on_unavailable: OnUnavailable | None = None
        self.active_until_ms = 0
        self.hits = 0
        self.misses = 0

    def limits(self, bucket: BucketId) -> KnownLimits | None:
        """Return the limits in force as last read, fresh or not."""
        found = self.buckets.get(bucket)
        return None if found is None else found.limits

    def view(self, bucket: BucketId) -> BucketView | None:
        """Return the bucket as last seen."""
        found = self.buckets.get(bucket)
        return None if found is None else found.view

    def keep_limits(self, bucket: BucketId, limits: KnownLimits | None) -> None:
        """Remember limits in force."""
        self._of(bucket).limits = limits

    def keep_view(self, bucket: BucketId, view: BucketView | None) -> None:
        """Remember a bucket as it was seen, None that there is none."""
        self._of(bucket).view = view

    def forget_limits(self) -> None:
        """Read all limits again when they are next needed, and ask whether the namespace is still there."""
        self.active_until_ms = 0
        for bucket in list(self.buckets):
            self.keep_limits(bucket, None)

    def forget_limits_of(self, entity_id: str) -> None:
        """Read one entity's limits again when they are next needed."""
        for bucket in [bucket for bucket in list(self.buckets) if bucket[0] == entity_id]:
            self.keep_limits(bucket, None)

    def stats(self, ttl_seconds: float) -> CacheStats:
        """Say how the memory of limits is doing."""
        known = sum(one.limits is not None for one in list(self.buckets.values()))
        return CacheStats(self.hits, self.misses, known, ttl_seconds)

    def _of(self, bucket: BucketId) -> Remembered:
        found = self.buckets.get(bucket)
        if found is None:
            found = Remembered()
            self.buckets.keep(bucket, found)
        return found
