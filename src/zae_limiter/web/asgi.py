"""Limit an ASGI application, without any framework.

A lease ends when the call of the application ends. That is after the last byte of the body, and after background tasks,
which may still adjust the lease. It is committed with the first byte of the body, or when the client disconnects. From
then on the client is charged for what was used, whatever happens.
"""

import asyncio
import gc
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, MutableMapping, Sequence
from inspect import isawaitable
from sys import exc_info, getrefcount
from traceback import clear_frames
from typing import Any

from zae_limiter._async.limiter.lease import Lease
from zae_limiter.core.errors import ValidationError, ZAELimiterError
from zae_limiter.web.asgi_request import NO_ROUTE, AsgiRequest, route_template
from zae_limiter.web.ask import Ask
from zae_limiter.web.headers import Header, headers_of_asks, merged_headers
from zae_limiter.web.limiters import AsyncLimiter, AsyncSource
from zae_limiter.web.refusals import Refusal, refusal_of
from zae_limiter.web.routes import resource_of

_log = logging.getLogger("zae_limiter")

AsgiScope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[AsgiScope, Receive, Send], Awaitable[None]]
AsgiRules = Callable[[AsgiRequest], Ask | Awaitable[Ask | None] | None]

CALL = "zae_limiter.call"
"""The key of the limited call in a scope."""

_FIRST_FAILURE = 500
_ACCEPT = "websocket.accept"
_STARTS = frozenset({"http.response.start", _ACCEPT, "websocket.http.response.start"})
_FILES = frozenset({"http.response.pathsend", "http.response.zerocopysend"})
_BODIES = frozenset({"http.response.body", "websocket.http.response.body", *_FILES})
_DISCONNECTS = frozenset({"http.disconnect", "websocket.disconnect"})
_CLOSE_CODES = {413: 1009, 400: 1008, 403: 1008}
_TRY_AGAIN_LATER = 1013

_TURNS_TO_CLOSE = 5
_LOOK_S = 0.01
_LOOKS_TO_CLOSE = 100


class HandlerFailed(Exception):  # noqa: N818 - it is never raised: it names the reason why a lease gives back
    """The handler answered with a status of 500 or above."""


class RateLimitMiddleware:
    """Takes what a rule asks for before the application runs, and reports the limits in headers.

    Example:
        ```python
        app.add_middleware(RateLimitMiddleware, limiter="sqlite:///limits.db", rules=rules)
        ```

    The lease is ``request.state.lease``. A rejection is answered with 429, and a blocked entity with 403. A request
    that is larger than a capacity is answered with 413, and an unavailable store with 503. The same answers are sent if
    the application raises these errors, for example from ``lease.consume``.
    """

    def __init__(
        self,
        app: App,
        limiter: AsyncLimiter = None,
        rules: AsgiRules | None = None,
        *,
        skip_methods: Iterable[str] = ("HEAD", "OPTIONS"),
    ) -> None:
        """Wrap an application.

        Args:
            app: The application.
            limiter: An open limiter, a function that returns it, or the URL of a store. If None, the default store is
                opened. A store is opened at start-up, and closed at shutdown.
            rules: Return what a request takes, or None if it is not limited. It may be a coroutine function. If None,
                only dependencies take; see ``zae_limiter.web.fastapi``.
            skip_methods: Methods that are not limited.
        """
        self._app = app
        self._source = AsyncSource(limiter)
        self._rules = rules
        self._skipped = frozenset(skip_methods)

    @property
    def routes(self) -> Sequence[Any]:
        """The routes of the application, for a router that this is mounted in."""
        routes: Sequence[Any] = getattr(self._app, "routes", ())
        return routes

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        """Run one call of the application."""
        kind = scope["type"]
        if kind == "http" or kind == "websocket":
            await self._run(LimitedCall(self, scope, receive, send))
        elif kind == "lifespan":
            await self._app(scope, receive, self._with_lifespan(send))
        else:
            await self._app(scope, receive, send)

    async def _run(self, call: "LimitedCall") -> None:
        call.scope[CALL] = call
        try:
            if self._rules is not None and call.scope.get("method") not in self._skipped:
                await self._take(call, self._rules)
            await self._app(call.scope, call.receive, call.send)
        except BaseException as error:
            refusal = call.refusal(error)
            await call.end(error)
            if refusal is None:
                raise
            await call.refuse(refusal)
        else:
            await call.end(None)

    async def _take(self, call: "LimitedCall", rules: AsgiRules) -> None:
        scope = call.scope
        template = route_template(scope, self._app)
        if template is NO_ROUTE:
            return
        found = rules(AsgiRequest(scope))
        ask = found if found is None or isinstance(found, Ask) else await _awaited(found)
        if ask is not None:
            await call.take(ask, template)

    async def lease(self, ask: Ask, resource: str, scope: AsgiScope) -> Lease:
        """Return a lease, not yet entered.

        Raises:
            ValidationError: Litestar would open a store for each of its routes.
            RateLimiterUnavailable: The store is unavailable.
        """
        if self._source.opens and "litestar_app" in scope:
            reason = "must be a limiter, or a function that returns one: Litestar makes a middleware for each route"
            raise ValidationError("limiter", None, reason)
        return await self._source.lease(ask, resource)

    def template(self, scope: AsgiScope) -> str | None:
        """Return the template of the route of a request; None if it is unknown."""
        template = route_template(scope, self._app)
        return None if template is NO_ROUTE else template

    def _with_lifespan(self, send: Send) -> Send:
        """Open the store before the application is ready, and close it after the application has shut down."""

        async def send_at_boundary(message: Message) -> None:
            kind = message["type"]
            if kind == "lifespan.startup.complete":
                await self._source.start()
            elif kind.startswith("lifespan.shutdown"):
                await self._source.stop()
            await send(message)

        return send_at_boundary


