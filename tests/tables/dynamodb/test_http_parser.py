"""Responses are parsed equally however their bytes are split, and malformed ones are refused."""

import zlib
from calendar import timegm
from email.utils import formatdate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zae_limiter.tables.dynamodb import http_parser
from zae_limiter.tables.dynamodb.http_parser import BrokenResponseError, HttpResponse, HttpResponseReader

NOW_S = 1_700_000_000
DATE = f"Date: {formatdate(NOW_S, usegmt=True)}\r\n".encode()

bodies = st.binary(max_size=80)


def answer(body: bytes = b"{}", status: int = 200, headers: bytes = b"", version: bytes = b"1.1") -> bytes:
    head = b"HTTP/%s %d OK\r\nContent-Length: %d\r\n" % (version, status, len(body))
    return head + headers + b"\r\n" + body


def chunked(pieces: list[bytes], headers: bytes = b"") -> bytes:
    chunks = b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces)
    return b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n" + headers + b"\r\n" + chunks + b"0\r\n\r\n"


def checksum(body: bytes) -> bytes:
    return b"x-amz-crc32: %d\r\n" % zlib.crc32(body)


def read(*pieces: bytes, reader: HttpResponseReader | None = None) -> list[HttpResponse]:
    """Return the responses parsed from these pieces."""
    reader = reader or HttpResponseReader()
    return [found for found in map(reader.feed, pieces) if found is not None]


def bytewise(data: bytes) -> list[bytes]:
    return [data[place : place + 1] for place in range(len(data))]


@st.composite
def splits(draw: st.DrawFn, data: bytes) -> list[bytes]:
    ends = sorted(draw(st.sets(st.integers(1, max(1, len(data) - 1)), max_size=12)))
    return [data[start:end] for start, end in zip([0, *ends], [*ends, len(data)], strict=True) if data[start:end]]


class TestCompleteResponses:
    @given(bodies, st.integers(200, 599), st.booleans(), st.data())
    def test_a_response_is_parsed_equally_in_any_split(
        self, body: bytes, status: int, in_chunks: bool, data: st.DataObject
    ):
        """It may have a length or chunks; some statuses have no body."""
        no_body = status in (204, 304)
        headers = DATE + b"X-Amzn-ErrorType: Some#Error\r\n" + (b"" if no_body else checksum(body))
        sent = chunked([body] if body else [], headers) if in_chunks else answer(body, status, headers)
        if no_body and not in_chunks:
            sent = sent.removesuffix(body).replace(b"Content-Length: %d\r\n" % len(body), b"")
        expected = HttpResponse(
            200 if in_chunks else status, b"" if no_body and not in_chunks else body, NOW_S, "Some#Error"
        )

        assert [expected] == read(*data.draw(splits(sent)))

    def test_a_response_may_arrive_byte_by_byte(self):
        """The next response on the same connection may do so too."""
        first, second = answer(b"first", headers=DATE), chunked([b"sec", b"ond"])

        assert [(b"first", NOW_S), (b"second", None)] == [
            (found.body, found.date_s) for found in read(*bytewise(first + second))
        ]

    @given(st.lists(st.tuples(bodies, st.none() | st.integers(0, 2**32))), st.data())
    def test_consecutive_responses_keep_their_own_body_and_date(
        self, expected: list[tuple[bytes, int | None]], data: st.DataObject
    ):
        """A response without a date does not get the date of the previous one."""
        reader, found = HttpResponseReader(), []
        for body, date_s in expected:
            date = b"" if date_s is None else f"date: {formatdate(date_s, usegmt=True)}\r\n".encode()
            found += read(*data.draw(splits(answer(body, headers=date))), reader=reader)

        assert expected == [(one.body, one.date_s) for one in found]

    def test_an_interim_response_is_skipped(self):
        """None of its headers are applied to the final response."""
        interim = b"HTTP/1.1 100 Continue\r\n" + DATE + checksum(b"other") + b"\r\n"
        sent = interim + b"HTTP/1.1 103 Early Hints\r\n\r\n" + answer(b"{}", 201)

        assert [HttpResponse(201, b"{}", None, "")] == read(sent)
        assert [HttpResponse(201, b"{}", None, "")] == read(*bytewise(sent))


class TestKeepAlive:
    @pytest.mark.parametrize(
        ("sent", "kept"),
        [
            (answer(), True),
            (chunked([b"{}"]), True),
            (answer(status=400), True),
            (answer(headers=b"Connection: close\r\n"), False),
            (answer(headers=b"Connection: keep-alive\r\n", version=b"1.0"), True),
            (answer(version=b"1.0"), False),
        ],
    )
    def test_the_response_decides_whether_the_connection_is_kept(self, sent: bytes, kept: bool):
        """The split of the bytes makes no difference."""
        at_once, by_bytes = HttpResponseReader(), HttpResponseReader()
        read(sent, reader=at_once)
        read(*bytewise(sent), reader=by_bytes)

        assert (kept, kept) == (at_once.keep_alive, by_bytes.keep_alive)

    def test_a_response_that_ends_with_the_connection_is_incomplete(self):
        """A truncated body could not be detected, so it is refused."""
        assert [] == read(b"HTTP/1.0 200 OK\r\n\r\n{}", b"more")


