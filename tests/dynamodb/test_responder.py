"""The benchmark responder answers as DynamoDB would, and counts calls."""

import email.utils
import threading
import time
import zlib

from bench import responder
from tests.dynamodb import raw

BODY = b'{"Attributes":{"tk":{"N":"1"}}}'


def test_every_target_gets_its_response():
    """It has the checksum, the content type and the current date."""
    with responder.running({"UpdateItem": BODY, "GetItem": b"{}"}) as url:
        before_s = int(time.time())
        answer = raw.call(url, "UpdateItem", {})
        after_s = time.time()
        other = raw.call(url, "GetItem", {})
        unknown = raw.call(url, "ListTables", {})

    date_s = email.utils.parsedate_to_datetime(answer.headers["date"]).timestamp()
    assert (200, BODY, str(zlib.crc32(BODY))) == (answer.status, answer.body, answer.headers["x-amz-crc32"])
    assert ("application/x-amz-json-1.0", b"{}") == (answer.headers["content-type"], other.body)
    assert before_s <= date_s <= after_s
    assert (400, "UnknownOperationException") == (unknown.status, unknown.error)


def test_the_responder_counts_calls():
    """They are counted by target over all connections."""
    with responder.running({"UpdateItem": BODY, "GetItem": b"{}"}) as url:
        for target in ("UpdateItem", "GetItem", "UpdateItem"):
            raw.call(url, target, {})

        assert {"UpdateItem": 2, "GetItem": 1, "unknown": 0} == responder.calls(url)


def test_many_connections_wait_for_the_latency_at_the_same_time():
    """A delayed response is the same, and no connection waits for another."""
    answers: list[raw.Answer] = []

    def client(url: str) -> None:
        connection = raw.connect(url)
        answers.extend(raw.ask(connection, "UpdateItem", {}) for _ in range(3))
        connection.close()

    with responder.running({"UpdateItem": BODY}, latency_ms=2) as url:
        threads = [threading.Thread(target=client, args=(url,)) for _ in range(20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    assert [BODY] * 60 == [answer.body for answer in answers]


def test_the_responder_joins_requests_that_arrive_in_pieces():
    """A head and a body that arrive separately are one request; two in one piece are two."""
    with responder.running({"UpdateItem": BODY}) as url:
        connection = raw.connect(url)
        connection.connect()
        request = b"POST / HTTP/1.1\r\nx-amz-target: DynamoDB_20120810.UpdateItem\r\ncontent-length: 2\r\n\r\n{}"
        for piece in (request[:20], request[20:-1], request[-1:] + request):
            connection.sock.sendall(piece)
        received = b""
        while received.count(BODY) < 2:
            received += connection.sock.recv(65_536)
        connection.close()

        assert 2 == responder.calls(url)["UpdateItem"]
