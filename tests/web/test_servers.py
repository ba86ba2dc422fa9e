"""Real servers and clients: uvicorn, hypercorn and gunicorn, with every framework that the ASGI adapter runs in."""

import asyncio
from collections.abc import Iterator
from itertools import count

import h11
import pytest
import websockets

from tests.web.reported import rate_limits
from tests.web.servers import COMMANDS, Connection, Server, running

FRAMEWORKS = ("starlette", "fastapi", "litestar", "django", "asgi")
WITH_ROUTES = ("starlette", "fastapi", "litestar")
_numbers = count()


@pytest.fixture(scope="module", params=COMMANDS)
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    with running(request.param, "tests.web.served:app") as started:
        yield started


@pytest.fixture
def entity() -> str:
    """An entity that no other test has used, and so the name of a call."""
    return f"user-{next(_numbers)}"


def stream_of(framework: str) -> str:
    """Return the resource of streams; frameworks without a router name it by the first part of the path."""
    return "stream/:kind" if framework in WITH_ROUTES else "stream"


def code_of(framework: str) -> str:
    return "status/:code" if framework in WITH_ROUTES else "status"


async def begin(connection: Connection, path: str, entity: str, chunks: int) -> None:
    """Send a request that takes 500 tokens, and receive the first chunks of its answer."""
    await connection.send("GET", path, x_entity=entity, x_call=entity, x_cost="500")
    start = await connection.event()
    assert 200 == start.status_code
    assert b"text/event-stream" in dict(start.headers)[b"content-type"]
    for _ in range(chunks):
        assert isinstance(await connection.event(), h11.Data)


@pytest.mark.parametrize("framework", FRAMEWORKS)
class TestEveryFramework:
    async def test_two_limits_are_reported_on_success_and_on_rejection(
        self, server: Server, framework: str, entity: str
    ):
        """Every header is parsed. Five requests pass, and the sixth gets the time to wait."""
        answers = [await server.get(f"/{framework}/ok", x_entity=entity) for _ in range(6)]

        assert [200] * 5 + [429] == [answer.status for answer in answers]
        assert [4, 3, 2, 1, 0, 0] == [rate_limits(answer.headers, "ratelimit")["rpm"]["r"] for answer in answers]
        assert [990, 980, 970, 960, 950, 950] == [
            rate_limits(answer.headers, "ratelimit")["tpm"]["r"] for answer in answers
        ]
        assert "application/problem+json" == answers[-1].headers["content-type"]
        assert ["rpm"] == answers[-1].json["violated-policies"]
        assert 86_000 < int(answers[-1].headers["retry-after"]) <= 86_400

    async def test_other_entity_that_lacks_the_tokens_rejects_and_nothing_is_taken(
        self, server: Server, framework: str, entity: str
    ):
        """Two requests fit into what both have together, and the third is one too many for the other entity."""
        answers = [await server.get(f"/{framework}/ok", x_entity=entity, x_also=f"tool-of-{entity}") for _ in range(3)]

        assert [200, 200, 429] == [answer.status for answer in answers]
        assert [3, 1, 1] == [rate_limits(answer.headers, "ratelimit")["rpm"]["r"] for answer in answers]
        assert 1 == (await server.left(f"tool-of-{entity}", "search"))["rpm"]
        assert 3 == (await server.left(entity, "ok"))["rpm"]

    async def test_blocked_entity_is_answered_with_403(self, server: Server, framework: str):
        """As problem details with the reason."""
        answer = await server.get(f"/{framework}/ok", x_entity="blocked-user")

        assert (403, "unpaid", "blocked-user") == (answer.status, answer.json["reason"], answer.json["blocked_entity"])
        assert "application/problem+json" == answer.headers["content-type"]

    @pytest.mark.parametrize("kind", ["endless", "endless-by-chunk", "large", "large-by-chunk"])
    async def test_client_that_disconnects_is_charged_for_what_was_used(
        self, server: Server, framework: str, entity: str, kind: str
    ):
        """Also a slow reader, whose stream waits in the middle of sending."""
        async with server.connection() as connection:
            await begin(connection, f"/{framework}/stream/{kind}", entity, 2)
            connection.writer.transport.abort()
        ended = await server.ended(entity)

        assert ended["used"] > 0
        assert {"rpm": 4, "tpm": 1_000 - ended["used"]} == await server.left(entity, stream_of(framework))

    @pytest.mark.parametrize("kind", ["short", "short-by-chunk"])
    async def test_stream_that_ends_is_charged_for_what_was_used(
        self, server: Server, framework: str, entity: str, kind: str
    ):
        """The lease is still held after the handler has returned."""
        answer = await server.get(f"/{framework}/stream/{kind}", x_entity=entity, x_call=entity, x_cost="500")
        await server.ended(entity)

        assert answer.body.startswith(b"data: token\n\n" * 10)
        assert '"tpm"' in answer.headers["ratelimit"]
        assert {"rpm": 4, "tpm": 900} == await server.left(entity, stream_of(framework))

    @pytest.mark.parametrize(("on_error", "left"), [("give_back", 1_000), ("keep", 990)])
    async def test_handler_that_raises_gives_back_unless_the_rule_keeps(
        self, server: Server, framework: str, entity: str, on_error: str, left: int
    ):
        """The server answers 500, as without a limiter."""
        answer = await server.get(f"/{framework}/fail", x_entity=entity, x_call=entity, x_on_error=on_error)
        await server.ended(entity)

        assert 500 == answer.status
        assert left == (await server.left(entity, "fail"))["tpm"]

    @pytest.mark.parametrize(("code", "left"), [(201, 990), (404, 990), (500, 1_000), (503, 1_000)])
    async def test_answer_of_500_or_above_gives_back(
        self, server: Server, framework: str, entity: str, code: int, left: int
    ):
        """All others are charged."""
        answer = await server.get(f"/{framework}/status/{code}", x_entity=entity, x_call=entity)
        await server.ended(entity)

        assert code == answer.status
        assert left == (await server.left(entity, code_of(framework)))["tpm"]

    async def test_request_larger_than_a_capacity_is_answered_with_413(
        self, server: Server, framework: str, entity: str
    ):
        """The problem names limit and capacity."""
        answer = await server.get(f"/{framework}/ok", x_entity=entity, x_cost="1001")

        assert 413 == answer.status
        assert "Limit 'tpm' has a capacity of 1000, and 1001 were requested." == answer.json["detail"]
        assert "retry-after" not in answer.headers

    @pytest.mark.parametrize("size", [10, 300_000])
    async def test_connection_is_usable_after_a_refusal_whose_body_was_not_read(
        self, server: Server, framework: str, entity: str, size: int
    ):
        """Either the next request on it is answered, or the server closes it."""
        async with server.connection() as connection:
            await connection.send("POST", f"/{framework}/ok", b"x" * size, x_entity=entity, x_cost="1001")
            refused = await connection.answer()
            assert 413 == refused.status
            if connection.http.our_state is h11.MUST_CLOSE or refused.headers.get("connection") == "close":
                return
            await connection.send("GET", "/starlette/context", x_call=entity)
            assert entity.encode() == (await connection.answer()).body


