"""A small HTTP server for transport tests: it echoes requests, and does what a request says."""

import asyncio
import contextlib
import json
import threading
from dataclasses import dataclass, field
from email.utils import formatdate
from types import TracebackType
from typing import Any, Self

from tests.dynamodb import messages
from tests.dynamodb.certificate import Certificate
from zae_limiter.tables.dynamodb.requests import DynamoDbCall

WAIT_S = 120.0


def ask(number: int = 0, **wishes: Any) -> DynamoDbCall:
    """Return a numbered call with options.

    `delay_ms`, `held` (until `release`), `hang`, `headers`, `then` (close or more).
    """
    return DynamoDbCall("DynamoDB_20120810.Echo", json.dumps({"number": number, **wishes}).encode())


def number_of(body: bytes) -> int:
    """Return the number of the answered call."""
    return int(json.loads(body)["number"])


@dataclass
class Counts:
    """Counters of what the server has seen."""

    accepted: int = 0
    # Responses without a request.
    unasked: int = 0
    open: int = 0
    most_open: int = 0
    # The access keys that requests were signed with, in order.
    keys: list[str] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)


class Echo:
    """Run as a context manager at `url`, in a thread with its own loop."""

    def __init__(self, tls: Certificate | None = None) -> None:
        self.counts = Counts()
        # Access keys that are refused as expired.
        self.refused: set[str] = set()
        self._tls = tls
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="echo", daemon=True)
        self._changed = threading.Condition()
        self._released = asyncio.Event()
        self._tasks: set[asyncio.Task[Any]] = set()

    def __enter__(self) -> Self:
        self._thread.start()
        context = None if self._tls is None else self._tls.server_context()
        listening = asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=context, backlog=512)
        self._server = asyncio.run_coroutine_threadsafe(listening, self._loop).result(WAIT_S)
        self.port = self._server.sockets[0].getsockname()[1]
        self.url = f"{'http' if self._tls is None else 'https'}://127.0.0.1:{self.port}"
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result(WAIT_S)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def release(self) -> None:
        """Answer held requests now, and later ones immediately."""
        self._loop.call_soon_threadsafe(self._released.set)

    def wait_until_open(self, count: int) -> None:
        """Wait until this many connections are open."""
        self._wait(lambda: self.counts.open == count)

    def wait_for(self, requests: int) -> None:
        """Wait until this many requests have arrived."""
        self._wait(lambda: len(self.counts.numbers) >= requests)

    def wait_for_unasked(self) -> None:
        """Wait until a response without a request was sent."""
        self._wait(lambda: self.counts.unasked > 0)

    def hang_up(self) -> None:
        """Close all connections, also those with requests in flight."""
        self._loop.call_soon_threadsafe(lambda: [task.cancel() for task in self._tasks])

    def _wait(self, reached: Any) -> None:
        with self._changed:
            assert self._changed.wait_for(reached, WAIT_S), self.counts

    async def _end(self) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self._count(1)
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            await self._converse(reader, writer)
        writer.transport.abort()
        await asyncio.sleep(0)  # the socket is closed by now
        self._count(-1)
        self._tasks.discard(task)

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while (request := await messages.read(reader)) is not None:
            wishes = json.loads(request.body)
            key = (request.header("authorization") or "").partition("Credential=")[2].partition("/")[0]
            with self._changed:
                self.counts.keys.append(key)
                self.counts.numbers.append(wishes["number"])
                self._changed.notify_all()
            if wishes.get("hang"):
                await reader.read()
                return
            if wishes.get("held"):
                await self._released.wait()
            await asyncio.sleep(wishes.get("delay_ms", 0) / 1000)
            writer.write(self._answer(request.body, wishes, key))
            await writer.drain()
            match wishes.get("then"):
                case "close":
                    return
                case "more":
                    await asyncio.sleep(0.01)
                    writer.write(self._answer(b'{"number": -1}', {}, key))
                    with self._changed:
                        self.counts.unasked += 1
                        self._changed.notify_all()

    def _answer(self, body: bytes, wishes: dict[str, Any], key: str) -> bytes:
        status = 200
        if key in self.refused:
            status, body = 400, b'{"__type": "ExpiredTokenException", "message": "The security token is expired"}'
        headers = {"Date": formatdate(usegmt=True), "Content-Length": str(len(body)), **wishes.get("headers", {})}
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        return f"HTTP/1.1 {status} OK\r\n{lines}\r\n".encode() + body

    def _count(self, change: int) -> None:
        with self._changed:
            self.counts.accepted += change > 0
            self.counts.open += change
            self.counts.most_open = max(self.counts.most_open, self.counts.open)
            self._changed.notify_all()
