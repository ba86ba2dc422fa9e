"""A lease ends with the call of the application: given back, charged, or charged for what was used."""

import asyncio
import contextvars
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Annotated, Any

import anyio
import pytest
from fastapi import FastAPI
from litestar import Litestar, get
from litestar import Request as LitestarRequest
from litestar.middleware import DefineMiddleware
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, StreamingResponse
from starlette.routing import Route

from tests.web.asgi_calls import by_name, call, call_in, forever, http_scope, memory_limiter
from zae_limiter import Lease, RateLimiter
from zae_limiter.web import Ask
from zae_limiter.web.asgi import RateLimitMiddleware
from zae_limiter.web.asgi_request import AsgiRequest
from zae_limiter.web.fastapi import Taken

FULL = {"rpm": 5, "tpm": 1_000}
CHARGED = {"rpm": 4, "tpm": 990}

App = Callable[[Any, Any, Any], Awaitable[None]]


@pytest.fixture
async def limiter() -> RateLimiter:
    return await memory_limiter()


async def left(limiter: RateLimiter) -> dict[str, int]:
    return await limiter.available("user-1", "chat")


def keeping(request: AsgiRequest) -> Ask:
    return Ask("user-1", "chat", {"rpm": 1, "tpm": 10}, on_error="keep")


def answering(status: int) -> App:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": status, "headers": []})
        await send({"type": "http.response.body", "body": b"ok"})

    return app


async def failing(scope: Any, receive: Any, send: Any) -> None:
    raise RuntimeError("before the first byte")


async def failing_late(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"first", "more_body": True})
    raise RuntimeError("after the first byte")


