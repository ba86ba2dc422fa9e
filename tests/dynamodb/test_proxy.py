"""Each fault as a raw socket sees it; the engine itself is asked what it applied."""

import contextlib
import json
import socket
import ssl
import threading
import zlib
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.dynamodb import certificate, engines, faults, raw, skew
from tests.dynamodb.faults import Delay, Drop, Endless, Fault, Garbage, Half, ResetIdle, Rewrite, Split, Stall
from tests.dynamodb.proxy import Proxy, ResponseSettings

TIMEOUT_S = 120.0
NOW_S = 1_700_000_000.0


class Wire:
    """A raw connection that sends whole requests and reads any bytes."""

    def __init__(self, url: str) -> None:
        place = urlsplit(url)
        self.socket = socket.create_connection((place.hostname, place.port), TIMEOUT_S)

    def send(self, target: str, body: object, amz_date: str = "20231114T221320Z") -> None:
        data = json.dumps(body).encode()
        head = "".join(f"{name}: {value}\r\n" for name, value in raw.headers(target, amz_date).items())
        self.socket.sendall(f"POST / HTTP/1.1\r\nHost: x\r\n{head}Content-Length: {len(data)}\r\n\r\n".encode() + data)

    def answer(self) -> raw.Answer:
        """Return one complete response."""
        received = b""
        while b"\r\n\r\n" not in received:
            received += self.read()
        head, _, body = received.partition(b"\r\n\r\n")
        first, *lines = head.decode().split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        while len(body) < int(headers["content-length"]):
            body += self.read()
        return raw.Answer(int(first.split()[1]), headers, body)

    def read(self, at_most: int = 65_536) -> bytes:
        """Return some bytes, at least one."""
        data = self.socket.recv(at_most)
        if not data:
            raise EOFError
        return data

    def rest(self) -> bytes:
        """Return everything until the connection ends normally."""
        received = b""
        while data := self.socket.recv(65_536):
            received += data
        return received


@pytest.fixture
def wire(proxy: Proxy) -> Iterator[Wire]:
    connected = Wire(proxy.url)
    yield connected
    connected.socket.close()


@pytest.fixture
def counter(table_name: str) -> "Counter":
    raw.create_table(engines.running().url, table_name)
    return Counter(table_name)


class Counter:
    """An item whose number every `add` increases by one."""

    def __init__(self, table: str) -> None:
        self._item = {"TableName": table, "Key": {"PK": {"S": "part"}, "SK": {"S": "sort"}}}
        self.add = {
            **self._item,
            "UpdateExpression": "ADD n :one",
            "ExpressionAttributeValues": {":one": {"N": "1"}},
            "ReturnValues": "ALL_NEW",
        }

    @property
    def count(self) -> int:
        """Return the number, read directly from the engine."""
        read = raw.call(engines.running().url, "GetItem", {**self._item, "ConsistentRead": True})
        return int(read.json["Item"]["n"]["N"]) if "Item" in read.json else 0


class TestWithoutFaults:
    def test_a_proxy_without_faults_is_transparent(self, proxy: Proxy, wire: Wire, counter: Counter):
        """Requests and responses pass on one connection, with the right checksum."""
        answers = []
        for _ in range(3):
            wire.send("UpdateItem", counter.add)
            answers.append(wire.answer())

        assert ["1", "2", "3"] == [answer.json["Attributes"]["n"]["N"] for answer in answers]
        assert all(answer.headers["x-amz-crc32"] == str(zlib.crc32(answer.body)) for answer in answers)
        assert 3 == counter.count

    def test_a_proxy_records_requests(self, proxy: Proxy, wire: Wire, counter: Counter):
        """It records target, body, signing time and connection of each."""
        wire.send("UpdateItem", counter.add, "20231114T221320Z")
        wire.answer()
        raw.call(proxy.url, "ListTables", {})
        first, second = proxy.seen

        assert ("UpdateItem", counter.add, "20231114T221320Z") == (first.target, first.body, first.amz_date)
        assert ["UpdateItem", "ListTables"] == proxy.targets
        assert first.connection != second.connection

    def test_a_proxy_counts_open_connections(self, proxy: Proxy, wire: Wire):
        """A client that closes is noticed."""
        other = Wire(proxy.url)
        proxy.wait_for_connections(2)
        other.socket.close()
        proxy.wait_for_connections(1)

        assert 1 == proxy.open_connections

    def test_a_proxy_reconnects_to_an_engine_that_closes(self, proxy: Proxy, wire: Wire):
        """Ministack closes a connection after 1,000 responses; the client does not notice."""
        statuses = set()
        for _ in range(1_002):
            wire.send("ListTables", {})
            answer = wire.answer()
            statuses.add((answer.status, answer.headers.get("connection")))

        assert {(200, None)} == statuses


