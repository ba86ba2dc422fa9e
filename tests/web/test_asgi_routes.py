"""Resources are named after the templates of routes, whichever way the application is put together."""

from collections.abc import Callable
from typing import Annotated, Any

import pytest
from fastapi import APIRouter, FastAPI, Request
from litestar import Litestar, asgi, get
from litestar.middleware import DefineMiddleware
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import PlainTextResponse
from starlette.routing import BaseRoute, Host, Match, Mount, Route, Router, WebSocketRoute
from starlette.staticfiles import StaticFiles

from tests.web.asgi_calls import Answer, by_name, by_route, call, call_in, http_scope, memory_limiter, resources_of
from zae_limiter import RateLimiter
from zae_limiter.core.errors import ValidationError
from zae_limiter.web import Ask
from zae_limiter.web.asgi import RateLimitMiddleware
from zae_limiter.web.fastapi import Lease, Taken


@pytest.fixture
async def limiter() -> RateLimiter:
    return await memory_limiter()


async def endpoint(request: Request) -> PlainTextResponse:
    return PlainTextResponse("ok")


async def no_endpoint(websocket: Any) -> None:
    raise AssertionError("not called over HTTP")


def routes() -> list[BaseRoute]:
    return [Route("/items/{item_id:int}", endpoint), Route("/items", endpoint, methods=["POST"])]


def limits(limiter: RateLimiter) -> list[Middleware]:
    return [Middleware(RateLimitMiddleware, limiter=limiter, rules=by_route)]


def in_app(limiter: RateLimiter) -> Any:
    return Starlette(routes=routes(), middleware=limits(limiter))


def around_app(limiter: RateLimiter) -> Any:
    return RateLimitMiddleware(Starlette(routes=routes()), limiter, by_route)


def in_outer_app(limiter: RateLimiter) -> Any:
    return Starlette(routes=[Mount("/v1", Starlette(routes=routes()))], middleware=limits(limiter))


def in_inner_app(limiter: RateLimiter) -> Any:
    return Starlette(routes=[Mount("/v1", in_app(limiter)), *routes()])


def in_inner_app_behind_another_middleware(limiter: RateLimiter) -> Any:
    return Starlette(routes=[Mount("/v1", CORSMiddleware(in_app(limiter)))])


def in_mount(limiter: RateLimiter) -> Any:
    return Starlette(routes=[*routes(), Mount("/v1", routes=routes(), middleware=limits(limiter))])


def in_mount_of_mounted_app(limiter: RateLimiter) -> Any:
    inner = Starlette(routes=[Mount("/v1", routes=routes(), middleware=limits(limiter)), *routes()])
    return Starlette(routes=[Mount("/api", inner), *routes()])


def around_mounted_app(limiter: RateLimiter) -> Any:
    return Starlette(routes=[*routes(), Mount("/v1", around_app(limiter))])


def in_route(limiter: RateLimiter) -> Any:
    return Starlette(
        routes=[Mount("/v1", routes=[Route("/items/{item_id:int}", endpoint, middleware=limits(limiter))])]
    )


def in_host(limiter: RateLimiter) -> Any:
    return Starlette(routes=[Host("api.test", Router(routes=routes()))], middleware=limits(limiter))


def in_mount_with_parameter(limiter: RateLimiter) -> Any:
    return Starlette(routes=[Mount("/{tenant}", routes=routes())], middleware=limits(limiter))


STARLETTE: list[tuple[Callable[[RateLimiter], Any], str, str]] = [
    (in_app, "", "items/:item_id"),
    (around_app, "", "items/:item_id"),
    (in_outer_app, "/v1", "v1/items/:item_id"),
    (in_inner_app, "/v1", "items/:item_id"),
    (in_inner_app_behind_another_middleware, "/v1", "items/:item_id"),
    (in_mount, "/v1", "v1/items/:item_id"),
    (in_mount_of_mounted_app, "/api/v1", "v1/items/:item_id"),
    (around_mounted_app, "/v1", "v1/items/:item_id"),
    (in_route, "/v1", "v1/items/:item_id"),
    (in_host, "", "api.test/items/:item_id"),
    (in_mount_with_parameter, "/acme", "@:tenant/items/:item_id"),
]


