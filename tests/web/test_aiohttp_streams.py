"""A lease of an aiohttp request ends when its body has ended or its client has disconnected."""

import asyncio

import pytest
from aiohttp import ClientPayloadError, ServerDisconnectedError, WSMsgType, WSServerHandshakeError, web

from tests.web.aiohttp_server import chat, cut_off, ended, opened, request_raw, serving
from tests.web.reported import check_headers
from zae_limiter import RateLimitExceeded
from zae_limiter.web.aiohttp import Ask, setup

CHUNK = b"x" * 65_536


@pytest.fixture
async def limiter():
    async with opened() as one:
        yield one


@pytest.fixture
def leases():
    """The leases that handlers have seen."""
    return []


def application(limiter, handler, rules=chat, middlewares=()):
    app = web.Application(middlewares=middlewares)
    app.router.add_get("/", handler)
    setup(app, limiter, rules)
    return app


def generated(leases, gate=None):
    """Return a handler whose body is generated after it has returned; the body adjusts the lease."""

    async def handler(request):
        lease = request["lease"]
        leases.append(lease)

        async def body():
            lease.adjust(tpm=-500)
            yield b"begin "
            if gate is not None:
                await gate.wait()
            lease.adjust(tpm=30)
            yield b"end"

        return web.Response(body=body())

    return handler


class TestBodies:
    async def test_generated_body_is_sent_while_the_lease_is_held(self, limiter, leases):
        """It is sent after the handler has returned, so the lease must not end with the handler."""
        async with serving(application(limiter, generated(leases))) as client:
            async with client.get("/") as response:
                check_headers(response.headers.items())

                assert b"begin end" == await response.read()
            await ended(leases[0])

            assert {"rpm": 9, "tpm": 970} == await limiter.available("user-1", "chat")

    async def test_lease_is_held_until_the_last_byte(self, limiter, leases):
        """Other requests see what was taken, not what was adjusted."""
        gate = asyncio.Event()
        async with serving(application(limiter, generated(leases, gate))) as client, client.get("/") as response:
            await response.content.readexactly(6)
            assert {"rpm": 9, "tpm": 500} == await limiter.available("user-1", "chat")
            gate.set()
            await response.read()
            await ended(leases[0])

            assert 970 == (await limiter.available("user-1", "chat"))["tpm"]

    @pytest.mark.parametrize(("chunks", "left"), [(0, {"rpm": 10, "tpm": 1000}), (1, {"rpm": 9, "tpm": 900})])
    async def test_generated_body_that_fails_is_charged_from_its_first_byte_on(self, limiter, leases, chunks, left):
        """The headers are sent with that byte. A model that is down costs nothing."""

        async def handler(request):
            lease = request["lease"]
            leases.append(lease)

            async def body():
                lease.adjust(tpm=-400)
                for _ in range(chunks):
                    yield b"chunk"
                raise ZeroDivisionError

            return web.Response(body=body())

        async with serving(application(limiter, handler)) as client:
            with pytest.raises((ClientPayloadError, ServerDisconnectedError)):
                await (await client.get("/")).read()
            # The client repeats a request that the server did not answer.
            for lease in leases:
                await ended(lease)

            assert left == await limiter.available("user-1", "chat")

    async def test_middleware_that_runs_handlers_in_a_task_does_not_end_leases(self, limiter, leases):
        """A time limit for handlers does so; the response is sent by another task."""

        @web.middleware
        async def in_a_task(request, handler):
            return await asyncio.create_task(handler(request))

        app = application(limiter, generated(leases), middlewares=[in_a_task])

        async with serving(app) as client:
            async with client.get("/") as response:
                assert b"begin end" == await response.read()
            await ended(leases[0])

        assert {"rpm": 9, "tpm": 970} == await limiter.available("user-1", "chat")

    async def test_lease_of_a_plain_response_ends_while_the_connection_stays_open(self, limiter, leases):
        """A connection serves many requests."""

        async def handler(request):
            leases.append(request["lease"])
            request["lease"].adjust(tpm=-450)
            return web.Response(text="hello")

        async with serving(application(limiter, handler)) as client:
            for _ in range(3):
                await (await client.get("/")).read()
                await ended(leases[-1])

            assert {"rpm": 7, "tpm": 850} == await limiter.available("user-1", "chat")

    async def test_requests_that_have_ended_are_not_kept(self, limiter):
        """Neither by the limits nor by the connection, which stays open."""
        connections = set()

        async def handler(request):
            connections.add(request.task)
            return web.Response(text="hello")

        app = application(limiter, handler)
        async with serving(app) as client:
            for _ in range(5):
                await (await client.get("/")).read()
            limits = app.middlewares[-1].__self__
            await asyncio.gather(*limits._ending)
            (connection,) = connections

            assert set() == limits._held
            assert len(connection._callbacks or ()) <= 1


