"""Routes are told apart by the literal begin of their paths, and the template found is that of the router."""

import re
from typing import Any

import pytest
from fastapi import APIRouter, FastAPI
from hypothesis import given
from hypothesis import strategies as st
from starlette.applications import Starlette
from starlette.routing import BaseRoute, Match, Mount, Route

from tests.web.asgi_calls import http_scope
from zae_limiter.web.asgi_request import NO_ROUTE, route_template


async def endpoint(request: Any) -> None:
    raise AssertionError("only the template is looked for")


class OtherRoute(Route):
    """A subclass may match by anything, so each of its routes is asked."""


class OtherMount(Mount):
    """The same for a mount."""


segments = st.sampled_from(["a", "b", "ab", "a.b", "{x}", "{y:int}", "{z:path}", "a{x}", ""])
paths = (
    st.lists(segments, max_size=3)
    .map(lambda found: "/" + "/".join(found))
    .filter(lambda path: len(names := re.findall(r"{(\w)", path)) == len(set(names)))
)
trees = st.recursive(
    paths.map(lambda path: (path, None)),
    lambda below: st.tuples(paths.map(lambda path: path.rstrip("/")), st.lists(below, max_size=3)),
    max_leaves=8,
)
requested = st.lists(st.sampled_from(["a", "b", "ab", "a.b", "axb", "1", "A", ""]), max_size=5)


def built(trees: list[Any], route: type[Route], mount: type[Mount]) -> list[BaseRoute]:
    return [
        route(path, endpoint) if below is None else mount(path, routes=built(below, route, mount))
        for path, below in trees
    ]


def template(app: Any, path: str, root_path: str = "") -> str | None:
    return route_template({**http_scope(path), "root_path": root_path}, app)


@given(st.lists(trees, max_size=5), requested, st.sampled_from(["", "/", "/a", "/a/b", "/A"]))
def test_template_is_that_of_a_search_without_literals(trees, parts, root_path):
    """A route that is skipped by mistake would leave its requests unlimited."""
    path = "/" + "/".join(parts)
    usual, asked = (Starlette(routes=built(trees, *kinds)) for kinds in ((Route, Mount), (OtherRoute, OtherMount)))

    assert template(asked, path, root_path) == template(usual, path, root_path)


def included(count: int) -> FastAPI:
    router, app = APIRouter(prefix="/v1"), FastAPI()
    for number in range(count):
        router.add_api_route(f"/r{number}/{{x}}", endpoint)
    app.include_router(router)
    return app


@pytest.mark.parametrize(
    ("app", "path", "found"),
    [
        (Starlette(routes=[Route(f"/r{number}/{{x}}", endpoint) for number in range(100)]), "/r57/1", "/r57/{x}"),
        (included(100), "/v1/r57/1", "/v1/r57/{x}"),
    ],
    ids=["routes", "included"],
)
def test_most_routes_are_not_matched(monkeypatch, app, path, found):
    """An application with hundreds of routes would otherwise pay for all of them with every request."""
    asked = []
    for kind in (Route, *{type(one) for router in app.routes for one in contexts(router)}):
        matches = kind.matches
        monkeypatch.setattr(kind, "matches", lambda *given, of=matches: asked.append(given) or of(*given))

    assert found == template(app, path)
    # Those whose paths begin alike: /r5/{x} and /r57/{x}.
    assert 1 <= len(asked) <= 4


def contexts(router: Any) -> list[Any]:
    return list(getattr(router, "effective_route_contexts", list)())


def test_route_that_is_added_later_is_found():
    """Applications add routes at any time."""
    app = Starlette(routes=[Route("/a", endpoint)])
    before = template(app, "/b")
    app.router.routes.append(Route("/b", endpoint))

    assert (NO_ROUTE, "/b") == (before, template(app, "/b"))


def test_route_that_matches_by_other_means_is_asked():
    """Its path says nothing about what it matches."""

    class AnyCase(Route):
        def matches(self, scope: Any) -> tuple[Match, Any]:
            return super().matches({**scope, "path": scope["path"].lower()})

    assert "/items/{x}" == template(Starlette(routes=[AnyCase("/items/{x}", endpoint)]), "/ITEMS/1")
