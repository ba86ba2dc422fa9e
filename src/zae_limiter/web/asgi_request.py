"""Show a scope of ASGI as a request, and find the template of its route."""

import re
from collections.abc import Iterable, Mapping, MutableMapping
from typing import Any, Final, NamedTuple

from zae_limiter.web.addresses import client_address

NO_ROUTE: Final = "\0"
"""The template of a request that no route of the application matches."""

_FULL_MATCH = 2
_MATCHED_BY_REGEX = frozenset(
    {
        *(("starlette.routing", name) for name in ("Route", "WebSocketRoute", "Mount")),
        *(("fastapi.routing", name) for name in ("APIRoute", "APIWebSocketRoute", "_EffectiveRouteContext")),
    }
)
"""The classes of routes that match by ``path_regex``. A subclass may match by anything."""
_MOST_OWNERS = 256


class AsgiRequest:
    """A request as a rule sees it. The body has not been received."""

    __slots__ = ("_headers", "scope")

    def __init__(self, scope: Mapping[str, Any]) -> None:
        self.scope = scope
        self._headers: dict[str, str] | None = None

    @property
    def method(self) -> str:
        """The method; ``WEBSOCKET`` for a websocket."""
        method: str = self.scope.get("method", "WEBSOCKET")
        return method

    @property
    def path(self) -> str:
        """The path, without the query."""
        path: str = self.scope["path"]
        return path

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers, by their names in lower case; values of the same name are joined with commas."""
        if self._headers is None:
            headers: dict[str, str] = {}
            for raw_name, raw_value in self.scope["headers"]:
                name, value = raw_name.decode("latin-1").lower(), raw_value.decode("latin-1")
                headers[name] = f"{headers[name]}, {value}" if name in headers else value
            self._headers = headers
        return self._headers

    @property
    def state(self) -> MutableMapping[str, Any]:
        """What other middleware stored for this request."""
        state: MutableMapping[str, Any] = self.scope.get("state") or {}
        return state

    @property
    def user(self) -> Any:
        """The user whom an authentication middleware has found; None without one."""
        return self.scope.get("user")

    def client_address(self, *, trusted_hops: int = 0, ipv6_prefix: int = 64) -> str:
        """Return the address of the client as an entity id; see ``zae_limiter.web.client_address``."""
        peer = self.scope.get("client")
        forwarded = self.headers.get("x-forwarded-for")
        return client_address(peer[0] if peer else None, forwarded, trusted_hops=trusted_hops, ipv6_prefix=ipv6_prefix)


class _Matched(NamedTuple):
    """A route that matches: its path, None if it has none, and what it calls."""

    path: str | None
    endpoint: Any


_NOTHING_BELOW = _Matched(NO_ROUTE, None)


def route_template(scope: Mapping[str, Any], wrapped: Any = None) -> str | None:
    """Return the template of the route that matches; ``NO_ROUTE`` if none does, None if the router is unknown.

    Litestar puts the template into the scope. For Starlette and FastAPI, the routes of the application are asked.
    ``wrapped`` is the application if the scope names none, because the middleware is outside of it.
    """
    # It is empty for an application that is mounted in Litestar.
    known = scope.get("path_template")
    if known:
        return str(known)
    app = scope.get("app", wrapped)
    routes = getattr(getattr(app, "router", None), "routes", None)
    if routes is None:
        return None
    routed = scope.get("endpoint")
    if routed is None or routed is app:
        return _joined(_matching(routes, scope))
    # The middleware belongs to a mount or to a route, and so the application has routed the request already. It was
    # called with a shorter root path, and its routes must lead to where the request is.
    for root_path in _prefixes(scope.get("root_path", "")):
        chain = _matching(routes, {**scope, "root_path": root_path})
        if any(one.endpoint is routed for one in chain):
            return _joined(chain)
    return _joined(_matching(routes, scope))


def _matching(routes: Iterable[Any], scope: Mapping[str, Any], owner: object = None) -> list[_Matched]:
    """Return the routes that match, from the outermost to the innermost; nothing if none does.

    ``owner`` has made the routes; None if they are themselves what stays the same between two requests.
    """
    path, known = scope["path"], list(routes)
    for route, literal in zip(known, _literals_of(known, routes if owner is None else owner), strict=True):
        if literal not in path:
            continue
        included = getattr(route, "effective_route_contexts", None)
        if included is not None:
            # FastAPI keeps an included router as one route. These are its routes, with their whole paths.
            chain = _matching(included(), scope, route)
            if chain:
                return chain
            continue
        match, child = route.matches(scope)
        if match.value == _FULL_MATCH:
            shown = getattr(route, "starlette_route", None) or route
            matched = _Matched(getattr(shown, "path", getattr(shown, "host", None)), child.get("endpoint"))
            # A mounted application without routes of its own, such as static files, ends the template.
            below = getattr(shown, "routes", None)
            return [matched, *(_matching(below, {**scope, **child}) or [_NOTHING_BELOW])] if below else [matched]
    return []


_literals: dict[int, tuple[list[Any], list[str]]] = {}
"""What ``_literals_of`` found, by the ids of owners; the routes are those of then."""


def _literals_of(routes: list[Any], owner: object) -> list[str]:
    """Return a text for each route that is part of every path that it matches; empty if unknown.

    It tells most routes apart without a regular expression, so that many routes cost little.
    """
    found = _literals.get(id(owner))
    # An application may add routes at any time, and an id may be that of another owner by now.
    if found is None or found[0] != routes:
        if len(_literals) >= _MOST_OWNERS:
            _literals.clear()
        found = _literals[id(owner)] = routes, [_literal_of(route) for route in routes]
    return found[1]


def _literal_of(route: Any) -> str:
    kind = type(route)
    if (kind.__module__, kind.__qualname__) not in _MATCHED_BY_REGEX:
        return ""
    shown = getattr(route, "starlette_route", None) or route
    path, pattern = getattr(shown, "path", None), getattr(shown, "path_regex", None)
    if not isinstance(path, str) or not isinstance(pattern, re.Pattern) or pattern.flags & re.IGNORECASE:
        return ""
    # The path below a mount is the end of a path, whatever a version of Starlette takes for its root.
    literal = path.partition("{")[0]
    return literal if pattern.pattern.startswith(f"^{re.escape(literal)}") else ""


def _joined(chain: list[_Matched]) -> str | None:
    if not chain or chain[-1] is _NOTHING_BELOW:
        return NO_ROUTE
    paths = [one.path for one in chain if one.path is not None]
    return "".join(paths) if len(paths) == len(chain) else None


def _prefixes(root_path: str) -> Iterable[str]:
    """Return a path and all above it, the longest first."""
    while root_path:
        yield root_path
        root_path = root_path.rpartition("/")[0]
    yield ""
