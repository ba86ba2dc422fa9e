"""Applications of several frameworks behind one address, for tests that run them under real servers.

A request for ``/starlette/ok`` is answered by the application of Starlette, and so on. Headers choose what a request
takes. ``/control/...`` shows what is left of a bucket, and waits until a call has ended, with its lease.
"""

import asyncio
import contextvars
import os
import signal
import sys
import threading
import types
from collections.abc import AsyncIterator
from typing import Annotated, Any
from urllib.parse import parse_qs

import django
import orjson
from django.conf import settings
from django.core.asgi import get_asgi_application
from django.http import HttpResponse, StreamingHttpResponse
from django.urls import path
from fastapi import APIRouter, BackgroundTasks, FastAPI
from fastapi import Request as FastApiRequest
from fastapi.sse import EventSourceResponse
from litestar import Litestar, get, route
from litestar import Request as LitestarRequest
from litestar import Response as LitestarResponse
from litestar.background_tasks import BackgroundTask as LitestarTask
from litestar.middleware import DefineMiddleware
from litestar.response import Stream
from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.middleware import Middleware
from starlette.middleware.authentication import AuthenticationMiddleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Mount, Route, WebSocketRoute
from starlette.websockets import WebSocket

from tests.web.asgi_calls import LIMITS
from zae_limiter import Also, Lease, Limit, RateLimiter, Repository
from zae_limiter.web import Ask
from zae_limiter.web.asgi import RateLimitMiddleware
from zae_limiter.web.asgi_request import AsgiRequest
from zae_limiter.web.fastapi import Taken

CHUNK_TOKENS = 10
LARGE = b"x" * 65_536
BLOCKED = "blocked-user"
"""An entity that is blocked from the start."""
_variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="lost")

limiter: RateLimiter
calls: dict[str, "asyncio.Future[dict[str, Any]]"] = {}
used: dict[str, int] = {}
last_chunks: dict[str, asyncio.Event] = {}
"""What the last chunk of a stream waits for, by the names of calls."""


def the_limiter() -> RateLimiter:
    return limiter


def rules(request: AsgiRequest) -> Ask | None:
    return ask(request.headers)


def ask(headers: Any, resource: str | None = None) -> Ask | None:
    """Return what the headers of a request say."""
    entity = headers.get("x-entity")
    if entity is None:
        return None
    capacity = headers.get("x-capacity")
    return Ask(
        entity,
        headers.get("x-resource") or resource,
        {"rpm": 1, "tpm": int(headers.get("x-cost", 10))},
        [Limit.custom("rpm", int(capacity), 1, 86_400), LIMITS[1]] if capacity else None,
        on_error=headers.get("x-on-error", "give_back"),
        headers=tuple(headers.get("x-dialect", "ietf").split()),
        also=[Also(headers["x-also"], "search", {"rpm": 2})] if "x-also" in headers else None,
    )


async def tokens(lease: Lease, kind: str, call: str) -> AsyncIterator[bytes]:
    """Stream until the client is gone, or ten chunks; each chunk costs ten tokens.

    The last chunk of ``short-held`` waits until ``/control/finish`` asks for it.
    """
    made, by_chunk = 0, kind.endswith("by-chunk")
    if by_chunk:
        lease.adjust(tpm=-lease.consumed["tpm"])
    try:
        while made < (10 if kind.startswith("short") else 100_000):
            made += 1
            used[call] = made * CHUNK_TOKENS
            if by_chunk:
                lease.adjust(tpm=CHUNK_TOKENS)
            if kind == "short-held" and made == 10:
                await last_chunks.setdefault(call, asyncio.Event()).wait()
            yield LARGE if kind.startswith("large") else b"data: token\n\n"
            await asyncio.sleep(0 if kind.startswith("large") else 0.001)
    finally:
        if not by_chunk:
            lease.adjust(tpm=made * CHUNK_TOKENS - lease.consumed["tpm"])


async def stream(request: Request) -> Response:
    body = tokens(request.state.lease, request.path_params["kind"], request.headers["x-call"])
    return StreamingResponse(body, media_type="text/event-stream")


async def ok(request: Request) -> Response:
    return PlainTextResponse("ok")


async def fail(request: Request) -> Response:
    raise RuntimeError("before the first byte")


async def late(request: Request) -> Response:
    async def body() -> AsyncIterator[bytes]:
        yield b"first"
        raise RuntimeError("after the first byte")

    return StreamingResponse(body())


async def status(request: Request) -> Response:
    return PlainTextResponse("answered", int(request.path_params["code"]))


async def more(request: Request) -> Response:
    await request.state.lease.consume(tpm=999)
    raise AssertionError("not reached")


async def background(request: Request) -> Response:
    async def settle() -> None:
        await asyncio.sleep(0.01)
        request.state.lease.adjust(tpm=90)

    return PlainTextResponse("ok", background=BackgroundTask(settle))


