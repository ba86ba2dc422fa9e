"""A proxy between client and engine that injects faults: a thread with its own loop, and a blocking control.

Every method may be called from any thread. In an async test, waiting methods such as `wait_for` run
in a thread.
"""

import asyncio
import contextlib
import itertools
import json
import threading
import zlib
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from email.utils import formatdate
from types import TracebackType
from typing import Any, Self, TypeVar
from urllib.parse import urlsplit

from tests.dynamodb import skew
from tests.dynamodb.certificate import Certificate
from tests.dynamodb.exchange import Client, Upstream
from tests.dynamodb.faults import Fault, Nothing
from tests.dynamodb.messages import Message

WAIT_S = 120.0
ENGINE_LIMIT_BYTES = 32 << 20

Clock = Callable[[], float]
Result = TypeVar("Result")


@dataclass(slots=True)
class ResponseSettings:
    """How the proxy answers without a fault; it may be changed while the proxy runs."""

    # The server's time in seconds for the Date of every response; None keeps the engine's.
    date_s: Clock | None = None
    # The server's time that signatures are checked with; None checks none.
    signatures_s: Clock | None = None
    # Whether every response has a correct x-amz-crc32; otherwise the engine's is kept.
    checksum: bool = True

    def finished(self, answer: Message) -> Message:
        """Return a response as it is sent."""
        if self.checksum:
            answer = answer.with_header("x-amz-crc32", str(zlib.crc32(answer.body)))
        if self.date_s is not None:
            return answer.with_header("Date", formatdate(int(self.date_s()), usegmt=True))
        return answer if answer.header("date") else answer.with_header("Date", formatdate(usegmt=True))

    def refusal(self, request: Message) -> Fault | None:
        """Return the fault of a request signed at another time; None if its time is valid."""
        if self.signatures_s is None:
            return None
        return skew.refusal(request.header("x-amz-date") or "", self.signatures_s())


@dataclass(frozen=True, slots=True)
class Seen:
    """A request that reached the proxy, and the fault applied to it."""

    target: str
    body: Any
    connection: int
    amz_date: str | None
    fault: Fault
    request: Message


@dataclass(slots=True)
class Planned:
    """A fault that waits for requests."""

    fault: Fault
    target: str | None
    times: int

    def meets(self, target: str) -> bool:
        return self.times > 0 and self.target in (None, target)


