"""What a network and a server can do to a call: each fault is a value, and plays itself on an exchange.

`applied` says whether the engine carries the request out all the same.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from email.utils import formatdate, parsedate_to_datetime
from typing import Literal, Protocol

from tests.dynamodb import messages
from tests.dynamodb.messages import Message

SERVICE = "com.amazonaws.dynamodb.v20120810"
ENDLESS_PIECE = b"x" * 65_536
DECLARED_BYTES = 1 << 40


class Exchange(Protocol):
    """One request, and what may be done about it."""

    request: Message

    async def forward(self) -> Message:
        """Have the engine carry it out, and return its answer as the client shall see it."""

    def finished(self, answer: Message) -> Message:
        """An answer with the date and checksum that every answer has."""

    async def send(self, data: bytes) -> None:
        """Hand bytes to the client."""

    async def delivered(self) -> None:
        """Wait until the client's machine has everything that was sent."""

    async def released(self) -> bool:
        """Wait until stalled answers are let go; False where the client leaves before."""

    def close(self) -> None:
        """End the connection in order."""

    def reset(self) -> None:
        """End the connection by a reset."""


class Fault(Protocol):
    """Something that happens to a call."""

    async def play(self, exchange: Exchange) -> None:
        """Let it happen."""


@dataclass(frozen=True, slots=True)
class Nothing:
    """No fault: the request is forwarded and answered."""

    async def play(self, exchange: Exchange) -> None:
        answer = await exchange.forward()
        await exchange.send(answer.bytes)


@dataclass(frozen=True, slots=True)
class Drop:
    """The connection ends without an answer: by a reset, or in order."""

    applied: bool
    reset: bool = True

    async def play(self, exchange: Exchange) -> None:
        if self.applied:
            await exchange.forward()
        (exchange.reset if self.reset else exchange.close)()


