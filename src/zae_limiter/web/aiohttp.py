"""Limit the requests of an aiohttp application.

A lease ends when the task that sends the response has ended. That is after the last byte of the body, also of a body
that is generated while it is sent. The status of the response decides whether the client is charged: 500 or above gives
everything back. A generated body that fails before its first byte does so too. A client that disconnects is charged.
"""

import asyncio
import logging
import time
import warnings
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, TypeAlias

try:
    from aiohttp import web
    from aiohttp.abc import AbstractStreamWriter
    from aiohttp.payload import Payload
except ImportError as missing:
    from zae_limiter.installation import missing_extra

    raise missing_extra("aiohttp", "aiohttp") from missing

from zae_limiter._async.limiter.lease import Lease
from zae_limiter.core.errors import ValidationError, ZAELimiterError
from zae_limiter.web.ask import Ask
from zae_limiter.web.headers import headers_of_asks
from zae_limiter.web.limiters import AsyncLimiter, AsyncSource
from zae_limiter.web.refusals import Refusal, refusal_of
from zae_limiter.web.routes import resource_of

__all__ = ["LEASE", "Ask", "Lease", "setup"]

_log = logging.getLogger("zae_limiter")

AiohttpRules: TypeAlias = Callable[[web.Request], Ask | Awaitable[Ask | None] | None]
_Handler: TypeAlias = Callable[[web.Request], Awaitable[web.StreamResponse]]

_LEASE_NAME = "lease"
_FIRST_FAILURE = 500
_TOO_MANY_REQUESTS = 429
_TURNS_TO_CLOSE = 10


def setup(
    app: web.Application,
    limiter: AsyncLimiter = None,
    rules: AiohttpRules | None = None,
    *,
    skip_methods: Iterable[str] = ("HEAD", "OPTIONS"),
) -> None:
    """Limit the requests of an application by a rule.

    Example:
        ```python
        def rules(request):
            return Ask(request["user"], None, {"rpm": 1})


        setup(app, "sqlite:///limits.db", rules)
        ```

    This adds a middleware behind those that the application has now, so call it after authentication was set up. The
    lease is ``request["lease"]``, or ``request[LEASE]`` with its type. A rejection is answered with 429, and a blocked
    entity with 403. A request that is larger than a capacity is answered with 413, and an unavailable store with 503.
    The same answers are sent if a handler raises these errors, for example from ``lease.consume``.

    Args:
        app: The application, or a part of it that is added to another one.
        limiter: An open limiter, a function that returns it, or the URL of a store. If None, the default store is
            opened. A store is opened at start-up, and closed at cleanup.
        rules: Return what a request takes, or None if it is not limited. It may be a coroutine function. Requests that
            match no route are not passed to it.
        skip_methods: Methods that are not limited.

    Raises:
        ValidationError: The rules are missing, or the limiter is sync.
    """
    if rules is None:
        raise ValidationError("rules", None, "is missing: pass a function that returns an Ask for a request, or None")
    limits = _Limits(AsyncSource(limiter), rules, frozenset(skip_methods))
    app.middlewares.append(limits.middleware)
    app.on_response_prepare.append(limits.prepare)
    app.on_startup.append(limits.start)
    app.on_cleanup.append(limits.stop)


class _LimitedRequest:
    """One request, and the lease that it holds."""

    __slots__ = ("_charged", "_lease", "_protocol", "_status", "_unsent", "_watched", "ask")

    def __init__(self, request: web.Request) -> None:
        # Not the request: it holds this object, and cycles are collected late.
        self._protocol = request.protocol
        self._lease: Lease | None = None
        self._status = 0
        self._charged = False
        self._unsent = False
        self._watched: list[tuple[asyncio.Task[Any], Callable[[asyncio.Task[Any]], None]]] = []
        self.ask: Ask | None = None

    @property
    def started(self) -> bool:
        """True if a response was prepared."""
        return self._status > 0

    @property
    def disconnected(self) -> bool:
        """True if the connection is lost."""
        transport = self._protocol.transport
        return transport is None or transport.is_closing()

    @property
    def held(self) -> bool:
        """True if a lease is held."""
        return self._lease is not None

    def hold(self, lease: Lease) -> None:
        """Hold a lease that was entered."""
        self._lease = lease

    def watch(self, task: "asyncio.Task[Any]", over: Callable[["asyncio.Task[Any]"], None]) -> None:
        """Call a function when a task has ended, unless the lease ends before."""
        task.add_done_callback(over)
        self._watched.append((task, over))

    def refusal(self, error: BaseException) -> Refusal | None:
        """Return how an error is answered; None if it is none of the limiter's, or if a response has begun."""
        return None if self.started else refusal_of(error, self.ask, time.time())

    def fail(self) -> None:
        """Note that the handler has raised. A client that has disconnected is charged, whatever is answered."""
        self._charged = self.disconnected

    def prepare(self, response: web.StreamResponse) -> None:
        """Note the status of a response, and set the headers that report limits."""
        self._status = response.status
        if self._lease is None or self.ask is None or isinstance(response, _RefusedResponse):
            return
        # As ``merged_headers``: those of another server are replaced, unless they explain a rejection.
        keeps = response.status == _TOO_MANY_REQUESTS
        for name, value in headers_of_asks([self.ask], self._lease.statuses, time.time()):
            if not (keeps and name in response.headers):
                response.headers[name] = value
        body = getattr(response, "body", None)
        if isinstance(body, Payload):
            self._note_failure_of(body)

    def _note_failure_of(self, body: Payload) -> None:
        """Note that a body has failed before a byte of it was sent. The headers wait for its first byte."""
        write = body.write

        async def noting(writer: AbstractStreamWriter) -> None:
            try:
                await write(writer)
            except Exception:
                self._unsent = writer.output_size == 0 and not self.disconnected
                raise
            finally:
                # A cycle would be collected late, and so a body that was cut off would adjust too late.
                del body.write

        body.write = noting  # type: ignore[method-assign] # aiohttp reports such an error to nothing else

    async def end(self) -> None:
        """End the lease; a second call does nothing. Failures are logged, because the response was sent."""
        lease, self._lease = self._lease, None
        self._unwatch()
        if lease is None:
            return
        if self.disconnected:
            # A body that was cut off is closed by the loop, some turns after it was dropped. It may adjust then.
            for _ in range(_TURNS_TO_CLOSE):
                await asyncio.sleep(0)
        try:
            await lease.__aexit__(RuntimeError if self._gives_back() else None, None, None)
        except ZAELimiterError as unsettled:
            _log.warning("Not settled: %s: %s", lease, unsettled)

    def _unwatch(self) -> None:
        """Forget all tasks. A connection must not keep its requests, and a task keeps its response and the body."""
        watched, self._watched = self._watched, []
        for task, over in watched:
            task.remove_done_callback(over)

    def _gives_back(self) -> bool:
        if self._unsent:
            return True
        if self.started:
            return self._status >= _FIRST_FAILURE and not self._charged
        return not self.disconnected


