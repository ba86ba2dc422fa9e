"""Connections are kept, shared in turn and closed after an unknown outcome, with async and sync."""

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

import zae_limiter.transport.aio as async_transport
import zae_limiter.transport.threads as sync_transport
from tests.dynamodb.callers import KINDS, Caller, account_at
from tests.dynamodb.echo import Echo, ask, number_of
from zae_limiter.aws import lookup
from zae_limiter.aws.account import Account
from zae_limiter.core.outcome import Unavailable
from zae_limiter.tables.dynamodb.http_parser import HttpResponse

LONG_S = 60.0


@pytest.fixture
def echo() -> Iterator[Echo]:
    with Echo() as started:
        yield started


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def caller(echo: Echo, kind: str) -> Iterator[Caller]:
    with Caller(kind, account_at(echo.url)) as made:
        yield made


def numbers(outcomes: list[HttpResponse | Unavailable]) -> list[int]:
    return [number_of(outcome.body) for outcome in outcomes if isinstance(outcome, HttpResponse)]


def unknown_outcome(outcome: HttpResponse | Unavailable) -> bool:
    assert isinstance(outcome, Unavailable), outcome
    return outcome.ambiguous


def wait_until(reached: Callable[[], bool]) -> None:
    end_s = time.monotonic() + LONG_S
    while not reached():
        assert time.monotonic() < end_s
        time.sleep(0.001)


class TestKeepAlive:
    def test_consecutive_calls_share_one_connection(self, echo: Echo, caller: Caller):
        """The connection is kept."""
        found = numbers([caller.call(ask(number)) for number in range(20)])

        assert (list(range(20)), 1) == (found, echo.counts.accepted)

    @pytest.mark.parametrize(("rested_s", "accepted"), [(19, 1), (21, 2)])
    def test_a_connection_that_was_idle_for_too_long_is_not_reused(
        self, echo: Echo, caller: Caller, rested_s: float, accepted: int
    ):
        """A device on the way may have dropped it."""
        caller.clock.stop()
        caller.call(ask())
        caller.clock.skipped_s += rested_s
        found = caller.call(ask(7))

        assert ([7], accepted) == (numbers([found]), echo.counts.accepted)
        echo.wait_until_open(1)

    def test_idle_connections_are_closed_one_by_one(self, echo: Echo, caller: Caller):
        """The newest is used first, so the oldest become too old."""
        held = [caller.begin(ask(number, held=True)) for number in range(5)]
        echo.wait_for(5)
        echo.release()
        for begun in held:
            begun.result(60)
        for _ in range(8):
            caller.clock.skipped_s += 15
            caller.call(ask())

        echo.wait_until_open(1)

    def test_connection_close_makes_the_next_call_open_a_new_one(self, echo: Echo, caller: Caller):
        """The next call does not fail."""
        found = [caller.call(ask(number, headers={"Connection": "close"})) for number in range(3)]

        assert ([0, 1, 2], 3) == (numbers(found), echo.counts.accepted)

    def test_a_close_by_the_server_while_idle_costs_no_call(self, echo: Echo, caller: Caller):
        """The next call opens a new connection."""
        caller.call(ask(1, then="close"))
        echo.wait_until_open(0)
        time.sleep(0.05)
        found = caller.call(ask(2))

        assert ([2], 2) == (numbers([found]), echo.counts.accepted)

    def test_an_unrequested_response_ends_the_connection(self, echo: Echo, caller: Caller):
        """The next call gets its own response."""
        caller.call(ask(1, then="more"))
        echo.wait_for_unasked()
        time.sleep(0.05)
        found = caller.call(ask(2))

        assert ([2], 2) == (numbers([found]), echo.counts.accepted)
        echo.wait_until_open(1)


