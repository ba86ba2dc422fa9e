"""Reads bucket items, and sends a write until its result is known."""  # generated from _async by tools/mirror.py; do not edit

from collections.abc import Sequence
from typing import assert_never

from zae_limiter._sync.backoff import Pauses
from zae_limiter._sync.store.scope import Scope
from zae_limiter.caches.buckets import BucketId
from zae_limiter.core.errors import NamespaceNotFoundError
from zae_limiter.core.names import check_entity_id, check_resource
from zae_limiter.core.outcome import (
    Applied,
    Cancelled,
    Committed,
    Item,
    Missing,
    Refused,
    RefusedInDoubt,
    Throttled,
    Unavailable,
    WriteOutcome,
)
from zae_limiter.core.view import Amounts, EffectiveLimits
from zae_limiter.schema import attributes, bucket_writes, namespace_item
from zae_limiter.schema.bucket_item import BucketView, bucket_key, view_of
from zae_limiter.schema.bucket_writes import Owner
from zae_limiter.schema.operations import Check, Key, Operation, Put, Update

_PAUSES = Pauses(0.005, 0.1, full_jitter=True)

WriteResult = Applied | Refused | Missing | Throttled
"""The result of a write."""

ShardId = tuple[BucketId, int]
"""A bucket, and the number of one of its shards."""


