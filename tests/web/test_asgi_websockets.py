"""Websockets: one lease for a connection, and a rejection as a response or as a close code."""

from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.routing import WebSocketRoute
from starlette.websockets import WebSocket

from tests.web.asgi_calls import by_name, http_scope, memory_limiter, resources_of
from tests.web.reported import check_headers
from zae_limiter import RateLimiter
from zae_limiter.web import Ask
from zae_limiter.web.asgi import RateLimitMiddleware
from zae_limiter.web.asgi_request import AsgiRequest

DENIAL = {"websocket.http.response": {}}


@pytest.fixture
async def limiter() -> RateLimiter:
    return await memory_limiter()


async def connect(app: Any, *texts: str, extensions: dict[str, Any] | None = None) -> list[dict[str, Any]]:
    """Connect, send texts, disconnect, and return what the application has sent."""
    scope = {**http_scope("/ws"), "type": "websocket", "subprotocols": [], "extensions": extensions or {}}
    del scope["method"]
    inbox = [{"type": "websocket.connect"}, *({"type": "websocket.receive", "text": text} for text in texts)]
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return inbox.pop(0) if inbox else {"type": "websocket.disconnect", "code": 1000}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    await app(scope, receive, send)
    return sent


async def echo(websocket: WebSocket) -> None:
    await websocket.accept()
    async for text in websocket.iter_text():
        await websocket.state.lease.consume(tpm=len(text))
        await websocket.send_text(text)


def app(limiter: RateLimiter, rules: Any = by_name) -> Starlette:
    middleware = [Middleware(RateLimitMiddleware, limiter=limiter, rules=rules)]
    return Starlette(routes=[WebSocketRoute("/ws", echo)], middleware=middleware)


async def test_connection_holds_one_lease_and_takes_more_for_each_message(limiter: RateLimiter):
    """It is charged when the client has disconnected."""
    sent = await connect(app(limiter), "a" * 100, "b" * 200)

    assert ["websocket.accept", "websocket.send", "websocket.send"] == [message["type"] for message in sent]
    assert '"rpm";r=4' in check_headers([(a.decode(), b.decode()) for a, b in sent[0]["headers"]])["ratelimit"]
    assert {"rpm": 4, "tpm": 690} == await limiter.available("user-1", "chat")


async def test_message_beyond_a_limit_closes_the_connection_and_keeps_the_charge(limiter: RateLimiter):
    """1013 is "try again later"; the error is not one of the server."""
    sent = await connect(app(limiter), "a" * 900, "b" * 200)

    assert {"type": "websocket.close", "code": 1013, "reason": "Too Many Requests"} == sent[-1]
    assert {"rpm": 4, "tpm": 90} == await limiter.available("user-1", "chat")


async def test_message_larger_than_a_capacity_closes_the_connection_as_too_big(limiter: RateLimiter):
    """1009 is "message too big": no wait helps."""
    assert 1009 == (await connect(app(limiter), "a" * 1_001))[-1]["code"]


async def test_rejected_connection_is_answered_with_429_if_the_server_can(limiter: RateLimiter):
    """The denial response of ASGI has status, headers and problem details."""
    for _ in range(5):
        await connect(app(limiter))

    start, body = await connect(app(limiter), extensions=DENIAL)

    assert ("websocket.http.response.start", 429) == (start["type"], start["status"])
    assert "retry-after-ms" in check_headers([(a.decode(), b.decode()) for a, b in start["headers"]])
    assert b"violated-policies" in body["body"]


async def test_rejected_connection_is_closed_if_the_server_has_no_denial_response(limiter: RateLimiter):
    """The server then answers 403."""
    for _ in range(5):
        await connect(app(limiter))

    assert [{"type": "websocket.close", "code": 1013, "reason": "Too Many Requests"}] == await connect(app(limiter))


@pytest.mark.parametrize("extensions", [DENIAL, None], ids=["denial response", "close"])
async def test_connection_of_a_blocked_entity_is_refused(limiter: RateLimiter, extensions: dict[str, Any] | None):
    """With 403 and the reason if the server can send them; 1008 is "policy violation"."""
    await limiter.create_entity("user-1")
    await limiter.block_entity("user-1", reason="unpaid")

    first, *rest = await connect(app(limiter), extensions=extensions)

    if extensions is None:
        assert {"type": "websocket.close", "code": 1008, "reason": "Forbidden"} == first
        assert [] == rest
    else:
        assert ("websocket.http.response.start", 403) == (first["type"], first["status"])
        assert b'"reason":"unpaid"' in rest[0]["body"]


async def test_message_of_an_entity_that_was_blocked_meanwhile_closes_the_connection(limiter: RateLimiter):
    """Each message takes more, so a block ends open connections."""

    async def blocking(websocket: WebSocket) -> None:
        await websocket.accept()
        await limiter.create_entity("user-1")
        await limiter.block_entity("user-1")
        await websocket.state.lease.consume(tpm=1)

    limited = app(limiter)
    limited.router.routes[:] = [WebSocketRoute("/ws", blocking)]

    assert {"type": "websocket.close", "code": 1008, "reason": "Forbidden"} == (await connect(limited))[-1]


async def test_connection_without_a_route_creates_no_bucket(limiter: RateLimiter):
    """Only the path of a websocket route matches."""
    limited = app(limiter, lambda _: Ask("user-1", None, {"rpm": 1}))
    limited.router.routes.clear()

    await connect(limited)

    assert [] == await resources_of(limiter)


async def test_rule_sees_the_method_of_a_websocket(limiter: RateLimiter):
    """It has no method of HTTP."""
    seen: list[str] = []

    def rules(request: AsgiRequest) -> None:
        seen.append(request.method)

    await connect(app(limiter, rules))

    assert ["WEBSOCKET"] == seen


async def test_connection_that_the_application_has_closed_is_not_closed_again(limiter: RateLimiter):
    """A server raises if a message follows the close."""

    async def closing(websocket: WebSocket) -> None:
        await websocket.accept()
        await websocket.close(1000)
        await websocket.state.lease.consume(tpm=999)

    limited = app(limiter)
    limited.router.routes[:] = [WebSocketRoute("/ws", closing)]

    assert ["websocket.accept", "websocket.close"] == [message["type"] for message in await connect(limited)]
