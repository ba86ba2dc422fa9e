"""Hold the leases of one request, from the take until its response has ended. Adapters say when that is."""

import logging
import time
from typing import Generic, TypeVar

from zae_limiter._async.limiter.lease import Lease
from zae_limiter._sync.limiter.lease import SyncLease
from zae_limiter.core.errors import ValidationError, ZAELimiterError
from zae_limiter.web.ask import Ask
from zae_limiter.web.headers import Header, headers_of_asks
from zae_limiter.web.limiters import AsyncSource, SyncSource
from zae_limiter.web.refusals import Refusal, refusal_of
from zae_limiter.web.routes import resource_of

_log = logging.getLogger("zae_limiter")

_FIRST_FAILURE = 500

AnyLease = TypeVar("AnyLease", Lease, SyncLease)


class FailedResponse(Exception):  # noqa: N818 - it is never raised: it names the reason why a lease gives back
    """The application answered with a status of 500 or above."""


class Call(Generic[AnyLease]):
    """One request, and the leases that it holds."""

    __slots__ = ("_leases", "_status", "ask", "failure")

    def __init__(self) -> None:
        self._leases: list[tuple[Ask, AnyLease]] = []
        self._status = 0
        self.ask: Ask | None = None
        self.failure: BaseException | None = None

    @property
    def held(self) -> bool:
        """True if anything was taken."""
        return bool(self._leases)

    def fail(self, error: BaseException) -> None:
        """Note that the request has failed, so that everything is given back unless it was committed."""
        if self.failure is None:
            self.failure = error

    def refuse(self, error: BaseException) -> Refusal | None:
        """Return the answer to an error of the limiter, which fails the request; None for any other error."""
        refusal = refusal_of(error, self.ask, time.time())
        if refusal is not None:
            self.fail(error)
        return refusal

    def start(self, status: int) -> list[Header]:
        """Note the status of the response, and return the headers to add to it."""
        self._status = status
        if self.failure is not None or not self._leases:
            # A refusal has the headers already.
            return []
        statuses = [one for _, lease in self._leases for one in lease.statuses]
        return headers_of_asks([ask for ask, _ in self._leases], statuses, time.time())

    def commit(self) -> None:
        """Charge the client from here on, whatever happens, unless the request has failed already."""
        if self.failure is not None or self._status >= _FIRST_FAILURE:
            return
        for _, lease in self._leases:
            if not lease.committed:
                lease.commit()

    def _reason(self) -> BaseException | None:
        """Return why leases give back; None if they do not."""
        if self.failure is None and self._status >= _FIRST_FAILURE:
            return FailedResponse(self._status)
        return self.failure


class SyncCall(Call[SyncLease]):
    """One request of a sync application."""

    __slots__ = ("_source",)

    def __init__(self, source: SyncSource) -> None:
        super().__init__()
        self._source = source

    def take(self, ask: Ask, template: str | None = None) -> SyncLease:
        """Take what is asked for, until the call ends.

        ``template`` is that of the route, and names the resource if ``ask`` does not; None if there is no router.

        Raises:
            RateLimitExceeded: A limit lacks the tokens.
            EntityBlockedError: The entity, or one that it cascades to, is blocked.
            ValidationError: No resource is named, or a name or an amount is invalid.
            RateLimiterUnavailable: The store is unavailable.
        """
        self.ask = ask
        resource = _resource(ask, template)
        lease = self._source.lease(ask, resource)
        lease.__enter__()
        self._leases.append((ask, lease))
        return lease

    def end(self) -> None:
        """End all leases; a second call does nothing. Failures are logged, because the response was sent."""
        reason = self._reason()
        for _, lease in reversed(self._leases):
            try:
                lease.__exit__(None if reason is None else type(reason), reason, None)
            except ZAELimiterError as error:
                _log.warning("Not settled: %s: %s", lease, error)


class AsyncCall(Call[Lease]):
    """One request of an async application."""

    __slots__ = ("_source",)

    def __init__(self, source: AsyncSource) -> None:
        super().__init__()
        self._source = source

    async def take(self, ask: Ask, template: str | None = None) -> Lease:
        """Take what is asked for, until the call ends; see ``SyncCall.take``."""
        self.ask = ask
        resource = _resource(ask, template)
        lease = await self._source.lease(ask, resource)
        await lease.__aenter__()
        self._leases.append((ask, lease))
        return lease

    async def end(self) -> None:
        """End all leases; see ``SyncCall.end``."""
        reason = self._reason()
        for _, lease in reversed(self._leases):
            try:
                await lease.__aexit__(None if reason is None else type(reason), reason, None)
            except ZAELimiterError as error:
                _log.warning("Not settled: %s: %s", lease, error)


def checked_ask(found: object) -> Ask | None:
    """Return what a rule returned, if it is what a rule returns.

    Raises:
        ValidationError: It is neither an ``Ask`` nor None, for example because the rule is a coroutine function.
    """
    if found is None or isinstance(found, Ask):
        return found
    if hasattr(found, "close"):
        # A coroutine that is dropped without being closed warns that it was never awaited.
        found.close()
    raise ValidationError("rules", found, "must return an Ask or None")


def _resource(ask: Ask, template: str | None) -> str:
    if ask.resource is not None:
        return ask.resource
    if template is None:
        raise ValidationError("resource", None, "is missing: name it in Ask, because the route is unknown")
    return resource_of(template)