class TestMalformedResponses:
    @pytest.mark.parametrize(
        "sent",
        [
            b"hello?",
            b"\x16\x03\x01\x02\x00",
            b"SSH-2.0-x\r\n",
            b"HTTP/1.1 abc OK\r\n\r\n",
            answer(b"{}", headers=checksum(b"other")),
            b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
            b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",
        ],
    )
    def test_a_malformed_response_is_refused(self, sent: bytes):
        """It may arrive in one piece or byte by byte."""
        for pieces in ([sent], bytewise(sent)):
            with pytest.raises(BrokenResponseError):
                read(*pieces)

    @given(st.binary(min_size=1))
    def test_random_bytes_are_refused_or_incomplete_and_raise_nothing_else(self, data: bytes):
        """No other exception is raised."""
        try:
            found = HttpResponseReader().feed(data)
        except BrokenResponseError:
            found = None

        assert found is None

    @pytest.mark.parametrize("more", [1, 10, 20, 1_000])
    def test_a_second_response_to_one_call_is_refused(self, more: int):
        """Even the first byte of it is: it would be taken for the response to the next call."""
        with pytest.raises(BrokenResponseError, match="more than one answer"):
            read(answer(b"first") + answer(b"second")[:more])

    def test_a_second_response_in_a_later_piece_is_parsed_separately(self):
        """The connection checks whether a response was expected."""
        assert [b"first", b"second"] == [found.body for found in read(answer(b"first"), answer(b"second"))]


class TestSizeLimits:
    @pytest.mark.parametrize(
        "head",
        [
            b"HTTP/1.1 200 OK\r\nX-Endless: ",
            b"HTTP/1.1 200 ",
            b"HTTP/1.1 200 OK\r\n",
            b"HTTP/1.1 100 Continue\r\n\r\n",
        ],
    )
    def test_an_endless_head_is_refused(self, head: bytes):
        """One header, many headers, the status or interim responses are limited before they use much memory."""
        piece = {b"\n": b"X-Many: 1\r\n" * 90, b" ": b"x" * 1_000}[head[-1:]]
        if head.endswith(b"\r\n\r\n"):
            piece = head * 40
        reader = HttpResponseReader()
        reader.feed(head)
        with pytest.raises(BrokenResponseError, match=r"too large|larger than"):
            read(*[piece] * 100, reader=reader)

    @pytest.mark.parametrize("head", [b"Content-Length: 1099511627776\r\n\r\n", b"Transfer-Encoding: chunked\r\n\r\n"])
    def test_an_endless_body_is_refused(self, head: bytes):
        """It is refused once it is larger than any response of DynamoDB."""
        reader, piece = HttpResponseReader(), b"x" * (1 << 20)
        if b"chunked" in head:
            piece = b"%x\r\n%s\r\n" % (len(piece), piece)
        reader.feed(b"HTTP/1.1 200 OK\r\n" + head)
        with pytest.raises(BrokenResponseError, match="too large"):
            read(*[piece] * (http_parser.MOST_BODY_BYTES // len(piece) + 2), reader=reader)

    def test_the_largest_response_of_dynamodb_is_parsed(self):
        """A batch has at most 16 MiB."""
        body = b"x" * (16 << 20)
        sent = answer(body, headers=checksum(body))
        pieces = [sent[place : place + 65_536] for place in range(0, len(sent), 65_536)]

        assert [len(body)] == [len(found.body) for found in read(*pieces)]


class TestDatesAndChecksums:
    @pytest.mark.parametrize(
        "date",
        [
            "",
            "yesterday",
            "Tue, 99 Foo 99999 99:99:99 GMT",
            "Tue, 14 Nov 12345 22:13:20 GMT",
            "Tue, 14 Nov 99999999999999999999 22:13:20 GMT",
            ",,,",
        ],
    )
    def test_a_response_with_an_invalid_date_has_no_date(self, date: str):
        """The response is valid nevertheless."""
        (found,) = read(answer(headers=f"Date: {date}\r\n".encode()))

        assert (200, b"{}", None) == (found.status, found.body, found.date_s)

    @given(st.text(st.characters(min_codepoint=32, max_codepoint=126)))
    def test_a_response_with_any_date_is_parsed(self, date: str):
        """The date header may contain any text."""
        (found,) = read(answer(headers=b"Date: " + date.encode() + b"\r\n"))

        assert b"{}" == found.body

    def test_a_response_date_is_in_seconds_since_the_epoch(self):
        """The date header is parsed as UTC."""
        (found,) = read(answer(headers=b"Date: Tue, 14 Nov 2023 22:13:20 GMT\r\n"))

        assert timegm((2023, 11, 14, 22, 13, 20)) == found.date_s

    @pytest.mark.parametrize("value", [b"", b"abc", b"-1", b"9" * 5_000])
    def test_a_malformed_checksum_is_ignored(self, value: bytes):
        """The body is accepted without a check."""
        assert [b"{}"] == [found.body for found in read(answer(headers=b"x-amz-crc32: " + value + b"\r\n"))]
