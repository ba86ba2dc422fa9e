"""A TCP proxy between client and engine that can be switched off, as if the engine or the network were down."""

import asyncio
import contextlib
import socket
import threading
from collections.abc import Coroutine
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

WAIT_S = 120.0
PIECE_BYTES = 65_536
# The kernel accepts one more connection than the backlog.
FILLERS = 2


class SwitchableProxy:
    """Forward bytes at a fixed `url`, in a thread with its own loop."""

    def __init__(self, engine_url: str) -> None:
        place = urlsplit(engine_url)
        self._engine = (place.hostname, place.port)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="switchable-proxy", daemon=True)
        self._port = 0
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._silent = False
        self._ignoring: list[socket.socket] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def __enter__(self) -> Self:
        self._thread.start()
        self.open()
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.refuse()
        self._run(self._settled())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def open(self) -> None:
        """Forward everything."""
        self._silent = False
        self._stop_ignoring()
        self._run(self._listen())

    def refuse(self) -> None:
        """Close the port and reset open connections."""
        self._stop_ignoring()
        self._run(self._close())

    def silence(self, cut: bool) -> None:
        """Accept connections and never answer; ``cut`` keeps open connections but silences them too."""
        self._silent = True
        if not cut:
            self._run(self._reset())

    def ignore(self) -> None:
        """Listen without accepting, with a full backlog; open connections are reset."""
        self.refuse()
        listening = socket.socket()
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(("127.0.0.1", self._port))
        listening.listen(0)
        self._ignoring.append(listening)
        for _ in range(FILLERS):
            filler = socket.socket()
            filler.setblocking(False)
            filler.connect_ex(("127.0.0.1", self._port))
            self._ignoring.append(filler)

    def _stop_ignoring(self) -> None:
        for one in self._ignoring:
            one.close()
        self._ignoring.clear()

    # ---------------------------------------------------------------- runs in the loop

    async def _listen(self) -> None:
        if self._server is None:
            self._server = await asyncio.start_server(self._accept, "127.0.0.1", self._port, reuse_address=True)
            self._port = self._server.sockets[0].getsockname()[1]

    async def _close(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None
        await self._reset()

    async def _reset(self) -> None:
        for writer in self._writers:
            writer.transport.abort()

    async def _settled(self) -> None:
        # A connection that was accepted just now has no task yet.
        await asyncio.sleep(0)
        while tasks := [*self._tasks]:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        mine = {writer}
        try:
            # Inside: a proxy that ends now cancels this too, and the accepted connection has to be closed.
            back, onward = await asyncio.open_connection(*self._engine)
            mine.add(onward)
            self._writers |= mine
            with contextlib.suppress(OSError, asyncio.CancelledError):
                await asyncio.gather(self._pass(reader, onward), self._pass(back, writer))
        finally:
            self._writers -= mine
            for one in mine:
                one.transport.abort()
            self._tasks.discard(task)

    async def _pass(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        while data := await source.read(PIECE_BYTES):
            if not self._silent:
                sink.write(data)
                await sink.drain()
        sink.transport.abort()

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(WAIT_S)