class TestStreams:
    async def test_stream_has_headers_and_is_settled_at_its_end(self, limiter, leases):
        """The response is prepared by the handler."""

        async def handler(request):
            leases.append(request["lease"])
            response = web.StreamResponse()
            await response.prepare(request)
            for _ in range(3):
                await response.write(b"data: token\n\n")
            request["lease"].adjust(tpm=3 - 500)
            return response

        async with serving(application(limiter, handler)) as client:
            async with client.get("/") as response:
                headers = check_headers(response.headers.items())
                await response.read()
            await ended(leases[0])

        assert headers["ratelimit"].startswith('"rpm";r=9;')
        assert {"rpm": 9, "tpm": 997} == await limiter.available("user-1", "chat")

    @pytest.mark.parametrize("error", [OSError, RateLimitExceeded])
    async def test_stream_that_fails_is_charged(self, limiter, leases, error):
        """The client has received a part of it. A refusal cannot be sent any more."""

        async def handler(request):
            leases.append(request["lease"])
            response = web.StreamResponse()
            await response.prepare(request)
            await response.write(CHUNK)
            request["lease"].adjust(tpm=-400)
            if error is RateLimitExceeded:
                await request["lease"].consume(tpm=900)
            raise OSError

        async with serving(application(limiter, handler)) as client, client.get("/") as response:
            assert 200 == response.status
            await ended(leases[0])

        assert {"rpm": 9, "tpm": 900} == await limiter.available("user-1", "chat")


