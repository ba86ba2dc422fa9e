"""Finds the entities that an acquire takes from: its own, and those above it that it cascades to, with their limits.

A chain is found in the cache, or is read level by level. The record of an entity has the entities that were above it
when it was last changed. So two reads are enough as a rule: one of the entity, and one of all others. Every level is
verified by the record below it, so a move of an entity in between only costs further reads.
"""  # generated from _async by tools/mirror.py; do not edit

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from zae_limiter._sync.limiter.resolve import Resolver, check_own_limits, no_limits
from zae_limiter._sync.store.buckets import BucketStore, check_bucket
from zae_limiter._sync.store.configs import ConfigStore
from zae_limiter._sync.store.scope import Scope
from zae_limiter.caches.buckets import BucketId, KnownLimits
from zae_limiter.caches.request import AcquireRequest, Evaluated, FallbackLimits, OwnLimits
from zae_limiter.core.acquire import Progress
from zae_limiter.core.cascade import MOST_LEVELS, check_buckets, check_levels, check_not_blocked, entities_to_read
from zae_limiter.core.errors import NamespaceNotFoundError, ValidationError
from zae_limiter.core.names import ALL_RESOURCES
from zae_limiter.core.outcome import Item
from zae_limiter.core.view import EffectiveLimits
from zae_limiter.schema.operations import Key


class Level(NamedTuple):
    """One entity of a chain: its limits for the resource, and those across resources, None if it has none."""

    entity_id: str
    limits: KnownLimits
    across: KnownLimits | None

    def has_limits(self) -> bool:
        """Return whether any limits are stored for the entity."""
        return self.limits.terms is not None or self.across is not None


class Chain(NamedTuple):
    """The entities of an acquire, its own first. ``looked`` are buckets that were just read; None if none was needed.

    A chain that was just read is used even if its limits may not be cached.
    """

    levels: Sequence[Level]
    looked: frozenset[BucketId] | None = None

    def buckets(self, resource: str) -> list[tuple[BucketId, KnownLimits]]:
        """Return the buckets of all levels with their limits, those of the entity first.

        A level without limits for the resource is among them, because it decides about the levels above it.
        """
        found = []
        for level in self.levels:
            found.append(((level.entity_id, resource), level.limits))
            if level.across is not None and level.across.terms is not None:
                found.append(((level.entity_id, ALL_RESOURCES), level.across))
        return found

    @property
    def bypass(self) -> bool:
        """Whether no bucket rejects the requests of the entity."""
        links = self.levels[0].limits.links
        return links is not None and links.bypass

    def is_free(self) -> bool:
        """Return whether no entity has a block or a bypass, so that only limits decide."""
        links = [level.limits.links for level in self.levels]
        return not any(one is not None and (one.blocks or one.bypass) for one in links)


