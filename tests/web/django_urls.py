"""The views of the Django project that tests run. Everything outside of ``/drf/`` takes by one rule."""

import asyncio
import io
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

from asgiref.sync import iscoroutinefunction, markcoroutinefunction
from django.http import FileResponse, Http404, HttpRequest, HttpResponse, JsonResponse, StreamingHttpResponse
from django.urls import path
from django.utils.asyncio import async_unsafe
from rest_framework.response import Response
from rest_framework.views import APIView

from tests.web.sync_store import CHUNK, PER_CHUNK, TAKEN, also_of
from zae_limiter.web import Ask
from zae_limiter.web.drf import LimiterThrottle


class authenticated:  # noqa: N801 - Django's settings name it, as a function would be
    """Middleware that finds the user, as one for authentication does."""

    sync_capable = async_capable = True

    def __init__(self, get_response: Callable[[HttpRequest], Any]) -> None:
        self._get_response = get_response
        if iscoroutinefunction(get_response):
            markcoroutinefunction(self)

    def __call__(self, request: HttpRequest) -> Any:
        request.user = request.headers.get("x-user", "user-1")
        return self._get_response(request)


def only_sync(get_response: Callable[[HttpRequest], Any]) -> Callable[[HttpRequest], Any]:
    """Return middleware that knows nothing of async, as old ones."""
    return lambda request: get_response(request)


@async_unsafe
def user_of(request: HttpRequest) -> str:
    """Return the user, as a query of the database would: never on an event loop."""
    user: str = request.user
    return user


def rules(request: HttpRequest) -> Ask | None:
    if request.path.startswith("/drf/"):
        return None
    user = user_of(request)
    return Ask(user, None, dict(TAKEN), also=also_of(user))


def item(request: HttpRequest, item: int) -> HttpResponse:
    return HttpResponse(str(item))


def adjust(request: HttpRequest) -> HttpResponse:
    request.lease.adjust(tpm=50)
    return HttpResponse("adjusted")


async def adjust_async(request: HttpRequest) -> HttpResponse:
    await request.lease.adjust(tpm=50)
    return HttpResponse("adjusted")


def fail(request: HttpRequest) -> HttpResponse:
    raise ZeroDivisionError


def gone(request: HttpRequest) -> HttpResponse:
    raise Http404


def more(request: HttpRequest) -> HttpResponse:
    request.lease.consume(tpm=901)
    return HttpResponse("never")


async def more_async(request: HttpRequest) -> HttpResponse:
    await request.lease.consume(tpm=901)
    return HttpResponse("never")


def file(request: HttpRequest) -> FileResponse:
    request.lease.adjust(tpm=50)
    return FileResponse(io.BytesIO(b"file"), content_type="text/plain")


def upload(request: HttpRequest) -> HttpResponse:
    try:
        return HttpResponse(str(len(request.body)))
    finally:
        request.lease.adjust(tpm=PER_CHUNK)


def stream(request: HttpRequest) -> StreamingHttpResponse:
    count = int(request.GET.get("chunks", 10))

    def chunks() -> Iterator[bytes]:
        produced = 0
        try:
            for _ in range(count):
                produced += PER_CHUNK
                yield CHUNK
        finally:
            request.lease.adjust(tpm=produced - TAKEN["tpm"])

    return StreamingHttpResponse(chunks())


async def stream_async(request: HttpRequest) -> StreamingHttpResponse:
    count = int(request.GET.get("chunks", 10))

    async def chunks() -> AsyncIterator[bytes]:
        produced = 0
        try:
            for _ in range(count):
                produced += PER_CHUNK
                yield CHUNK
                # A real stream waits for its source. Without that, the server has no turn to notice a disconnect.
                await asyncio.sleep(0)
        finally:
            await request.lease.adjust(tpm=produced - TAKEN["tpm"])

    return StreamingHttpResponse(chunks())


async def stream_either(request: HttpRequest) -> StreamingHttpResponse:
    """Stream with an async or a sync lease: adjusting never waits, so it need not be awaited."""

    async def chunks() -> AsyncIterator[bytes]:
        produced = 0
        try:
            for number in range(int(request.GET["chunks"])):
                produced += PER_CHUNK
                # Of different bytes, so that a compressor passes each of them on.
                yield bytes(number) + CHUNK
        finally:
            request.lease.adjust(tpm=produced - TAKEN["tpm"])

    return StreamingHttpResponse(chunks())


def stream_fail(request: HttpRequest) -> StreamingHttpResponse:
    def chunks() -> Iterator[bytes]:
        raise ZeroDivisionError
        yield b""

    return StreamingHttpResponse(chunks())


async def stream_fail_async(request: HttpRequest) -> StreamingHttpResponse:
    """Fail before the first chunk, or after the number of chunks that the query has."""

    async def chunks() -> AsyncIterator[bytes]:
        try:
            for _ in range(int(request.GET.get("chunks", 0))):
                yield CHUNK
            raise ZeroDivisionError
        finally:
            request.lease.adjust(tpm=50)

    return StreamingHttpResponse(chunks())


async def wait(request: HttpRequest) -> HttpResponse:
    """Never answer."""
    await request.lease.adjust(tpm=50)
    waiting.set()
    await asyncio.Event().wait()
    return HttpResponse("never")


waiting = asyncio.Event()
"""Set when the view ``wait`` has begun."""


class ByHeader(LimiterThrottle):
    def get_ask(self, request: Any, view: Any) -> Ask | None:
        consume = {"rpm": 1, "tpm": int(request.headers.get("x-tpm", "100"))}
        return Ask(request.headers.get("x-user", "user-1"), None, consume)


class ForTeam(LimiterThrottle):
    rule = lambda request: Ask("team-1", None, {"rpm": 1})  # noqa: E731 - a rule as users write it


class WithoutRule(LimiterThrottle):
    pass


class Chat(APIView):
    throttle_classes = (ByHeader,)

    def get(self, request: Any, item: int) -> Response:
        request.lease.adjust(tpm=50)
        return Response({"item": item})

    def post(self, request: Any, item: int) -> Response:
        raise ZeroDivisionError


class Both(APIView):
    throttle_classes = (
        ByHeader,
        ForTeam,
    )

    def get(self, request: Any) -> Response:
        return Response({})


class Unruled(APIView):
    throttle_classes = (WithoutRule,)


urlpatterns = [
    path("items/<int:item>", item),
    path("adjust", adjust),
    path("adjust-async", adjust_async),
    path("fail", fail),
    path("gone", gone),
    path("more", more),
    path("more-async", more_async),
    path("file", file),
    path("upload", upload),
    path("stream", stream),
    path("stream-async", stream_async),
    path("stream-either", stream_either),
    path("stream-fail", stream_fail),
    path("stream-fail-async", stream_fail_async),
    path("wait", wait),
    path("drf/chat/<int:item>", Chat.as_view()),
    path("drf/both", Both.as_view()),
    path("drf/unruled", Unruled.as_view()),
]


def own_answer(error: Exception, context: object) -> HttpResponse:
    """Answer an error of the REST framework in a format of the project."""
    return JsonResponse({"own": type(error).__name__}, status=429)