@pytest.mark.parametrize("framework", WITH_ROUTES)
class TestRoutes:
    async def test_template_names_the_resource(self, server: Server, framework: str, entity: str):
        """Two paths of one route share a bucket."""
        for number in (1, 2):
            assert 200 == (await server.get(f"/{framework}/items/{number}", x_entity=entity)).status

        assert ["items/:item_id"] == await server.resources(entity)

    @pytest.mark.parametrize(
        ("method", "path", "codes"),
        [
            *[("GET", "/none", {404}), ("DELETE", "/items/1", {405})],
            *[("HEAD", "/items/1", {200, 405}), ("OPTIONS", "/items/1", {204, 405})],
        ],
    )
    async def test_request_that_is_not_handled_creates_no_bucket(
        self, server: Server, framework: str, entity: str, method: str, path: str, codes: set[int]
    ):
        """Neither do HEAD and OPTIONS."""
        answer = await server.request(method, f"/{framework}{path}", x_entity=entity)

        assert answer.status in codes
        assert [] == await server.resources(entity)

    async def test_consume_that_raises_in_a_handler_is_answered_with_429(
        self, server: Server, framework: str, entity: str
    ):
        """What was taken before is given back."""
        answer = await server.get(f"/{framework}/more", x_entity=entity, x_call=entity)
        await server.ended(entity)

        assert 429 == answer.status
        assert ["tpm"] == answer.json["violated-policies"]
        assert {"rpm": 5, "tpm": 1_000} == await server.left(entity, "more")

    async def test_background_task_adjusts_the_lease(self, server: Server, framework: str, entity: str):
        """It runs after the response was sent."""
        assert 200 == (await server.get(f"/{framework}/background", x_entity=entity, x_call=entity)).status
        await server.ended(entity)

        assert {"rpm": 4, "tpm": 900} == await server.left(entity, "background")