async def context(request: Request) -> Response:
    return PlainTextResponse(_variable.get())


async def talk(websocket: WebSocket) -> None:
    await websocket.accept()
    async for text in websocket.iter_text():
        await websocket.state.lease.consume(tpm=len(text))
        await websocket.send_text(text)


STARLETTE_ROUTES = [
    Route("/ok", ok, methods=["GET", "POST"]),
    Route("/items/{item_id:int}", ok),
    Route("/stream/{kind}", stream),
    Route("/fail", fail),
    Route("/late", late),
    Route("/status/{code:int}", status),
    Route("/more", more),
    Route("/background", background),
    Route("/context", context),
    WebSocketRoute("/talk", talk),
]


class Tokens:
    """Authenticates by a header, and so runs before the rule that names its user."""

    async def authenticate(self, connection: Any) -> Any:
        name = connection.headers.get("authorization")
        return None if name is None else (["any"], types.SimpleNamespace(name=name, is_authenticated=True))


def by_user(request: AsgiRequest) -> Ask | None:
    return Ask(request.user.name, None, {"rpm": 1}) if getattr(request.user, "name", None) else None


def with_starlette() -> Any:
    limited = Middleware(RateLimitMiddleware, limiter=the_limiter, rules=rules)
    authenticated = Starlette(
        routes=[Route("/ok", ok)],
        middleware=[
            Middleware(AuthenticationMiddleware, backend=Tokens()),
            Middleware(RateLimitMiddleware, limiter=the_limiter, rules=by_user),
        ],
    )
    below = Mount("/below", Starlette(routes=STARLETTE_ROUTES))
    return Starlette(routes=[Mount("/user", authenticated), below, *STARLETTE_ROUTES], middleware=[limited])


def with_fastapi() -> Any:
    """Return an application whose routes take by dependencies, in an included router."""
    app, router = FastAPI(openapi_url=None), APIRouter()

    def cost(request: FastApiRequest) -> Ask | None:
        return ask(request.headers)

    Leased = Annotated[Lease, Taken(cost)]  # noqa: N806 - a type

    @router.api_route("/ok", methods=["GET", "POST"])
    @router.get("/items/{item_id}")
    async def plain(lease: Leased) -> str:
        return "ok"

    @router.get("/stream/{kind}")
    async def streamed(kind: str, lease: Leased, request: FastApiRequest) -> StreamingResponse:
        return StreamingResponse(tokens(lease, kind, request.headers["x-call"]), media_type="text/event-stream")

    @router.get("/sse", response_class=EventSourceResponse)
    async def events(lease: Leased, request: FastApiRequest) -> AsyncIterator[str]:
        async for token in tokens(lease, "endless", request.headers["x-call"]):
            yield token.decode()

    @router.get("/background")
    async def later(lease: Leased, tasks: BackgroundTasks) -> str:
        tasks.add_task(lease.adjust, tpm=90)
        return "ok"

    @router.get("/fail")
    async def failed(lease: Leased) -> str:
        raise RuntimeError("before the first byte")

    @router.get("/more")
    async def taken(lease: Leased) -> str:
        await lease.consume(tpm=999)
        raise AssertionError("not reached")

    @router.get("/status/{code}")
    async def answered(code: int, lease: Leased) -> Response:
        return PlainTextResponse("answered", code)

    app.include_router(router)
    app.add_middleware(RateLimitMiddleware, limiter=the_limiter)
    return app


def with_litestar() -> Any:
    @route("/ok", http_method=["GET", "POST"], status_code=200)
    async def plain() -> str:
        return "ok"

    @get("/items/{item_id:int}")
    async def item() -> str:
        return "ok"

    @get("/stream/{kind:str}")
    async def streamed(request: LitestarRequest[Any, Any, Any]) -> Stream:
        kind, call = request.path_params["kind"], request.headers["x-call"]
        return Stream(tokens(request.state.lease, kind, call), media_type="text/event-stream")

    @get("/fail")
    async def failed() -> str:
        raise RuntimeError("before the first byte")

    @get("/more")
    async def taken(request: LitestarRequest[Any, Any, Any]) -> str:
        await request.state.lease.consume(tpm=999)
        raise AssertionError("not reached")

    @get("/status/{code:int}")
    async def answered(request: LitestarRequest[Any, Any, Any]) -> LitestarResponse[str]:
        return LitestarResponse("answered", status_code=request.path_params["code"])

    @get("/background")
    async def later(request: LitestarRequest[Any, Any, Any]) -> LitestarResponse[str]:
        return LitestarResponse("ok", background=LitestarTask(request.state.lease.adjust, tpm=90))

    limited = DefineMiddleware(RateLimitMiddleware, limiter=the_limiter, rules=rules)
    handlers = [plain, item, streamed, failed, taken, answered, later]
    return Litestar(handlers, middleware=[limited], openapi_config=None, logging_config=None)


