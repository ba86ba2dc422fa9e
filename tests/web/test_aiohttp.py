"""Requests of an aiohttp application take, are refused, report their limits, and settle."""

import asyncio
import subprocess
import sys

import pytest
from aiohttp import web

from tests._async.clients import FailingTable, another
from tests.web.aiohttp_server import chat, opened, serving
from tests.web.reported import check_headers
from zae_limiter import Limit, RateLimiter, Repository, SyncRateLimiter, SyncRepository, ValidationError
from zae_limiter.web.aiohttp import LEASE, Ask, setup


@pytest.fixture
async def limiter():
    async with opened() as one:
        yield one


async def answer(request):
    return web.Response(text="hello")


def application(limiter, rules=chat, handler=answer, **options):
    app = web.Application()
    app.router.add_get("/", handler)
    app.router.add_get("/items/{item_id}", handler)
    app.router.add_post("/items", handler)
    setup(app, limiter, rules, **options)
    return app


class TestAdmitted:
    async def test_response_reports_the_limits(self, limiter):
        """In the dialect of the rule, without another call."""

        def rules(request):
            return Ask("user-1", "chat", {"rpm": 1, "tpm": 500}, headers=["ietf", "openai", "anthropic"])

        async with serving(application(limiter, rules)) as client, client.get("/") as response:
            headers = check_headers(response.headers.items())

        assert 200 == response.status
        assert headers["ratelimit"].startswith('"rpm";r=9;')
        assert ("9", "500") == (headers["x-ratelimit-remaining-requests"], headers["x-ratelimit-remaining-tokens"])
        assert "9" == headers["anthropic-ratelimit-requests-remaining"]

    async def test_headers_of_another_server_are_replaced(self, limiter):
        """A gateway may copy the headers of its provider, and a client must not read two."""

        async def gateway(request):
            return web.Response(headers={"RateLimit": '"theirs";r=1', "RateLimit-Policy": '"theirs";q=1;w=1'})

        async with serving(application(limiter, handler=gateway)) as client, client.get("/") as response:
            headers = check_headers(response.headers.items())

        assert "theirs" not in headers["ratelimit"]

    async def test_lease_is_part_of_the_request(self, limiter):
        """By its name, and by a typed key."""

        async def handler(request):
            request["lease"].adjust(tpm=-400)
            return web.json_response(request[LEASE].consumed)

        async with serving(application(limiter, handler=handler)) as client, client.get("/") as response:
            assert {"rpm": 1, "tpm": 100} == await response.json()
        assert {"rpm": 9, "tpm": 900} == await limiter.available("user-1", "chat")

    async def test_resource_is_the_template_of_the_route(self, limiter):
        """Not the path, which would be a bucket per item."""

        async def handler(request):
            return web.Response(text=request["lease"].resource)

        async with serving(application(limiter, lambda request: Ask("user-1", None, {"rpm": 1}), handler)) as client:
            found = [await (await client.get(path)).text() for path in ("/", "/items/1", "/items/2")]

        assert ["root", "items/:item_id", "items/:item_id"] == found

    async def test_resource_of_a_nested_application_has_its_prefix(self, limiter):
        """Also if the nested application is the limited one."""

        async def handler(request):
            return web.Response(text=request["lease"].resource)

        outer = web.Application()
        outer.add_subapp("/v1", application(limiter, lambda request: Ask("user-1", None, {"rpm": 1}), handler))

        async with serving(outer) as client, client.get("/v1/items/7") as response:
            assert "v1/items/:item_id" == await response.text()

    async def test_rule_can_read_the_body(self, limiter):
        """A rule may be a coroutine function; the handler reads the body again."""

        async def rules(request):
            return Ask("user-1", "chat", {"tpm": (await request.json())["tokens"]})

        async def handler(request):
            return web.json_response(await request.json())

        async with (
            serving(application(limiter, rules, handler)) as client,
            client.post("/items", json={"tokens": 7}) as got,
        ):
            assert {"tokens": 7} == await got.json()
        assert 993 == (await limiter.available("user-1", "chat"))["tpm"]

    async def test_concurrent_requests_are_admitted_up_to_the_limit(self, limiter):
        """Exactly as many as there are tokens."""

        def rules(request):
            return Ask("user-1", "chat", {"rpm": 1})

        async def status(client):
            async with client.get("/") as response:
                check_headers(response.headers.items())
                return response.status

        async with serving(application(limiter, rules)) as client:
            found = await asyncio.gather(*(status(client) for _ in range(100)))

        assert (10, 90) == (found.count(200), found.count(429))


