"""The two connections of an exchange through the fault proxy: to the client and to the engine."""

import asyncio
import contextlib
import fcntl
import socket
import struct
import sys
import termios
from typing import Protocol

from tests.dynamodb import messages
from tests.dynamodb.messages import Message

ACK_POLL_S = 0.001
NO_LINGER = struct.pack("ii", 1, 0)


class Upstream:
    """The connection to the engine, opened on first use and again after the engine closed it."""

    def __init__(self, host: str, port: int, limit_bytes: int) -> None:
        self._place = (host, port)
        self._limit_bytes = limit_bytes
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def ask(self, request: Message) -> Message:
        """Return the engine's response, without its connection headers."""
        if self._reader is None or self._writer is None or self._reader.at_eof():
            self.close()
            self._reader, self._writer = await asyncio.open_connection(*self._place, limit=self._limit_bytes)
        self._writer.write(request.bytes)
        answer = await messages.read(self._reader)
        if answer is None:
            raise RuntimeError("the engine hung up without an answer")
        if (answer.header("connection") or "").lower() == "close":
            self.close()
        return answer.without_header("connection")

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
        self._reader = self._writer = None


class ProxyInterface(Protocol):
    """The methods of the proxy that an exchange uses."""

    def finished(self, answer: Message) -> Message:
        """Return a response with the date and checksum that every response has."""

    def stalls_changed(self) -> None:
        """Report that an exchange stalls or continues."""


class Client:
    """The connection to the client: what a fault may do with the current request."""

    request: Message

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, upstream: Upstream, proxy: ProxyInterface
    ) -> None:
        self.idle = True
        self.stalled = False
        self.finished = proxy.finished
        self._house = proxy
        self._reader = reader
        self._writer = writer
        self._upstream = upstream
        self._release = asyncio.Event()
        writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    async def next_request(self) -> Message | None:
        """Return the next request; None if there is none."""
        if self._writer.is_closing():
            return None
        self.idle = True
        request = await messages.read(self._reader)
        self.idle = False
        if request is not None:
            self.request = request
        return request

    async def forward(self) -> Message:
        return self.finished(await self._upstream.ask(self.request))

    async def send(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()
        if self._writer.is_closing():
            raise ConnectionResetError("the client has left")

    async def delivered(self) -> None:
        """Wait until all bytes are acknowledged; off Linux, assume that loopback is fast."""
        waiting = bytearray(4)
        while sys.platform == "linux" and not self._writer.is_closing():
            fcntl.ioctl(self._writer.get_extra_info("socket").fileno(), termios.TIOCOUTQ, waiting)
            if not any(waiting):
                return
            await asyncio.sleep(ACK_POLL_S)

    async def released(self) -> bool:
        self._stall(True)
        left = asyncio.create_task(self._reader.read(1))
        let_go = asyncio.create_task(self._release.wait())
        try:
            await asyncio.wait((left, let_go), return_when=asyncio.FIRST_COMPLETED)
            return let_go.done() and not left.done()
        finally:
            self._stall(False)
            self._release.clear()
            for task in (left, let_go):
                task.cancel()
            with contextlib.suppress(ConnectionError):
                await asyncio.gather(left, let_go, return_exceptions=True)

    def _stall(self, stalled: bool) -> None:
        self.stalled = stalled
        self._house.stalls_changed()

    def release(self) -> None:
        if self.stalled:
            self._release.set()

    def close(self) -> None:
        self._upstream.close()
        self._writer.close()

    def reset(self) -> None:
        self._upstream.close()
        if not self._writer.transport.is_closing():
            found = self._writer.get_extra_info("socket")
            found.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, NO_LINGER)
        self._writer.transport.abort()
