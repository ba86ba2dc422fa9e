"""Acquisition: the context manager that takes on entering, and settles or gives back on leaving."""

import logging
from types import TracebackType

from zae_limiter._async.caches import BucketId
from zae_limiter._async.limiter.acquire import BucketClient
from zae_limiter._async.limiter.lease import Lease
from zae_limiter._async.limiter.resolve import OwnLimits
from zae_limiter.core.errors import RateLimiterUnavailable, ValidationError
from zae_limiter.core.names import check_amount
from zae_limiter.core.status import OnUnavailable, check_on_unavailable

_log = logging.getLogger("zae_limiter")


class Acquisition:
    """One acquire, to be entered once."""

    __slots__ = ("_bucket", "_client", "_consume", "_lease", "_on_unavailable", "_own")

    def __init__(
        self,
        client: BucketClient,
        bucket: BucketId,
        consume: dict[str, int],
        own: OwnLimits,
        on_unavailable: OnUnavailable | str | None,
    ) -> None:
        self._client = client
        self._bucket = bucket
        self._consume = consume
        self._own = own
        self._on_unavailable = on_unavailable
        self._lease: Lease | None = None

    async def __aenter__(self) -> Lease:
        """Take, or raise."""
        if self._lease is not None:
            raise RuntimeError("an acquire is entered once; call acquire() again")
        consume = self._consume
        if type(consume) is not dict or not consume:
            raise ValidationError("consume", consume, "must be a dict of limit names and amounts, not empty")
        if self._on_unavailable is not None:
            check_on_unavailable(self._on_unavailable)
        try:
            if self._client.inline:
                self._lease = lease = await self._take()
            else:
                self._lease = lease = await self._client.take_whole(self._take, self._undo)
        except RateLimiterUnavailable as error:
            self._lease = lease = self._without_store(error)
        return lease

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
            if kind is None and self._client.choice(self._on_unavailable) is OnUnavailable.BLOCK:
                raise
            _log.warning("Not settled, for the store is away: %s of %s: %s", settlement, self._bucket, away)

    async def _take(self) -> Lease:
        client, bucket, consume, own = self._client, self._bucket, self._consume, self._own
        return Lease(client, bucket, consume.copy(), own, await client.take(bucket, consume, own))

    async def _undo(self, lease: Lease) -> None:
        settlement = lease.end(failed=True)
        if settlement is not None:
            await lease.settle(settlement)

    def _without_store(self, error: RateLimiterUnavailable) -> Lease:
        """Return a lease that limits nothing, if that is allowed."""
        entity_id, resource = self._bucket
        if self._client.choice(self._on_unavailable) is OnUnavailable.BLOCK:
            raise RateLimiterUnavailable(error.cause, error.stack_name, entity_id, resource) from error.cause
        for name, amount in self._consume.items():
            check_amount(f"consume[{name}]", amount)
        _log.warning("Let through unlimited, for the store is away: %s of %s: %s", self._consume, self._bucket, error)
        return Lease(self._client, self._bucket, self._consume.copy(), self._own, None)