class BucketStore:
    """The buckets of one namespace."""

    def __init__(self, scope: Scope) -> None:
        self._scope = scope
        self._caches = scope.caches
        self.signature = scope.client.signature
        self.draw_birth = scope.client.draw_birth
        self._checks_creations = scope.table.inline
        self.splits = scope.table.capabilities.partition_writes_per_second is not None

    def key(self, bucket: BucketId, shard: int = 0) -> Key:
        """Return the key of a shard of a bucket."""
        check_bucket(bucket, allow_all=True)
        return bucket_key(self._scope.namespace_id, *bucket, shard)

    def owner(self, bucket: BucketId) -> Owner:
        """Return the owner of a bucket."""
        check_bucket(bucket, allow_all=True)
        return Owner(self._scope.namespace_id, *bucket)

    def remembered(self, bucket: BucketId, shard: int = 0) -> BucketView | None:
        """Return the cached view of a shard, None if it is not cached."""
        return self._caches.view(bucket, shard)

    def look(
        self, shard_id: ShardId, terms: EffectiveLimits | None, until_s: float, *, newest: bool = False
    ) -> BucketView | None:
        """Read a shard, None if it does not exist; the read is consistent only if ``newest``."""
        item = self._scope.table.get(self.key(*shard_id), consistent=newest, until_s=until_s)
        return self.learn(shard_id, item, terms)

    def look_at_all(
        self, buckets: Sequence[tuple[BucketId, EffectiveLimits]], until_s: float
    ) -> list[BucketView | None]:
        """Read shard 0 of several buckets in one call, None for one that does not exist."""
        if not buckets:
            return []
        if len(buckets) == 1:
            bucket, terms = buckets[0]
            return [self.look((bucket, 0), terms, until_s)]
        items = self._scope.table.batch_get([self.key(bucket) for bucket, _ in buckets], until_s=until_s)
        return [self.learn((bucket, 0), item, terms) for (bucket, terms), item in zip(buckets, items, strict=True)]

    def learn(
        self, shard_id: ShardId, item: Item | None, terms: EffectiveLimits | None, own: Amounts = ()
    ) -> BucketView | None:
        """Cache the view of a shard from its item; ``own`` are the amounts that this client has just consumed."""
        bucket, shard = shard_id
        if item is None:
            self._caches.keep_view(bucket, None, shard)
            return None
        view = view_of(item, self._scope.table.now()[1], self._caches.view(bucket, shard), terms, own)
        self._caches.keep_view(bucket, view, shard)
        if view.layout.shared.warned and self._scope.client.warner is not None:
            self._scope.client.warner.look(self._scope, bucket, view)
        return view

    def send(self, operation: Put | Update, until_s: float) -> WriteResult:
        """Send a write to a bucket, and return its result."""
        return self.result_of(operation, self._scope.table.write(operation, until_s), operation, until_s)

    def create(self, operation: Put, until_s: float) -> WriteResult:
        """Create a bucket; in an embedded table only if the namespace is active, so that a purge leaves no items.

        Raises:
            NamespaceNotFoundError: The namespace was deleted.
            RateLimiterUnavailable: The table did not respond within the deadline.
        """
        checks = self.creation_checks(operation)
        if not checks:
            return self.send(operation, until_s)
        outcome = self._scope.client.transact([operation, *checks], "create", until_s)
        if isinstance(outcome, Committed):
            return Applied(operation.item)
        if isinstance(outcome, Cancelled):
            self.require_namespace(outcome.reasons[1:])
            return outcome.reasons[0] or Missing()
        raise self._scope.client.unavailable(self._too_late("only conflicts"))

    def creation_checks(self, *operations: Operation) -> list[Check]:
        """Return the checks that a transaction needs if it may create buckets, none on a deployed table."""
        # On DynamoDB all namespaces are in one partition, and a check per creation would throttle it.
        creates = self._checks_creations and any(isinstance(one, Put) for one in operations)
        return [namespace_item.require_active(self._scope.namespace_id)] if creates else []

    def require_namespace(self, reasons: Sequence[object]) -> None:
        """Raise if a check of a cancelled transaction failed; the cached limits are dropped then.

        Raises:
            NamespaceNotFoundError: The namespace was deleted.
        """
        if any(reason is not None for reason in reasons):
            self._caches.forget_limits()
            raise NamespaceNotFoundError(self._scope.namespace)

    def result_of(
        self, operation: Put | Update, outcome: WriteOutcome, again: Put | Update | None, until_s: float
    ) -> WriteResult:
        """Return the result of a write; repeat it after a lost response.

        ``again`` is the write to repeat, without its credits: a credit must not be given twice. It is None if the write
        is only a credit. On a table that splits buckets, a throttle is a result. Elsewhere it is retried. A conflict
        with a transaction is always retried.

        Raises:
            RateLimiterUnavailable: The table did not respond within the deadline.
        """
        if isinstance(outcome, Applied | Refused | Missing):
            return outcome
        if isinstance(outcome, Throttled) and self.splits and not outcome.contested:
            return outcome
        return self._waited_out(operation, outcome, again, until_s)

    def _waited_out(
        self, operation: Put | Update, outcome: WriteOutcome, again: Put | Update | None, until_s: float
    ) -> WriteResult:
        """Repeat a write until its result is known."""
        backoff = self._scope.client.backoff(_PAUSES, until_s)
        failure: BaseException
        in_doubt = False
        while True:
            match outcome:
                # The repeated write was refused by its own first attempt, whose response was lost.
                case Refused(old=old) if _is_mine(operation, old):
                    return Applied(old)
                case Refused(old=old) if in_doubt:
                    return RefusedInDoubt(old)
                case Applied() | Refused() | Missing():
                    return outcome
                case Unavailable(cause=cause, ambiguous=ambiguous):
                    in_doubt = in_doubt or ambiguous
                    if not ambiguous or again is None:
                        raise self._scope.client.unavailable(cause)
                    # A repeated create draws a new birth number. Both attempts may be applied, with a delete between
                    # them, and a credit for the first bucket must not reach the second.
                    operation = again = bucket_writes.sent_again(again, self.draw_birth())
                    # The cause names the timeout of one attempt, so the error names the whole deadline instead.
                    failure = self._too_late("no answer") if isinstance(cause, TimeoutError) else cause
                case Throttled():
                    failure = self._too_late("only throttled responses")
                case never:
                    assert_never(never)
            if not backoff.wait():
                raise self._scope.client.unavailable(failure)
            outcome = self._scope.table.write(operation, until_s)

    def _too_late(self, what: str) -> TimeoutError:
        return TimeoutError(f"{what} within {self._scope.settings.deadline_s} s")


def check_bucket(bucket: BucketId, *, allow_all: bool = False) -> None:
    """Reject invalid names of an entity or a resource, including subclasses of str, which may print as another name.

    ``allow_all`` permits a bucket across resources.
    """
    entity_id, resource = bucket
    check_entity_id(entity_id)
    check_resource(resource, allow_all=allow_all)


def _is_mine(operation: Put | Update, old: Item) -> bool:
    """Return whether the item has the nonce of the write that it refused: the first attempt was applied."""
    written = operation.item if isinstance(operation, Put) else operation.set
    return attributes.NONCE in old and written.get(attributes.NONCE) == old[attributes.NONCE]