class _RefusedResponse(web.Response):
    """The answer to a request that was not admitted, with the headers of its limits."""


if TYPE_CHECKING or hasattr(web, "RequestKey"):
    LEASE = web.RequestKey(_LEASE_NAME, Lease)
    _REQUESTS = web.RequestKey("limited_requests", dict["_Limits", _LimitedRequest])
else:
    # Before 3.14, all keys are texts.
    LEASE = _LEASE_NAME
    _REQUESTS = "zae_limiter.limited_requests"


class _Limits:
    """The rules of an application, and the requests that hold leases."""

    def __init__(self, source: AsyncSource, rules: AiohttpRules, skipped: frozenset[str]) -> None:
        self._source = source
        self._rules = rules
        self._skipped = skipped
        self._held: set[_LimitedRequest] = set()
        self._ending: set[asyncio.Task[None]] = set()
        self._named = False

    async def start(self, app: web.Application) -> None:
        """Open the store."""
        await self._source.start()

    async def stop(self, app: web.Application) -> None:
        """End all leases, and close the store if it was opened here."""
        await asyncio.gather(*self._ending)
        # Those of requests that the server has given up.
        for limited in list(self._held):
            await self._end(limited)
        await self._source.stop()

    @web.middleware
    async def middleware(self, request: web.Request, handler: _Handler) -> web.StreamResponse:
        """Take what the rule asks for before the handler runs, and answer errors of the limiter."""
        limited = _LimitedRequest(request)
        if _REQUESTS not in request:
            request[_REQUESTS] = {}
        request[_REQUESTS][self] = limited
        try:
            if request.method not in self._skipped:
                await self._take(request, limited)
            return await handler(request)
        except BaseException as error:
            refusal = limited.refusal(error)
            if refusal is None:
                limited.fail()
                raise
            await self._end(limited)
            return _RefusedResponse(status=refusal.status, headers=dict(refusal.headers), body=refusal.body)

    async def prepare(self, request: web.Request, response: web.StreamResponse) -> None:
        """Report limits in the headers of a response, before they are sent."""
        limited = request[_REQUESTS].get(self) if _REQUESTS in request else None
        if limited is not None:
            limited.prepare(response)
            task = asyncio.current_task()
            if limited.held and task is not None:
                # This task sends the response. The handler may run in another one, which ends before.
                limited.watch(task, partial(self._over, limited))

    async def _take(self, request: web.Request, limited: _LimitedRequest) -> None:
        resource = request.match_info.route.resource
        if resource is None:
            return
        found = self._rules(request)
        ask = await found if isawaitable(found) else found
        if ask is None:
            return
        if not isinstance(ask, Ask):
            raise ValidationError("rules", ask, "must return an Ask, or None")
        limited.ask = ask
        lease = await self._source.lease(ask, resource_of(resource.canonical) if ask.resource is None else ask.resource)
        await lease.__aenter__()
        limited.hold(lease)
        self._held.add(limited)
        # A request that is cancelled has no response, and its connection ends.
        limited.watch(request.task, partial(self._over, limited))
        self._show(request, lease)

    def _show(self, request: web.Request, lease: Lease) -> None:
        request[LEASE] = lease
        if self._named:
            request[_LEASE_NAME] = lease
            return
        with warnings.catch_warnings():
            # The first text that is used as a key warns, because a typed key exists. Both are set here.
            warnings.simplefilter("ignore")
            request[_LEASE_NAME] = lease
        self._named = True

    def _over(self, limited: _LimitedRequest, task: "asyncio.Task[Any]") -> None:
        ending = task.get_loop().create_task(self._end(limited))
        self._ending.add(ending)
        ending.add_done_callback(self._ending.discard)

    async def _end(self, limited: _LimitedRequest) -> None:
        self._held.discard(limited)
        await limited.end()
