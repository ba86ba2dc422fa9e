"""Run a canned DynamoDB in its own process: every call gets the body for its target, at little cost.

    with responder.running({"UpdateItem": body}, latency_ms=2) as url:
        ...
        print(responder.calls(url))

So only the client is measured, over a network whose round trip takes `latency_ms`. The responder
stores no items, checks nothing, and ends with the process that started it.
"""

import asyncio
import base64
import gc
import json
import selectors
import subprocess
import sys
import time
import urllib.request
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from email.utils import formatdate

VERSION = "DynamoDB_20120810"
# The target that returns how often each target was answered.
CALLS = "Calls"
UNKNOWN = b'{"__type":"com.amazon.coral.service#UnknownOperationException"}'

HEAD_END = b"\r\n\r\n"
LENGTH = b"\r\ncontent-length:"
TARGET = b"\r\nx-amz-target:"


@contextmanager
def running(bodies: Mapping[str, bytes], latency_ms: float = 0) -> Iterator[str]:
    """Yield the URL of a responder with a body for each target (`UpdateItem`), until the block ends."""
    encoded = {target: base64.b64encode(body).decode() for target, body in bodies.items()}
    order = json.dumps({"bodies": encoded, "latency_ms": latency_ms})
    with subprocess.Popen(
        [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(order + "\n")
            process.stdin.flush()
            port = process.stdout.readline().strip()
            if not port:
                raise RuntimeError("the responder ended before it was listening")
            yield f"http://127.0.0.1:{port}"
        finally:
            process.kill()


def calls(url: str) -> dict[str, int]:
    """Return how often each target has been answered so far."""
    request = urllib.request.Request(url, b"{}", {"X-Amz-Target": f"{VERSION}.{CALLS}"})
    with urllib.request.urlopen(request) as response:
        counted: dict[str, int] = json.load(response)
    return counted


class Canned:
    """One response, which is rendered again when the second changes."""

    __slots__ = ("_body", "_second", "_status", "count", "rendered", "target")

    def __init__(self, target: str, body: bytes, status: str = "200 OK") -> None:
        self.target = target
        self.count = 0
        self.rendered = b""
        self._body = body
        self._status = status
        self._second = 0

    def at(self, now_s: int) -> bytes:
        """Return the response with the date of this second."""
        self.count += 1
        if now_s != self._second:
            self._second = now_s
            self.rendered = render(self._status, self._body, now_s)
        return self.rendered


def render(status: str, body: bytes, now_s: int) -> bytes:
    """Return a response with the headers that DynamoDB sends."""
    lines = [
        f"HTTP/1.1 {status}",
        "Server: Server",
        f"Date: {formatdate(now_s, usegmt=True)}",
        "Content-Type: application/x-amz-json-1.0",
        f"Content-Length: {len(body)}",
        "Connection: keep-alive",
        f"x-amzn-RequestId: {now_s:052X}",
        f"x-amz-crc32: {zlib.crc32(body)}",
    ]
    return "\r\n".join([*lines, "", ""]).encode() + body


class Answers:
    """The responses of one responder, by target in lower case."""

    def __init__(self, bodies: Mapping[str, bytes]) -> None:
        self._canned = {f"{VERSION}.{name}".lower().encode(): Canned(name, body) for name, body in bodies.items()}
        self._unknown = Canned("unknown", UNKNOWN, "400 Bad Request")
        self._calls = f"{VERSION}.{CALLS}".lower().encode()

    def to(self, target: bytes) -> bytes:
        now_s = int(time.time())
        canned = self._canned.get(target)
        if canned is not None:
            return canned.at(now_s)
        if target == self._calls:
            counted = {each.target: each.count for each in (*self._canned.values(), self._unknown)}
            return render("200 OK", json.dumps(counted).encode(), now_s)
        return self._unknown.at(now_s)


class Connection(asyncio.Protocol):
    """Parse only the length and the target of a request."""

    def __init__(self, answers: Answers, latency_s: float) -> None:
        self._answers = answers
        self._latency_s = latency_s
        self._later = asyncio.get_running_loop().call_later
        self._received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        received = self._received + data if self._received else data
        while (head_end := received.find(HEAD_END)) >= 0:
            head = received[:head_end].lower()
            end = head_end + len(HEAD_END) + int(header(head, LENGTH) or 0)
            if len(received) < end:
                break
            self._answer(header(head, TARGET))
            received = received[end:]
        self._received = received

    def _answer(self, target: bytes) -> None:
        answer = self._answers.to(target)
        if self._latency_s:
            self._later(self._latency_s, self._transport.write, answer)
        else:
            self._transport.write(answer)


def header(head: bytes, name: bytes) -> bytes:
    """Return the value of a header in a lower-case head, empty if it is missing."""
    start = head.find(name)
    if start < 0:
        return b""
    start += len(name)
    end = head.find(b"\r\n", start)
    return head[start : end if end >= 0 else None].strip()


async def serve(answers: Answers, latency_s: float) -> None:
    """Listen, print the port, and answer until stdin ends."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Connection(answers, latency_s), "127.0.0.1", 0, backlog=1024)
    sys.stdout.write(f"{server.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    parent_left = asyncio.Event()
    loop.add_reader(sys.stdin.fileno(), parent_left.set)
    await parent_left.wait()


class Awake(selectors.DefaultSelector):
    """A selector that never sleeps, because waking an idle core of a virtual machine takes tens of microseconds."""

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        return super().select(0)


def new_loop(latency_s: float) -> asyncio.AbstractEventLoop:
    """Return a loop that never sleeps, or with a latency one with exact timers: epoll rounds to milliseconds."""
    return asyncio.SelectorEventLoop(selectors.SelectSelector() if latency_s else Awake())


def main() -> None:
    order = json.loads(sys.stdin.readline())
    bodies = {target: base64.b64decode(body) for target, body in order["bodies"].items()}
    latency_s = order["latency_ms"] / 1000
    gc.disable()
    with asyncio.Runner(loop_factory=lambda: new_loop(latency_s)) as runner:
        runner.run(serve(Answers(bodies), latency_s))


if __name__ == "__main__":
    main()
