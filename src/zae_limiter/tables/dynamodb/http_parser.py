"""Answers read off the bytes of a connection. Pure: bytes go in, answers come out; the sockets are elsewhere."""

from calendar import timegm
from email.utils import parsedate
from typing import NamedTuple
from zlib import crc32

import httptools

MOST_BODY_BYTES = 20 * 1024 * 1024
"""More than any answer of DynamoDB: a batch is at most 16 MiB of items, and JSON adds a little."""
_FIRST_LETTERS = b"dDxX"
_MOST_HEAD_BYTES = 64 * 1024
_MOST_DIGITS = 10
_FIRST_FINAL = 200


class HttpResponse(NamedTuple):
    """An answer to one call. ``date_s`` is when the server says it was given, None if it does not say."""

    status: int
    body: bytes
    date_s: int | None
    error_type: str


class BrokenResponseError(Exception):
    """What came back is no answer: not HTTP, too large, or damaged on the way."""


class HttpResponseReader:
    """Reads one connection's answers, one at a time."""

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
        """Take bytes in, and return the answer once it is whole.

        Raises:
            BrokenAnswerError: The bytes are no answer; the connection can be used no more.
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
            # The parser keeps a header until it ends, so what has been fed is bounded and not only what it hands on.
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
        """See to it that one answer comes to one call: of a second one, even the beginning is too much."""
        if self._answer is not None:
            raise BrokenResponseError("more than one answer came to one call")

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep the headers that matter."""
        self._head_bytes += len(name) + len(value)
        if self._head_bytes > _MOST_HEAD_BYTES:
            raise BrokenResponseError(f"the answer's headers are larger than {_MOST_HEAD_BYTES} bytes")
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
        """Note that what follows is the body."""
        self._head_whole = True

    def on_body(self, chunk: bytes) -> None:
        """Keep a part of the body."""
        self._body.append(chunk)

    def on_message_complete(self) -> None:
        """Put the answer together; an interim one (1xx) is passed over."""
        status = self._parser.get_status_code()
        if status >= _FIRST_FINAL:
            body = self._body[0] if len(self._body) == 1 else b"".join(self._body)
            if self._checksum is not None and crc32(body) != self._checksum:
                raise BrokenResponseError("the checksum of the answer does not match")
            # The parser forgets this as soon as it goes on.
            self.keep_alive = self._parser.should_keep_alive()
            self._answer = HttpResponse(status, body, self._date_s if self._dated else None, self._error_type)
        self._begin()


def _seconds(date: bytes) -> int | None:
    """Return a date in seconds since the epoch, None if it is none."""
    try:
        parsed = parsedate(date.decode("latin-1"))
        return None if parsed is None else timegm(parsed)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None


def _number(value: bytes) -> int | None:
    return int(value) if value.isdigit() and len(value) <= _MOST_DIGITS else None
