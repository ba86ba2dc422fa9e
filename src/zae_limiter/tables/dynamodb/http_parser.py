"""Parses HTTP responses from the bytes of a connection. Pure: it reads no socket."""

from calendar import timegm
from email.utils import parsedate
from typing import NamedTuple
from zlib import crc32

import httptools

MOST_BODY_BYTES = 20 * 1024 * 1024
"""The maximum size of a response; a batch of DynamoDB has at most 16 MiB of items, and JSON adds a little."""
_FIRST_LETTERS = b"dDxX"
_MOST_HEAD_BYTES = 64 * 1024
_MOST_DIGITS = 10
_FIRST_FINAL = 200


class HttpResponse(NamedTuple):
    """The response to one call; ``date_s`` is its Date header in seconds since the epoch, None if it is missing."""

    status: int
    body: bytes
    date_s: int | None
    error_type: str


class BrokenResponseError(Exception):
    """A response that cannot be used: it is no HTTP, too large, or damaged."""


class HttpResponseReader:
    """Parses the responses of one connection, one at a time."""

    __slots__ = (
        "_answer",
        "_body",
        "_checksum",
        "_date",
        "_date_s",
        "_dated",
        "_error_type",
        "_fed_bytes",
        "_head_bytes",
        "_head_whole",
        "_parser",
        "keep_alive",
    )

    def __init__(self) -> None:
        self._date: bytes | None = None
        self._date_s: int | None = None
        self._answer: HttpResponse | None = None
        self.keep_alive = True
        self._fed_bytes = 0
        self._begin()
        self._parser = httptools.HttpResponseParser(self)

    def feed(self, data: bytes) -> HttpResponse | None:
        """Parse bytes; return the response once it is complete, else None.

        Raises:
            BrokenResponseError: The bytes are no valid response; the connection cannot be used again.
        """
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            cause = error.__context__
            raise (
                cause if isinstance(cause, BrokenResponseError) else BrokenResponseError(f"not HTTP: {error}")
            ) from None
        answer = self._answer
        if answer is None:
            # A header without an end would fill the memory: the parser buffers it and calls no method. So the bytes
            # that were fed are bounded, and not only those that the parser has reported.
            self._fed_bytes += len(data)
            if self._fed_bytes > (MOST_BODY_BYTES if self._head_whole else _MOST_HEAD_BYTES):
                raise BrokenResponseError(f"the answer is too large: it had no end after {self._fed_bytes} bytes")
            return None
        self._answer = None
        self._fed_bytes = 0
        return answer

    def _begin(self) -> None:
        self._body: list[bytes] = []
        self._checksum: int | None = None
        self._error_type = ""
        self._head_bytes = 0
        self._head_whole = self._dated = False

    def on_message_begin(self) -> None:
        """Reject a second response to one call: it would be taken for the response to the next call."""
        if self._answer is not None:
            raise BrokenResponseError("more than one answer came to one call")

    def on_header(self, name: bytes, value: bytes) -> None:
        """Store the headers that are used."""
        self._head_bytes += len(name) + len(value)
        # Most headers are skipped by their first letter, which is cheaper than a lowercase copy.
        if name[0] not in _FIRST_LETTERS:
            return
        lowered = name.lower()
        if lowered == b"date":
            self._dated = True
            if value != self._date:
                self._date, self._date_s = value, _seconds(value)
        elif lowered == b"x-amz-crc32":
            self._checksum = _number(value)
        elif lowered == b"x-amzn-errortype":
            self._error_type = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        """Note that the body follows, and reject headers that are too large; until here, ``feed`` bounds them."""
        self._head_whole = True
        if self._head_bytes > _MOST_HEAD_BYTES:
            raise BrokenResponseError(f"the answer's headers are larger than {_MOST_HEAD_BYTES} bytes")

    def on_body(self, chunk: bytes) -> None:
        """Store a part of the body."""
        self._body.append(chunk)

    def on_message_complete(self) -> None:
        """Build the response; an interim response (1xx) is ignored."""
        status = self._parser.get_status_code()
        if status >= _FIRST_FINAL:
            body = self._body[0] if len(self._body) == 1 else b"".join(self._body)
            if self._checksum is not None and crc32(body) != self._checksum:
                raise BrokenResponseError("the checksum of the answer does not match")
            # Read here, because the parser resets it when it continues.
            self.keep_alive = self._parser.should_keep_alive()
            self._answer = HttpResponse(status, body, self._date_s if self._dated else None, self._error_type)
        self._begin()


def _seconds(date: bytes) -> int | None:
    """Return a date in seconds since the epoch, None if it is invalid."""
    try:
        parsed = parsedate(date.decode("latin-1"))
        return None if parsed is None else timegm(parsed)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None


def _number(value: bytes) -> int | None:
    return int(value) if value.isdigit() and len(value) <= _MOST_DIGITS else None