class TestDisconnects:
    @pytest.mark.parametrize("cancels", [False, True])
    async def test_stream_of_a_client_that_vanished_is_charged_for_what_was_used(self, limiter, leases, cancels):
        """The server raises in the handler, or cancels it; both are charged."""

        async def handler(request):
            lease = request["lease"]
            leases.append(lease)
            lease.adjust(tpm=-500)
            response = web.StreamResponse()
            await response.prepare(request)
            while True:
                await response.write(CHUNK)
                lease.adjust(tpm=1)
                await asyncio.sleep(0)

        async with serving(application(limiter, handler), handler_cancellation=cancels) as client:
            reader, writer = await request_raw(client)
            await reader.readexactly(len(CHUNK))
            cut_off(writer)
            await ended(leases[0])

            assert leases[0].consumed["tpm"] > 0
            left = await limiter.available("user-1", "chat")
        assert {"rpm": 9, "tpm": 1000 - leases[0].consumed["tpm"]} == left

    @pytest.mark.parametrize("cancels", [False, True])
    async def test_generated_body_that_is_cut_off_adjusts_when_it_is_closed(self, limiter, leases, cancels):
        """The event loop closes it, after the task of the request has ended."""

        async def handler(request):
            lease = request["lease"]
            leases.append(lease)

            async def body():
                sent = 0
                try:
                    while True:
                        sent += 1
                        yield CHUNK
                        await asyncio.sleep(0)
                finally:
                    lease.adjust(tpm=7 - 500 + min(sent, 1))

            return web.Response(body=body())

        async with serving(application(limiter, handler), handler_cancellation=cancels) as client:
            reader, writer = await request_raw(client)
            await reader.readexactly(len(CHUNK))
            cut_off(writer)
            await ended(leases[0])

            assert {"rpm": 9, "tpm": 992} == await limiter.available("user-1", "chat")

    @pytest.mark.parametrize("cancels", [False, True])
    async def test_client_that_vanishes_before_the_first_byte_is_charged(self, limiter, leases, cancels):
        """The work has begun, so that a client cannot work for nothing by hanging up."""
        reached, gate = asyncio.Event(), asyncio.Event()

        async def handler(request):
            leases.append(request["lease"])
            reached.set()
            lost.append(request.transport)
            await gate.wait()
            return web.Response(text="too late")

        lost = []
        async with serving(application(limiter, handler), handler_cancellation=cancels) as client:
            _, writer = await request_raw(client)
            await reached.wait()
            cut_off(writer)
            while not cancels and not lost[0].is_closing():  # noqa: ASYNC110 - a transport has no event
                await asyncio.sleep(0.001)
            if not cancels:
                gate.set()
            await ended(leases[0])

            assert {"rpm": 9, "tpm": 500} == await limiter.available("user-1", "chat")

    async def test_handler_that_fails_for_a_client_that_vanished_is_charged(self, limiter, leases):
        """It cannot be told whether it failed because of that."""
        reached = asyncio.Event()

        async def handler(request):
            leases.append(request["lease"])
            transport = request.transport
            reached.set()
            while not transport.is_closing():  # noqa: ASYNC110 - a transport has no event
                await asyncio.sleep(0.001)
            raise OSError

        async with serving(application(limiter, handler)) as client:
            _, writer = await request_raw(client)
            await reached.wait()
            cut_off(writer)
            await ended(leases[0])

            assert {"rpm": 9, "tpm": 500} == await limiter.available("user-1", "chat")

    async def test_request_that_is_cancelled_after_the_handler_is_charged(self, limiter, leases):
        """An outer middleware was waiting, so that no response was prepared."""
        reached = asyncio.Event()

        @web.middleware
        async def slow(request, handler):
            response = await handler(request)
            reached.set()
            await asyncio.Event().wait()
            return response

        async def handler(request):
            leases.append(request["lease"])
            request["lease"].adjust(tpm=-490)
            return web.Response()

        async with serving(application(limiter, handler, middlewares=[slow]), handler_cancellation=True) as client:
            _, writer = await request_raw(client)
            await reached.wait()
            cut_off(writer)
            await ended(leases[0])

            assert {"rpm": 9, "tpm": 990} == await limiter.available("user-1", "chat")

    async def test_slow_reader_holds_its_lease(self, limiter, leases):
        """The body has not ended while the client does not read."""

        async def handler(request):
            lease = request["lease"]
            leases.append(lease)

            async def body():
                for _ in range(64):
                    yield CHUNK
                lease.adjust(tpm=-400)

            return web.Response(body=body())

        async with serving(application(limiter, handler)) as client:
            reader, writer = await request_raw(client)
            await reader.readuntil(b"\r\n\r\n")
            assert "held" in repr(leases[0])

            while not (await reader.read(len(CHUNK))).endswith(b"\r\n0\r\n\r\n"):
                pass
            await ended(leases[0])
            writer.close()

            assert {"rpm": 9, "tpm": 900} == await limiter.available("user-1", "chat")

    async def test_shutdown_ends_leases_of_requests_that_are_given_up(self, limiter, leases):
        """Their adjustments are written before the store is closed."""
        reached = asyncio.Event()

        async def handler(request):
            leases.append(request["lease"])
            request["lease"].adjust(tpm=-480)
            response = web.StreamResponse()
            await response.prepare(request)
            await response.write(b"begin")
            reached.set()
            await asyncio.Event().wait()

        async with serving(application(limiter, handler), shutdown_timeout=0.01) as client:
            _, writer = await request_raw(client)
            await reached.wait()
        writer.close()

        assert "ended" in repr(leases[0])
        assert {"rpm": 9, "tpm": 980} == await limiter.available("user-1", "chat")

    async def test_shutdown_ends_leases_of_handlers_that_do_not_end(self, limiter, leases):
        """The store is closed afterwards, so that their adjustments would be lost."""
        reached, gate = asyncio.Event(), asyncio.Event()

        async def handler(request):
            leases.append(request["lease"])
            request["lease"].adjust(tpm=-480)
            reached.set()
            try:
                await gate.wait()
            finally:
                await gate.wait()

        async with serving(application(limiter, handler), shutdown_timeout=0.01) as client:
            _, writer = await request_raw(client)
            await reached.wait()
        writer.close()

        assert "ended" in repr(leases[0])
        assert {"rpm": 9, "tpm": 980} == await limiter.available("user-1", "chat")
        gate.set()

    async def test_handler_that_is_cancelled_by_a_middleware_gives_back(self, limiter):
        """The response of the middleware decides, as for any failure."""

        @web.middleware
        async def at_most_one_turn(request, handler):
            task = asyncio.create_task(handler(request))
            await asyncio.wait([task], timeout=0.001)
            task.cancel()
            await asyncio.wait([task])
            return web.Response(status=503 if "busy" in request.query else 404)

        async def handler(request):
            await asyncio.Event().wait()

        async with serving(application(limiter, handler, middlewares=[at_most_one_turn])) as client:
            async with client.get("/?busy"):
                pass
            async with client.get("/"):
                pass

        assert {"rpm": 9, "tpm": 500} == await limiter.available("user-1", "chat")