class TestEnd:
    @pytest.mark.parametrize(("status", "expected"), [(200, CHARGED), (404, CHARGED), (500, FULL), (503, FULL)])
    async def test_failure_of_the_server_gives_back_and_any_other_answer_is_charged(
        self, limiter: RateLimiter, status: int, expected: dict[str, int]
    ):
        """The client pays for its own mistakes."""
        answer = await call(RateLimitMiddleware(answering(status), limiter, by_name), "/")

        assert status == answer.status
        assert '"rpm";r=4' in answer.headers["ratelimit"]
        assert expected == await left(limiter)

    async def test_handler_that_raises_before_the_first_byte_gives_back(self, limiter: RateLimiter):
        """The error goes on to the server."""
        with pytest.raises(RuntimeError, match="before the first byte"):
            await call(RateLimitMiddleware(failing, limiter, by_name), "/")

        assert FULL == await left(limiter)

    async def test_handler_that_raises_after_the_first_byte_is_charged(self, limiter: RateLimiter):
        """The client has got something."""
        with pytest.raises(RuntimeError, match="after the first byte"):
            await call(RateLimitMiddleware(failing_late, limiter, by_name), "/")

        assert CHARGED == await left(limiter)

    @pytest.mark.parametrize("empty", [[], [{"type": "http.response.body", "body": b"", "more_body": True}]])
    async def test_stream_that_raises_before_its_first_byte_gives_back(self, limiter: RateLimiter, empty: list[Any]):
        """Frameworks send the status before they ask a stream for its first chunk. Empty chunks are not sent."""

        async def app(scope: Any, receive: Any, send: Any) -> None:
            for message in [{"type": "http.response.start", "status": 200, "headers": []}, *empty]:
                await send(message)
            raise RuntimeError("before the first byte")

        with pytest.raises(RuntimeError, match="before the first byte"):
            await call(RateLimitMiddleware(app, limiter, by_name), "/")

        assert FULL == await left(limiter)

    @pytest.mark.parametrize(
        "last",
        [
            {"type": "http.response.body", "body": b""},
            {"type": "http.response.pathsend", "path": "/file"},
            {"type": "http.response.zerocopysend", "file": 3, "more_body": True},
        ],
        ids=lambda message: message["type"],
    )
    async def test_failure_after_an_answer_without_bytes_of_its_own_is_charged(self, limiter: RateLimiter, last: Any):
        """The body is empty, or the server sends a file. A background task may fail afterwards."""

        async def app(scope: Any, receive: Any, send: Any) -> None:
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send(last)
            raise RuntimeError("after the answer")

        with pytest.raises(RuntimeError, match="after the answer"):
            await call(RateLimitMiddleware(app, limiter, by_name), "/")

        assert CHARGED == await left(limiter)

    async def test_rule_that_keeps_charges_a_handler_that_raises(self, limiter: RateLimiter):
        """``on_error`` is chosen per rule."""
        with pytest.raises(RuntimeError):
            await call(RateLimitMiddleware(failing, limiter, keeping), "/")

        assert CHARGED == await left(limiter)

    async def test_rule_that_keeps_charges_an_answer_of_500(self, limiter: RateLimiter):
        """An answer is treated like an error."""
        await call(RateLimitMiddleware(answering(500), limiter, keeping), "/")

        assert CHARGED == await left(limiter)

    async def test_message_that_is_sent_for_every_request_is_not_changed(self, limiter: RateLimiter):
        """Headers would pile up in it."""
        start = {"type": "http.response.start", "status": 200, "headers": [(b"x-own", b"1")]}

        async def app(scope: Any, receive: Any, send: Any) -> None:
            await send(start)
            await send({"type": "http.response.body"})

        limited = RateLimitMiddleware(app, limiter, by_name)
        answers = [await call(limited, "/"), await call(limited, "/")]

        assert [(b"x-own", b"1")] == start["headers"]
        assert [{"ratelimit-policy", "ratelimit", "x-own"}] * 2 == [set(answer.headers) for answer in answers]

    async def test_headers_of_another_server_are_replaced(self, limiter: RateLimiter):
        """A gateway may copy those of the server that it calls."""

        async def gateway(scope: Any, receive: Any, send: Any) -> None:
            await send({"type": "http.response.start", "status": 200, "headers": [(b"RateLimit", b'"theirs";r=1')]})
            await send({"type": "http.response.body"})

        answer = await call(RateLimitMiddleware(gateway, limiter, by_name), "/")

        assert "theirs" not in answer.headers["ratelimit"]

    async def test_rejection_by_a_limiter_inside_another_is_reported_as_it_is(self, limiter: RateLimiter):
        """Otherwise the headers of the outer one would say that more is left."""

        def inner(request: AsgiRequest) -> Ask:
            return Ask("user-1", "inner", {"rpm": 1, "tpm": 400})

        app = RateLimitMiddleware(RateLimitMiddleware(answering(200), limiter, inner), limiter, by_name)
        answers = [await call(app, "/") for _ in range(3)]

        assert [200, 200, 429] == [answer.status for answer in answers]
        assert '"tpm";r=200' in answers[-1].headers["ratelimit"]

    async def test_context_variables_of_the_caller_reach_the_handler_and_come_back(self, limiter: RateLimiter):
        """The application runs in the task of the server."""
        variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable")
        variable.set("outside")

        async def app(scope: Any, receive: Any, send: Any) -> None:
            assert "outside" == variable.get()
            variable.set("inside")
            await answering(200)(scope, receive, send)

        await call(RateLimitMiddleware(app, limiter, by_name), "/")

        assert "inside" == variable.get()

    async def test_task_that_outlives_the_call_still_receives(self, limiter: RateLimiter):
        """The lease has ended, so that nothing is left to commit."""
        gone, tasks = asyncio.Event(), []

        async def receive() -> dict[str, Any]:
            await gone.wait()
            return {"type": "http.disconnect"}

        async def app(scope: Any, receive: Any, send: Any) -> None:
            tasks.append(asyncio.create_task(receive()))
            await answering(200)(scope, receive, send)

        await call_in(RateLimitMiddleware(app, limiter, by_name), http_scope("/"), receive)
        gone.set()

        assert {"type": "http.disconnect"} == await tasks[0]


class TestRefusal:
    async def test_request_beyond_a_limit_is_answered_and_the_application_is_not_called(self, limiter: RateLimiter):
        """Two limits, both reported, on 200 and on 429."""
        limited = RateLimitMiddleware(answering(200), limiter, by_name)

        answers = [await call(limited, "/") for _ in range(6)]

        assert [200] * 5 + [429] == [answer.status for answer in answers]
        assert '"rpm";r=0' in answers[-1].headers["ratelimit"]
        assert ["rpm"] == answers[-1].problem["violated-policies"]
        assert {"rpm": 0, "tpm": 950} == await left(limiter)

    async def test_request_larger_than_a_capacity_is_answered_with_413(self, limiter: RateLimiter):
        """The problem names limit and capacity."""
        limited = RateLimitMiddleware(answering(200), limiter, lambda _: Ask("user-1", "chat", {"tpm": 1_001}))

        answer = await call(limited, "/")

        assert 413 == answer.status
        assert "'tpm' has a capacity of 1000" in answer.problem["detail"]
        assert "retry-after" not in answer.headers

    async def test_entity_that_is_no_name_is_answered_with_400(self, limiter: RateLimiter):
        """It came with the request."""
        limited = RateLimitMiddleware(answering(200), limiter, lambda _: Ask("user#1", "chat", {"rpm": 1}))

        assert 400 == (await call(limited, "/")).status

    async def test_second_dependency_that_is_rejected_gives_back_the_first(self, limiter: RateLimiter):
        """All or nothing, also over several rules."""
        app = FastAPI()

        @app.get("/")
        async def root(
            one: Annotated[Lease, Taken(lambda: Ask("user-1", "chat", {"rpm": 1, "tpm": 10}))],
            other: Annotated[Lease, Taken(lambda: Ask("user-1", "images", {"rpm": 1, "tpm": 999}))],
        ) -> None: ...

        app.add_middleware(RateLimitMiddleware, limiter=limiter)
        first, second = await call(app, "/"), await call(app, "/")

        assert [200, 429] == [first.status, second.status]
        assert '"tpm";r=1;' in first.headers["ratelimit"]
        assert CHARGED == await left(limiter)
        assert {"rpm": 4, "tpm": 1} == await limiter.available("user-1", "images")


