"""A small HTTP proxy: it forwards requests for absolute URLs, and tunnels after CONNECT."""

import asyncio
import contextlib
import threading
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

from tests.dynamodb import messages
from tests.dynamodb.messages import Message


class Forwarder:
    """Run as a context manager at `url`; `seen` has the first line of every request."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="forwarder", daemon=True)
        self._tasks: set[asyncio.Task[Any]] = set()

    def __enter__(self) -> Self:
        self._thread.start()
        listening = asyncio.start_server(self._serve, "127.0.0.1", 0)
        self._server = asyncio.run_coroutine_threadsafe(listening, self._loop).result(120)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result(120)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _end(self) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            await self._converse(reader, writer)
        writer.transport.abort()
        self._tasks.discard(task)

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while (request := await messages.read(reader)) is not None:
            self.seen.append(request.first_line)
            verb, place, _ = request.first_line.split()
            if verb == "CONNECT":
                await self._tunnel(reader, writer, place)
                return
            writer.write((await self._forwarded(request, place)).bytes)
            await writer.drain()

    async def _forwarded(self, request: Message, place: str) -> Message:
        parts = urlsplit(place)
        upstream, sender = await asyncio.open_connection(parts.hostname, parts.port)
        sender.write(Message(f"POST {parts.path or '/'} HTTP/1.1", request.headers, request.body).bytes)
        answer = await messages.read(upstream)
        sender.transport.abort()
        if answer is None:
            raise ConnectionResetError("the server has hung up")
        return answer

    async def _tunnel(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, place: str) -> None:
        host, _, port = place.rpartition(":")
        upstream, sender = await asyncio.open_connection(host, int(port))
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        try:
            async with asyncio.TaskGroup() as both:
                both.create_task(_pump(reader, sender))
                both.create_task(_pump(upstream, writer))
        finally:
            sender.transport.abort()


async def _pump(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    while data := await source.read(65_536):
        target.write(data)
        await target.drain()
    target.close()
