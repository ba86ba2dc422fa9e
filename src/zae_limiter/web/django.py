"""Limit the views of a Django project, under WSGI and ASGI.

The middleware takes in ``process_view``: after all middleware, so after authentication, and only if a URL has matched.
A lease ends when the server closes the response. Under ASGI the limiter is async, and the event loop never waits.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

try:
    from asgiref.sync import async_to_sync, iscoroutinefunction, markcoroutinefunction, sync_to_async
    from django.conf import settings
    from django.http import HttpRequest, HttpResponse, UnreadablePostError
    from django.utils.decorators import sync_and_async_middleware
    from django.utils.module_loading import import_string
except ImportError as missing:
    from zae_limiter.installation import missing_extra

    raise missing_extra("django", "django") from missing

from zae_limiter.core.errors import ValidationError, ZAELimiterError
from zae_limiter.web.ask import Ask
from zae_limiter.web.calls import AsyncCall, SyncCall, checked_ask
from zae_limiter.web.limiters import AsyncSource, SyncSource
from zae_limiter.web.refusals import Refusal

__all__ = ["Ask", "RateLimitMiddleware"]

SETTING = "ZAE_LIMITER"
"""The name of the setting."""

_KEYS = ("limiter", "rules", "skip_methods")
_TOO_MANY_REQUESTS = 429
# Generators can be nested: the loop closes the next one, one or two turns after the one that held it.
_TURNS_TO_CLOSE = 10

_ending: set["asyncio.Task[None]"] = set()
"""Tasks that end leases. The event loop itself has only weak references to its tasks."""


@sync_and_async_middleware  # type: ignore[untyped-decorator] # Django has no types
def RateLimitMiddleware(get_response: Callable[[HttpRequest], Any]) -> "_Limited":  # noqa: N802 - as all middleware
    """Return middleware that takes what a rule asks for before a view runs, and reports the limits in headers.

    Example:
        ```python
        MIDDLEWARE = ["zae_limiter.web.django.RateLimitMiddleware", ...]
        ZAE_LIMITER = {"limiter": "sqlite:///limits.db", "rules": "project.limits.rules"}
        ```

    Put it first, so that it sees the response as it is sent. The keys of the setting:

    - ``limiter``: An open limiter, a function that returns it, the dotted path of either, or the URL of a store.
      Without it, the default store is opened. A store is opened with the first request of each process.
    - ``rules``: A function, or its dotted path. It returns what a request takes, or None if it is not limited. Without
      a resource, the route of the URL names it. Under ASGI it may be a coroutine function; others run in a thread.
    - ``skip_methods``: Methods that are not limited. Without it, these are HEAD and OPTIONS.

    The lease is ``request.lease``. A rejection is answered with 429, and a blocked entity with 403. A request that is
    larger than a capacity is answered with 413, and an unavailable store with 503. The same answers are sent if a view
    raises these errors.

    Raises:
        ValidationError: The setting is invalid, or the limiter is async under WSGI, or sync under ASGI.
    """
    return _AsyncLimited(get_response) if iscoroutinefunction(get_response) else _SyncLimited(get_response)


def call_of(request: Any) -> SyncCall | AsyncCall:
    """Return the limited call of a request.

    Raises:
        ValidationError: The middleware is missing.
    """
    call = getattr(request, "zae_limiter_call", None)
    if not isinstance(call, SyncCall | AsyncCall):
        raise ValidationError("MIDDLEWARE", None, f"lacks {__name__}.{RateLimitMiddleware.__name__}: add it first")
    return call


class _Limited:
    """What the middleware does under WSGI and under ASGI alike."""

    def __init__(self, get_response: Callable[[HttpRequest], Any]) -> None:
        given = getattr(settings, SETTING, None) or {}
        if not isinstance(given, dict) or not given.keys() <= set(_KEYS):
            raise ValidationError(SETTING, given, f"must be a dict with the keys {', '.join(_KEYS)}")
        self._get_response = get_response
        self._limiter = _imported(given.get("limiter"))
        self._rules: Callable[[HttpRequest], Any] | None = _imported(given.get("rules"))
        self._skipped = frozenset(given.get("skip_methods", ("HEAD", "OPTIONS")))

    def process_exception(self, request: HttpRequest, error: Exception) -> HttpResponse | None:
        """Answer an error of the limiter that a view has raised."""
        call = call_of(request)
        if isinstance(error, UnreadablePostError):
            # The client has disconnected while it sent the body, and is charged.
            call.commit()
        refusal = call.refuse(error)
        return None if refusal is None else _response(refusal)

    def _refuse(self, request: HttpRequest, error: ZAELimiterError) -> HttpResponse:
        response = self.process_exception(request, error)
        if response is None:
            raise error
        return response

    def _abandon(self, call: SyncCall | AsyncCall, error: BaseException) -> None:
        """Note that there is no response."""
        # Django cancels a view whose client has disconnected. Such a client is charged for what was used.
        if not isinstance(error, asyncio.CancelledError):
            call.fail(error)

    def _answer(self, call: SyncCall | AsyncCall, response: Any) -> None:
        """Replace the answer of a framework, such as that of a throttle, before it is rendered."""
        refusal = _refusal_for(call, response)
        if refusal is not None:
            response.content = refusal.body
            response.status_code = refusal.status
            for name, value in refusal.headers:
                response.headers[name] = value

    def _add_headers(self, call: SyncCall | AsyncCall, response: Any) -> None:
        refusal = _refusal_for(call, response)
        if refusal is not None:
            for name, value in refusal.headers:
                if not name.startswith("Content-"):
                    response.headers.setdefault(name, value)
        # As ``merged_headers``: those of another server are replaced, unless they explain a rejection.
        keeps = response.status_code == _TOO_MANY_REQUESTS
        for name, value in call.start(response.status_code):
            if not (keeps and name in response.headers):
                response.headers[name] = value


class _SyncLimited(_Limited):
    """The middleware under WSGI, or under ASGI above other middleware that is sync. It then runs in a thread."""

    def __init__(self, get_response: Callable[[HttpRequest], Any]) -> None:
        super().__init__(get_response)
        self._source = SyncSource(self._limiter)

    def __call__(self, request: HttpRequest) -> Any:
        """Run one request."""
        call = SyncCall(self._source)
        request.zae_limiter_call = call
        try:
            response = self._get_response(request)
        except BaseException as error:
            self._abandon(call, error)
            call.end()
            raise
        self._add_headers(call, response)
        if call.held:
            _when_closed(response, _EndSync(call, response))
            _commit_with(response, call)
        return response

    def process_view(self, request: HttpRequest, *_: object) -> HttpResponse | None:
        """Take, or answer that the request is refused."""
        if self._rules is None or request.method in self._skipped:
            return None
        try:
            ask = checked_ask(self._rules(request))
            if ask is not None:
                call: SyncCall = request.zae_limiter_call
                request.lease = call.take(ask, request.resolver_match.route)
        except ZAELimiterError as error:
            return self._refuse(request, error)
        return None

    def process_template_response(self, request: HttpRequest, response: Any) -> Any:
        """Answer a rejection by a throttle with all limits."""
        self._answer(call_of(request), response)
        return response


class _AsyncLimited(_Limited):
    """The middleware under ASGI."""

    def __init__(self, get_response: Callable[[HttpRequest], Any]) -> None:
        super().__init__(get_response)
        self._source = AsyncSource(self._limiter)
        if self._rules is not None and not iscoroutinefunction(self._rules):
            # It may read the user, or another row of the database, and that blocks.
            self._rules = sync_to_async(self._rules, thread_sensitive=True)
        markcoroutinefunction(self)

    async def __call__(self, request: HttpRequest) -> Any:
        """Run one request."""
        call = AsyncCall(self._source)
        request.zae_limiter_call = call
        try:
            response = await self._get_response(request)
        except BaseException as error:
            self._abandon(call, error)
            await call.end()
            raise
        self._add_headers(call, response)
        if call.held:
            _when_closed(response, _EndAsync(call, response))
            _commit_with(response, call)
        return response

    async def process_view(self, request: HttpRequest, *_: object) -> HttpResponse | None:
        """Take, or answer that the request is refused."""
        if self._rules is None or request.method in self._skipped:
            return None
        try:
            ask = checked_ask(await self._rules(request))
            if ask is not None:
                call: AsyncCall = request.zae_limiter_call
                request.lease = await call.take(ask, request.resolver_match.route)
        except ZAELimiterError as error:
            return self._refuse(request, error)
        return None

    async def process_template_response(self, request: HttpRequest, response: Any) -> Any:
        """Answer a rejection by a throttle with all limits."""
        self._answer(call_of(request), response)
        return response


class _Committing:
    """The content of a sync stream. Its first chunk commits what was taken; an error before it gives back.

    An error ends the leases here, because Django then does not close the response under ASGI.
    """

    def __init__(self, chunks: Iterator[bytes], call: SyncCall | AsyncCall) -> None:
        self._chunks = chunks
        self._call = call

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        try:
            chunk = next(self._chunks)
        except StopIteration:
            raise
        except BaseException as error:
            self._call.fail(error)
            if isinstance(self._call, SyncCall):
                self._call.end()
            else:
                async_to_sync(self._call.end)()
            raise
        self._call.commit()
        return chunk


class _AsyncCommitting:
    """The same for an async stream."""

    def __init__(self, chunks: AsyncIterator[bytes], call: SyncCall | AsyncCall) -> None:
        self._chunks = chunks
        self._call = call

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        try:
            chunk = await anext(self._chunks)
        except (StopAsyncIteration, asyncio.CancelledError):
            # Django cancels a stream whose client has disconnected.
            raise
        except BaseException as error:
            self._call.fail(error)
            if isinstance(self._call, SyncCall):
                await sync_to_async(self._call.end)()
            else:
                await self._call.end()
            raise
        self._call.commit()
        return chunk


class _EndSync:
    """Ends the leases when a response is closed. A copy of the response, as a cache keeps it, ends nothing."""

    def __init__(self, call: SyncCall | None = None, response: Any = None) -> None:
        self._call = call
        self._stream = _Stream(response)

    def __reduce__(self) -> tuple[Any, ...]:
        return _EndSync, ()

    def __call__(self) -> None:
        """End the leases."""
        if self._stream.is_cut_off:
            async_to_sync(self._stream.close)()
        if self._call is not None:
            self._call.end()


class _EndAsync:
    """The same for an async limiter. Django closes responses in a thread."""

    def __init__(self, call: AsyncCall | None = None, response: Any = None) -> None:
        self._call = call
        self._stream = _Stream(response)

    def __reduce__(self) -> tuple[Any, ...]:
        return _EndAsync, ()

    def __call__(self) -> None:
        """End the leases, on the event loop of the request."""
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            async_to_sync(self._end)()
        else:
            # Django's own test client closes a stream on the event loop.
            task = loop.create_task(self._end())
            _ending.add(task)
            task.add_done_callback(_ending.discard)

    async def _end(self) -> None:
        if self._stream.is_cut_off:
            await self._stream.close()
        if self._call is not None:
            await self._call.end()


class _Stream:
    """The async content of a response, if it has one."""

    def __init__(self, response: Any) -> None:
        # Django offers only wrappers of the generator, and closing these does not close it.
        self._generator = getattr(response, "_iterator", None) if getattr(response, "is_async", False) else None

    @property
    def is_cut_off(self) -> bool:
        """True if the content has not been read to its end."""
        return getattr(self._generator, "ag_frame", None) is not None

    async def close(self) -> None:
        """Close the generator of the view, which may adjust the lease in a ``finally`` block."""
        generator, self._generator = self._generator, None
        if generator is not None:
            await generator.aclose()
            del generator
            for _ in range(_TURNS_TO_CLOSE):
                await asyncio.sleep(0)


def _imported(given: Any) -> Any:
    """Return what a dotted path names; anything else as it is, URLs too."""
    return import_string(given) if isinstance(given, str) and "://" not in given else given


def _commit_with(response: Any, call: SyncCall | AsyncCall) -> None:
    """Charge the client from the first chunk of a stream on, and at once for any other response."""
    if not response.streaming or getattr(response, "file_to_stream", None) is not None:
        # A server may send a file itself.
        call.commit()
    elif response.is_async:
        response.streaming_content = _AsyncCommitting(response.streaming_content, call)
    else:
        response.streaming_content = _Committing(response.streaming_content, call)


def _when_closed(response: Any, closer: Callable[[], None]) -> None:
    """Call a function when a response is closed, after the content has been closed."""
    response._resource_closers.append(closer)  # noqa: SLF001 - Django has no public way, and caches pickle the response


def _refusal_for(call: SyncCall | AsyncCall, response: Any) -> Refusal | None:
    """Return the refusal of a request that another framework has answered with 429; None in any other case."""
    if call.failure is None or response.status_code != _TOO_MANY_REQUESTS:
        return None
    return call.refuse(call.failure)


def _response(refusal: Refusal) -> HttpResponse:
    return HttpResponse(refusal.body, status=refusal.status, headers=dict(refusal.headers))
