"""Where a middleware gets its limiter from: given, from a function, or opened and closed with the application."""

import asyncio
import socket
import sqlite3
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from tests.web.asgi_calls import LIMITS, by_name, call, memory_limiter
from zae_limiter import (
    Also,
    RateLimiter,
    RateLimiterUnavailable,
    Repository,
    SyncRateLimiter,
    SyncRepository,
    ValidationError,
)
from zae_limiter.web import Ask
from zae_limiter.web.asgi import RateLimitMiddleware
from zae_limiter.web.limiters import AsyncSource, SyncSource


async def consumed(request: Request) -> JSONResponse:
    lease = request.state.lease
    lease.adjust(tpm=5)
    return JSONResponse({"consumed": lease.consumed, "degraded": lease.degraded})


def app(limiter: Any, rules: Any = by_name, lifespan: Any = None) -> Starlette:
    middleware = [Middleware(RateLimitMiddleware, limiter=limiter, rules=rules)]
    return Starlette(routes=[Route("/", consumed)], middleware=middleware, lifespan=lifespan)


def with_limits(**options: Any) -> Any:
    return lambda request: Ask("user-1", "chat", {"rpm": 1, "tpm": 10}, LIMITS, **options)


@asynccontextmanager
async def running(served: Any) -> AsyncIterator[list[str]]:
    """Run the lifespan of an application, as a server does, and return the messages that it sends."""
    inbox: asyncio.Queue[dict[str, str]] = asyncio.Queue()
    sent: list[str] = []
    started = asyncio.Event()

    async def send(message: dict[str, str]) -> None:
        sent.append(message["type"])
        started.set()

    task = asyncio.create_task(served({"type": "lifespan", "asgi": {}, "state": {}}, inbox.get, send))
    inbox.put_nowait({"type": "lifespan.startup"})
    await started.wait()
    yield sent
    inbox.put_nowait({"type": "lifespan.shutdown"})
    await task


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'limits.db'}"