class TestConnectionEnds:
    @pytest.mark.parametrize(("applied", "count"), [(False, 0), (True, 1)])
    def test_a_dropped_request_gets_a_reset(
        self, proxy: Proxy, wire: Wire, counter: Counter, applied: bool, count: int
    ):
        """It is dropped before or after it is applied."""
        proxy.next(Drop(applied))
        wire.send("UpdateItem", counter.add)

        with pytest.raises(ConnectionResetError):
            wire.read()
        assert count == counter.count

    def test_a_drop_may_close_the_connection_normally(self, proxy: Proxy, wire: Wire, counter: Counter):
        """There is neither a response nor a reset."""
        proxy.next(Drop(applied=False, reset=False))
        wire.send("UpdateItem", counter.add)

        assert b"" == wire.rest()

    def test_a_half_response_ends_within_its_body(self, proxy: Proxy, wire: Wire, counter: Counter):
        """The head announces more than arrives."""
        proxy.next(Half())
        wire.send("UpdateItem", counter.add)
        head, _, body = wire.rest().partition(b"\r\n\r\n")
        promised = int(head.lower().partition(b"content-length:")[2].split()[0])

        assert promised // 2 == len(body)
        assert 1 == counter.count

    def test_reset_idle_resets_the_connection_after_the_response(self, proxy: Proxy, wire: Wire, counter: Counter):
        """The response is complete."""
        proxy.next(ResetIdle())
        wire.send("UpdateItem", counter.add)
        answer = wire.answer()

        assert 200 == answer.status
        with pytest.raises(ConnectionResetError):
            wire.read()

    def test_idle_connections_can_be_reset_at_any_time(self, proxy: Proxy, wire: Wire):
        """The call returns when it is done."""
        wire.send("ListTables", {})
        wire.answer()

        assert 1 == proxy.reset_idle()
        with pytest.raises(ConnectionResetError):
            wire.read()

    def test_idle_connections_can_be_closed_at_any_time(self, proxy: Proxy, wire: Wire):
        """A server does so after an idle timeout."""
        wire.send("ListTables", {})
        wire.answer()

        assert 1 == proxy.close_idle()
        assert b"" == wire.rest()


class TestResponses:
    def test_a_wrong_checksum_does_not_match_the_body(self, proxy: Proxy, wire: Wire, counter: Counter):
        """The body is complete nevertheless."""
        proxy.next(faults.WrongChecksum())
        wire.send("UpdateItem", counter.add)
        answer = wire.answer()

        assert "1" == answer.json["Attributes"]["n"]["N"]
        assert str(zlib.crc32(answer.body)) != answer.headers["x-amz-crc32"]

    @pytest.mark.parametrize("fault", [Split(), Split(piece_bytes=7, pause_ms=0.1), Delay(5), Delay(5, applied=False)])
    def test_a_slow_response_is_complete(self, proxy: Proxy, wire: Wire, counter: Counter, fault: Fault):
        """It arrives in pieces or late."""
        proxy.next(fault)
        wire.send("UpdateItem", counter.add)

        assert "1" == wire.answer().json["Attributes"]["n"]["N"]

    def test_a_split_response_arrives_in_pieces(self, proxy: Proxy, wire: Wire):
        """With a pause, the first read gets only the first byte."""
        proxy.next(Split(pause_ms=600_000))
        wire.send("ListTables", {})

        assert b"H" == wire.read()

    @pytest.mark.parametrize("place", ["length", "chunks", "header"])
    def test_an_endless_response_never_ends(self, proxy: Proxy, wire: Wire, place: str):
        """Megabytes arrive, and the proxy continues after the client leaves."""
        proxy.next(Endless(place))
        wire.send("ListTables", {})
        received = 0
        while received < 5_000_000:
            received += len(wire.read())
        wire.socket.close()

        assert 200 == raw.call(proxy.url, "ListTables", {}).status

    def test_a_garbage_fault_sends_bytes_that_are_not_http(self, proxy: Proxy, wire: Wire, counter: Counter):
        """The engine does not see the request."""
        proxy.next(Garbage(b"hello?"))
        wire.send("UpdateItem", counter.add)

        assert b"hello?" == wire.rest()
        assert 0 == counter.count

    def test_a_response_can_be_rewritten(self, proxy: Proxy, wire: Wire):
        """Length and checksum are updated."""
        proxy.next(Rewrite(lambda body: b'{"TableNames": ["never"]}'))
        wire.send("ListTables", {})
        answer = wire.answer()

        assert ["never"] == answer.json["TableNames"]
        assert str(zlib.crc32(answer.body)) == answer.headers["x-amz-crc32"]


