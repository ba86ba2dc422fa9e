"""Faults of a network or server: each is a value that plays itself on an exchange.

`applied` says whether the engine carries the request out nevertheless.
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
    """One request, and what may be done with it."""

    request: Message

    async def forward(self) -> Message:
        """Let the engine carry it out, and return the response as the client will see it."""

    def finished(self, answer: Message) -> Message:
        """Return a response with the date and checksum that every response has."""

    async def send(self, data: bytes) -> None:
        """Send bytes to the client."""

    async def delivered(self) -> None:
        """Wait until the client's machine has received everything."""

    async def released(self) -> bool:
        """Wait until stalled responses are released; False if the client leaves before."""

    def close(self) -> None:
        """Close the connection normally."""

    def reset(self) -> None:
        """Reset the connection."""


class Fault(Protocol):
    """A fault of a call."""

    async def play(self, exchange: Exchange) -> None:
        """Apply the fault."""


@dataclass(frozen=True, slots=True)
class Nothing:
    """No fault: the request is forwarded and answered."""

    async def play(self, exchange: Exchange) -> None:
        answer = await exchange.forward()
        await exchange.send(answer.bytes)


@dataclass(frozen=True, slots=True)
class Drop:
    """The connection ends without a response, by a reset or normally."""

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
    """The x-amz-crc32 header does not match the body."""

    async def play(self, exchange: Exchange) -> None:
        answer = await exchange.forward()
        await exchange.send(answer.with_header("x-amz-crc32", "1").bytes)


@dataclass(frozen=True, slots=True)
class Stall:
    """The response waits until the proxy releases it; then it is complete."""

    applied: bool

    async def play(self, exchange: Exchange) -> None:
        early = await exchange.forward() if self.applied else None
        if await exchange.released():
            answer = early or await exchange.forward()
            await exchange.send(answer.bytes)


@dataclass(frozen=True, slots=True)
class Delay:
    """The response is delayed; the engine works before or after the pause."""

    delay_ms: float
    applied: bool = True

    async def play(self, exchange: Exchange) -> None:
        early = await exchange.forward() if self.applied else None
        await asyncio.sleep(self.delay_ms / 1000)
        answer = early or await exchange.forward()
        await exchange.send(answer.bytes)


@dataclass(frozen=True, slots=True)
class Split:
    """The response arrives in pieces of this many bytes, with a pause between them."""

    piece_bytes: int = 1
    pause_ms: float = 0

    async def play(self, exchange: Exchange) -> None:
        data = (await exchange.forward()).bytes
        for start in range(0, len(data), self.piece_bytes):
            await exchange.send(data[start : start + self.piece_bytes])
            await asyncio.sleep(self.pause_ms / 1000)


@dataclass(frozen=True, slots=True)
class ResetIdle:
    """The response is delivered, and the idle connection is reset shortly afterwards."""

    after_ms: float = 0

    async def play(self, exchange: Exchange) -> None:
        answer = await exchange.forward()
        await exchange.send(answer.bytes)
        await exchange.delivered()
        await asyncio.sleep(self.after_ms / 1000)
        exchange.reset()


@dataclass(frozen=True, slots=True)
class Endless:
    """A response that never ends: a body of declared length, a chunked body, or a header."""

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
    """Bytes that are not HTTP, then the end of the connection."""

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
    """An error response of DynamoDB, before or after the engine has applied the request."""

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
    """The engine's response with a changed body, for responses that no engine sends."""

    change: Callable[[bytes], bytes]

    async def play(self, exchange: Exchange) -> None:
        answer = await exchange.forward()
        body = self.change(answer.body)
        changed = Message(answer.first_line, answer.headers, body).with_header("Content-Length", str(len(body)))
        await exchange.send(exchange.finished(changed).bytes)


@dataclass(frozen=True, slots=True)
class Misdated:
    """The Date of the response is off by this many seconds."""

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
    """Return a throttle of the partition, the table, an index or the account; engines give no reasons."""
    message = "The level of configured provisioned throughput for the table was exceeded"
    arn = "arn:aws:dynamodb:us-east-1:123456789012:table/limits"
    details = {"ThrottlingReasons": [{"reason": reason, "resource": arn} for reason in reasons]} if reasons else {}
    return Refuse(400, f"{SERVICE}#ProvisionedThroughputExceededException", message, more=details)


def conflict() -> Refuse:
    """Return the refusal of a plain write that conflicts with a transaction in progress."""
    return Refuse(400, f"{SERVICE}#TransactionConflictException", "Transaction is ongoing for the item")


def cancelled(*codes: str) -> Refuse:
    """Return a cancelled transaction with one reason per item.

    For example `None`, `TransactionConflict` or `ThrottlingError`.
    """
    reasons = [{"Code": code} if code == "None" else {"Code": code, "Message": code} for code in codes]
    message = f"Transaction cancelled, please refer cancellation reasons for specific reasons [{', '.join(codes)}]"
    code = f"{SERVICE}#TransactionCanceledException"
    return Refuse(400, code, more={"Message": message, "CancellationReasons": reasons})