class TestNotLimited:
    @pytest.mark.parametrize(
        ("method", "path", "status"),
        [("GET", "/nowhere", 404), ("GET", "/items", 405), ("HEAD", "/", 200), ("OPTIONS", "/", 405)],
    )
    async def test_rule_is_not_asked(self, limiter, method, path, status):
        """Without a route, or for methods that are skipped, no bucket is created."""
        asked = []

        async with (
            serving(application(limiter, asked.append)) as client,
            client.request(method, path) as response,
        ):
            assert status == response.status
        assert [] == asked

    async def test_methods_to_skip_can_be_chosen(self, limiter):
        """An empty list limits all."""
        app = application(limiter, skip_methods=())

        async with serving(app) as client, client.head("/") as response:
            assert "ratelimit" in check_headers(response.headers.items())

    async def test_request_without_an_ask_has_no_lease_and_no_headers(self, limiter):
        """The rule has returned None."""

        async def handler(request):
            return web.json_response("lease" in request)

        app = application(limiter, lambda request: None, handler)

        async with serving(app) as client, client.get("/") as response:
            assert await response.json() is False
        assert "RateLimit" not in response.headers


class TestRefused:
    async def test_rejected_request_is_answered_with_429(self, limiter):
        """With every limit, and the handler does not run."""
        runs = []

        async def handler(request):
            runs.append(1)
            return web.Response()

        app = application(limiter, lambda request: Ask("user-1", "chat", {"rpm": 10, "tpm": 1}), handler)
        async with serving(app) as client:
            await client.get("/")
            async with client.get("/") as response:
                headers = check_headers(response.headers.items())
                problem = await response.json(content_type="application/problem+json")

        assert (429, [1]) == (response.status, runs)
        assert "60" == headers["retry-after"]
        assert ["rpm"] == problem["violated-policies"]
        assert ["rpm", "tpm"] == [limit["limit"] for limit in problem["limits"]]

    @pytest.mark.parametrize(
        ("ask", "status"),
        [(Ask("user-1", "chat", {"tpm": 1001}), 413), (Ask("-", "chat", {"tpm": 1}), 400)],
    )
    async def test_request_that_can_never_be_admitted_is_answered(self, limiter, ask, status):
        """Larger than a capacity, or with an invalid entity."""
        async with serving(application(limiter, lambda request: ask)) as client, client.get("/") as response:
            check_headers(response.headers.items())

        assert status == response.status
        assert "application/problem+json" == response.content_type

    @pytest.mark.parametrize(("on_unavailable", "status"), [("block", 503), ("allow", 200)])
    async def test_unavailable_store_follows_the_rule(self, limiter, on_unavailable, status):
        """A request that is allowed reports no limits, because they are unknown."""
        failing = another(limiter.repository, FailingTable)
        failing.scope.table.unavailable = True
        ask = Ask("user-1", "chat", {"rpm": 1}, on_unavailable=on_unavailable)

        app = application(RateLimiter(failing), lambda request: ask)
        async with serving(app) as client, client.get("/") as response:
            check_headers(response.headers.items())

        assert status == response.status
        assert "RateLimit" not in response.headers

    async def test_error_of_the_limiter_in_a_handler_is_answered(self, limiter):
        """And what was taken is given back."""

        async def handler(request):
            await request["lease"].consume(tpm=600)

        async with serving(application(limiter, handler=handler)) as client, client.get("/") as response:
            headers = check_headers(response.headers.items())

        assert 429 == response.status
        assert "retry-after" in headers
        assert {"rpm": 10, "tpm": 1000} == await limiter.available("user-1", "chat")

    async def test_error_of_the_limiter_in_a_handler_without_a_lease_is_answered(self, limiter):
        """A handler may take by itself."""

        async def handler(request):
            async with limiter.acquire("user-1", "chat", {"rpm": 11}):
                pass

        app = application(limiter, lambda request: None, handler)

        async with serving(app) as client, client.get("/") as response:
            assert 413 == response.status

    async def test_refusal_of_a_nested_application_keeps_its_headers(self, limiter):
        """The outer application has limits of its own, and reports them on other responses."""
        outer = web.Application()
        setup(outer, limiter, lambda request: Ask("team-1", "all", {"rpm": 1}, headers="openai"))
        outer.add_subapp("/v1", application(limiter, lambda request: Ask("user-1", "chat", {"rpm": 10})))

        async with serving(outer) as client:
            async with client.get("/v1/") as first:
                assert "x-ratelimit-limit-requests" in check_headers(first.headers.items())
            async with client.get("/v1/") as second:
                assert "x-ratelimit-limit-requests" not in check_headers(second.headers.items())

        assert (200, 429) == (first.status, second.status)
        assert 8 == (await limiter.available("team-1", "all"))["rpm"]