def name_of(value: object) -> str:
    return getattr(value, "__name__", "")


class TestStarlette:
    @pytest.mark.parametrize(("made", "prefix", "name"), STARLETTE, ids=name_of)
    async def test_template_names_the_resource(
        self, limiter: RateLimiter, made: Callable[[RateLimiter], Any], prefix: str, name: str
    ):
        """All paths of a route share a bucket, wherever the middleware is."""
        app = made(limiter)

        statuses = [(await call(app, f"{prefix}/items/{number}")).status for number in range(6)]

        assert [200] * 5 + [429] == statuses
        assert [name] == await resources_of(limiter)

    @pytest.mark.parametrize(("made", "prefix"), [row[:2] for row in STARLETTE], ids=name_of)
    @pytest.mark.parametrize(
        ("method", "path", "status"),
        [
            *[("GET", "/none", 404), ("GET", "/items/x", 404), ("DELETE", "/items/1", 405), ("GET", "/items/1/", 307)],
            *[("HEAD", "/items/1", 200), ("OPTIONS", "/items/1", 405)],
        ],
    )
    async def test_request_without_a_route_creates_no_bucket(
        self, limiter: RateLimiter, made: Callable[[RateLimiter], Any], prefix: str, method: str, path: str, status: int
    ):
        """A scanner cannot fill the store, and HEAD and OPTIONS are free."""
        answer = await call(made(limiter), prefix + path, method)

        assert status == answer.status
        assert [] == await resources_of(limiter)

    async def test_mounted_application_without_routes_is_one_resource(self, limiter: RateLimiter, tmp_path: Any):
        """Static files have no templates below their mount."""
        (tmp_path / "a.txt").write_text("a")
        app = Starlette(routes=[Mount("/static", StaticFiles(directory=tmp_path))], middleware=limits(limiter))

        assert 200 == (await call(app, "/static/a.txt")).status
        assert ["static"] == await resources_of(limiter)

    async def test_route_of_an_unknown_kind_asks_for_a_name(self, limiter: RateLimiter):
        """It has no template, and must not share the bucket of the root."""

        class Anything(BaseRoute):
            def matches(self, scope: Any) -> tuple[Match, dict[str, Any]]:
                return Match.FULL, {}

        app = Starlette(routes=[Anything()], middleware=limits(limiter))

        with pytest.raises(ValidationError, match="name it in Ask"):
            await call(app, "/x")

    async def test_websocket_route_does_not_match_a_request(self, limiter: RateLimiter):
        """Both kinds may have the same path."""
        app = Starlette(routes=[WebSocketRoute("/items/{item_id:int}", no_endpoint)], middleware=limits(limiter))

        assert 404 == (await call(app, "/items/1")).status
        assert [] == await resources_of(limiter)


