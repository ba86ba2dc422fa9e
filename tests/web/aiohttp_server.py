"""An aiohttp application under a real server, limited in memory, with a clock that stands still."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import ClientSession, web

from tests._async.clients import SettableClock
from zae_limiter import Lease, Limit, RateLimiter, Repository
from zae_limiter.web.aiohttp import Ask

LIMITS = [Limit.per_minute("rpm", 10), Limit.per_minute("tpm", 1000)]


@asynccontextmanager
async def opened() -> AsyncIterator[RateLimiter]:
    """Open a limiter with limits for every resource."""
    async with await Repository.open("memory://", clock=SettableClock()) as repo:
        await repo.set_system_defaults(LIMITS)
        yield RateLimiter(repo)


@asynccontextmanager
async def serving(app: web.Application, **options: Any) -> AsyncIterator[ClientSession]:
    """Serve an application on a port of its own, and yield a client of it.

    Leaving shuts the server down, as a signal would.
    """
    runner = web.AppRunner(app, **options)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        host, port = runner.addresses[0]
        async with ClientSession(f"http://{host}:{port}") as client:
            yield client
    finally:
        await runner.cleanup()


def chat(request: web.Request) -> Ask:
    """Take one request, and an estimate of 500 tokens."""
    return Ask("user-1", "chat", {"rpm": 1, "tpm": 500})


async def ended(lease: Lease) -> None:
    """Wait until a lease has ended, while the server runs."""
    while "held" in repr(lease):  # noqa: ASYNC110 - a lease has no event
        await asyncio.sleep(0.001)


async def request_raw(client: ClientSession) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Send a request to the same server over a connection that the test can cut off."""
    address = client._base_url
    assert address is not None
    reader, writer = await asyncio.open_connection(address.host, address.port)
    writer.write(b"GET / HTTP/1.1\r\nHost: test\r\n\r\n")
    await writer.drain()
    return reader, writer


def cut_off(writer: asyncio.StreamWriter) -> None:
    """Drop a connection as a client that has vanished: with a reset, and without a farewell."""
    writer.transport.abort()