class ChainReader:
    """Finds the chains of one namespace."""

    def __init__(self, scope: Scope, resolver: Resolver, buckets: BucketStore, first: Progress) -> None:
        self._scope = scope
        self._caches = scope.caches
        self._configs = ConfigStore(scope)
        self._resolver = resolver
        self._buckets = buckets
        self._first = first

    def known(self, bucket: BucketId) -> Chain | None:
        """Return the chain of an entity and a resource from the cache; None if a part is missing or too old.

        Raises:
            ValidationError: A name is invalid.
            TooManyBucketsError: The chain is too long.
        """
        check_bucket(bucket)
        levels, missing = self._walk(bucket, {})
        return Chain(levels) if missing is None else None

    def read(self, request: AcquireRequest) -> Chain:
        """Read what is missing of a chain, and in the same calls buckets that were never seen.

        Raises:
            ValidationError: A name or a limit is invalid.
            TooManyBucketsError: The chain is too long.
            RateLimiterUnavailable: The table did not answer.
        """
        bucket = request.bucket
        check_bucket(bucket)
        read: dict[str, Level] = {}
        looked: set[BucketId] = set()
        levels, missing = self._walk(bucket, read)
        # Each round reads the first entity that is missing, and a chain has at most ``MOST_LEVELS`` of them.
        while missing is not None:
            read_all = self._configs.has_all_resources
            hint = self._hint(bucket, levels)
            known = [one for one in hint if one in read or self._cached(one, bucket[1]) is not None]
            looked |= self._read(entities_to_read(missing, hint, known), request, read)
            if self._configs.has_all_resources and not read_all:
                # The read has shown for the first time that there are limits across resources.
                looked |= self._read(list(read), request, read)
            levels, missing = self._walk(bucket, read)
        return Chain(levels, frozenset(looked))

    def find(self, request: AcquireRequest) -> Chain:
        """Return the chain of a request, from the cache if possible.

        Raises:
            ValidationError: A name or a limit is invalid.
            TooManyBucketsError: The chain is too long.
            RateLimiterUnavailable: The table did not answer.
        """
        return self.known(request.bucket) or self.read(request)

    def require_unblocked(self, chain: Chain, resource: str) -> None:
        """Require that no entity of a chain is blocked for a resource.

        Raises:
            EntityBlockedError: One of them is.
        """
        for level in chain.levels:
            check_not_blocked(level.entity_id, level.limits.links, resource, self._scope.table.now()[0])

    def requests(self, chain: Chain, request: AcquireRequest) -> list[AcquireRequest]:
        """Return the requests to all buckets of a chain, those of the entity first.

        An ancestor is limited by its stored limits, and only by those that it has. If it has none for the resource, the
        limits of the caller apply to it.

        Raises:
            NoLimitsInForceError: No limits are in force for the entity.
            ValidationError: The request names a limit that is not in force for the entity.
            TooManyBucketsError: There are too many buckets.
        """
        (entity_id, resource), consume, own, until_s, _, _, reserve = request
        several = len(chain.levels) > 1
        found: list[AcquireRequest] = []
        for level in chain.levels:
            is_own = level is chain.levels[0]
            if level.limits.terms is not None or own is not None:
                limits = own if is_own else _for_ancestor(own)
                bucket = (level.entity_id, resource)
                partly = not is_own or level.across is not None
                known = self._evaluated(chain, bucket, limits, level.limits)
                found.append(AcquireRequest(bucket, consume, limits, until_s, partly, known, reserve))
            if level.across is not None and level.across.terms is not None:
                bucket = (level.entity_id, ALL_RESOURCES)
                known = self._evaluated(chain, bucket, None, level.across)
                found.append(AcquireRequest(bucket, consume, None, until_s, True, known, reserve))
            if is_own and not found:
                raise no_limits(request.bucket)
        if chain.levels[0].across is not None:
            # Each of the two buckets only refuses the limits that it has.
            self.require_names(chain, request)
        if several or len(found) > 1:
            check_buckets(entity_id, len(found))
        return found

    def _evaluated(self, chain: Chain, bucket: BucketId, own: OwnLimits, limits: KnownLimits) -> Evaluated | None:
        """Return the limits of a bucket if they were just read, None if they are cached."""
        if chain.looked is None:
            return None
        progress = self._first.after_look() if bucket in chain.looked else self._first
        return Evaluated(self._resolver.agreed(bucket, check_own_limits(own), limits), progress)

    def require_names(self, chain: Chain, request: AcquireRequest) -> None:
        """Require that any bucket of the entity has each limit of a request.

        Raises:
            ValidationError: None of them has a limit.
        """
        level, known = chain.levels[0], set[str]()
        if level.across is not None and level.across.terms is not None:
            known.update(level.across.terms.positions)
        if request.own is not None or level.limits.terms is not None:
            terms = self._resolver.agreed(request.bucket, check_own_limits(request.own), level.limits)
            known.update(terms.positions)
        for name in request.consume:
            if name not in known:
                names = ", ".join(sorted(known))
                raise ValidationError("consume", name, f"is not a limit in force; the limits in force are: {names}")

    def _walk(self, bucket: BucketId, read: Mapping[str, Level]) -> tuple[list[Level], str | None]:
        """Return the known levels from the first up, and the next entity if it is not known, None if all are."""
        above: str | None = bucket[0]
        levels: list[Level] = []
        while above is not None:
            if len(levels) == MOST_LEVELS or any(level.entity_id == above for level in levels):
                # Links that were cached at different times may form a cycle, or a chain that is too long.
                for number, cached in enumerate(levels):
                    if cached.entity_id not in read:
                        return levels[:number], cached.entity_id
                check_levels(bucket[0], MOST_LEVELS + 1)
            level = read.get(above) or self._cached(above, bucket[1])
            if level is None:
                return levels, above
            levels.append(level)
            links = level.limits.links
            above = None if links is None else links.parent_id
        return levels, None

    def _cached(self, entity_id: str, resource: str) -> Level | None:
        """Return a level from the cache; None if it is not cached, or not fresh."""
        limits = self._configs.fresh((entity_id, resource))
        if limits is None:
            return None
        across = None
        if limits.links is not None and limits.links.all_resources:
            across = self._configs.fresh((entity_id, ALL_RESOURCES))
            if across is None:
                return None
        self._caches.hits += 1
        return Level(entity_id, limits, across)

    def _hint(self, bucket: BucketId, levels: Sequence[Level]) -> tuple[str, ...]:
        """Return the entities that are expected above the last known level, or from the first one if none is known."""
        if levels:
            return _ancestors(levels[-1].limits)
        stale = self._caches.limits(bucket)
        return (bucket[0], *(() if stale is None else _ancestors(stale)))

    def _read(self, entities: Sequence[str], request: AcquireRequest, read: dict[str, Level]) -> set[BucketId]:
        """Read levels in one call, and add them to ``read``; return the buckets that were read with them."""
        resource, table = request.bucket[1], self._scope.table
        wanted: dict[Key, None] = {}
        unseen: list[BucketId] = []
        for entity_id in entities:
            wanted |= dict.fromkeys(self._configs.keys((entity_id, resource)))
            unseen += self._unseen(entity_id, resource)
        wanted |= dict.fromkeys(self._buckets.key(bucket) for bucket in unseen)
        items = table.batch_get(list(wanted), until_s=request.until_s)
        found = dict(zip(wanted, items, strict=True))
        try:
            lacking = self._learn(entities, request, found, read)
        except NamespaceNotFoundError:
            if not table.index_lag_s:
                raise
            lacking = list(entities)
        if lacking and table.index_lag_s:
            self._read_consistently(lacking, request, read)
        for bucket in unseen:
            level = read[bucket[0]]
            limits = level.limits if bucket[1] == resource else level.across
            self._buckets.learn((bucket, 0), found[self._buckets.key(bucket)], self._terms(request, bucket, limits))
        return set(unseen)

    def _read_consistently(
        self, entities: Sequence[str], request: AcquireRequest, read: dict[str, Level]
    ) -> None:
        """Read limits again that an eventually consistent read did not find, although they may have been stored."""
        self._caches.active_until_ms = 0
        keys = dict.fromkeys(
            key for entity_id in entities for key in self._configs.keys((entity_id, request.bucket[1]))
        )
        items = self._scope.table.batch_get(list(keys), consistent=True, until_s=request.until_s)
        self._learn(entities, request, dict(zip(keys, items, strict=True)), read)

    def _learn(
        self,
        entities: Sequence[str],
        request: AcquireRequest,
        found: Mapping[Key, Item | None],
        read: dict[str, Level],
    ) -> list[str]:
        """Cache the limits of levels, and add these to ``read``; return the entities for which none were found."""
        own, resource = request.bucket
        for entity_id in entities:
            # Not from the cache, which may have dropped the one to make room for the other.
            limits, across = self._configs.learn((entity_id, resource), found)
            has_across = limits.links is not None and limits.links.all_resources
            read[entity_id] = Level(entity_id, limits, across if has_across else None)
        has_own = request.own is not None and not isinstance(request.own, FallbackLimits)
        return [one for one in entities if not read[one].has_limits() and not (has_own and one == own)]

    def _unseen(self, entity_id: str, resource: str) -> list[BucketId]:
        """Return the buckets of a level that may exist, and of which nothing is cached."""
        resources = (resource, ALL_RESOURCES) if self._configs.has_all_resources else (resource,)
        return [(entity_id, one) for one in resources if self._buckets.remembered((entity_id, one)) is None]

    def _terms(self, request: AcquireRequest, bucket: BucketId, limits: KnownLimits | None) -> EffectiveLimits | None:
        """Return the limits that a bucket of a request is judged by, None if it has none."""
        if limits is None or (limits.terms is None and request.own is None) or bucket[1] == ALL_RESOURCES:
            return None if limits is None else limits.terms
        own = request.own if bucket == request.bucket else _for_ancestor(request.own)
        return self._resolver.agreed(bucket, check_own_limits(own), limits)


def _ancestors(limits: KnownLimits) -> tuple[str, ...]:
    """Return the entities that the record of an entity names above it, if it cascades to them."""
    facts, links = limits.resolution.facts, limits.links
    return facts.ancestors if facts is not None and links is not None and links.parent_id is not None else ()


def _for_ancestor(own: OwnLimits) -> OwnLimits:
    """Return the limits of a caller as they apply to an ancestor: only if it has no stored limits."""
    return own if own is None or isinstance(own, FallbackLimits) else FallbackLimits(own)
