"""Resets the buckets of an entity, and gives back what was spent, as an operator asks for it.

Each is one transaction of all shards with its audit event. ``core.operator_actions`` decides what is written.
"""  # generated from _async by tools/mirror.py; do not edit

from collections.abc import Mapping
from contextlib import suppress

from zae_limiter._sync.store.audit import PlannedChange, audit_expiry_s, make_changes
from zae_limiter._sync.store.configs import ConfigStore
from zae_limiter._sync.store.index_reader import IndexReader
from zae_limiter._sync.store.scope import Scope
from zae_limiter._sync.store.sharded_buckets import ShardedBuckets, highest_shards
from zae_limiter.caches.buckets import BucketId
from zae_limiter.core.audit import AuditAction, AuditChange
from zae_limiter.core.bucket_changes import Short
from zae_limiter.core.errors import ValidationError
from zae_limiter.core.lazy_dataclass import replace
from zae_limiter.core.limit import Limit
from zae_limiter.core.operator_actions import (
    GivenCredit,
    check_credit,
    check_credited,
    operator_credit,
    repeated,
    reset,
)
from zae_limiter.core.rebase import missing_birth, rebase
from zae_limiter.core.view import EffectiveLimits
from zae_limiter.schema import bucket_writes, credit_item, keys
from zae_limiter.schema.bucket_item import BucketView, view_of
from zae_limiter.schema.keys import BucketKey
from zae_limiter.schema.operations import Key, Query, Update

_MOST_MOVES = 8
"""Tries to move all shards to the limits in force before a reset. Then they are reset on the limits that they have."""