class TestUnknownOutcome:
    def test_a_connection_with_a_late_response_is_closed(self, echo: Echo, caller: Caller):
        """Its response would be taken for that of the next call."""
        late = caller.call(ask(1, held=True), within_s=3)
        found = caller.call(ask(2))
        echo.release()

        assert unknown_outcome(late)
        assert [2] == numbers([found])
        assert 1 == caller.transport._pool._open
        echo.wait_until_open(1)

    def test_a_call_without_time_left_is_not_sent(self, echo: Echo, caller: Caller):
        """This outcome is definite."""
        caller.call(ask(1))
        outcome = caller.call(ask(2), within_s=0)

        assert not unknown_outcome(outcome)
        assert [1] == echo.counts.numbers

    def test_a_connection_that_ends_before_the_response_leaves_an_unknown_outcome(self, echo: Echo, caller: Caller):
        """The call may have been applied."""
        begun = caller.begin(ask(1, hang=True), within_s=LONG_S)
        echo.wait_for(1)
        echo.hang_up()

        assert unknown_outcome(begun.result(60))


class TestSharing:
    def test_a_transport_opens_at_most_64_connections(self, echo: Echo, caller: Caller):
        """Further calls wait, and each gets its own response."""
        begun = [caller.begin(ask(number, held=True)) for number in range(150)]
        echo.wait_for(64)
        wait_until(lambda: len(caller.transport._pool._waiting) == 150 - 64)
        sent = len(echo.counts.numbers)
        echo.release()
        found = numbers([future.result(60) for future in begun])

        assert (64, list(range(150))) == (sent, found)
        assert 64 == echo.counts.most_open

    def test_waiting_for_a_connection_ends_at_the_deadline(self, echo: Echo, caller: Caller):
        """Nothing was sent, and the queue continues without the waiter."""
        hanging = [caller.begin(ask(number, held=True)) for number in range(64)]
        echo.wait_for(64)
        late = [caller.begin(ask(1_000), within_s=0.1) for _ in range(20)]
        served = [caller.begin(ask(2_000 + number)) for number in range(20)]
        doubts = [unknown_outcome(future.result(60)) for future in late]
        echo.release()

        assert [False] * 20 == doubts
        assert list(range(2_000, 2_020)) == numbers([future.result(60) for future in served])
        assert 64 == len(numbers([future.result(60) for future in hanging]))
        assert 1_000 not in echo.counts.numbers

    def test_connections_closed_after_unknown_outcomes_are_replaced(self, echo: Echo, caller: Caller):
        """After 64 such calls there is room for 64 again."""
        lost = [caller.begin(ask(1, hang=True), within_s=LONG_S) for _ in range(64)]
        echo.wait_for(64)
        echo.hang_up()
        doubts = [unknown_outcome(future.result(60)) for future in lost]
        begun = [caller.begin(ask(number, delay_ms=20)) for number in range(100)]

        assert [True] * 64 == doubts
        assert list(range(100)) == numbers([future.result(60) for future in begun])

    def test_waiters_are_served_in_order(self, echo: Echo, kind: str, caller: Caller, monkeypatch: pytest.MonkeyPatch):
        """This holds if every other connection is lost, and while later callers join the queue."""
        monkeypatch.setattr(async_transport if kind == "async" else sync_transport, "_MOST_CONNECTIONS", 1)
        begun = [caller.begin(ask(0, held=True))]
        echo.wait_for(1)
        for number in range(1, 20):
            begun.append(caller.begin(ask(number, headers={"Connection": "close"} if number % 2 else {})))
            wait_until(lambda: len(caller.transport._pool._waiting) == number)  # noqa: B023 - called immediately
        echo.release()
        while not begun[10].done():
            begun.append(caller.begin(ask(100)))
            time.sleep(0.001)
        for future in begun:
            future.result(60)

        assert list(range(20)) == [number for number in echo.counts.numbers if number != 100]
        assert set(range(20)) == set(echo.counts.numbers[:20])
        assert 1 == echo.counts.most_open

    def test_32_concurrent_callers_get_their_own_responses(self, echo: Echo, caller: Caller):
        """Each makes one call after the other."""
        wrong: list[tuple[int, list[int]]] = []

        def work(first: int) -> None:
            asked = list(range(first, first + 40))
            found = numbers([caller.call(ask(number)) for number in asked])
            wrong.extend([] if asked == found else [(first, found)])

        threads = [threading.Thread(target=work, args=(1_000 * number,)) for number in range(32)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)

        assert [] == wrong
        assert echo.counts.accepted <= 32