class TestErrors:
    @pytest.mark.parametrize(
        ("fault", "expected"),
        [
            (faults.server_error(applied=False), (500, "InternalServerError", 0)),
            (faults.server_error(applied=True), (500, "InternalServerError", 1)),
            (faults.unavailable(applied=False), (503, "ServiceUnavailable", 0)),
            (faults.throttled(), (400, "ProvisionedThroughputExceededException", 0)),
            (faults.conflict(), (400, "TransactionConflictException", 0)),
        ],
    )
    def test_error_responses_are_those_of_dynamodb(
        self, proxy: Proxy, counter: Counter, fault: Fault, expected: tuple[int, str, int]
    ):
        """Status, code and checksum are right, and the connection stays usable.

        The request is applied or not as configured.
        """
        proxy.next(fault)
        connection = raw.connect(proxy.url)
        answer = raw.ask(connection, "UpdateItem", counter.add)
        counted = counter.count
        after = raw.ask(connection, "ListTables", {})
        connection.close()

        assert expected == (answer.status, answer.error, counted)
        assert str(zlib.crc32(answer.body)) == answer.headers["x-amz-crc32"]
        assert (200, 1) == (after.status, len({seen.connection for seen in proxy.seen}))

    def test_a_cancelled_transaction_has_its_reasons(self, proxy: Proxy):
        """There is one per item, in order."""
        proxy.next(faults.cancelled("None", "TransactionConflict"))
        answer = raw.call(proxy.url, "TransactWriteItems", {})

        assert "TransactionCanceledException" == answer.error
        assert ["None", "TransactionConflict"] == [reason["Code"] for reason in answer.json["CancellationReasons"]]


class TestStalls:
    @pytest.mark.parametrize(("applied", "count"), [(False, 0), (True, 1)])
    def test_a_stalled_response_arrives_when_released(
        self, proxy: Proxy, wire: Wire, counter: Counter, applied: bool, count: int
    ):
        """Meanwhile the engine has applied the request or not, as configured."""
        proxy.next(Stall(applied))
        wire.send("UpdateItem", counter.add)
        proxy.wait_for_stalls(1)
        while_stalled = counter.count
        proxy.release()

        assert count == while_stalled
        assert "1" == wire.answer().json["Attributes"]["n"]["N"]
        assert 1 == counter.count

    def test_a_client_that_leaves_a_stall_has_no_late_effect(self, proxy: Proxy, counter: Counter):
        """A request that was not applied is never applied."""
        proxy.next(Stall(applied=False))
        leaving = Wire(proxy.url)
        leaving.send("UpdateItem", counter.add)
        proxy.wait_for_stalls(1)
        leaving.socket.close()
        proxy.wait_for_connections(0)
        proxy.release()

        assert 0 == counter.count

    def test_clear_faults_resets_stalled_requests(self, proxy: Proxy, wire: Wire):
        """Later requests are answered."""
        proxy.always(Stall(applied=True))
        wire.send("ListTables", {})
        proxy.wait_for_stalls(1)
        proxy.clear_faults()

        with pytest.raises(ConnectionResetError):
            wire.read()
        assert 200 == raw.call(proxy.url, "ListTables", {}).status


