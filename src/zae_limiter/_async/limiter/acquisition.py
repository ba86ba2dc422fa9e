"""Acquisition: the context manager that takes on entering, and settles or gives back on leaving."""

import logging
from types import TracebackType

from zae_limiter._async.caches import BucketId
from zae_limiter._async.limiter.acquire import Asking, BucketClient
from zae_limiter._async.limiter.availability import chosen
from zae_limiter._async.limiter.lease import Lease
from zae_limiter._async.store.scope import Scope
from zae_limiter.core.errors import RateLimiterUnavailable, ValidationError
from zae_limiter.core.names import check_amount
from zae_limiter.core.status import OnUnavailable

_log = logging.getLogger("zae_limiter")


class Acquisition:
    """One acquire, to be entered once."""

    __slots__ = ("_asking", "_client", "_lease", "_on_unavailable", "_scope")

    def __init__(
        self, client: BucketClient, scope: Scope, asking: Asking, on_unavailable: OnUnavailable | str | None
    ) -> None:
        self._client = client
        self._scope = scope
        self._asking = asking
        self._on_unavailable = on_unavailable
        self._lease: Lease | None = None

    async def __aenter__(self) -> Lease:
        """Take, or raise."""
        if self._lease is not None:
            raise RuntimeError("an acquire is entered once; call acquire() again")
        bucket, consume, own = self._asking
        if type(consume) is not dict or not consume:
            raise ValidationError("consume", consume, "must be a dict of limit names and amounts, not empty")
        if self._on_unavailable is not None:
            chosen(self._on_unavailable, self._scope)
        client = self._client
        try:
            if client.inline:
                terms = await client.take(bucket, consume, own)
                self._lease = Lease(client, bucket, consume.copy(), own, terms)
            else:
                self._lease = await client.take_whole(self._take, self._undo)
        except RateLimiterUnavailable as error:
            self._lease = self._without_store(bucket, error)
        return self._lease

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Write the adjustments, or after a failure give everything back."""
        lease = self._lease
        assert lease is not None, "it is left after it was entered"
        settlement = lease.end(failed=kind is not None)
        if settlement is None:
            return
        try:
            await self._client.see_through(lambda: lease.settle(settlement))
        except RateLimiterUnavailable as away:
            if kind is None and chosen(self._on_unavailable, self._scope) is OnUnavailable.BLOCK:
                raise
            _log.warning("Not settled, for the store is away: %s of %s: %s", settlement, self._asking.bucket, away)

    async def _take(self) -> Lease:
        bucket, consume, own = self._asking
        return Lease(self._client, bucket, consume.copy(), own, await self._client.take(bucket, consume, own))

    async def _undo(self, lease: Lease) -> None:
        settlement = lease.end(failed=True)
        if settlement is not None:
            await lease.settle(settlement)

    def _without_store(self, bucket: BucketId, error: RateLimiterUnavailable) -> Lease:
        """Return a lease that limits nothing, if that is allowed."""
        entity_id, resource = bucket
        if chosen(self._on_unavailable, self._scope) is OnUnavailable.BLOCK:
            raise RateLimiterUnavailable(error.cause, error.stack_name, entity_id, resource) from error.cause
        _, consume, own = self._asking
        for name, amount in consume.items():
            check_amount(f"consume[{name}]", amount)
        _log.warning("Let through unlimited, for the store is away: %s of %s: %s", consume, bucket, error)
        return Lease(self._client, bucket, consume.copy(), own, None)
