"""One limited route in every adapter, and a client that sends it one request."""

import json
import types
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Annotated, Any

from aiohttp import web
from django.http import HttpRequest, JsonResponse
from django.test import AsyncClient, Client, override_settings
from django.urls import path
from fastapi import FastAPI
from flask import Flask, g
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route
from werkzeug.test import Client as WsgiClient

from tests.web import django_ready
from tests.web.aiohttp_server import serving
from tests.web.asgi_calls import call
from tests.web.reported import check_headers
from zae_limiter import RateLimiter, SyncRateLimiter
from zae_limiter.web import Ask, aiohttp, asgi, fastapi, flask, wsgi

assert django_ready.RULES, "imported so that Django is set up"


@dataclass(frozen=True)
class Limiters:
    """Both limiters of one store."""

    waiting: RateLimiter
    blocking: SyncRateLimiter


@dataclass(frozen=True)
class Answer:
    """A response, with its headers checked."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


def parts_of(lease: Any) -> list[dict[str, int]]:
    """Adjust the first part of a lease, and return what all parts hold."""
    lease.also[0].adjust(tpm=5)
    return [part.consumed for part in lease.also]


async def starlette(limiters: Limiters, ask: Ask) -> Answer:
    async def route(request: Request) -> JSONResponse:
        return JSONResponse(parts_of(request.state.lease))

    middleware = Middleware(asgi.RateLimitMiddleware, limiter=limiters.waiting, rules=lambda _: ask)
    answer = await call(Starlette(routes=[Route("/", route)], middleware=[middleware]), "/")
    return Answer(answer.status, answer.headers, answer.body)


async def fastapi_dependency(limiters: Limiters, ask: Ask) -> Answer:
    app = FastAPI()
    app.add_middleware(asgi.RateLimitMiddleware, limiter=limiters.waiting)

    @app.get("/")
    async def route(lease: Annotated[Any, fastapi.Taken(lambda: ask)]) -> list[dict[str, int]]:
        return parts_of(lease)

    answer = await call(app, "/")
    return Answer(answer.status, answer.headers, answer.body)


async def aiohttp_server(limiters: Limiters, ask: Ask) -> Answer:
    async def route(request: web.Request) -> web.Response:
        return web.json_response(parts_of(request["lease"]))

    app = web.Application()
    app.router.add_get("/", route)
    aiohttp.setup(app, limiters.waiting, lambda _: ask)
    async with serving(app) as client, client.get("/") as response:
        return Answer(response.status, check_headers(response.headers.items()), await response.read())


async def wsgi_application(limiters: Limiters, ask: Ask) -> Answer:
    def application(environ: Any, start_response: Any) -> list[bytes]:
        found = parts_of(environ["zae_limiter.lease"])
        start_response("200 OK", [("Content-Type", "application/json")])
        return [json.dumps(found).encode()]

    return _sent(wsgi.RateLimitMiddleware(application, limiters.blocking, lambda _: ask))


async def flask_application(limiters: Limiters, ask: Ask) -> Answer:
    app = Flask(__name__)

    @app.get("/")
    def route() -> list[dict[str, int]]:
        return parts_of(g.lease)

    flask.RateLimits(app, limiters.blocking, lambda _: ask)
    return _sent(app)


def _sent(application: Any) -> Answer:
    response = WsgiClient(application).get("/")
    body = response.get_data()
    response.close()
    return Answer(response.status_code, check_headers(response.headers.items()), body)


def _view(request: HttpRequest) -> JsonResponse:
    return JsonResponse(parts_of(request.lease), safe=False)


def _project(view: Any) -> types.ModuleType:
    module = types.ModuleType("one_route")
    module.urlpatterns = [path("", view)]  # type: ignore[attr-defined]  # Django reads it
    return module


async def django_wsgi(limiters: Limiters, ask: Ask) -> Answer:
    return _asked(_view, {"limiter": limiters.blocking, "rules": lambda _: ask})


async def rest_framework(limiters: Limiters, ask: Ask) -> Answer:
    # Imported here, because importing it needs Django's settings.
    from rest_framework.response import Response
    from rest_framework.views import APIView

    from zae_limiter.web.drf import LimiterThrottle

    class Throttle(LimiterThrottle):
        def get_ask(self, request: Any, view: Any) -> Ask:
            return ask

    class View(APIView):
        throttle_classes = (Throttle,)

        def get(self, request: Any) -> Response:
            return Response(parts_of(request.lease))

    return _asked(View.as_view(), {"limiter": limiters.blocking})


def _asked(view: Any, setting: dict[str, Any]) -> Answer:
    with override_settings(ROOT_URLCONF=_project(view), ZAE_LIMITER=setting):
        response = Client(raise_request_exception=False).get("/")
        return Answer(response.status_code, check_headers(response.headers.items()), response.content)


async def django_asgi(limiters: Limiters, ask: Ask) -> Answer:
    setting = {"limiter": limiters.waiting, "rules": lambda _: ask}
    with override_settings(ROOT_URLCONF=_project(_view), ZAE_LIMITER=setting):
        response = await AsyncClient(raise_request_exception=False).get("/")
        return Answer(response.status_code, check_headers(response.headers.items()), response.content)


ADAPTERS: list[Callable[[Limiters, Ask], Awaitable[Answer]]] = [
    starlette,
    fastapi_dependency,
    aiohttp_server,
    wsgi_application,
    flask_application,
    django_wsgi,
    django_asgi,
    rest_framework,
]