class LimitedCall:
    """One call of an application, and the leases that it holds."""

    __slots__ = (
        "_at_start",
        "_begun",
        "_closed",
        "_disconnected",
        "_leases",
        "_middleware",
        "_receive",
        "_refused",
        "_send",
        "_started",
        "_status",
        "ask",
        "scope",
    )

    def __init__(self, middleware: RateLimitMiddleware, scope: AsgiScope, receive: Receive, send: Send) -> None:
        self._middleware = middleware
        self._receive = receive
        self._send = send
        # A router changes these while it looks for the route.
        self._at_start = scope.get("app"), scope.get("endpoint"), scope.get("root_path", "")
        self._leases: list[tuple[Ask, Lease]] = []
        self._started = False
        self._begun = False
        self._disconnected = False
        self._closed = False
        self._refused: BaseException | None = None
        self._status = 0
        self.scope = scope
        self.ask: Ask | None = None

    def template(self) -> str | None:
        """Return the template of the route, also after the request was routed; None if it is unknown."""
        app, endpoint, root_path = self._at_start
        scope = {**self.scope, "endpoint": endpoint, "root_path": root_path, "fastapi": {}, "app": app}
        if app is None:
            del scope["app"]
        return self._middleware.template(scope)

    async def take(self, ask: Ask, template: str | None) -> Lease:
        """Take what is asked for, until the call ends. The lease becomes ``request.state.lease``.

        ``template`` is that of the route, and names the resource if the rule does not; None if unknown.

        Raises:
            RateLimitExceeded: A limit lacks the tokens.
            EntityBlockedError: The entity, or one that it cascades to, is blocked.
            ValidationError: No resource is named, or a name or an amount is invalid.
            RateLimiterUnavailable: The store is unavailable.
        """
        self.ask = ask
        resource = ask.resource
        if resource is None:
            if template is None:
                raise ValidationError("resource", None, "is missing: name it in Ask, because the route is unknown")
            resource = resource_of(template)
        scope = self.scope
        lease = await self._middleware.lease(ask, resource, scope)
        await lease.__aenter__()
        self._leases.append((ask, lease))
        state = scope.get("state")
        if state is None:
            state = scope["state"] = {}
        state["lease"] = lease
        return lease

    async def receive(self) -> Message:
        """Receive a message for the application, and note that the client has disconnected."""
        message = await self._receive()
        if message["type"] in _DISCONNECTS:
            self._disconnect()
        return message

    async def send(self, message: Message) -> None:
        """Send a message of the application; the first one gets headers, and the first byte commits what was taken."""
        kind = message["type"]
        if kind in _STARTS:
            if message.get("status") == _FIRST_FAILURE:
                # Some frameworks answer every error themselves, with 500.
                error = exc_info()[1]
                refusal = self.refusal(error)
                if refusal is not None:
                    self._refused = error
                    return await self.refuse(refusal)
            message = self._start(message)
        elif self._refused is not None:
            return None
        elif kind in _BODIES:
            if not self._begun and (message.get("body") or not message.get("more_body") or kind in _FILES):
                self._begun = True
                self._commit()
        elif kind == "websocket.close":
            self._closed = True
        try:
            await self._send(message)
        except OSError:
            self._disconnect()
            raise

    def _start(self, message: Message) -> Message:
        self._started = True
        self._status = message.get("status", 0)
        if message["type"] == _ACCEPT:
            self._commit()
        if not self._leases:
            return message
        headers = _encoded(self._headers())
        if not headers:
            return message
        # A copy, because an application may send the same message again.
        return {**message, "headers": merged_headers(message.get("headers", ()), headers, self._status)}

    def _headers(self) -> list[Header]:
        """Return the headers of all leases; those of one dialect are rendered together."""
        asks = [ask for ask, _ in self._leases]
        if not any(ask.dialects for ask in asks):
            return []
        return headers_of_asks(asks, [status for _, lease in self._leases for status in lease.statuses], time.time())

    def _disconnect(self) -> None:
        self._disconnected = True
        self._commit()

    def _commit(self) -> None:
        """Charge the client from here on, even if the handler fails, unless the answer itself is a failure."""
        if self._status >= _FIRST_FAILURE:
            return
        for _, lease in self._leases:
            if not lease.committed:
                lease.commit()

    async def end(self, error: BaseException | None) -> None:
        """End all leases. Failures are logged: the response was sent, or tells another reason."""
        if not self._leases:
            return
        # Messages of tasks that outlive the call find no lease.
        leases, self._leases = [lease for _, lease in self._leases], []
        failed = error or self._refused
        if failed is None and self._status >= _FIRST_FAILURE:
            failed = HandlerFailed(self._status)
        try:
            if self._disconnected or isinstance(error, asyncio.CancelledError):
                await self._streams_closed(leases, error)
        finally:
            await _end_all(leases, failed)

    async def _streams_closed(self, leases: list[Lease], error: BaseException | None) -> None:
        """Wait until the application has no reference to a lease, but at most a second.

        The loop closes a stream that was cut off, some turns after it was dropped. It may adjust the lease then.
        """
        while error is not None:
            # Its frames have references to streams, so that these would be dropped too late.
            clear_frames(error.__traceback__)
            error = error.__context__
        stored, alone = (self.scope.get("state") or {}).get("lease"), _references_of([object()])[0]
        for look in range(_TURNS_TO_CLOSE + _LOOKS_TO_CLOSE):
            # Two more references are ``stored``, and the state itself.
            found = _references_of(leases)
            if not any(count > alone + 2 * (lease is stored) for lease, count in zip(leases, found, strict=True)):
                break
            if look == _TURNS_TO_CLOSE and gc.isenabled():
                # A cancelled stream is part of a cycle with its error, which is young and so is collected cheaply.
                gc.collect(1)
            await asyncio.sleep(0 if look < 2 * _TURNS_TO_CLOSE else _LOOK_S)

    def refusal(self, error: BaseException | None) -> Refusal | None:
        """Return how an error is answered; None if it is none of the limiter's, or if a response has begun."""
        # A websocket that was accepted has no status, and can still be closed.
        if error is None or (self._started and (self.scope["type"] == "http" or self._status)):
            return None
        return refusal_of(error, self.ask, time.time())

    async def refuse(self, refusal: Refusal) -> None:
        """Answer a request that was not admitted, if the client still waits."""
        if self._disconnected or self._closed:
            return
        start = {"status": refusal.status, "headers": _encoded(refusal.headers)}
        if self.scope["type"] == "http":
            await self._send({"type": "http.response.start", **start})
            await self._send({"type": "http.response.body", "body": refusal.body})
        elif not self._started and "websocket.http.response" in (self.scope.get("extensions") or {}):
            await self._send({"type": "websocket.http.response.start", **start})
            await self._send({"type": "websocket.http.response.body", "body": refusal.body})
        else:
            # Without that extension, a server answers 403 to a connection that is closed before it is accepted.
            code = _CLOSE_CODES.get(refusal.status, _TRY_AGAIN_LATER)
            await self._send({"type": "websocket.close", "code": code, "reason": refusal.phrase})


def _references_of(objects: list[Any]) -> list[int]:
    """Count references, including those of the list and of this function. Python versions differ in the latter."""
    return [getrefcount(one) for one in objects]


async def _awaited(found: Any) -> Ask | None:
    """Return what an async rule asks for.

    Raises:
        ValidationError: The rule returned something else.
    """
    ask = await found if isawaitable(found) else found
    if ask is not None and not isinstance(ask, Ask):
        raise ValidationError("rules", ask, "must return an Ask, or None")
    return ask


async def _end_all(leases: list[Lease], failed: BaseException | None) -> None:
    """End leases, the last one first. All of them end, even if the call is cancelled meanwhile."""
    lease = leases.pop()
    try:
        await lease.__aexit__(None if failed is None else type(failed), failed, None)
    except ZAELimiterError as unsettled:
        _log.warning("Not settled: %s: %s", lease, unsettled)
    finally:
        if leases:
            await _end_all(leases, failed)


def _encoded(headers: Iterable[Header]) -> list[tuple[bytes, bytes]]:
    return [(name.lower().encode(), value.encode()) for name, value in headers]
