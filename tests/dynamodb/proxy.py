"""A proxy between client and engine that plays faults: a thread with a loop of its own, and a blocking control.

Every method may be called from any thread. In an async test those that wait (`wait_for`) go through a thread.
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
class Manner:
    """How the proxy answers when nothing goes wrong; it may be changed while the proxy runs."""

    # The server's time in seconds, for the Date of every answer; None leaves the engine's.
    date_s: Clock | None = None
    # The server's time by which signatures are judged; None judges none.
    signatures_s: Clock | None = None
    # Whether every answer carries the right x-amz-crc32, or whatever the engine sent.
    checksum: bool = True

    def finished(self, answer: Message) -> Message:
        """An answer as it goes out."""
        if self.checksum:
            answer = answer.with_header("x-amz-crc32", str(zlib.crc32(answer.body)))
        if self.date_s is not None:
            return answer.with_header("Date", formatdate(int(self.date_s()), usegmt=True))
        return answer if answer.header("date") else answer.with_header("Date", formatdate(usegmt=True))

    def refusal(self, request: Message) -> Fault | None:
        """What happens to a request signed at another time, if anything."""
        if self.signatures_s is None:
            return None
        return skew.refusal(request.header("x-amz-date") or "", self.signatures_s())


@dataclass(frozen=True, slots=True)
class Seen:
    """A request that reached the proxy, and what was done to it."""

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
    """Runs from `with` to its end, at `url`."""

    def __init__(self, engine_url: str, manner: Manner | None = None, tls: Certificate | None = None) -> None:
        self.manner = manner or Manner()
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

    # ---------------------------------------------------------------- what goes wrong

    def next(self, fault: Fault, times: int = 1, target: str | None = None) -> None:
        """Play a fault on the next requests, or on the next with this target (`UpdateItem`)."""
        with self._changed:
            self._planned.append(Planned(fault, target, times))

    def always(self, fault: Fault, target: str | None = None) -> None:
        """Play a fault on every request that no planned one meets, until `calm`."""
        with self._changed:
            self._standing.insert(0, Planned(fault, target, 1))

    def calm(self) -> None:
        """No more faults; connections that stall are reset."""
        with self._changed:
            self._planned.clear()
            self._standing.clear()
        self._call(lambda: [client.reset() for client in self._clients.values() if client.stalled])

    def release(self) -> None:
        """Let stalled requests go on to their answers."""
        self._call(lambda: [client.release() for client in self._clients.values()])

    def reset_idle(self) -> int:
        """Reset the connections that wait for a request; how many there were."""
        return self._call(lambda: len([client.reset() for client in self._idle()]))

    def close_idle(self) -> int:
        """Close the connections that wait for a request, in order; how many there were."""
        return self._call(lambda: len([client.close() for client in self._idle()]))

    # ---------------------------------------------------------------- what was seen

    @property
    def seen(self) -> list[Seen]:
        """Every request so far, in order."""
        with self._changed:
            return list(self._seen)

    @property
    def targets(self) -> list[str]:
        """What was asked, in order: `["GetItem", "UpdateItem"]`."""
        return [seen.target for seen in self.seen]

    @property
    def open_connections(self) -> int:
        """How many connections clients have open."""
        return self._call(lambda: len(self._clients))

    def forget(self) -> None:
        """Begin the log anew."""
        with self._changed:
            self._seen.clear()

    def wait_for(self, count: int, target: str | None = None) -> None:
        """Wait until so many requests have been seen since `forget`."""
        self._wait(lambda: sum(target in (None, seen.target) for seen in self._seen) >= count, f"{count} requests")

    def wait_for_stalls(self, count: int) -> None:
        """Wait until so many requests stall, applied or not as their fault says."""
        self._wait(lambda: sum(client.stalled for client in self._clients.values()) >= count, f"{count} stalls")

    def wait_for_connections(self, count: int) -> None:
        """Wait until clients have exactly so many connections open."""
        self._wait(lambda: len(self._clients) == count, f"{count} connections")

    # ---------------------------------------------------------------- the thread's side

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
            fault = self.manner.refusal(request) or self._choose(target_of(request))
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
        """An answer in the manner of the moment."""
        return self.manner.finished(answer)

    def stalls_changed(self) -> None:
        """A connection has begun to stall, or goes on."""
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
    """`UpdateItem` of `DynamoDB_20120810.UpdateItem`."""
    return (request.header("x-amz-target") or "").rpartition(".")[2]