class TestClosing:
    def test_close_ends_calls_in_flight(self, echo: Echo, caller: Caller):
        """A call that waits for a response has an unknown outcome; one that waits for a connection was not sent."""
        begun = [caller.begin(ask(number, hang=True), within_s=LONG_S) for number in range(80)]
        echo.wait_for(64)
        wait_until(lambda: len(caller.transport._pool._waiting) == 16)
        started_s = time.monotonic()
        caller.close()
        outcomes = [unknown_outcome(future.result(60)) for future in begun]

        assert time.monotonic() - started_s < LONG_S / 2
        assert (64, 16) == (outcomes.count(True), outcomes.count(False))
        echo.wait_until_open(0)

    def test_close_closes_idle_connections(self, echo: Echo, caller: Caller):
        """A later call is not sent."""
        caller.call(ask(1))
        caller.close()
        echo.wait_until_open(0)

        assert not unknown_outcome(caller.call(ask(2)))
        assert 0 == echo.counts.open


@contextmanager
def hanging_names(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Make name resolution hang, and record the requested names."""
    asked: list[str] = []
    end = threading.Event()
    resolve = socket.getaddrinfo

    def hang(host: str, *rest: object, **named: object) -> object:
        if not host.endswith(".invalid"):
            return resolve(host, *rest, **named)  # type: ignore[arg-type] # they are passed on
        if named.get("flags"):
            raise socket.gaierror(socket.EAI_NONAME, "not an address")
        asked.append(host)
        end.wait(60)
        raise socket.gaierror(socket.EAI_AGAIN, "gave up")

    monkeypatch.setattr(lookup.socket, "getaddrinfo", hang)
    yield asked
    end.set()


class TestNameResolution:
    def test_a_name_resolution_that_hangs_ends_at_the_deadline(self, kind: str, monkeypatch: pytest.MonkeyPatch):
        """Nothing was sent, and all callers share one resolver."""
        account: Account = account_at("http://slow.invalid:80")
        with hanging_names(monkeypatch) as asked, Caller(kind, account) as caller:
            caller.begin(ask(), within_s=60)
            wait_until(lambda: bool(asked))
            started_s = time.monotonic()
            begun = [caller.begin(ask(), within_s=0.2) for _ in range(40)]
            outcomes = [future.result(60) for future in begun]

        assert [False] * 40 == [unknown_outcome(outcome) for outcome in outcomes]
        assert ["no connection to slow.invalid:80 within"] * 40 == [str(found.cause)[:39] for found in outcomes]
        assert time.monotonic() - started_s < LONG_S
        assert 1 == len(asked)

    def test_an_unknown_host_name_raises_its_error(self, kind: str):
        """The error is that of the resolver."""
        with Caller(kind, account_at("http://no-such-name.invalid")) as caller:
            outcome = caller.call(ask(), within_s=5)

        assert not unknown_outcome(outcome)
        assert isinstance(outcome.cause, OSError)

    def test_the_next_address_is_tried_if_the_first_refuses(
        self, kind: str, echo: Echo, monkeypatch: pytest.MonkeyPatch
    ):
        """A name may have several addresses."""
        with socket.socket() as closed:
            closed.bind(("127.0.0.1", 0))
            there = [closed.getsockname(), ("127.0.0.1", echo.port)]
        found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", address) for address in there]
        monkeypatch.setattr(lookup.socket, "getaddrinfo", lambda *_, **__: found)
        with Caller(kind, account_at("http://two.invalid")) as caller:
            outcome = caller.call(ask(3))

        assert [3] == numbers([outcome])

    def test_an_endpoint_that_refuses_is_a_definite_failure(self, kind: str):
        """No server listens at the port, which the error names."""
        with socket.socket() as closed:
            closed.bind(("127.0.0.1", 0))
            address = closed.getsockname()
            url = f"http://127.0.0.1:{address[1]}"
        with Caller(kind, account_at(url)) as caller:
            outcome = caller.call(ask())

        assert not unknown_outcome(outcome)
        assert isinstance(outcome.cause, ConnectionRefusedError)
        assert str(address) in str(outcome.cause)