class OperatorActions:
    """What an operator does to the buckets of one namespace."""

    def __init__(self, scope: Scope) -> None:
        self._scope = scope
        self._buckets = ShardedBuckets(scope.client)
        self._configs = ConfigStore(scope)

    def reset(self, entity_id: str, resource: str | None, principal: str | None) -> list[str]:
        """Make the buckets of an entity full, of one resource or, if None, of all; return the resources.

        Raises:
            RateLimiterUnavailable: The table did not respond. Some buckets may have been reset.
        """
        done: list[str] = []
        for bucket, known in (self._of_entity(entity_id, resource)).items():
            if self._reset(bucket, known, principal):
                done.append(bucket.resource)
        return sorted(done)

    def credit(
        self, bucket_id: BucketId, amounts: Mapping[str, int], idempotency_key: str, principal: str | None
    ) -> dict[str, int]:
        """Give back at most what was spent, once with this key; return what was given.

        Raises:
            ValidationError: An amount or the key is invalid, a limit is not in force, or it is of concurrent use.
            IdempotencyKeyReusedError: The key belongs to another credit.
            RateLimiterUnavailable: The table did not respond. The same call can be repeated.
        """
        entity_id, resource = bucket_id
        amounts = check_credit(amounts, idempotency_key)
        place = credit_item.key(self._scope.namespace_id, entity_id, idempotency_key)
        bucket = BucketKey(self._scope.namespace_id, entity_id, resource, 0)
        given: dict[str, int] = {}

        def decide() -> PlannedChange:
            nonlocal given
            record = self._scope.table.get(place, consistent=True)
            if record is not None:
                given = repeated(credit_item.from_item(record), resource, amounts, idempotency_key)
                return PlannedChange((), ())
            known = self._configs.read_again(bucket_id, consistent=True)
            views = self._views(bucket, 0, known.terms)
            check_credited(_limits_in_force(views, known.terms), amounts)
            decided = operator_credit(views, amounts, self._scope.table.now())
            given = decided.given
            nonces = self._scope.client.nonces
            writes = [bucket_writes.operator_credit(views[k], part, next(nonces)) for k, part in decided.parts.items()]
            credit = GivenCredit(resource, amounts, given)
            details = {"amounts": dict(amounts), "given": given, "idempotency_key": idempotency_key}
            change = AuditChange(AuditAction.CREDITED, entity_id, principal, resource, details)
            return PlannedChange([credit_item.write(place, credit, audit_expiry_s(self._scope)), *writes], (change,))

        try:
            make_changes(self._scope, decide)
        finally:
            self._forget(bucket_id)
        return given

    def _of_entity(self, entity_id: str, resource: str | None) -> dict[BucketKey, int]:
        """Return the buckets of an entity, with the highest shard number seen of each."""
        namespace_id = self._scope.namespace_id
        if resource is not None:
            return {BucketKey(namespace_id, entity_id, resource, 0): 0}
        query = Query(keys.gsi3_pk_entity(namespace_id, entity_id), index="GSI3", prefix=keys.GSI_BUCKET_PREFIX)
        found = IndexReader(self._scope.table).read(query)
        return highest_shards(Key(item["PK"], item["SK"]) for item in found.items)

    def _reset(self, bucket: BucketKey, known: int, principal: str | None) -> bool:
        """Make a bucket full; return False if there is nothing to make full."""
        is_reset = False

        def decide() -> PlannedChange:
            nonlocal is_reset
            views = self._moved(bucket, known)
            filled = reset(views, self._scope.table.now())
            nonces = self._scope.client.nonces
            writes = [bucket_writes.reset(views[shard], parts, next(nonces)) for shard, parts in filled.items()]
            is_reset = bool(writes)
            shares = {shard: views[shard].layout.shared.shares for shard in filled}
            names = {shares[shard][one.position].name for shard, parts in filled.items() for one in parts}
            details = {"limits": sorted(names)}
            change = AuditChange(AuditAction.BUCKETS_RESET, bucket.entity_id, principal, bucket.resource, details)
            return PlannedChange(writes, (change,))

        try:
            make_changes(self._scope, decide)
        finally:
            self._forget((bucket.entity_id, bucket.resource))
        return is_reset

    def _moved(self, bucket: BucketKey, known: int) -> dict[int, BucketView]:
        """Return all shards of a bucket, after those on older stored limits were moved to the limits in force.

        A limit that was raised would otherwise be full only up to its earlier capacity.
        """
        views: dict[int, BucketView] = {}
        for _ in range(_MOST_MOVES):
            limits = self._configs.read_again((bucket.entity_id, bucket.resource), consistent=True)
            terms = limits.terms
            views = self._views(bucket, known, terms)
            moves = [] if terms is None else self._moves(views, terms)
            if not moves:
                break
            for move in moves:
                # Whatever its outcome is: the shards are read again.
                self._scope.table.write(move)
        return views

    def _moves(self, views: Mapping[int, BucketView], terms: EffectiveLimits) -> list[Update]:
        """Return the writes that move shards to stored limits; a bucket with a caller's own limits stays on them."""
        first, client = views.get(0), self._scope.client
        moves = []
        for view in views.values():
            layout = view.layout
            if layout.digest or layout.stamp > terms.stamp or layout.follows(terms):
                continue
            # A limit that has become one of another kind cannot be moved, and takes are refused. It can still be reset.
            with suppress(ValidationError):
                rebasing = rebase(view, terms, (), self._scope.table.now())
                assert not isinstance(rebasing, Short), "a rebase without a take is never short"
                birth = missing_birth(layout, None if first is None else first.layout, client.draw_birth())
                moves.append(bucket_writes.rebase(view, replace(rebasing, birth=birth), next(client.nonces)))
        return moves

    def _views(self, bucket: BucketKey, known: int, terms: EffectiveLimits | None) -> dict[int, BucketView]:
        """Read all shards of a bucket; empty if it does not exist."""
        now_ms = self._scope.table.now()[1]
        views = [view_of(item, now_ms, None, terms) for item in self._buckets.read(bucket, known)]
        return {view.layout.shard: view for view in views}

    def _forget(self, bucket: BucketId) -> None:
        """Drop the cached views of a bucket, by which requests would still be rejected; wake those that wait for it."""
        self._scope.caches.buckets.drop(bucket)
        self._scope.caches.note_change(bucket)


def _limits_in_force(views: Mapping[int, BucketView], terms: EffectiveLimits | None) -> dict[str, Limit]:
    """Return the limits that a bucket has, and those that are stored for it."""
    limits = {limit.name: limit for limit in (() if terms is None else terms.limits)}
    for view in views.values():
        limits |= {limit.name: limit for limit in view.layout.limits}
    return limits
