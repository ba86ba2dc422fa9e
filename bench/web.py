"""Measure what a limiter adds to a FastAPI request, beside its peers: CPU microseconds above the bare application.

    bench/.venv/bin/python bench/web.py --rounds 30        after bench/run has made the environment

Every application has two limits and one route, or ``--routes`` others before it. The last column shows how many headers
each adds to a response. fastapi-limiter can send none, so it is compared with a rule without dialects. Requests are
made in this process, without a socket, so that nothing but the application is measured. Rounds alternate, and a round
measures every application.
"""

import argparse
import asyncio
import gc
import statistics
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated, Any

from fastapi import Depends, FastAPI, Request, Response

from zae_limiter import Limit, RateLimiter, Repository
from zae_limiter.web.ask import Dialect
from zae_limiter.web.fastapi import Ask, Lease, RateLimitMiddleware, Taken

try:
    import slowapi
    from fastapi_limiter.depends import RateLimiter as FastapiLimiter
    from pyrate_limiter import Duration, Limiter, Rate
    from slowapi.errors import RateLimitExceeded
except ImportError:  # the peers are installed in bench/.venv alone
    slowapi = None

GOAL_US = 60
_NO_HEADERS = "zae-limiter, middleware, no headers"
LIMITS = [Limit.per_minute("rpm", 1_000_000), Limit.per_minute("tpm", 100_000_000)]
App = Callable[[Any, Any, Any], Awaitable[None]]


def bare() -> FastAPI:
    app = FastAPI()

    @app.get("/chat")
    async def chat(request: Request, response: Response) -> dict[str, str]:
        return {"answer": "hello"}

    return app


def ours_by_rules(limiter: RateLimiter, dialects: Dialect | Sequence[Dialect] = "ietf") -> FastAPI:
    app = bare()
    app.add_middleware(
        RateLimitMiddleware,
        limiter=limiter,
        rules=lambda request: Ask(request.headers["x-user"], "chat", {"rpm": 1, "tpm": 500}, headers=dialects),
    )
    return app


def ours_by_dependency(limiter: RateLimiter) -> FastAPI:
    app = FastAPI()
    app.add_middleware(RateLimitMiddleware, limiter=limiter)

    async def cost(request: Request) -> Ask:
        return Ask(request.headers["x-user"], "chat", {"rpm": 1, "tpm": 500})

    @app.get("/chat")
    async def chat(request: Request, lease: Annotated[Lease, Taken(cost)]) -> dict[str, str]:
        return {"answer": "hello"}

    return app


def with_slowapi() -> FastAPI:
    app = FastAPI()
    limiter = slowapi.Limiter(key_func=lambda request: request.headers["x-user"], headers_enabled=True)
    app.state.limiter = limiter
    app.add_exception_handler(RateLimitExceeded, slowapi._rate_limit_exceeded_handler)  # noqa: SLF001 - as its guide

    @app.get("/chat")
    @limiter.limit("1000000/minute")
    @limiter.limit("100000000/minute", cost=500)
    async def chat(request: Request, response: Response) -> dict[str, str]:
        return {"answer": "hello"}

    return app


def with_fastapi_limiter() -> FastAPI:
    app = FastAPI()

    async def user(request: Request) -> str:
        return request.headers["x-user"]

    limits = [Limiter(Rate(number, Duration.MINUTE)) for number in (1_000_000, 100_000_000)]

    @app.get("/chat", dependencies=[Depends(FastapiLimiter(one, identifier=user)) for one in limits])
    async def chat(request: Request, response: Response) -> dict[str, str]:
        return {"answer": "hello"}

    return app


def with_routes(app: FastAPI, count: int) -> FastAPI:
    """Add routes before those of an application, which every request has to pass."""

    async def other(number: int) -> int:
        return number

    found = list(app.router.routes)
    app.router.routes.clear()
    for number in range(count):
        app.add_api_route(f"/other-{number}/{{number}}", other)
    app.router.routes.extend(found)
    return app


