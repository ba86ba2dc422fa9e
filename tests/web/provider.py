"""A local provider for the SDKs of OpenAI and Anthropic. Its clock stands still, until a test moves it on."""

import json
from typing import Any

from zae_limiter import Limit, RateLimiter, Repository, usd
from zae_limiter.web import Ask
from zae_limiter.web.asgi import RateLimitMiddleware
from zae_limiter.web.asgi_request import AsgiRequest

# One request in 7.777 seconds, which is no whole number of milliseconds.
LIMITS = [
    Limit.custom("rpm", 3, 9, 70),
    Limit.custom("tpm", 1_000, 1_000, 60),
    Limit.quota("spend", usd("3"), every="hour", unit="USD"),
]

COMPLETION = {
    "id": "chatcmpl-1",
    "object": "chat.completion",
    "created": 1,
    "model": "local",
    "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "hello"}}],
}
MESSAGE = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "local",
    "content": [{"type": "text", "text": "hello"}],
    "stop_reason": "end_turn",
    "usage": {"input_tokens": 1, "output_tokens": 1},
}


class SettableClock:
    """A clock that a test moves on."""

    now = 1_750_000_000_000

    def now_ms(self) -> int:
        return self.now

    def monotonic_s(self) -> float:
        return self.now / 1000


clock = SettableClock()
limiter: RateLimiter


def rules(request: AsgiRequest) -> Ask | None:
    """Take one request, and the tokens and the dollars that headers name."""
    if request.path.startswith("/control/"):
        return None
    openai = request.path.startswith("/openai")
    key = request.headers.get("x-api-key") or request.headers["authorization"]
    entity = key.removeprefix("Bearer ")
    cost = int(request.headers.get("x-cost", 10))
    spend = usd(request.headers.get("x-spend", 0))
    consume = {"rpm": 1, "tpm": cost, "spend": spend}
    return Ask(entity, "chat", consume, headers="openai" if openai else "anthropic")


async def provider(scope: Any, receive: Any, send: Any) -> None:
    if scope["path"].startswith("/control/"):
        clock.now += int(scope["path"].rpartition("/")[2])
    body = json.dumps(COMPLETION if scope["path"].startswith("/openai") else MESSAGE).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def app(scope: Any, receive: Any, send: Any) -> None:
    """Serve both APIs, or run the lifespan."""
    if scope["type"] == "lifespan":
        await lifespan(receive, send)
    else:
        await limited(scope, receive, send)


async def lifespan(receive: Any, send: Any) -> None:
    global limiter
    await receive()
    limiter = RateLimiter(await Repository.open("memory://", clock=clock))
    await limiter.set_system_defaults(LIMITS)
    await send({"type": "lifespan.startup.complete"})
    await receive()
    await limiter.close()
    await send({"type": "lifespan.shutdown.complete"})


limited = RateLimitMiddleware(provider, lambda: limiter, rules)
