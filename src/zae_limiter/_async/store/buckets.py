"""Bucket items: looking at one, and sending a write to it until its fate is known."""

from collections.abc import Sequence
from typing import assert_never

from zae_limiter._async.backoff import Pauses
from zae_limiter._async.store.scope import Scope
from zae_limiter.caches.buckets import BucketId
from zae_limiter.core.errors import NamespaceNotFoundError, RateLimiterUnavailable
from zae_limiter.core.names import check_entity_id, check_resource
from zae_limiter.core.outcome import (
    Applied,
    Cancelled,
    Committed,
    Item,
    Missing,
    Refused,
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
"""What became of a write."""

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
        check_bucket(bucket)
        return bucket_key(self._scope.namespace_id, *bucket, shard)

    def owner(self, bucket: BucketId) -> Owner:
        """Return whose bucket it is."""
        check_bucket(bucket)
        return Owner(self._scope.namespace_id, *bucket)

    def remembered(self, bucket: BucketId, shard: int = 0) -> BucketView | None:
        """Return a shard of a bucket as it was last seen, None if it was not."""
        return self._caches.view(bucket, shard)

    async def look(
        self, shard_id: ShardId, terms: EffectiveLimits | None, until_s: float, *, newest: bool = False
    ) -> BucketView | None:
        """Read a shard; None if there is none. It may be a little behind, unless ``newest``."""
        item = await self._scope.table.get(self.key(*shard_id), consistent=newest, until_s=until_s)
        return self.learn(shard_id, item, terms)

    def learn(
        self, shard_id: ShardId, item: Item | None, terms: EffectiveLimits | None, own: Amounts = ()
    ) -> BucketView | None:
        """Remember a shard as it was read, as it refused a write, or as it took this client's ``own``."""
        bucket, shard = shard_id
        if item is None:
            self._caches.keep_view(bucket, None, shard)
            return None
        view = view_of(item, self._scope.table.now()[1], self._caches.view(bucket, shard), terms, own)
        self._caches.keep_view(bucket, view, shard)
        return view

    async def send(self, operation: Put | Update, until_s: float) -> WriteResult:
        """Send a write to a bucket and find out its fate."""
        return await self.result_of(operation, await self._scope.table.write(operation, until_s), operation, until_s)

    async def create(self, operation: Put, until_s: float) -> WriteResult:
        """Create a bucket; an embedded table does so only in an active namespace, so that a purge leaves nothing.

        Raises:
            NamespaceNotFoundError: The namespace was deleted.
            RateLimiterUnavailable: The table did not answer within the deadline.
        """
        checks = self.creation_checks(operation)
        if not checks:
            return await self.send(operation, until_s)
        token = f"create-{next(self._scope.client.nonces)}"
        outcome = await self._scope.table.transact([operation, *checks], token, until_s=until_s)
        if isinstance(outcome, Committed):
            return Applied(operation.item)
        if isinstance(outcome, Cancelled):
            self.require_namespace(outcome.reasons[1:])
            return outcome.reasons[0] or Missing()
        raise RateLimiterUnavailable(
            outcome.cause if isinstance(outcome, Unavailable) else self._too_late("nothing but conflicts")
        )

    def creation_checks(self, *operations: Operation) -> list[Check]:
        """Return what a transaction that may create buckets has to check besides; nothing on a deployed table.

        There the namespaces share a partition, which creations would heat.
        """
        creates = self._checks_creations and any(isinstance(one, Put) for one in operations)
        return [namespace_item.require_active(self._scope.namespace_id)] if creates else []

    def require_namespace(self, reasons: Sequence[object]) -> None:
        """Require that no check of a cancelled transaction failed, else forget which limits were in force.

        Raises:
            NamespaceNotFoundError: The namespace was deleted.
        """
        if any(reason is not None for reason in reasons):
            self._caches.forget_limits()
            raise NamespaceNotFoundError(self._scope.namespace)

    async def result_of(
        self, operation: Put | Update, outcome: WriteOutcome, again: Put | Update | None, until_s: float
    ) -> WriteResult:
        """Find out what became of a write.

        ``again`` is what is sent after a lost answer, in a way that does not apply it twice: the write, or what of it
        is no credit, or None: a credit that may have been given is never sent again. Where partitions are throttled
        one by one, Throttled is an answer; elsewhere it is waited out, and so is a transaction that holds the item.

        Raises:
            RateLimiterUnavailable: The table did not answer within the deadline.
        """
        if isinstance(outcome, Applied | Refused | Missing):
            return outcome
        if isinstance(outcome, Throttled) and self.splits and not outcome.contested:
            return outcome
        return await self._waited_out(operation, outcome, again, until_s)

    async def _waited_out(
        self, operation: Put | Update, outcome: WriteOutcome, again: Put | Update | None, until_s: float
    ) -> WriteResult:
        """Send a write again until it has an answer."""
        backoff = self._scope.client.backoff(_PAUSES, until_s)
        failure: BaseException
        while True:
            match outcome:
                case Refused(old=old) if _is_mine(operation, old):
                    return Applied(old)
                case Applied() | Refused() | Missing():
                    return outcome
                case Unavailable(cause=cause, ambiguous=ambiguous):
                    if not ambiguous or again is None:
                        raise RateLimiterUnavailable(cause)
                    operation = again = bucket_writes.sent_again(again, self.draw_birth())
                    # One try's share of the deadline would say little.
                    failure = self._too_late("no answer") if isinstance(cause, TimeoutError) else cause
                case Throttled():
                    failure = self._too_late("nothing but throttles")
                case never:
                    assert_never(never)
            if not await backoff.wait():
                raise RateLimiterUnavailable(failure)
            outcome = await self._scope.table.write(operation, until_s)

    def _too_late(self, what: str) -> TimeoutError:
        return TimeoutError(f"{what} within {self._scope.settings.deadline_s} s")


def check_bucket(bucket: BucketId) -> None:
    """Refuse names that cannot be those of an entity and a resource, subclasses of str that print as others too."""
    entity_id, resource = bucket
    check_entity_id(entity_id)
    check_resource(resource)


def _is_mine(operation: Put | Update, old: Item) -> bool:
    """Say whether the item that refused a write bears the write's own nonce: it was applied the first time."""
    written = operation.item if isinstance(operation, Put) else operation.set
    return attributes.NONCE in old and written.get(attributes.NONCE) == old[attributes.NONCE]