def named(request: AsgiRequest) -> Ask | None:
    """Return what the headers say, for a framework whose router is not asked."""
    return ask(request.headers, request.path.split("/")[1])


def with_django() -> Any:
    async def plain(request: Any) -> HttpResponse:
        return HttpResponse("ok")

    async def streamed(request: Any, kind: str) -> StreamingHttpResponse:
        lease = request.scope["state"]["lease"]
        return StreamingHttpResponse(tokens(lease, kind, request.headers["x-call"]), content_type="text/event-stream")

    async def failed(request: Any) -> HttpResponse:
        raise RuntimeError("before the first byte")

    async def answered(request: Any, code: int) -> HttpResponse:
        return HttpResponse("answered", status=code)

    urls = types.ModuleType("tests_web_served_urls")
    urls.urlpatterns = [  # type: ignore[attr-defined]  # a module that is made here
        path("ok", plain),
        path("stream/<str:kind>", streamed),
        path("fail", failed),
        path("status/<int:code>", answered),
    ]
    sys.modules[urls.__name__] = urls
    settings.configure(
        ROOT_URLCONF=urls.__name__, SECRET_KEY="testing", ALLOWED_HOSTS=["*"], MIDDLEWARE=[], LOGGING_CONFIG=None
    )
    django.setup()
    return RateLimitMiddleware(get_asgi_application(), the_limiter, named)


def with_asgi() -> Any:
    async def plain(scope: Any, receive: Any, send: Any) -> None:
        lease = scope["state"].get("lease")
        _, first, *rest = scope["path"].split("/")
        if first == "fail":
            raise RuntimeError("before the first byte")
        code = int(rest[0]) if first == "status" else 200
        await send(
            {"type": "http.response.start", "status": code, "headers": [(b"content-type", b"text/event-stream")]}
        )
        if first == "stream":
            gone = asyncio.create_task(_gone(receive))
            call = dict(scope["headers"])[b"x-call"].decode()
            async for chunk in tokens(lease, rest[0], call):
                if gone.done():
                    break
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
            gone.cancel()
        await send({"type": "http.response.body", "body": b"ok"})

    return RateLimitMiddleware(plain, the_limiter, named)


async def _gone(receive: Any) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


APPS = {
    "starlette": with_starlette(),
    "fastapi": with_fastapi(),
    "litestar": with_litestar(),
    "django": with_django(),
    "asgi": with_asgi(),
}


async def control(scope: Any, receive: Any, send: Any) -> None:
    """Answer what a test asks for."""
    options = {name: values[0] for name, values in parse_qs(scope["query_string"].decode()).items()}
    match scope["path"]:
        case "/control/available":
            found: Any = await limiter.available(options["entity"], options["resource"])
        case "/control/resources":
            found = sorted({bucket.resource for bucket in await limiter.get_buckets(options["entity"])})
        case "/control/finish":
            last_chunks.setdefault(options["call"], asyncio.Event()).set()
            found = None
        case _:
            found = await calls.setdefault(options["call"], asyncio.get_running_loop().create_future())
    body = orjson.dumps(found)
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(body))]})
    await send({"type": "http.response.body", "body": body})


async def app(scope: Any, receive: Any, send: Any) -> None:
    """Choose an application by the first part of the path, and note when its call has ended."""
    if scope["type"] == "lifespan":
        return await lifespan(receive, send)
    name, _, rest = scope["path"].removeprefix("/").partition("/")
    if name == "control":
        return await control(scope, receive, send)
    call = dict(scope["headers"]).get(b"x-call", b"").decode()
    inner = f"/{rest}"
    failure = None
    _variable.set(call)
    try:
        return await APPS[name]({**scope, "path": inner, "raw_path": inner.encode()}, receive, send)
    except BaseException as error:
        failure = repr(error)
        raise
    finally:
        ended = calls.setdefault(call, asyncio.get_running_loop().create_future())
        if not ended.done():
            ended.set_result({"failure": failure, "used": used.get(call, 0)})


async def lifespan(receive: Any, send: Any) -> None:
    global limiter
    await receive()
    limiter = RateLimiter(await Repository.open("memory://"))
    await limiter.set_system_defaults(LIMITS)
    await limiter.create_entity(BLOCKED)
    await limiter.block_entity(BLOCKED, reason="unpaid")
    await send({"type": "lifespan.startup.complete"})
    await receive()
    await limiter.close()
    await send({"type": "lifespan.shutdown.complete"})


def end_with_the_tests() -> None:
    """End all processes of the server when the process that started it is gone."""
    sys.stdin.read()
    os.killpg(0, signal.SIGKILL)


if os.environ.get("SERVED_BY_TESTS"):
    threading.Thread(target=end_with_the_tests, daemon=True).start()