class TestCharged:
    @pytest.mark.parametrize(
        ("raised", "status", "left"),
        [
            (web.HTTPNotFound, 404, 500),
            (web.HTTPFound("/items/1"), 302, 500),
            (web.HTTPServiceUnavailable, 503, 1000),
            (OSError, 500, 1000),
            (ConnectionResetError, 500, 1000),
            (TimeoutError, 504, 1000),
        ],
    )
    async def test_status_of_the_response_decides(self, limiter, raised, status, left):
        """5xx gives back, whether it is raised or made of an error; others are charged."""

        async def handler(request):
            raise raised

        async with (
            serving(application(limiter, handler=handler)) as client,
            client.get("/", allow_redirects=False) as response,
        ):
            check_headers(response.headers.items())

        assert status == response.status
        assert "RateLimit" in response.headers
        assert left == (await limiter.available("user-1", "chat"))["tpm"]

    async def test_returned_5xx_gives_back(self, limiter):
        """As one that is raised."""

        async def handler(request):
            return web.Response(status=502)

        async with serving(application(limiter, handler=handler)) as client, client.get("/"):
            pass

        assert 1000 == (await limiter.available("user-1", "chat"))["tpm"]

    async def test_on_error_keep_charges_a_failure(self, limiter):
        """The rule decides."""

        async def handler(request):
            raise OSError

        def rules(request):
            return Ask("user-1", "chat", {"tpm": 500}, on_error="keep")

        async with serving(application(limiter, rules, handler)) as client, client.get("/"):
            pass

        assert 500 == (await limiter.available("user-1", "chat"))["tpm"]

    async def test_outer_middleware_decides_by_its_response(self, limiter):
        """One that answers errors, and one that fails itself."""

        @web.middleware
        async def answers(request, handler):
            try:
                return await handler(request)
            except LookupError:
                return web.Response(status=404)
            finally:
                if "fail" in request.query:
                    raise OSError

        async def handler(request):
            raise LookupError

        app = web.Application(middlewares=[answers])
        app.router.add_get("/", handler)
        setup(app, limiter, chat)

        async with serving(app) as client:
            async with client.get("/?fail") as failed:
                pass
            async with client.get("/") as missing:
                pass

        assert (500, 404) == (failed.status, missing.status)
        assert {"rpm": 9, "tpm": 500} == await limiter.available("user-1", "chat")


class TestSetup:
    async def test_store_is_opened_and_closed_with_the_application(self, tmp_path):
        """A URL is enough."""
        url = f"sqlite:///{tmp_path}/limits.db"
        ask = Ask("user-1", "chat", {"rpm": 1}, [Limit.per_minute("rpm", 10)])

        async with serving(application(url, lambda request: ask)) as client:
            assert (tmp_path / "limits.db").exists()
            await client.get("/")

        async with await Repository.open(url) as repo:
            left = await RateLimiter(repo).available("user-1", "chat", limits=ask.limits)
        assert 9 <= left["rpm"] <= 10

    async def test_limiter_from_a_function_is_looked_up_at_each_request(self, limiter):
        """It may be opened at start-up."""
        async with serving(application(lambda: limiter)) as client, client.get("/") as response:
            assert 200 == response.status
        assert 9 == (await limiter.available("user-1", "chat"))["rpm"]

    def test_missing_rules_are_a_named_error(self):
        """Nothing would be limited."""
        with pytest.raises(ValidationError, match="rules"):
            setup(web.Application())

    def test_sync_limiter_is_a_named_error(self):
        """It would block the event loop."""
        with (
            SyncRepository.open("memory://") as repo,
            pytest.raises(ValidationError, match="pass a RateLimiter"),
        ):
            setup(web.Application(), SyncRateLimiter(repo), chat)

    async def test_rule_that_returns_something_else_is_a_named_error(self, limiter):
        """The request fails, and the log says why."""
        async with serving(application(limiter, lambda request: "user-1")) as client, client.get("/") as response:
            assert 500 == response.status

    def test_missing_package_is_a_named_error(self):
        """It names the command that installs the extra."""
        script = (
            "import sys; sys.modules['aiohttp'] = None\n"
            "from zae_limiter import MissingExtraError\n"
            "try:\n    import zae_limiter.web.aiohttp\n"
            "except MissingExtraError as error:\n    print(error)"
        )
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)

        assert "aiohttp" in done.stdout