async def requests(app: App, count: int) -> tuple[float, int]:
    """Make requests one after the other, and return the CPU microseconds of one, and the headers of its response."""
    statuses: list[int] = []
    sent: list[int] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            statuses.append(message["status"])
            sent.append(len(message["headers"]))

    headers = [(b"host", b"test"), (b"x-user", b"alice")]
    gc.collect()
    started = time.process_time_ns()
    for _ in range(count):
        scope = {
            "type": "http", "asgi": {"version": "3.0", "spec_version": "2.4"}, "http_version": "1.1", "method": "GET",
            "scheme": "http", "path": "/chat", "raw_path": b"/chat", "query_string": b"", "root_path": "",
            "headers": headers, "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 80),
        }  # fmt: skip
        await app(scope, receive, send)
    taken = time.process_time_ns() - started
    assert statuses == [200] * count, "every request is admitted"
    return taken / count / 1000, sent[-1]


async def measure(rounds: int, count: int, routes: int) -> tuple[dict[str, list[float]], dict[str, int]]:
    """Return the CPU microseconds of a request, per application and round, and the headers of a response."""
    async with await Repository.open("memory://") as repo:
        await repo.set_system_defaults(LIMITS)
        limiter = RateLimiter(repo)
        apps = {
            "bare FastAPI": bare(),
            "zae-limiter, middleware": ours_by_rules(limiter),
            _NO_HEADERS: ours_by_rules(limiter, dialects=()),
            "zae-limiter, dependency": ours_by_dependency(limiter),
        }
        if slowapi is not None:
            apps |= {"slowapi": with_slowapi(), "fastapi-limiter": with_fastapi_limiter()}
        for app in apps.values():
            with_routes(app, routes)
        found: dict[str, list[float]] = {name: [] for name in apps}
        headers = {name: (await requests(app, 50))[1] for name, app in apps.items()}
        for _ in range(rounds):
            for name, app in apps.items():
                found[name].append((await requests(app, count))[0])
        return found, headers


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--requests", type=int, default=300)
    parser.add_argument("--routes", type=int, default=0, help="other routes of every application")
    chosen = parser.parse_args()
    found, headers = asyncio.run(measure(chosen.rounds, chosen.requests, chosen.routes))
    base = found["bare FastAPI"]
    print(f"{'CPU us per request':36}{'minimum':>10}{'median':>10}{'above bare':>12}{'median above':>14}{'headers':>9}")
    for name, times in found.items():
        above = [one - bare_one for one, bare_one in zip(times, base, strict=True)]
        print(
            f"{name:36}{min(times):10.1f}{statistics.median(times):10.1f}"
            f"{min(times) - min(base):12.1f}{statistics.median(above):14.1f}"
            f"{headers[name] - headers['bare FastAPI']:9}"
        )
    added = min(found["zae-limiter, middleware"]) - min(base)
    verdict = "reached" if added <= GOAL_US else "missed"
    print(f"\nmiddleware: {added:.1f} us above bare, goal at most {GOAL_US}: {verdict}")
    for peer in ("slowapi", "fastapi-limiter"):
        if peer in found:
            # Compared like for like: with a peer that sends no headers, by the rule that sends none.
            silent = headers[peer] == headers["bare FastAPI"]
            ours = found[_NO_HEADERS if silent else "zae-limiter, middleware"]
            mine, theirs = min(ours) - min(base), min(found[peer]) - min(base)
            verdict = "ahead" if mine < theirs else "behind"
            kind = "sends no headers" if silent else "sends headers"
            print(f"{peer} {kind}: {theirs:.1f} us above bare; the middleware alike {mine:.1f}, so it is {verdict}")
        else:
            print(f"{peer}: not measured, because this environment lacks it; bench/run makes one that has it")


if __name__ == "__main__":
    main()