@pytest.fixture
def unavailable_url(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A store at a port that refuses connections, because nothing listens on it."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
    with closing(socket.socket()) as bound:
        bound.bind(("127.0.0.1", 0))
        yield f"dynamodb://limits?region=us-east-1&endpoint_url=http://127.0.0.1:{bound.getsockname()[1]}"


def opened(served: Starlette) -> RateLimiter | None:
    """Return the limiter that the middleware of an application has opened."""
    middleware: Any = served.middleware_stack
    while not isinstance(middleware, RateLimitMiddleware):
        middleware = middleware.app
    return middleware._source._opened


class TestLifespan:
    async def test_store_is_opened_before_the_first_request_and_closed_at_the_end(self, url: str):
        """A server that reports that it is ready has its store."""
        served = app(url, with_limits())

        async with running(served) as sent:
            assert ["lifespan.startup.complete"] == sent
            limiter = opened(served)
            assert limiter is not None
            assert await limiter.is_available()
            assert 200 == (await call(served, "/")).status

        assert ["lifespan.startup.complete", "lifespan.shutdown.complete"] == sent
        assert opened(served) is None
        assert not await limiter.is_available()

    async def test_lifespan_of_the_application_runs_as_before(self, url: str):
        """It ends while the store is still open, so that it may use it."""
        events = []

        @asynccontextmanager
        async def lifespan(served: Starlette) -> AsyncIterator[None]:
            events.append("begin")
            yield
            limiter = opened(served)
            events.append("end with store" if limiter and await limiter.is_available() else "end")

        async with running(app(url, with_limits(), lifespan)):
            assert ["begin"] == events

        assert ["begin", "end with store"] == events

    async def test_url_that_is_invalid_fails_the_start(self):
        """A server reports it, and does not begin to serve."""
        served = app("nonsense://")

        with pytest.raises(ValidationError, match="nonsense"):
            async with running(served) as sent:
                assert ["lifespan.startup.failed"] == sent

    async def test_application_without_lifespan_opens_the_store_with_the_first_request(self, url: str):
        """Some servers and frameworks have none."""
        served = app(url, with_limits())

        assert 200 == (await call(served, "/")).status
        limiter = opened(served)
        assert limiter is not None
        await limiter.close()

    async def test_limiter_that_is_given_stays_open(self):
        """It belongs to the caller."""
        limiter = await memory_limiter()

        async with running(app(limiter)):
            pass

        assert await limiter.is_available()

    async def test_function_returns_the_limiter_for_each_request(self):
        """It may be opened in the lifespan of the application, after the middleware was made."""
        made: dict[str, RateLimiter] = {}
        served = app(lambda: made["limiter"])
        made["limiter"] = await memory_limiter()

        assert 200 == (await call(served, "/")).status

    async def test_sync_limiter_is_a_named_error(self):
        """It would block the loop."""
        with SyncRepository.open("memory://") as repository, pytest.raises(ValidationError, match="is sync"):
            AsyncSource(SyncRateLimiter(repository))  # type: ignore[arg-type]  # a mistake

    async def test_async_limiter_in_a_sync_application_is_a_named_error(self):
        """The other way round."""
        with pytest.raises(ValidationError, match="is async"):
            SyncSource(await memory_limiter())  # type: ignore[arg-type]  # a mistake


class TestUnavailable:
    async def test_store_that_cannot_be_opened_starts_the_server_and_is_answered_with_503(self, unavailable_url: str):
        """It may come back; each request tries again."""
        served = app(unavailable_url, with_limits())

        async with running(served) as sent:
            assert ["lifespan.startup.complete"] == sent
            answer = await call(served, "/")

        assert 503 == answer.status
        assert "1" == answer.headers["retry-after"]

    async def test_rule_that_allows_passes_if_the_store_cannot_be_opened(self, unavailable_url: str):
        """The handler has a lease, which is degraded and accepts adjustments."""
        answer = await call(app(unavailable_url, with_limits(on_unavailable="allow")), "/")

        assert 200 == answer.status
        assert {"consumed": {"rpm": 1, "tpm": 15}, "degraded": True} == answer.problem
        assert "ratelimit" not in answer.headers

    @pytest.mark.parametrize(("on_unavailable", "status"), [("block", 503), ("allow", 200)])
    async def test_request_of_several_entities_follows_the_rule_if_the_store_cannot_be_opened(
        self, unavailable_url: str, on_unavailable: str, status: int
    ):
        """The parts of the lease exist, and are degraded too."""
        rules = with_limits(on_unavailable=on_unavailable, also=[Also("tool", "search", {"rpm": 2})])
        parts = []

        async def route(request: Request) -> JSONResponse:
            parts.extend((part.consumed, part.degraded) for part in request.state.lease.also)
            return JSONResponse({})

        middleware = [Middleware(RateLimitMiddleware, limiter=unavailable_url, rules=rules)]
        answer = await call(Starlette(routes=[Route("/", route)], middleware=middleware), "/")

        assert status == answer.status
        assert parts == ([({"rpm": 2}, True)] if status == 200 else [])

    async def test_store_that_fails_later_follows_the_rule(self, tmp_path: Path):
        """``block`` is answered with 503, and ``allow`` passes."""
        path = tmp_path / "limits.db"
        async with await Repository.open(f"sqlite:///{path}", deadline_s=0.1) as repository:
            limiter = RateLimiter(repository)
            await limiter.set_system_defaults(LIMITS)
            assert 200 == (await call(app(limiter), "/")).status
            with closing(sqlite3.connect(path, isolation_level=None)) as holder:
                holder.execute("BEGIN EXCLUSIVE")
                blocked = await call(app(limiter, with_limits(on_unavailable="block")), "/")
                allowed = await call(app(limiter, with_limits(on_unavailable="allow")), "/")

        assert [503, 200] == [blocked.status, allowed.status]
        assert allowed.problem["degraded"]

    async def test_requests_that_wait_for_the_store_share_one_attempt(self, unavailable_url: str):
        """In turn, the last of them would wait for as many deadlines."""
        source = AsyncSource(unavailable_url)

        failures = await asyncio.gather(*[source.get() for _ in range(20)], return_exceptions=True)

        assert 1 == len({id(failure) for failure in failures})
        assert isinstance(failures[0], RateLimiterUnavailable)

    async def test_request_that_is_cancelled_leaves_the_attempt_to_the_others(self, url: str):
        """The store is opened once."""
        source = AsyncSource(url)
        one, other = asyncio.create_task(source.get()), asyncio.create_task(source.get())
        await asyncio.sleep(0)
        one.cancel()

        assert await other is await source.get()
        assert one.cancelled()
        await source.stop()

    def test_threads_that_wait_for_the_store_share_one_attempt(self, unavailable_url: str):
        """The same for sync applications."""
        source = SyncSource(unavailable_url)

        def failure(_: int) -> BaseException:
            with pytest.raises(RateLimiterUnavailable) as caught:
                source.get()
            return caught.value

        with ThreadPoolExecutor(4) as pool:
            failures = list(pool.map(failure, range(4)))

        assert len({id(one) for one in failures}) < 4

    def test_sync_rule_that_allows_passes_if_the_store_cannot_be_opened(self, unavailable_url: str):
        """The lease is degraded."""
        source = SyncSource(unavailable_url)

        also = [Also("tool", "search", {"rpm": 2})]
        with source.lease(with_limits(on_unavailable="allow")(None), "chat") as lease:
            lease.adjust(tpm=5)
        with source.lease(with_limits(on_unavailable="allow", also=also)(None), "chat") as several:
            several.also[0].adjust(rpm=5)

        assert lease.degraded
        assert several.also[0].degraded
