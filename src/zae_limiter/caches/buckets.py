"""What a client has cached of one namespace: bucket views and limits in force. Nothing here waits.

Both are bounded: the oldest entries are dropped first, and are read again when they are needed. What is equal for many
buckets (limits, terms, layouts) is one object, so that the garbage collector visits few objects per cached bucket.
"""

import threading
from collections.abc import Callable, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Generic, TypeVar

from zae_limiter.core.config import Links, Resolution
from zae_limiter.core.lazy_dataclass import dataclass, field
from zae_limiter.core.slots import MixedView, SlotTake
from zae_limiter.core.status import CacheStats, OnUnavailable
from zae_limiter.core.tracked import is_mixed
from zae_limiter.core.view import NO_LIMITS, EffectiveLimits, View
from zae_limiter.process import renew_in_copies
from zae_limiter.schema.bucket_item import BucketView

if TYPE_CHECKING:
    from zae_limiter.caches.waiting import WaitingQueues

BucketId = tuple[str, str]
"""Entity and resource."""

MOST_ENTRIES = 100_000
_FORGOTTEN_AT_ONCE = 32
_SHARED_LIMITS = 4096
_SHARED_FOR = 64
"""For this part of the cache's time to live, buckets with equal limits share what was read for the first of them."""

K = TypeVar("K")
V = TypeVar("V")