async def starlette_more(request: Request) -> PlainTextResponse:
    await request.state.lease.consume(tpm=991)
    raise AssertionError("not reached")


@get("/")
async def litestar_more(request: LitestarRequest[Any, Any, Any]) -> str:
    await request.state.lease.consume(tpm=991)
    raise AssertionError("not reached")


def with_starlette(limiter: RateLimiter) -> Any:
    middleware = [Middleware(RateLimitMiddleware, limiter=limiter, rules=by_name)]
    return Starlette(routes=[Route("/", starlette_more)], middleware=middleware)


def with_fastapi(limiter: RateLimiter) -> Any:
    app = FastAPI()
    app.add_api_route("/", starlette_more)
    app.add_middleware(RateLimitMiddleware, limiter=limiter, rules=by_name)
    return app


def with_litestar(limiter: RateLimiter) -> Any:
    middleware = DefineMiddleware(RateLimitMiddleware, limiter=limiter, rules=by_name)
    return Litestar([litestar_more], middleware=[middleware], openapi_config=None, logging_config=None)


@pytest.mark.parametrize("made", [with_starlette, with_fastapi, with_litestar])
async def test_consume_that_raises_in_a_handler_is_answered_and_gives_back(
    limiter: RateLimiter, made: Callable[[RateLimiter], Any]
):
    """Litestar answers every error itself, with 500, which is replaced."""
    answer = await call(made(limiter), "/")

    assert 429 == answer.status
    assert ["tpm"] == answer.problem["violated-policies"]
    assert FULL == await left(limiter)


class Cut:
    """A server whose client is gone after some messages."""

    def __init__(self, *, raises: bool) -> None:
        self._raises = raises
        self._gone = asyncio.Event()
        self._told = asyncio.Event()
        self._body = False

    async def receive(self) -> dict[str, Any]:
        if not self._body:
            self._body = True
            return {"type": "http.request", "body": b"", "more_body": False}
        if self._raises:
            return await forever()
        await self._gone.wait()
        self._told.set()
        return {"type": "http.disconnect"}

    async def send(self, message: dict[str, Any]) -> None:
        if message.get("body") == b"3":
            self._gone.set()
            if self._raises:
                raise OSError("gone")
        if self._gone.is_set():
            # A full buffer, so that a stream is cancelled in the middle of sending. A server gives up after that.
            await self._told.wait()
            await asyncio.sleep(0.01)


async def counted(lease: Lease, *, pause_s: float | None) -> AsyncIterator[bytes]:
    used = 0
    try:
        for number in range(10):
            used += 100
            yield str(number).encode()
    finally:
        if pause_s is not None:
            await asyncio.sleep(pause_s)
        lease.adjust(tpm=used - 10)


async def relayed(chunks: AsyncIterator[bytes], depth: int) -> AsyncIterator[bytes]:
    async for chunk in relayed(chunks, depth - 1) if depth else chunks:
        yield chunk


async def by_chunk(lease: Lease) -> AsyncIterator[bytes]:
    lease.adjust(tpm=-10)
    for number in range(10):
        lease.adjust(tpm=100)
        yield str(number).encode()


STREAMS: dict[str, Callable[[Lease], AsyncIterator[bytes]]] = {
    "adjusts at the end": lambda lease: counted(lease, pause_s=None),
    "waits before it adjusts": lambda lease: counted(lease, pause_s=0.03),
    "is wrapped": lambda lease: relayed(counted(lease, pause_s=0), 6),
    "adjusts by chunk": by_chunk,
}