class Proxy:
    """Run as a context manager at `url`."""

    def __init__(
        self, engine_url: str, settings: ResponseSettings | None = None, tls: Certificate | None = None
    ) -> None:
        self.settings = settings or ResponseSettings()
        self.url = ""
        place = urlsplit(engine_url)
        self._engine = (place.hostname or "", place.port or 80)
        self._tls = tls
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="fault proxy", daemon=True)
        self._changed = threading.Condition()
        self._seen: list[Seen] = []
        self._planned: list[Planned] = []
        self._standing: list[Planned] = []
        self._clients: dict[int, Client] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._numbers = itertools.count(1)
        self._failures: list[Exception] = []

    def __enter__(self) -> Self:
        self._thread.start()
        self._server = self._run(self._listen())
        scheme = "https" if self._tls else "http"
        self.url = f"{scheme}://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._run(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        if self._failures and error is None:
            raise self._failures[0]

    # ---------------------------------------------------------------- faults

    def next(self, fault: Fault, times: int = 1, target: str | None = None) -> None:
        """Apply a fault to the next requests, or to the next with this target (`UpdateItem`)."""
        with self._changed:
            self._planned.append(Planned(fault, target, times))

    def always(self, fault: Fault, target: str | None = None) -> None:
        """Apply a fault to every request without a planned one, until `clear_faults`."""
        with self._changed:
            self._standing.insert(0, Planned(fault, target, 1))

    def clear_faults(self) -> None:
        """Remove all faults, and reset stalled connections."""
        with self._changed:
            self._planned.clear()
            self._standing.clear()
        self._call(lambda: [client.reset() for client in self._clients.values() if client.stalled])

    def release(self) -> None:
        """Let stalled requests continue to their responses."""
        self._call(lambda: [client.release() for client in self._clients.values()])

    def reset_idle(self) -> int:
        """Reset the idle connections and return their number."""
        return self._call(lambda: len([client.reset() for client in self._idle()]))

    def close_idle(self) -> int:
        """Close the idle connections normally and return their number."""
        return self._call(lambda: len([client.close() for client in self._idle()]))

    # ---------------------------------------------------------------- recorded requests

    @property
    def seen(self) -> list[Seen]:
        """Return every request so far, in order."""
        with self._changed:
            return list(self._seen)

    @property
    def targets(self) -> list[str]:
        """Return the targets so far, in order: `["GetItem", "UpdateItem"]`."""
        return [seen.target for seen in self.seen]

    @property
    def open_connections(self) -> int:
        """The number of open client connections."""
        return self._call(lambda: len(self._clients))

    def forget(self) -> None:
        """Clear the record of requests."""
        with self._changed:
            self._seen.clear()

    def wait_for(self, count: int, target: str | None = None) -> None:
        """Wait until this many requests have arrived since `forget`."""
        self._wait(lambda: sum(target in (None, seen.target) for seen in self._seen) >= count, f"{count} requests")

    def wait_for_stalls(self, count: int) -> None:
        """Wait until this many requests stall, whether or not they were applied."""
        self._wait(lambda: sum(client.stalled for client in self._clients.values()) >= count, f"{count} stalls")

    def wait_for_connections(self, count: int) -> None:
        """Wait until clients have exactly this many open connections."""
        self._wait(lambda: len(self._clients) == count, f"{count} connections")

    # ---------------------------------------------------------------- runs in the loop

    async def _listen(self) -> asyncio.Server:
        context = self._tls.server_context() if self._tls else None
        return await asyncio.start_server(self._accept, "127.0.0.1", 0, ssl=context)

    async def _end(self) -> None:
        self._server.close()
        for client in list(self._clients.values()):
            client.reset()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        number = next(self._numbers)
        client = Client(reader, writer, Upstream(*self._engine, ENGINE_LIMIT_BYTES), self)
        self._connected(number, client)
        try:
            with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
                await self._converse(number, client)
        except Exception as failure:  # noqa: BLE001 - kept, and raised when the proxy ends
            self._failures.append(failure)
        finally:
            client.close()
            self._connected(number, None)
            self._tasks.discard(task)

    async def _converse(self, number: int, client: Client) -> None:
        while (request := await client.next_request()) is not None:
            fault = self.settings.refusal(request) or self._choose(target_of(request))
            self._note(request, number, fault)
            await fault.play(client)

    def _choose(self, target: str) -> Fault:
        with self._changed:
            for planned in self._planned:
                if planned.meets(target):
                    planned.times -= 1
                    return planned.fault
            return next((standing.fault for standing in self._standing if standing.meets(target)), Nothing())

    def _note(self, request: Message, number: int, fault: Fault) -> None:
        body = json.loads(request.body) if request.body else None
        seen = Seen(target_of(request), body, number, request.header("x-amz-date"), fault, request)
        with self._changed:
            self._seen.append(seen)
            self._changed.notify_all()

    def finished(self, answer: Message) -> Message:
        """Return a response according to the current settings."""
        return self.settings.finished(answer)

    def stalls_changed(self) -> None:
        """Report that a connection stalls or continues."""
        with self._changed:
            self._changed.notify_all()

    def _connected(self, number: int, client: Client | None) -> None:
        with self._changed:
            if client is None:
                self._clients.pop(number, None)
            else:
                self._clients[number] = client
            self._changed.notify_all()

    def _idle(self) -> list[Client]:
        return [client for client in self._clients.values() if client.idle]

    # ---------------------------------------------------------------- between the threads

    def _run(self, work: Coroutine[Any, Any, Result]) -> Result:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(WAIT_S)

    def _call(self, action: Callable[[], Result]) -> Result:
        async def act() -> Result:
            return action()

        return self._run(act())

    def _wait(self, reached: Callable[[], bool], what: str) -> None:
        with self._changed:
            if not self._changed.wait_for(reached, WAIT_S):
                raise TimeoutError(f"no {what} within {WAIT_S} s; seen: {[seen.target for seen in self._seen]}")


def target_of(request: Message) -> str:
    """Return `UpdateItem` for `DynamoDB_20120810.UpdateItem`."""
    return (request.header("x-amz-target") or "").rpartition(".")[2]