class TestFastApi:
    def included(self, limiter: RateLimiter, **options: Any) -> FastAPI:
        """Return an application with routers in routers, and with the same router under two prefixes."""
        inner, outer, app = APIRouter(prefix="/inner"), APIRouter(), FastAPI()

        @inner.get("/items/{item_id}")
        async def item(item_id: int) -> int:
            return item_id

        outer.include_router(inner, prefix="/outer")
        app.include_router(outer, prefix="/v1")
        app.include_router(outer, prefix="/v2")
        app.include_router(inner)
        app.add_middleware(RateLimitMiddleware, limiter=limiter, rules=by_route, **options)
        return app

    async def test_routes_of_included_routers_have_their_whole_templates(self, limiter: RateLimiter):
        """A router that is included twice has two resources."""
        app = self.included(limiter)

        for path in ("/v1/outer/inner/items/1", "/v2/outer/inner/items/1", "/inner/items/1"):
            assert 200 == (await call(app, path)).status
        assert ["inner/items/:item_id", "v1/outer/inner/items/:item_id", "v2/outer/inner/items/:item_id"] == (
            await resources_of(limiter)
        )

    @pytest.mark.parametrize(("method", "path"), [("GET", "/v1/none"), ("POST", "/v1/outer/inner/items/1")])
    async def test_request_without_a_route_creates_no_bucket(self, limiter: RateLimiter, method: str, path: str):
        """Neither an unknown path nor another method, also below an included router."""
        assert (await call(self.included(limiter), path, method)).status in (404, 405)
        assert [] == await resources_of(limiter)

    def with_dependencies(self, limiter: RateLimiter, outside: bool = False) -> Any:
        """Return applications whose routes take by a dependency: included, mounted, and at the top."""
        router, mounted, app = APIRouter(), FastAPI(), FastAPI()

        async def cost(item_id: int) -> Ask:
            return Ask("user-1", None, {"rpm": 1, "tpm": item_id})

        for one in (router, mounted, app):

            @one.get("/items/{item_id}")
            async def item(lease: Annotated[Lease, Taken(cost)]) -> dict[str, int]:
                return lease.consumed

        app.include_router(router, prefix="/included")
        app.mount("/mounted", mounted)
        if outside:
            return RateLimitMiddleware(app, limiter)
        app.add_middleware(RateLimitMiddleware, limiter=limiter)
        return app

    @pytest.mark.parametrize("outside", [False, True])
    async def test_dependency_names_the_whole_template(self, limiter: RateLimiter, outside: bool):
        """Neither the prefix of a router nor that of a mount is lost, inside and around the application."""
        app = self.with_dependencies(limiter, outside)

        for prefix in ("", "/included", "/mounted"):
            answer = await call(app, f"{prefix}/items/7")
            assert {"rpm": 1, "tpm": 7} == answer.problem
            assert "ratelimit" in answer.headers
        assert ["included/items/:item_id", "items/:item_id", "mounted/items/:item_id"] == await resources_of(limiter)

    async def test_dependency_without_the_middleware_is_a_named_error(self):
        """Nothing would end the lease."""
        app = FastAPI()

        @app.get("/")
        async def root(lease: Annotated[Lease, Taken(lambda: Ask("user-1", "chat", {"rpm": 1}))]) -> None: ...

        with pytest.raises(ValidationError, match="add_middleware"):
            await call(app, "/")

    async def test_dependency_takes_for_every_method_of_its_route(self, limiter: RateLimiter):
        """The handler has a lease, whatever the method."""
        app = FastAPI()

        @app.api_route("/", methods=["GET", "HEAD", "OPTIONS"])
        async def root(lease: Annotated[Lease, Taken(lambda: Ask("user-1", "chat", {"rpm": 1}))]) -> None:
            lease.adjust(tpm=1)

        app.add_middleware(RateLimitMiddleware, limiter=limiter)

        assert [200, 200] == [(await call(app, "/", method)).status for method in ("HEAD", "OPTIONS")]
        assert {"rpm": 3, "tpm": 998} == await limiter.available("user-1", "chat")

    async def test_dependency_that_asks_for_nothing_injects_none(self, limiter: RateLimiter):
        """The request is not limited."""
        app = FastAPI()

        @app.get("/")
        async def root(lease: Annotated[Lease | None, Taken(lambda: None)]) -> bool:
            return lease is None

        app.add_middleware(RateLimitMiddleware, limiter=limiter)

        assert b"true" == (await call(app, "/")).body
        assert [] == await resources_of(limiter)


@get("/items/{item_id:int}")
async def litestar_item() -> str:
    return "ok"


@asgi("/mounted", is_mount=True, copy_scope=True)
async def litestar_mount(scope: Any, receive: Any, send: Any) -> None:
    await PlainTextResponse("ok")(scope, receive, send)