@dataclass(frozen=True, slots=True)
class Half:
    """The head and half of the body arrive, then the connection ends."""

    reset: bool = False

    async def play(self, exchange: Exchange) -> None:
        answer = await exchange.forward()
        await exchange.send(answer.head + answer.body[: len(answer.body) // 2])
        await exchange.delivered()
        (exchange.reset if self.reset else exchange.close)()


@dataclass(frozen=True, slots=True)
class WrongChecksum:
    """The answer's x-amz-crc32 is not that of its body."""

    async def play(self, exchange: Exchange) -> None:
        answer = await exchange.forward()
        await exchange.send(answer.with_header("x-amz-crc32", "1").bytes)


@dataclass(frozen=True, slots=True)
class Stall:
    """No answer comes until the proxy releases it; what is released is answered as if nothing had been."""

    applied: bool

    async def play(self, exchange: Exchange) -> None:
        early = await exchange.forward() if self.applied else None
        if await exchange.released():
            answer = early or await exchange.forward()
            await exchange.send(answer.bytes)


@dataclass(frozen=True, slots=True)
class Delay:
    """The answer comes so much later; the engine works before the pause, or after it."""

    delay_ms: float
    applied: bool = True

    async def play(self, exchange: Exchange) -> None:
        early = await exchange.forward() if self.applied else None
        await asyncio.sleep(self.delay_ms / 1000)
        answer = early or await exchange.forward()
        await exchange.send(answer.bytes)


@dataclass(frozen=True, slots=True)
class Split:
    """The answer comes in pieces of so many bytes, with a pause between them."""

    piece_bytes: int = 1
    pause_ms: float = 0

    async def play(self, exchange: Exchange) -> None:
        data = (await exchange.forward()).bytes
        for start in range(0, len(data), self.piece_bytes):
            await exchange.send(data[start : start + self.piece_bytes])
            await asyncio.sleep(self.pause_ms / 1000)


@dataclass(frozen=True, slots=True)
class ResetIdle:
    """The answer is delivered; the idle connection is reset a little later."""

    after_ms: float = 0

    async def play(self, exchange: Exchange) -> None:
        answer = await exchange.forward()
        await exchange.send(answer.bytes)
        await exchange.delivered()
        await asyncio.sleep(self.after_ms / 1000)
        exchange.reset()


@dataclass(frozen=True, slots=True)
class Endless:
    """An answer that never ends: a body of declared length, one in chunks, or a header."""

    place: Literal["length", "chunks", "header"] = "length"

    async def play(self, exchange: Exchange) -> None:
        piece = ENDLESS_PIECE
        if self.place == "length":
            await exchange.send(f"HTTP/1.1 200 OK\r\nContent-Length: {DECLARED_BYTES}\r\n\r\n".encode())
        elif self.place == "chunks":
            await exchange.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
            piece = f"{len(piece):x}\r\n".encode() + piece + b"\r\n"
        else:
            await exchange.send(b"HTTP/1.1 200 OK\r\nX-Endless: ")
        while True:  # until the client leaves, which ends `send` with a ConnectionError
            await exchange.send(piece)


@dataclass(frozen=True, slots=True)
class Garbage:
    """Bytes that are no HTTP, then the end of the connection."""

    data: bytes = b"\x00\x01SSH-2.0-nothing to see here\r\n\r\n"
    applied: bool = False

    async def play(self, exchange: Exchange) -> None:
        if self.applied:
            await exchange.forward()
        await exchange.send(self.data)
        await exchange.delivered()
        exchange.close()


@dataclass(frozen=True, slots=True)
class Refuse:
    """An error that DynamoDB answers, before or after the engine did its work."""

    status: int
    code: str
    message: str = ""
    applied: bool = False
    more: dict[str, object] = field(default_factory=dict)

    async def play(self, exchange: Exchange) -> None:
        if self.applied:
            await exchange.forward()
        said: dict[str, object] = {"message": self.message} if self.message else {}
        answer = messages.answer(self.status, {"__type": self.code, **said, **self.more})
        await exchange.send(exchange.finished(answer).bytes)


@dataclass(frozen=True, slots=True)
class Rewrite:
    """The engine's answer, changed by a function of the body's text: for what no engine would say."""

    change: Callable[[bytes], bytes]

    async def play(self, exchange: Exchange) -> None:
        answer = await exchange.forward()
        body = self.change(answer.body)
        changed = Message(answer.first_line, answer.headers, body).with_header("Content-Length", str(len(body)))
        await exchange.send(exchange.finished(changed).bytes)


@dataclass(frozen=True, slots=True)
class Misdated:
    """The answer's Date is off by this many seconds."""

    off_s: int

    async def play(self, exchange: Exchange) -> None:
        answer = await exchange.forward()
        date_s = parsedate_to_datetime(answer.header("date") or "").timestamp() + self.off_s
        await exchange.send(answer.with_header("Date", formatdate(date_s, usegmt=True)).bytes)


def server_error(applied: bool) -> Refuse:
    """HTTP 500."""
    return Refuse(500, f"{SERVICE}#InternalServerError", "The request could not be processed", applied)


def unavailable(applied: bool) -> Refuse:
    """HTTP 503."""
    return Refuse(503, f"{SERVICE}#ServiceUnavailable", "The service is unavailable", applied)


KEY_RANGE = "TableWriteKeyRangeThroughputExceeded"
"""The reason of a throttle: the partition of the key has no capacity left."""


def throttled(*reasons: str) -> Refuse:
    """The partition, the table, an index or the account has no capacity left; engines give no reasons."""
    message = "The level of configured provisioned throughput for the table was exceeded"
    arn = "arn:aws:dynamodb:us-east-1:123456789012:table/limits"
    told = {"ThrottlingReasons": [{"reason": reason, "resource": arn} for reason in reasons]} if reasons else {}
    return Refuse(400, f"{SERVICE}#ProvisionedThroughputExceededException", message, more=told)


def conflict() -> Refuse:
    """A plain write met a transaction that is under way."""
    return Refuse(400, f"{SERVICE}#TransactionConflictException", "Transaction is ongoing for the item")


def cancelled(*codes: str) -> Refuse:
    """A transaction cancelled for these reasons, one per item: `None`, `TransactionConflict`, `ThrottlingError`, ..."""
    reasons = [{"Code": code} if code == "None" else {"Code": code, "Message": code} for code in codes]
    message = f"Transaction cancelled, please refer cancellation reasons for specific reasons [{', '.join(codes)}]"
    code = f"{SERVICE}#TransactionCanceledException"
    return Refuse(400, code, more={"Message": message, "CancellationReasons": reasons})
