"""Find the limiter of an application: one that is open, one that a function returns, or a store that is opened."""

import asyncio
import logging
import threading
from collections.abc import Callable

from zae_limiter._async.limiter.lease import BatchedLease, Lease
from zae_limiter._async.limiter.limiter import RateLimiter
from zae_limiter._async.repository import Repository
from zae_limiter._sync.limiter.lease import BatchedLease as SyncBatchedLease
from zae_limiter._sync.limiter.lease import SyncLease
from zae_limiter._sync.limiter.limiter import SyncRateLimiter
from zae_limiter._sync.repository import SyncRepository
from zae_limiter.core.errors import RateLimiterUnavailable, ValidationError
from zae_limiter.web.ask import Ask

_log = logging.getLogger("zae_limiter")

AsyncLimiter = RateLimiter | Callable[[], RateLimiter] | str | None
"""A limiter, a function that returns it, the URL of a store to open, or None for the default store."""

SyncLimiter = SyncRateLimiter | Callable[[], SyncRateLimiter] | str | None
"""The same for sync frameworks."""


class AsyncSource:
    """The limiter of an async application. A store is opened once per process, and closed with the application."""

    def __init__(self, limiter: AsyncLimiter) -> None:
        if isinstance(limiter, SyncRateLimiter):
            raise ValidationError("limiter", limiter, "is sync, and this adapter is async: pass a RateLimiter")
        self._given = limiter
        self._opened: RateLimiter | None = None
        self._opening: asyncio.Task[RateLimiter] | None = None

    @property
    def opens(self) -> bool:
        """True if a store is opened here."""
        return self._given is None or isinstance(self._given, str)

    async def get(self) -> RateLimiter:
        """Return the limiter; the first call opens the store.

        Raises:
            RateLimiterUnavailable: The store did not answer.
        """
        given = self._given
        if isinstance(given, RateLimiter):
            return given
        if callable(given):
            return given()
        return self._opened or await self._open()

    async def lease(self, ask: Ask, resource: str) -> Lease:
        """Return a lease, not yet entered. It is degraded if the store cannot be opened and the rule allows that."""
        try:
            limiter = await self.get()
        except RateLimiterUnavailable as error:
            # Imported here, because few applications start without their store.
            from zae_limiter._async.deprecated import UnavailableClient

            client, bucket = UnavailableClient(error, None), (ask.entity, resource)
            late = client, bucket, ask.consume, ask.limits, ask.on_unavailable, ask.on_error, False
            if ask.also:
                from zae_limiter._async.limiter.lease_also import BatchedSeveralLease

                return BatchedSeveralLease(*late).ask(ask.also, None)
            return BatchedLease(*late)
        arguments = ask.entity, resource, ask.consume, ask.limits, ask.on_unavailable, ask.on_error
        return limiter.acquire(*arguments, also=ask.also, max_wait=ask.max_wait, priority=ask.priority)

    async def _open(self) -> RateLimiter:
        """Open the store. Concurrent requests share one attempt and its failure, so that they do not wait in turn."""
        opening, loop = self._opening, asyncio.get_running_loop()
        if opening is None or opening.done() or opening.get_loop() is not loop:
            self._opening = opening = loop.create_task(self._attempt())
            opening.add_done_callback(_note_failure)
        # A request that is cancelled leaves the attempt to the others.
        return await asyncio.shield(opening)

    async def _attempt(self) -> RateLimiter:
        given = self._given
        assert given is None or isinstance(given, str), "everything else is open"
        self._opened = RateLimiter(await Repository.open(given))
        return self._opened

    async def start(self) -> None:
        """Open the store before the first request; if it is unavailable, the first request tries again."""
        if self.opens:
            try:
                await self.get()
            except RateLimiterUnavailable as error:
                _log.warning("Not opened at the start: %s", error)

    async def stop(self) -> None:
        """Close the store, if it was opened here."""
        opened, self._opened = self._opened, None
        if opened is not None:
            await opened.close()


def _note_failure(opening: "asyncio.Task[RateLimiter]") -> None:
    # A failure that is never read would be logged, although every request that waited may have been cancelled.
    if not opening.cancelled():
        opening.exception()


class SyncSource:
    """The limiter of a sync application. A store is opened once per process."""

    def __init__(self, limiter: SyncLimiter) -> None:
        if isinstance(limiter, RateLimiter):
            raise ValidationError("limiter", limiter, "is async, and this adapter is sync: pass a SyncRateLimiter")
        self._given = limiter
        self._opened: SyncRateLimiter | None = None
        self._opening = threading.Lock()
        self._failures = 0
        self._failure: RateLimiterUnavailable | None = None

    def get(self) -> SyncRateLimiter:
        """Return the limiter; the first call opens the store.

        Raises:
            RateLimiterUnavailable: The store did not answer.
        """
        given = self._given
        if isinstance(given, SyncRateLimiter):
            return given
        if callable(given):
            return given()
        return self._opened or self._open(given)

    def lease(self, ask: Ask, resource: str) -> SyncLease:
        """Return a lease, not yet entered. It is degraded if the store cannot be opened and the rule allows that."""
        try:
            limiter = self.get()
        except RateLimiterUnavailable as error:
            # Imported here, because few applications start without their store.
            from zae_limiter._sync.deprecated import UnavailableClient

            client, bucket = UnavailableClient(error, None), (ask.entity, resource)
            late = client, bucket, ask.consume, ask.limits, ask.on_unavailable, ask.on_error, False
            if ask.also:
                from zae_limiter._sync.limiter.lease_also import BatchedSeveralLease

                return BatchedSeveralLease(*late).ask(ask.also, None)
            return SyncBatchedLease(*late)
        arguments = ask.entity, resource, ask.consume, ask.limits, ask.on_unavailable, ask.on_error
        return limiter.acquire(*arguments, also=ask.also, max_wait=ask.max_wait, priority=ask.priority)

    def _open(self, url: str | None) -> SyncRateLimiter:
        """Open the store. A request that waited for a failed attempt gets its failure, and does not try again."""
        failures = self._failures
        with self._opening:
            if self._opened is None:
                if self._failure is not None and self._failures != failures:
                    raise self._failure
                try:
                    self._opened = SyncRateLimiter(SyncRepository.open(url))
                except RateLimiterUnavailable as error:
                    self._failures, self._failure = self._failures + 1, error
                    raise
            return self._opened

    def stop(self) -> None:
        """Close the store, if it was opened here."""
        with self._opening:
            opened, self._opened = self._opened, None
        if opened is not None:
            opened.close()
