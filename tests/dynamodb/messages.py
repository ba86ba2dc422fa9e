"""HTTP/1.1 requests and responses as the fault proxy sees them: a head, and a body of known length."""

import asyncio
import json
from dataclasses import dataclass

Headers = tuple[tuple[str, str], ...]

HEAD_END = b"\r\n\r\n"


@dataclass(frozen=True, slots=True)
class Message:
    """A request or a response: its first line, its headers in order, its body."""

    first_line: str
    headers: Headers
    body: bytes

    def header(self, name: str) -> str | None:
        """Return the first header of this name, in any case."""
        return next((value for known, value in self.headers if known.lower() == name.lower()), None)

    def with_header(self, name: str, value: str) -> "Message":
        """Return the message with this header as the only one of its name, at the end."""
        return Message(self.first_line, (*self._without(name), (name, value)), self.body)

    def without_header(self, name: str) -> "Message":
        return Message(self.first_line, self._without(name), self.body)

    def _without(self, name: str) -> Headers:
        return tuple(header for header in self.headers if header[0].lower() != name.lower())

    @property
    def head(self) -> bytes:
        """Everything before the body."""
        lines = [self.first_line, *(f"{name}: {value}" for name, value in self.headers), "", ""]
        return "\r\n".join(lines).encode("latin-1")

    @property
    def bytes(self) -> bytes:
        return self.head + self.body

    @property
    def status(self) -> int:
        """The status of a response."""
        return int(self.first_line.split()[1])


def answer(status: int, body: dict[str, object]) -> Message:
    """Return a response as DynamoDB makes it."""
    encoded = json.dumps(body).encode()
    headers = (("Content-Type", "application/x-amz-json-1.0"), ("Content-Length", str(len(encoded))))
    return Message(f"HTTP/1.1 {status} {'OK' if status == 200 else 'Error'}", headers, encoded)


async def read(reader: asyncio.StreamReader) -> Message | None:
    """Return the next message; None if the connection ends before one begins."""
    try:
        head = await reader.readuntil(HEAD_END)
    except asyncio.IncompleteReadError as ended:
        if ended.partial:
            raise
        return None
    first_line, *lines = head.decode("latin-1").removesuffix("\r\n\r\n").split("\r\n")
    named = (line.partition(":") for line in lines)
    message = Message(first_line, tuple((name.strip(), value.strip()) for name, _, value in named), b"")
    body = await reader.readexactly(int(message.header("content-length") or 0))
    return Message(message.first_line, message.headers, body)