class TestStarlette:
    async def test_concurrent_requests_are_admitted_exactly_to_the_capacity(self, server: Server, entity: str):
        """Five hundred at the same time, for a hundred tokens."""
        answers = await asyncio.gather(
            *[server.get("/starlette/ok", x_entity=entity, x_capacity="100", x_cost="1") for _ in range(500)]
        )

        codes = [answer.status for answer in answers]
        assert {200: 100, 429: 400} == {code: codes.count(code) for code in set(codes)}

    async def test_reader_that_is_slow_gets_everything_and_is_charged_once(self, server: Server, entity: str):
        """The lease is held until the last byte was sent."""
        async with server.connection() as connection:
            await begin(connection, "/starlette/stream/short-held", entity, 1)
            for _ in range(8):
                await asyncio.sleep(0.01)
                assert isinstance(await connection.event(), h11.Data)
            assert {"rpm": 4, "tpm": 500} == await server.left(entity, "stream/:kind")
            await server.get(f"/control/finish?call={entity}")
            assert isinstance(await connection.event(), h11.Data)
        await server.ended(entity)

        assert {"rpm": 4, "tpm": 900} == await server.left(entity, "stream/:kind")

    async def test_failure_after_the_first_byte_is_charged(self, server: Server, entity: str):
        """The body is cut off."""
        async with server.connection() as connection:
            await connection.send("GET", "/starlette/late", x_entity=entity, x_call=entity)
            assert 200 == (await connection.event()).status_code
            ended = await server.ended(entity)

        assert "after the first byte" in ended["failure"]
        assert {"rpm": 4, "tpm": 990} == await server.left(entity, "late")

    async def test_context_variables_survive(self, server: Server, entity: str):
        """The handler runs in the task of the server."""
        answer = await server.get("/starlette/context", x_entity=entity, x_call=entity)

        assert entity.encode() == answer.body

    async def test_mounted_application_has_its_prefix_in_the_name(self, server: Server, entity: str):
        """Its routes are not those of the application around it."""
        assert 200 == (await server.get("/starlette/below/items/1", x_entity=entity)).status

        assert ["below/items/:item_id"] == await server.resources(entity)

    async def test_rule_after_authentication_sees_the_user(self, server: Server, entity: str):
        """The limiter is added so that it runs after the authentication."""
        codes = [(await server.get("/starlette/user/ok", authorization=entity)).status for _ in range(6)]

        assert [200] * 5 + [429] == codes
        assert ["ok"] == await server.resources(entity)

    @pytest.mark.parametrize(
        ("dialect", "name"),
        [("openai", "x-ratelimit-reset-requests"), ("anthropic", "anthropic-ratelimit-requests-reset")],
    )
    async def test_dialect_of_a_provider_is_sent_on_success_and_on_rejection(
        self, server: Server, entity: str, dialect: str, name: str
    ):
        """It is chosen per rule."""
        answers = [await server.get("/starlette/ok", x_entity=entity, x_dialect=dialect) for _ in range(6)]

        assert 429 == answers[-1].status
        for answer in answers:
            assert name in answer.headers
            assert "ratelimit" not in answer.headers
        assert "retry-after-ms" in answers[-1].headers


async def test_events_of_fastapi_are_charged_for_what_was_used(server: Server, entity: str):
    """A path operation that yields runs in tasks of FastAPI, and is closed by them."""
    async with server.connection() as connection:
        await begin(connection, "/fastapi/sse", entity, 2)
        connection.writer.transport.abort()
    ended = await server.ended(entity)

    assert ended["used"] > 0
    assert {"rpm": 4, "tpm": 1_000 - ended["used"]} == await server.left(entity, "sse")


class TestWebsockets:
    def connect(self, server: Server, entity: str) -> websockets.connect:
        headers = {"x-entity": entity, "x-call": entity}
        return websockets.connect(
            f"ws://127.0.0.1:{server.port}/starlette/talk", additional_headers=headers, proxy=None
        )

    async def test_connection_holds_one_lease_and_takes_more_for_each_message(self, server: Server, entity: str):
        """The response to the handshake reports the limits."""
        async with self.connect(server, entity) as socket:
            assert '"rpm";r=4' in socket.response.headers["ratelimit"]
            for text in ("a" * 100, "b" * 200):
                await socket.send(text)
                assert text == await socket.recv()
        await server.ended(entity)

        assert {"rpm": 4, "tpm": 690} == await server.left(entity, "talk")

    async def test_message_beyond_a_limit_closes_the_connection(self, server: Server, entity: str):
        """1013 is "try again later"."""
        async with self.connect(server, entity) as socket:
            await socket.send("a" * 991)
            with pytest.raises(websockets.ConnectionClosedError) as closed:
                await socket.recv()
        ended = await server.ended(entity)

        assert closed.value.rcvd is not None
        assert (1013, "Too Many Requests") == (closed.value.rcvd.code, closed.value.rcvd.reason)
        assert ended["failure"] is None
        assert {"rpm": 4, "tpm": 990} == await server.left(entity, "talk")

    async def test_client_that_is_cut_off_is_charged(self, server: Server, entity: str):
        """It sends no close."""
        async with self.connect(server, entity) as socket:
            await socket.send("a" * 100)
            await socket.recv()
            socket.transport.abort()
        await server.ended(entity)

        assert {"rpm": 4, "tpm": 890} == await server.left(entity, "talk")

    async def test_rejected_connection_is_answered_with_429(self, server: Server, entity: str):
        """Only gunicorn's own worker does not support the denial response, and answers 403 to a connection refused."""
        for _ in range(5):
            async with self.connect(server, entity):
                pass

        with pytest.raises(websockets.InvalidStatus) as refused:
            await self.connect(server, entity)

        if server.kind == "gunicorn-asgi":
            assert 403 == refused.value.response.status_code
            return
        assert 429 == refused.value.response.status_code
        assert "retry-after-ms" in refused.value.response.headers
        assert refused.value.response.body is not None
        assert b"violated-policies" in refused.value.response.body