class Bounded(dict[K, V], Generic[K, V]):
    """A dictionary that drops its oldest entries, a few at a time, when it grows too large."""

    __slots__ = ("_most",)

    def __init__(self, most: int = MOST_ENTRIES) -> None:
        super().__init__()
        self._most = most

    def keep(self, key: K, value: V) -> None:
        """Keep a value."""
        self[key] = value
        if len(self) > self._most:
            # A dictionary finds its oldest key slowly once many before it were removed. So several are removed at once.
            for oldest in list(islice(self, min(_FORGOTTEN_AT_ONCE, self._most // 8 + 1))):
                self.drop(oldest)

    def drop(self, key: K) -> None:
        """Drop a key."""
        self.pop(key, None)


@dataclass(frozen=True, slots=True)
class KnownLimits:
    """Limits in force as last read, when they were read, and when to read them again.

    ``terms`` is None if no limits are stored; that is cached too. ``links`` is None if an acquire takes only from the
    bucket of these limits. ``is_plain`` is True if that is so, and all limits are enforced rate limits
    without warnings.
    """

    resolution: Resolution
    terms: EffectiveLimits | None
    read_ms: int
    expires_ms: int
    links: Links | None = None
    is_plain: bool = field(init=False, compare=False, default=False)

    def __post_init__(self) -> None:
        """Look at the limits once."""
        limits = () if self.terms is None else self.terms.limits
        warns = any(limit.warn_at for limit in limits)
        is_plain = self.links is None and self.terms is not None and not warns and not is_mixed(limits)
        object.__setattr__(self, "is_plain", is_plain)

    def is_fresh(self, now_ms: int) -> bool:
        """Say whether they need not be read again yet."""
        # A clock that was set back since must not make them last longer.
        return self.read_ms <= now_ms < self.expires_ms


class Flight:
    """A take in flight: the changes of balances of one layout, by position, the slots it takes, and its deadline."""

    __slots__ = ("changes", "layout", "slots", "until_s")

    def __init__(
        self, layout: object, changes: Sequence[tuple[int, int]], until_s: float, slots: Sequence[SlotTake] = ()
    ) -> None:
        self.layout = layout
        self.slots = slots
        self.changes = changes
        self.until_s = until_s


class Remembered:
    """What a client has cached of one bucket: the limits in force, and the bucket as last seen.

    ``view`` is shard 0. ``shards`` are the others, None for a shard that was found absent; ``shards`` is None if the
    bucket has one shard. ``flights`` are the takes in flight, None if there are none. ``gauged_ms`` is when the write
    rate of shard 0 was last looked at. ``chain`` are the buckets that an acquire takes from, this one first; None if
    that must be found.
    """

    __slots__ = ("chain", "flights", "gauged_ms", "limits", "shards", "view")

    def __init__(self) -> None:
        self.chain: ChainLink | None = None
        self.limits: KnownLimits | None = None
        self.view: BucketView | None = None
        self.shards: dict[int, BucketView | None] | None = None
        self.flights: dict[Flight, None] | None = None
        self.gauged_ms = 0

    @property
    def in_flight(self) -> int:
        """The number of takes in flight."""
        return len(self.flights or ())

    def expected(self) -> BucketView | None:
        """Return shard 0 as it will be once the takes in flight have been applied."""
        view, flights = self.view, self.flights
        if not flights or view is None:
            return view
        layout, balances = view.layout, list(view.numbers)
        slots: list[SlotTake] = []
        for flight in list(flights):
            # A flight of another layout was decided on other limits: its answer will show the new balances.
            if flight.layout is layout:
                slots += flight.slots
                for position, change in flight.changes:
                    balances[position] += change
        if isinstance(view, MixedView):
            of_others = MixedView(layout, tuple(balances), view.seen_ms, view.pace, view.cohorts, view.expires_s)
            return of_others.after(slots)
        return View(layout, tuple(balances), view.seen_ms, view.pace)

    def send(self, flight: Flight, lost_before_s: float) -> None:
        """Note a take that is sent. Drop takes with an earlier deadline than this: their callers were interrupted."""
        flights = self.flights
        if flights is None:
            self.flights = flights = {}
        elif flights:
            for other in [other for other in list(flights) if other.until_s < lost_before_s]:
                flights.pop(other, None)
        flights[flight] = None

    def learn_taken(self, view: BucketView) -> None:
        """Keep shard 0 as it answered a take, unless a newer answer has arrived in between."""
        newest = self.view
        if newest is None or newest.numbers[-1] <= view.numbers[-1]:
            if self.shards is None and view.layout.shared.shard_count == 1:
                # What ``keep`` does for a bucket with one shard, inlined because every take on DynamoDB runs it.
                self.view = view
            else:
                self.keep(0, view)

    def forget_in_flight(self) -> None:
        """Forget takes that are in flight: another process gets their answers."""
        self.flights = None

    @property
    def sharded(self) -> bool:
        """Whether the bucket has several shards, as far as is known."""
        return self.shards is not None

    def seen(self, shard: int) -> BucketView | None:
        """Return a shard as last seen."""
        return self.view if shard == 0 else (self.shards or {}).get(shard)

    def keep(self, shard: int, view: BucketView | None) -> None:
        """Keep a shard as it was seen, None if it is absent."""
        before = self.seen(shard)
        if shard == 0:
            self.view = view
            if view is None or view.layout.shared.shard_count == 1:
                self.shards = None
                return
        shards = {} if self.shards is None else self.shards
        if view is not None and (before is None or before.layout.shard_count != view.layout.shard_count):
            # A shard that was absent may have been split off since.
            shards = {number: known for number, known in shards.items() if known is not None}
        self.shards = shards if shard == 0 else {**shards, shard: view}

    def counts(self) -> dict[int, int]:
        """Return the counts of the shards that are known, 0 for one that is absent."""
        shards: dict[int, BucketView | None] = {0: self.view, **(self.shards or {})}
        return {number: 0 if view is None else view.layout.shard_count for number, view in shards.items()}

    def views(self) -> dict[int, BucketView]:
        """Return the shards that are known to exist."""
        shards: dict[int, BucketView | None] = {0: self.view, **(self.shards or {})}
        return {number: view for number, view in shards.items() if view is not None}


class ChainLink:
    """A bucket of an acquire, with its limits, and the link of the next bucket, None if it is the last.

    Entities with the same parent share the links above them. A link is valid while its bucket has the same limits. An
    entity without limits has a link too, with the terms ``NO_LIMITS``: it may be moved or blocked. ``since_ms`` and
    ``until_ms`` are when the limits of this bucket and of all after it are fresh. ``is_shared`` is True if the next
    bucket is of the same entity.
    """

    __slots__ = ("bucket", "is_shared", "limits", "memory", "next", "since_ms", "terms", "until_ms")

    def __init__(
        self,
        bucket: BucketId,
        memory: Remembered,
        limits: KnownLimits,
        terms: EffectiveLimits,
        after: "ChainLink | None",
    ) -> None:
        self.bucket = bucket
        self.memory = memory
        self.limits = limits
        self.terms = terms
        self.next = after
        self.is_shared = after is not None and after.bucket[0] == bucket[0]
        self.since_ms: int = limits.read_ms if after is None else max(limits.read_ms, after.since_ms)
        self.until_ms: int = limits.expires_ms if after is None else min(limits.expires_ms, after.until_ms)

    def continues(self, limits: KnownLimits | None, after: "ChainLink | None") -> bool:
        """Return whether the link is that of these limits, with this next link."""
        return self.limits is limits and self.next is after


class _Buckets(Bounded[BucketId, Remembered]):
    """What is cached of buckets. Links to a bucket that is dropped become invalid."""

    __slots__ = ()

    def drop(self, key: BucketId) -> None:
        """Drop a bucket."""
        dropped = self.pop(key, None)
        if dropped is not None:
            dropped.limits = None


class NamespaceCaches:
    """The caches of one client for one namespace, shared by every repository of that namespace."""

    def __init__(self, most: int = MOST_ENTRIES) -> None:
        self.buckets: Bounded[BucketId, Remembered] = _Buckets(most)
        self.own_terms: Bounded[tuple[object, ...], EffectiveLimits] = Bounded(most)
        # The resources of all buckets, by which those of one entity are found.
        self._resources: set[str] = set()
        # Reentrant: a thread that is interrupted while it holds the lock can still enter again.
        self._mutex = threading.RLock()
        self._shared_limits: Bounded[Resolution, KnownLimits] = Bounded(min(most, _SHARED_LIMITS))
        self.on_unavailable: OnUnavailable | None = None
        self.active_until_ms = 0
        self.kinds: frozenset[str] = frozenset()
        self.hits = 0
        self.misses = 0
        self.waiting: WaitingQueues | None = None
        """The queues of requests that wait, None before the first of them."""
        renew_in_copies(self)

    def queues(self, monotonic_s: Callable[[], float], deadline_s: float) -> "WaitingQueues":
        """Return the queues of requests that wait."""
        if self.waiting is None:
            # Imported here, because most limiters let no request wait.
            from zae_limiter.caches.waiting import WaitingQueues

            with self._mutex:
                if self.waiting is None:
                    self.waiting = WaitingQueues(monotonic_s, deadline_s)
        return self.waiting

    def note_change(self, bucket: BucketId) -> None:
        """Let a request that waits for a bucket ask again, because its tokens or its limits have changed."""
        if self.waiting is not None:
            self.waiting.changed(bucket)

    def _note_change_of_all(self) -> None:
        if self.waiting is not None:
            self.waiting.changed_all()

    def close(self) -> None:
        """Forget everything, and let no request wait any more, because the table is closed."""
        self.forget()
        if self.waiting is not None:
            self.waiting.close()

    def renew(self, *, restored: bool) -> None:
        """Drop what is in flight, in a copy of the process, because the original gets the answers.

        A restored copy also drops views and limits: they are old, and reading them again shows the server's time.
        """
        # A thread of the original may hold it, and that thread is not in this process.
        self._mutex = threading.RLock()
        if restored:
            self.buckets.clear()
            self.active_until_ms = 0
        for remembered in list(self.buckets.values()):
            remembered.forget_in_flight()

    def limits(self, bucket: BucketId) -> KnownLimits | None:
        """Return the limits in force as last read, fresh or not."""
        try:
            found = self.buckets.get(bucket)
        except TypeError:
            # A name that cannot be hashed is invalid. It is refused where names are checked.
            return None
        return None if found is None else found.limits

    def view(self, bucket: BucketId, shard: int = 0) -> BucketView | None:
        """Return a shard of a bucket as last seen."""
        found = self.buckets.get(bucket)
        return None if found is None else found.seen(shard)

    def keep_limits(self, bucket: BucketId, limits: KnownLimits | None) -> None:
        """Keep limits in force. Links that were made for other limits become invalid."""
        known = self.of(bucket)
        before, known.limits = known.limits, limits
        if before is not limits:
            # An acquire checks its amounts by the first link, before it finds that the limits have changed.
            known.chain = None
            if before is not None and limits is not None and before.terms is not limits.terms:
                self.note_change(bucket)

    def keep_view(self, bucket: BucketId, view: BucketView | None, shard: int = 0) -> None:
        """Keep a shard of a bucket as it was seen, None if it is absent."""
        self.of(bucket).keep(shard, view)

    def forget(self) -> None:
        """Forget every bucket and all limits."""
        self.active_until_ms = 0
        self.buckets.clear()
        self.own_terms.clear()

    def share_limits(
        self, resolution: Resolution, terms: EffectiveLimits | None, now_ms: int, ttl_ms: int
    ) -> KnownLimits:
        """Return limits that were just read, as the object that buckets with equal limits share."""
        newest = self._shared_limits.get(resolution)
        if newest is None:
            newest = KnownLimits(resolution, terms, now_ms, now_ms + ttl_ms, resolution.links)
        elif 0 <= now_ms - newest.read_ms < ttl_ms // _SHARED_FOR:
            # They are read again a little earlier than they have to be.
            return newest
        else:
            newest = KnownLimits(newest.resolution, newest.terms, now_ms, now_ms + ttl_ms, newest.links)
        self._shared_limits.keep(resolution, newest)
        return newest

    def forget_limits(self) -> None:
        """Drop all limits, and what is known of the namespace: both are read again when they are next needed."""
        self.active_until_ms = 0
        for known in list(self.buckets.values()):
            known.limits = None
        self._note_change_of_all()

    def forget_limits_of(self, entity_id: str) -> None:
        """Drop the limits of one entity: they are read again when they are next needed."""
        for resource in list(self._resources):
            known = self.buckets.get((entity_id, resource))
            if known is not None:
                known.limits = None
        self._note_change_of_all()

    def remember_chain(self, buckets: Sequence[tuple[BucketId, KnownLimits]]) -> None:
        """Remember the buckets of an acquire, and the limits by which they were found.

        They include those of entities without limits. A bucket is linked only to those after it, so buckets above are
        linked for all entities below. Nothing is remembered if the limits of a bucket have changed since.
        """
        link: ChainLink | None = None
        for bucket, limits in reversed(buckets):
            memory = self.of(bucket)
            if memory.limits is not limits:
                return
            if memory.chain is None or not memory.chain.continues(limits, link):
                memory.chain = ChainLink(bucket, memory, limits, limits.terms or NO_LIMITS, link)
            link = memory.chain

    def stats(self, ttl_seconds: float) -> CacheStats:
        """Return the statistics of the cached limits."""
        known = sum(one.limits is not None for one in list(self.buckets.values()))
        return CacheStats(self.hits, self.misses, known, ttl_seconds)

    def of(self, bucket: BucketId) -> Remembered:
        """Return what is cached of a bucket; a new, empty entry if nothing is."""
        found = self.buckets.get(bucket)
        if found is None:
            found = Remembered()
            with self._mutex:
                self.buckets.keep(bucket, found)
                self._resources.add(bucket[1])
                if len(self._resources) > 2 * len(self.buckets):
                    self._resources = {resource for _, resource in list(self.buckets)}
        return found