class TestPlans:
    def test_planned_faults_hit_requests_in_order(self, proxy: Proxy):
        """Each hits its number of requests; later requests have none."""
        proxy.next(faults.throttled(), times=2)
        proxy.next(faults.server_error(applied=False))

        assert [400, 400, 500, 200] == [raw.call(proxy.url, "ListTables", {}).status for _ in range(4)]

    def test_a_planned_fault_waits_for_its_target(self, proxy: Proxy):
        """Other requests are not affected."""
        proxy.next(faults.throttled(), target="ListTables")

        assert "ResourceNotFoundException" == raw.call(proxy.url, "DescribeTable", {"TableName": "none-such-one"}).error
        assert 400 == raw.call(proxy.url, "ListTables", {}).status
        assert 200 == raw.call(proxy.url, "ListTables", {}).status

    def test_an_always_fault_lasts_until_it_is_cleared(self, proxy: Proxy):
        """Planned faults come first."""
        proxy.always(faults.throttled())
        proxy.next(faults.server_error(applied=False))
        statuses = [raw.call(proxy.url, "ListTables", {}).status for _ in range(3)]
        proxy.clear_faults()

        assert [500, 400, 400] == statuses
        assert 200 == raw.call(proxy.url, "ListTables", {}).status

    def test_faults_hit_requests_of_many_clients(self, proxy: Proxy, counter: Counter):
        """One queue serves all connections."""
        proxy.next(faults.throttled(), times=5)
        statuses: list[int] = []

        def client() -> None:
            statuses.append(raw.call(proxy.url, "UpdateItem", counter.add).status)

        threads = [threading.Thread(target=client) for _ in range(12)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

        assert (5, 7) == (statuses.count(400), statuses.count(200))
        assert 7 == counter.count


class TestTime:
    def test_the_date_of_responses_can_be_set(self, proxy: Proxy):
        """Every response has it, errors too."""
        proxy.settings.date_s = lambda: NOW_S + 0.9
        proxy.next(faults.throttled())
        dates = {raw.call(proxy.url, "ListTables", {}).headers["date"] for _ in range(2)}

        assert {"Tue, 14 Nov 2023 22:13:20 GMT"} == dates

    @pytest.mark.parametrize(
        ("signed_s", "said"),
        [
            (-301, "expired: 20231114T220819Z is now earlier than 20231114T220820Z (20231114T221320Z - 5 min.)"),
            (301, "not yet current: 20231114T221821Z is still later than 20231114T221820Z (20231114T221320Z + 5 min.)"),
        ],
    )
    def test_a_signature_of_another_time_is_refused(
        self, proxy: Proxy, wire: Wire, counter: Counter, signed_s: int, said: str
    ):
        """The refusal has the server's date, and the engine does not see the request."""
        proxy.settings = ResponseSettings(date_s=lambda: NOW_S, signatures_s=lambda: NOW_S)
        other = Wire(proxy.url)
        other.send("UpdateItem", counter.add, skew.stamp(NOW_S + signed_s))
        answer = other.answer()
        other.socket.close()

        assert (400, "InvalidSignatureException", f"Signature {said}") == (
            answer.status,
            answer.error,
            answer.json["message"],
        )
        assert "Tue, 14 Nov 2023 22:13:20 GMT" == answer.headers["date"]
        assert 0 == counter.count

    @pytest.mark.parametrize("signed_s", [-300, 0, 300])
    def test_a_signature_within_five_minutes_is_accepted(self, proxy: Proxy, wire: Wire, signed_s: int):
        """It may be early or late."""
        proxy.settings.signatures_s = lambda: NOW_S
        wire.send("ListTables", {}, skew.stamp(NOW_S + signed_s))

        assert 200 == wire.answer().status


@pytest.mark.skipif(not certificate.available(), reason="no openssl, so no certificate to listen with")
class TestTls:
    def test_a_proxy_with_tls_uses_its_own_certificate(self, tmp_path: Path):
        """A client has to trust it; faults work as without TLS."""
        made = certificate.make(tmp_path)
        trusting = ssl.create_default_context(cafile=made.certificate)
        with Proxy(engines.running().url, tls=made) as proxy:
            wire = Wire(proxy.url)
            wire.socket = trusting.wrap_socket(wire.socket, server_hostname="127.0.0.1")
            wire.send("ListTables", {})
            answer = wire.answer()
            proxy.next(Drop(applied=False))
            wire.send("ListTables", {})
            # The ssl module may report a reset as an end.
            with contextlib.closing(wire.socket), pytest.raises((ConnectionResetError, EOFError)):
                wire.read()

        assert 200 == answer.status

    def test_a_client_that_does_not_trust_the_certificate_refuses_it(self, tmp_path: Path):
        """A verifying client never sends its request."""
        with Proxy(engines.running().url, tls=certificate.make(tmp_path)) as proxy:
            wire = Wire(proxy.url)
            with contextlib.closing(wire.socket), pytest.raises(ssl.SSLCertVerificationError):
                ssl.create_default_context().wrap_socket(wire.socket, server_hostname="127.0.0.1")

            assert [] == proxy.targets
