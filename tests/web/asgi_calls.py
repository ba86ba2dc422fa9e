"""Call ASGI applications in this process, as a server would, and keep what they answer."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from tests.web.reported import check_headers
from zae_limiter import Limit, RateLimiter, Repository
from zae_limiter.web import Ask
from zae_limiter.web.asgi_request import AsgiRequest

# One token per day, so that no test sees a refill.
LIMITS = [Limit.custom("rpm", 5, 1, 86_400), Limit.custom("tpm", 1_000, 1, 86_400)]


@dataclass
class Answer:
    """What an application has sent."""

    messages: list[dict[str, Any]] = field(default_factory=list)

    @property
    def status(self) -> int:
        return int(self.messages[0]["status"])

    @property
    def headers(self) -> dict[str, str]:
        pairs = [(name.decode(), value.decode()) for name, value in self.messages[0].get("headers", ())]
        return check_headers(pairs)

    @property
    def body(self) -> bytes:
        return b"".join(message.get("body", b"") for message in self.messages[1:])

    @property
    def problem(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.body)
        return found


def http_scope(path: str, method: str = "GET", **headers: str) -> dict[str, Any]:
    """Return a new scope of a request; underscores in names of headers become hyphens."""
    raw = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": "",
        "headers": [(b"host", b"api.test"), *raw],
        "client": ("127.0.0.1", 1234),
        "server": ("127.0.0.1", 80),
        "state": {},
        "extensions": {},
    }


async def forever() -> dict[str, Any]:
    """Receive nothing more."""
    await asyncio.Event().wait()
    raise AssertionError("an event that nothing sets")


async def call(app: Any, path: str, method: str = "GET", **headers: str) -> Answer:
    """Send a request with an empty body, and return the answer."""
    return await call_in(app, http_scope(path, method, **headers))


async def call_in(app: Any, scope: dict[str, Any], receive: Callable[[], Awaitable[Any]] | None = None) -> Answer:
    """Call an application with a scope."""
    answer, requests = Answer(), [{"type": "http.request", "body": b"", "more_body": False}]

    async def receive_once() -> dict[str, Any]:
        return requests.pop() if requests else await forever()

    async def send(message: dict[str, Any]) -> None:
        answer.messages.append(message)

    await app(scope, receive or receive_once, send)
    return answer


async def memory_limiter() -> RateLimiter:
    """Return a limiter in memory, with limits that do not refill while a test runs."""
    limiter = RateLimiter(await Repository.open("memory://"))
    await limiter.set_system_defaults(LIMITS)
    return limiter


def by_route(request: AsgiRequest) -> Ask:
    """Take one request and ten tokens; the route names the resource."""
    return Ask("user-1", None, {"rpm": 1, "tpm": 10})


def by_name(request: AsgiRequest) -> Ask:
    """Take one request and ten tokens of a named resource."""
    return Ask("user-1", "chat", {"rpm": 1, "tpm": 10})


async def resources_of(limiter: RateLimiter, entity_id: str = "user-1") -> list[str]:
    """Return the resources that an entity has buckets of."""
    return sorted({bucket.resource for bucket in await limiter.get_buckets(entity_id)})