class TestWebsockets:
    async def test_websocket_reports_limits_and_is_settled_at_its_end(self, limiter, leases):
        """One lease for the whole connection, which the handler may enlarge."""

        async def handler(request):
            lease = request["lease"]
            leases.append(lease)
            socket = web.WebSocketResponse()
            await socket.prepare(request)
            async for message in socket:
                await lease.consume(tpm=len(message.data))
                await socket.send_str(message.data)
            return socket

        async with serving(application(limiter, handler)) as client:
            async with client.ws_connect("/") as socket:
                headers = check_headers(socket._response.headers.items())
                await socket.send_str("twelve bytes")
                assert "twelve bytes" == (await socket.receive()).data
                assert "held" in repr(leases[0])
            await ended(leases[0])

        assert headers["ratelimit"].startswith('"rpm";r=9;')
        assert {"rpm": 9, "tpm": 488} == await limiter.available("user-1", "chat")

    async def test_rejected_websocket_is_answered_with_429(self, limiter):
        """Before the upgrade, so that the client reads why."""

        async def handler(request):
            socket = web.WebSocketResponse()
            await socket.prepare(request)
            return socket

        app = application(limiter, handler, lambda request: Ask("user-1", "chat", {"rpm": 10}))
        async with serving(app) as client:
            async with client.ws_connect("/") as socket:
                assert WSMsgType.CLOSE == (await socket.receive()).type
            with pytest.raises(WSServerHandshakeError, match="429"):
                await client.ws_connect("/")

    @pytest.mark.parametrize("cancels", [False, True])
    async def test_websocket_of_a_client_that_vanished_is_charged(self, limiter, leases, cancels):
        """The handler adjusts when the connection is lost."""

        async def handler(request):
            leases.append(request["lease"])
            socket = web.WebSocketResponse()
            await socket.prepare(request)
            try:
                async for _ in socket:
                    pass
            finally:
                request["lease"].adjust(tpm=-460)
            return socket

        async with serving(application(limiter, handler), handler_cancellation=cancels) as client:
            socket = await client.ws_connect("/")
            socket._response.connection.transport.abort()
            await ended(leases[0])

            assert {"rpm": 9, "tpm": 960} == await limiter.available("user-1", "chat")
