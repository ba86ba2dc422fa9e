"""The Django middleware under ASGI: the handler of Django is called as a server calls it, with an async limiter."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.core.handlers.asgi import ASGIHandler
from django.test import AsyncClient, override_settings

from tests.web import django_ready, django_urls
from tests.web.sync_store import LIMITS, PER_CHUNK, StoppedClock, Store, fields
from zae_limiter import RateLimiter, Repository, ValidationError
from zae_limiter.web import Ask, django

NOTHING = {"rpm": 0, "tpm": 0}
ADJUSTED = {"rpm": 1, "tpm": 150}


class AsyncStore:
    """A limiter in memory with the limits of the sync tests."""

    def __init__(self, repository: Repository) -> None:
        self.repository = repository
        self.limiter = RateLimiter(repository)

    async def used(self, entity: str, resource: str) -> dict[str, int]:
        available = await self.limiter.available(entity, resource)
        return {limit.name: limit.capacity - available[limit.name] for limit in LIMITS}

    async def buckets(self, entity: str) -> list[str]:
        return sorted({bucket.resource for bucket in await self.repository.get_buckets(entity)})


@pytest.fixture
async def store() -> AsyncIterator[AsyncStore]:
    async with await Repository.open("memory://", clock=StoppedClock()) as repository:
        await repository.set_system_defaults(LIMITS)
        store = AsyncStore(repository)
        with override_settings(ZAE_LIMITER={"limiter": store.limiter, "rules": django_ready.RULES}):
            yield store


class Server:
    """Calls an ASGI application for one request, and counts what it sends; the test says when the client leaves."""

    def __init__(self, path: str, **headers: str) -> None:
        path, _, query = path.partition("?")
        raw = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
        self.scope = {"type": "http", "method": "GET", "path": path, "query_string": query.encode(), "headers": raw}
        self.sent: list[dict[str, Any]] = []
        self.left = asyncio.Event()
        self._asked = False
        self._leave_after = 0

    async def receive(self) -> dict[str, Any]:
        if not self._asked:
            self._asked = True
            return {"type": "http.request", "body": b"", "more_body": False}
        await self.left.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: dict[str, Any]) -> None:
        self.sent.append(message)
        if len(self.chunks) == self._leave_after > 0:
            # A server that has lost its client does not continue before its application has noticed.
            self.left.set()
            await asyncio.Event().wait()

    async def run(self, leave_after: int = 0) -> "Server":
        """Run the request; the client leaves after this many chunks, or stays if 0."""
        self._leave_after = leave_after
        await ASGIHandler()(self.scope, self.receive, self.send)
        return self

    async def fail(self, expected: type[Exception]) -> None:
        """Run a request that fails after the status was sent. Django then leaves the file of the body open."""
        with pytest.raises(expected) as failed:
            await self.run()
        traceback = failed.value.__traceback__
        while traceback is not None:
            if (body := traceback.tb_frame.f_locals.get("body_file")) is not None:
                body.close()
            traceback = traceback.tb_next

    @property
    def status(self) -> int:
        status: int = self.sent[0]["status"]
        return status

    @property
    def headers(self) -> dict[str, str]:
        return {name.decode(): value.decode() for name, value in self.sent[0]["headers"]}

    @property
    def chunks(self) -> list[bytes]:
        return [message["body"] for message in self.sent[1:] if message.get("body")]


class TestAnswers:
    async def test_admitted_request_reports_two_limits(self, store):
        """A rule that is not async runs in a thread, because it may query the database."""
        answer = await Server("/items/1", x_user="ann").run()

        assert (200, [b"1"]) == (answer.status, answer.chunks)
        assert [2, 900] == [fields(answer.headers)[name]["r"] for name in ("rpm", "tpm")]
        assert ["items/:item"] == await store.buckets("ann")

    async def test_async_rule_runs_on_the_event_loop(self, store):
        """No thread is needed."""
        loops = []

        async def rule(request):
            loops.append(asyncio.get_running_loop())
            return Ask("user-1", None, {"rpm": 1})

        with override_settings(ZAE_LIMITER={"limiter": store.limiter, "rules": rule}):
            await Server("/items/1").run()

        assert [asyncio.get_running_loop()] == loops
        assert {"rpm": 1, "tpm": 0} == await store.used("user-1", "items/:item")

    async def test_rejected_request_reports_every_limit(self, store):
        """The view does not run."""
        for _ in range(3):
            await Server("/items/1").run()

        answer = await Server("/items/1").run()
        problem = json.loads(answer.chunks[0])

        assert 429 == answer.status
        assert [0, 700] == [fields(answer.headers)[name]["r"] for name in ("rpm", "tpm")]
        assert ["rpm", "tpm"] == [limit["limit"] for limit in problem["limits"]]

    async def test_error_of_the_limiter_in_a_view_is_answered_and_gives_back(self, store):
        """For example from ``lease.consume``."""
        answer = await Server("/more-async").run()

        assert 429 == answer.status
        assert NOTHING == await store.used("user-1", "more-async")

    @pytest.mark.parametrize(("path", "status"), [("/unknown", 404), ("/drf/unknown", 404)])
    async def test_unknown_path_creates_no_bucket(self, store, path, status):
        """A scanner could otherwise create any number of them."""
        assert status == (await Server(path).run()).status
        assert [] == await store.buckets("user-1")


class TestLease:
    @pytest.mark.parametrize("path", ["/adjust", "/adjust-async", "/file"])
    async def test_lease_is_settled_when_the_response_is_closed(self, store, path, recwarn):
        """Sync views may adjust the async lease too: awaiting is optional. Django warns of files, which are sync."""
        await Server(path).run()

        assert {"rpm": 1, "tpm": 150} == await store.used("user-1", path.strip("/"))

    async def test_stream_is_charged_for_what_it_produced(self, store):
        """The lease is held until the last chunk."""
        answer = await Server("/stream-async?chunks=3").run()

        assert 3 == len(answer.chunks)
        assert {"rpm": 1, "tpm": 3 * PER_CHUNK} == await store.used("user-1", "stream-async")

    @pytest.mark.parametrize(
        "middleware", [[], ["django.middleware.gzip.GZipMiddleware"], ["tests.web.django_urls.only_sync"]]
    )
    async def test_client_that_disconnects_in_mid_stream_is_charged_for_what_was_used(self, store, middleware):
        """The generator is closed first, also inside that of other middleware, and settles what it has produced.

        Above sync middleware, the limiter is sync too, and runs in a thread.
        """
        mirrored = await sync_to_async(Store)() if "only_sync" in str(middleware) else None
        limiter = store.limiter if mirrored is None else mirrored.limiter
        first = ["zae_limiter.web.django.RateLimitMiddleware", *middleware, "tests.web.django_urls.authenticated"]
        with override_settings(MIDDLEWARE=first, ZAE_LIMITER={"limiter": limiter, "rules": django_ready.RULES}):
            await Server("/stream-either?chunks=100", accept_encoding="gzip").run(leave_after=2)
        used = (
            await store.used("user-1", "stream-either")
            if mirrored is None
            else mirrored.used("user-1", "stream-either")
        )

        assert {"rpm": 1, "tpm": 2 * PER_CHUNK} == used

    @pytest.mark.parametrize("middleware", [[], ["tests.web.django_urls.only_sync"]], ids=["async", "sync"])
    @pytest.mark.parametrize(
        ("path", "used"),
        [
            ("stream-fail", NOTHING),
            ("stream-fail-async", NOTHING),
            ("stream-fail-async?chunks=1", {"rpm": 1, "tpm": 150}),
        ],
    )
    @pytest.mark.filterwarnings("ignore:StreamingHttpResponse must consume")
    async def test_stream_that_fails_is_charged_from_its_first_chunk_on(self, store, path, used, middleware):
        """The status was sent before. Django does not close the response, and its adjustments are written."""
        mirrored = await sync_to_async(Store)() if middleware else None
        limiter = store.limiter if mirrored is None else mirrored.limiter
        first = ["zae_limiter.web.django.RateLimitMiddleware", *middleware, "tests.web.django_urls.authenticated"]
        with override_settings(MIDDLEWARE=first, ZAE_LIMITER={"limiter": limiter, "rules": django_ready.RULES}):
            server = Server(f"/{path}")
            await server.fail(ZeroDivisionError)
        resource = path.partition("?")[0]

        assert used == (await store.used("user-1", resource) if mirrored is None else mirrored.used("user-1", resource))

    async def test_client_that_disconnects_before_the_answer_is_charged(self, store):
        """Django cancels the view, and what it has used is charged."""
        server = Server("/wait")
        django_urls.waiting = asyncio.Event()
        running = asyncio.create_task(server.run())
        await django_urls.waiting.wait()
        server.left.set()
        await running

        assert [] == server.sent
        assert {"rpm": 1, "tpm": 150} == await store.used("user-1", "wait")

    async def test_view_that_raises_gives_back(self, store):
        """Django answers 500."""
        assert 500 == (await Server("/fail").run()).status
        assert NOTHING == await store.used("user-1", "fail")

    async def test_response_that_is_closed_on_the_event_loop_settles(self, store):
        """Django's own test client does this with streams."""
        answer = await AsyncClient().get("/stream-async?chunks=3")
        chunks = [chunk async for chunk in answer.streaming_content]
        await asyncio.gather(*django._ending)

        assert 3 == len(chunks)
        assert {"rpm": 1, "tpm": 3 * PER_CHUNK} == await store.used("user-1", "stream-async")


def test_sync_limiter_under_asgi_is_a_named_error():
    """Its acquire would block the event loop."""
    with override_settings(ZAE_LIMITER={"limiter": Store().limiter}), pytest.raises(ValidationError, match="is sync"):
        ASGIHandler()