class TestLitestar:
    def app(self, limiter: Any, rules: Any = by_route) -> Litestar:
        middleware = DefineMiddleware(RateLimitMiddleware, limiter=limiter, rules=rules)
        return Litestar([litestar_item, litestar_mount], middleware=[middleware], openapi_config=None)

    async def test_template_names_the_resource(self, limiter: RateLimiter):
        """Litestar puts it into the scope."""
        app = self.app(limiter)

        assert [200] * 5 + [429] == [(await call(app, f"/items/{number}")).status for number in range(6)]
        assert ["items/:item_id"] == await resources_of(limiter)

    @pytest.mark.parametrize(("method", "path"), [("GET", "/none"), ("POST", "/items/1"), ("GET", "/items/x")])
    async def test_request_without_a_route_creates_no_bucket(self, limiter: RateLimiter, method: str, path: str):
        """Litestar calls no middleware for it."""
        assert (await call(self.app(limiter), path, method)).status in (404, 405)
        assert [] == await resources_of(limiter)

    async def test_mounted_application_asks_for_a_name(self, limiter: RateLimiter):
        """Litestar does not tell its template, and all mounts would share a bucket."""
        answer = await call(self.app(limiter), "/mounted/x")

        assert 500 == answer.status
        assert [] == await resources_of(limiter)

    async def test_store_that_the_middleware_would_open_is_refused(self):
        """Litestar makes a middleware for each route, and each would open a store that nothing closes."""
        answer = await call(self.app("memory://"), "/items/1")

        assert 500 == answer.status


class TestPlainAsgi:
    async def app(self, scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body"})

    async def test_rule_names_the_resource(self, limiter: RateLimiter):
        """There is no router to ask."""
        answer: Answer = await call(RateLimitMiddleware(self.app, limiter, by_name), "/anything")

        assert 200 == answer.status
        assert ["chat"] == await resources_of(limiter)

    async def test_rule_without_a_name_is_a_named_error(self, limiter: RateLimiter):
        """Paths are no names: each would have a bucket."""
        with pytest.raises(ValidationError, match="name it in Ask"):
            await call(RateLimitMiddleware(self.app, limiter, by_route), "/anything")

    async def test_rule_that_returns_none_leaves_the_request_unlimited(self, limiter: RateLimiter):
        """It creates no bucket, and the answer has no headers of limits."""
        answer = await call(RateLimitMiddleware(self.app, limiter, lambda request: None), "/anything")

        assert {} == answer.headers
        assert [] == await resources_of(limiter)

    async def test_rule_may_be_a_coroutine_function(self, limiter: RateLimiter):
        """It may look up a user, for example."""

        async def rules(request: Any) -> Ask:
            return by_name(request)

        assert "ratelimit" in (await call(RateLimitMiddleware(self.app, limiter, rules), "/x")).headers

    async def test_rule_that_returns_something_else_is_a_named_error(self, limiter: RateLimiter):
        """A tuple, for example."""
        with pytest.raises(ValidationError, match="must return an Ask, or None"):
            await call(RateLimitMiddleware(self.app, limiter, lambda request: ("user-1",)), "/x")  # type: ignore[arg-type, return-value]  # a mistake

    async def test_request_shows_headers_user_state_and_address(self, limiter: RateLimiter):
        """What a rule can decide by."""
        seen: dict[str, Any] = {}

        def rules(request: Any) -> None:
            seen.update(
                method=request.method,
                path=request.path,
                user=request.user,
                state=dict(request.state),
                joined=request.headers["x-many"],
                address=request.client_address(trusted_hops=1),
            )

        scope = http_scope("/x", "PUT", x_forwarded_for="6.6.6.6, 1.2.3.4")
        scope["headers"] += [(b"X-Many", b"a"), (b"x-many", b"b")]
        await call_in(RateLimitMiddleware(self.app, limiter, rules), {**scope, "user": "ada", "state": {"plan": "pro"}})

        assert seen == {
            "method": "PUT",
            "path": "/x",
            "user": "ada",
            "state": {"plan": "pro"},
            "joined": "a, b",
            "address": "1.2.3.4",
        }
