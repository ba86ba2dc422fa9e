"""Run real servers in processes of their own, and talk to them byte by byte."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import h11

from tests.web.reported import check_headers

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_S = 120

COMMANDS = {
    "uvicorn": ["uvicorn", "--fd", "{fd}", "--log-level", "critical"],
    "hypercorn": ["hypercorn", "--bind", "fd://{fd}", "--log-level", "CRITICAL", "--workers", "0"],
    "gunicorn": [
        *["gunicorn", "--bind", "fd://{fd}", "--log-level", "critical", "--no-control-socket"],
        *["--worker-class", "uvicorn.workers.UvicornWorker"],
    ],
    "gunicorn-asgi": [
        *["gunicorn", "--bind", "fd://{fd}", "--log-level", "critical", "--no-control-socket"],
        *["--worker-class", "asgi"],
    ],
}


@dataclass
class Answer:
    """A response, with its headers checked."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Connection:
    """One connection of HTTP/1.1, which may be cut off."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    http: h11.Connection = field(default_factory=lambda: h11.Connection(h11.CLIENT))

    async def send(self, method: str, path: str, body: bytes = b"", **headers: str) -> None:
        """Send a request; underscores in names of headers become hyphens."""
        given = [(name.replace("_", "-"), value) for name, value in headers.items()]
        sized = [("content-length", str(len(body)))] if body else []
        request = h11.Request(method=method, target=path, headers=[("host", "127.0.0.1"), *sized, *given])
        events = [request, h11.Data(body), h11.EndOfMessage()] if body else [request, h11.EndOfMessage()]
        self.writer.write(b"".join(self.http.send(event) or b"" for event in events))
        await self.writer.drain()

    async def event(self) -> Any:
        """Return the next event."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                event = self.http.next_event()
                if event is not h11.NEED_DATA:
                    return event
                self.http.receive_data(await self.reader.read(65_536))

    async def answer(self) -> Answer:
        """Receive a whole response."""
        start, body = await self.event(), b""
        while isinstance(event := await self.event(), h11.Data):
            body += bytes(event.data)
        headers = check_headers([(name.decode(), value.decode()) for name, value in start.headers])
        if self.http.our_state is h11.DONE and self.http.their_state is h11.DONE:
            self.http.start_next_cycle()
        return Answer(start.status_code, headers, body)


@dataclass
class Server:
    """A running server."""

    kind: str
    port: int

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection]:
        """Connect, and close at the end."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            yield Connection(reader, writer)
        finally:
            writer.close()

    async def request(self, method: str, path: str, body: bytes = b"", **headers: str) -> Answer:
        """Send one request on a connection of its own."""
        async with self.connection() as connection:
            await connection.send(method, path, body, **headers)
            return await connection.answer()

    async def get(self, path: str, **headers: str) -> Answer:
        """Get a path."""
        return await self.request("GET", path, **headers)

    async def left(self, entity: str, resource: str) -> dict[str, int]:
        """Return what is left of a bucket."""
        found: dict[str, int] = (await self.get(f"/control/available?{urlencode(locals_of(entity, resource))}")).json
        return found

    async def resources(self, entity: str) -> list[str]:
        """Return the resources that an entity has buckets of."""
        found: list[str] = (await self.get(f"/control/resources?entity={entity}")).json
        return found

    async def ended(self, call: str) -> dict[str, Any]:
        """Wait until a call has ended, with its lease."""
        found: dict[str, Any] = (await self.get(f"/control/ended?call={call}")).json
        return found


def locals_of(entity: str, resource: str) -> dict[str, str]:
    """Return the options of a query."""
    return {"entity": entity, "resource": resource}


@contextmanager
def running(kind: str, target: str) -> Iterator[Server]:
    """Run a server, on a socket that listens already, so that a client waits until it is ready."""
    with closing(socket.create_server(("127.0.0.1", 0), backlog=1024)) as listening:
        port = listening.getsockname()[1]
        words = [word.format(fd=listening.fileno()) for word in COMMANDS[kind]]
        process = subprocess.Popen(
            [sys.executable, "-m", *words, target],
            cwd=ROOT,
            env={**os.environ, "SERVED_BY_TESTS": "1", "PYTHONWARNINGS": "ignore"},
            stdin=subprocess.PIPE,
            pass_fds=[listening.fileno()],
            start_new_session=True,
        )
    try:
        yield Server(kind, port)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(PATIENCE_S)
        assert process.stdin is not None
        process.stdin.close()