class TestDisconnect:
    def app(self, limiter: RateLimiter, stream: Callable[[Lease], AsyncIterator[bytes]]) -> Any:
        async def endpoint(request: Request) -> StreamingResponse:
            return StreamingResponse(stream(request.state.lease))

        middleware = [Middleware(RateLimitMiddleware, limiter=limiter, rules=by_name)]
        return Starlette(routes=[Route("/", endpoint)], middleware=middleware)

    @pytest.mark.parametrize("stream", STREAMS)
    async def test_client_that_is_gone_is_charged_for_what_was_used(self, limiter: RateLimiter, stream: str):
        """Four chunks were made, whether the last one arrived or not."""
        server = Cut(raises=False)

        await self.app(limiter, STREAMS[stream])(http_scope("/"), server.receive, server.send)

        assert {"rpm": 4, "tpm": 600} == await left(limiter)

    @pytest.mark.parametrize("stream", STREAMS)
    async def test_server_that_raises_on_sending_is_the_same(self, limiter: RateLimiter, stream: str):
        """Newer versions of ASGI report a disconnect by an error of ``send``."""
        server, scope = Cut(raises=True), http_scope("/")
        scope["asgi"]["spec_version"] = "2.4"

        with pytest.raises(ClientDisconnect):
            await self.app(limiter, STREAMS[stream])(scope, server.receive, server.send)

        assert {"rpm": 4, "tpm": 600} == await left(limiter)

    @pytest.mark.parametrize("stream", STREAMS)
    async def test_call_that_is_cancelled_is_the_same(self, limiter: RateLimiter, stream: str):
        """A server that stops cancels its calls."""
        server = Cut(raises=False)
        scope = http_scope("/")
        scope["asgi"]["spec_version"] = "2.4"
        task = asyncio.create_task(self.app(limiter, STREAMS[stream])(scope, server.receive, server.send))
        await server._gone.wait()
        await asyncio.sleep(0)
        task.cancel()

        with pytest.raises(asyncio.CancelledError):
            await task

        assert {"rpm": 4, "tpm": 600} == await left(limiter)

    async def test_scope_that_cancels_again_and_again_still_charges_what_was_adjusted(self, limiter: RateLimiter):
        """anyio cancels every await of a scope, and so the awaits at the end of a lease too."""
        began = asyncio.Event()

        async def app(scope: Any, receive: Any, send: Any) -> None:
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b"first", "more_body": True})
            scope["state"]["lease"].adjust(tpm=90)
            began.set()
            await forever()

        async with anyio.create_task_group() as group:
            group.start_soon(call, RateLimitMiddleware(app, limiter, by_name), "/")
            await began.wait()
            group.cancel_scope.cancel()

        assert {"rpm": 4, "tpm": 900} == await left(limiter)

    @pytest.mark.parametrize("stream", ["adjusts at the end", "adjusts by chunk"])
    async def test_lease_ends_as_soon_as_the_stream_is_closed(
        self, limiter: RateLimiter, stream: str, monkeypatch: pytest.MonkeyPatch
    ):
        """The server counts references to it, and sees none but its own. Otherwise this would wait for hours."""
        monkeypatch.setattr("zae_limiter.web.asgi._LOOK_S", 36_000)
        server = Cut(raises=False)

        async with asyncio.timeout(300):
            await self.app(limiter, STREAMS[stream])(http_scope("/"), server.receive, server.send)

        assert {"rpm": 4, "tpm": 600} == await left(limiter)

    async def test_lease_that_is_kept_elsewhere_ends_nevertheless(self, limiter: RateLimiter):
        """The wait for streams is bounded."""
        kept: list[Lease] = []

        async def app(scope: Any, receive: Any, send: Any) -> None:
            kept.append(scope["state"]["lease"])
            await receive()

        async def receive() -> dict[str, Any]:
            return {"type": "http.disconnect"}

        await call_in(RateLimitMiddleware(app, limiter, by_name), http_scope("/"), receive)

        assert "ended" in repr(kept[0])
        assert CHARGED == await left(limiter)

    async def test_disconnect_before_the_first_byte_charges_a_handler_that_then_fails(self, limiter: RateLimiter):
        """A client cannot avoid the charge by hanging up."""

        async def app(scope: Any, receive: Any, send: Any) -> None:
            assert "http.disconnect" == (await receive())["type"]
            raise RuntimeError("gone")

        async def receive() -> dict[str, Any]:
            return {"type": "http.disconnect"}

        with pytest.raises(RuntimeError):
            await call_in(RateLimitMiddleware(app, limiter, by_name), http_scope("/"), receive)

        assert CHARGED == await left(limiter)

    @pytest.mark.parametrize("around", [False, True])
    async def test_middleware_of_starlettes_base_class_changes_nothing(self, limiter: RateLimiter, around: bool):
        """It runs what it wraps in a task of its own, which is one chunk ahead."""

        async def passing(request: Request, go_on: Any) -> Any:
            return await go_on(request)

        app, server = self.app(limiter, STREAMS["adjusts at the end"]), Cut(raises=False)
        app.user_middleware.insert(0 if around else 1, Middleware(BaseHTTPMiddleware, dispatch=passing))

        await app(http_scope("/"), server.receive, server.send)

        assert {"rpm": 4, "tpm": 500} == await left(limiter)
