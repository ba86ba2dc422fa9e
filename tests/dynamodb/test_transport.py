"""Connections are kept, shared in turn and given up in doubt: the same in both trees."""

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


def doubt(outcome: HttpResponse | Unavailable) -> bool:
    assert isinstance(outcome, Unavailable), outcome
    return outcome.ambiguous


def wait_until(reached: Callable[[], bool]) -> None:
    end_s = time.monotonic() + LONG_S
    while not reached():
        assert time.monotonic() < end_s
        time.sleep(0.001)


class TestKeeping:
    def test_a_connection_is_kept(self, echo: Echo, caller: Caller):
        """Calls that follow each other share one."""
        found = numbers([caller.call(ask(number)) for number in range(20)])

        assert (list(range(20)), 1) == (found, echo.counts.accepted)

    @pytest.mark.parametrize(("rested_s", "accepted"), [(19, 1), (21, 2)])
    def test_a_connection_that_rested_too_long_is_not_used_again(
        self, echo: Echo, caller: Caller, rested_s: float, accepted: int
    ):
        """Something on the way may have forgotten it."""
        caller.clock.stop()
        caller.call(ask())
        caller.clock.skipped_s += rested_s
        found = caller.call(ask(7))

        assert ([7], accepted) == (numbers([found]), echo.counts.accepted)
        echo.wait_until_open(1)

    def test_connections_that_nobody_needs_any_more_are_closed_one_by_one(self, echo: Echo, caller: Caller):
        """The newest is used first, so the oldest rest until they are too old."""
        held = [caller.begin(ask(number, held=True)) for number in range(5)]
        echo.wait_for(5)
        echo.release()
        for begun in held:
            begun.result(60)
        for _ in range(8):
            caller.clock.skipped_s += 15
            caller.call(ask())

        echo.wait_until_open(1)

    def test_the_server_may_ask_for_the_end(self, echo: Echo, caller: Caller):
        """After `Connection: close` the next call goes over a new one, at once."""
        found = [caller.call(ask(number, headers={"Connection": "close"})) for number in range(3)]

        assert ([0, 1, 2], 3) == (numbers(found), echo.counts.accepted)

    def test_a_close_that_was_seen_costs_no_call(self, echo: Echo, caller: Caller):
        """The server has closed the connection while it rested."""
        caller.call(ask(1, then="close"))
        echo.wait_until_open(0)
        time.sleep(0.05)
        found = caller.call(ask(2))

        assert ([2], 2) == (numbers([found]), echo.counts.accepted)

    def test_what_comes_unasked_is_no_answer(self, echo: Echo, caller: Caller):
        """It ends the connection, and the next call gets its own answer."""
        caller.call(ask(1, then="more"))
        echo.wait_for_unasked()
        time.sleep(0.05)
        found = caller.call(ask(2))

        assert ([2], 2) == (numbers([found]), echo.counts.accepted)
        echo.wait_until_open(1)


class TestDoubt:
    def test_a_connection_whose_answer_is_late_is_closed(self, echo: Echo, caller: Caller):
        """Its answer would be taken for that of the next call."""
        late = caller.call(ask(1, held=True), within_s=3)
        found = caller.call(ask(2))
        echo.release()

        assert doubt(late)
        assert [2] == numbers([found])
        assert 1 == caller.transport._pool._open
        echo.wait_until_open(1)

    def test_no_time_left_means_nothing_was_sent(self, echo: Echo, caller: Caller):
        """That is sure."""
        caller.call(ask(1))
        outcome = caller.call(ask(2), within_s=0)

        assert not doubt(outcome)
        assert [1] == echo.counts.numbers

    def test_an_end_before_the_answer_leaves_doubt(self, echo: Echo, caller: Caller):
        """The call may have been carried out."""
        begun = caller.begin(ask(1, hang=True), within_s=LONG_S)
        echo.wait_for(1)
        echo.hang_up()

        assert doubt(begun.result(60))


class TestSharing:
    def test_there_are_never_more_than_64_connections(self, echo: Echo, caller: Caller):
        """Whoever finds none waits, and everyone gets their own answer."""
        begun = [caller.begin(ask(number, held=True)) for number in range(150)]
        echo.wait_for(64)
        wait_until(lambda: len(caller.transport._pool._waiting) == 150 - 64)
        sent = len(echo.counts.numbers)
        echo.release()
        found = numbers([future.result(60) for future in begun])

        assert (64, list(range(150))) == (sent, found)
        assert 64 == echo.counts.most_open

    def test_whoever_waits_for_a_connection_is_bounded_by_the_deadline(self, echo: Echo, caller: Caller):
        """It is sure that nothing was sent, and the place in the queue is given up without a hole."""
        hanging = [caller.begin(ask(number, held=True)) for number in range(64)]
        echo.wait_for(64)
        late = [caller.begin(ask(1_000), within_s=0.1) for _ in range(20)]
        served = [caller.begin(ask(2_000 + number)) for number in range(20)]
        doubts = [doubt(future.result(60)) for future in late]
        echo.release()

        assert [False] * 20 == doubts
        assert list(range(2_000, 2_020)) == numbers([future.result(60) for future in served])
        assert 64 == len(numbers([future.result(60) for future in hanging]))
        assert 1_000 not in echo.counts.numbers

    def test_places_of_connections_that_are_given_up_are_taken_in_turn(self, echo: Echo, caller: Caller):
        """After 64 calls that end in doubt there is room for 64 again."""
        lost = [caller.begin(ask(1, hang=True), within_s=LONG_S) for _ in range(64)]
        echo.wait_for(64)
        echo.hang_up()
        doubts = [doubt(future.result(60)) for future in lost]
        begun = [caller.begin(ask(number, delay_ms=20)) for number in range(100)]

        assert [True] * 64 == doubts
        assert list(range(100)) == numbers([future.result(60) for future in begun])

    def test_waiters_are_served_in_turn(self, echo: Echo, kind: str, caller: Caller, monkeypatch: pytest.MonkeyPatch):
        """Also where every other connection is lost, and while others come to the end of the queue."""
        monkeypatch.setattr(async_transport if kind == "async" else sync_transport, "_MOST_CONNECTIONS", 1)
        begun = [caller.begin(ask(0, held=True))]
        echo.wait_for(1)
        for number in range(1, 20):
            begun.append(caller.begin(ask(number, headers={"Connection": "close"} if number % 2 else {})))
            wait_until(lambda: len(caller.transport._pool._waiting) == number)  # noqa: B023 - called at once
        echo.release()
        while not begun[10].done():
            begun.append(caller.begin(ask(100)))
            time.sleep(0.001)
        for future in begun:
            future.result(60)

        assert list(range(20)) == [number for number in echo.counts.numbers if number != 100]
        assert set(range(20)) == set(echo.counts.numbers[:20])
        assert 1 == echo.counts.most_open

    def test_32_callers_at_once_get_their_own_answers(self, echo: Echo, caller: Caller):
        """Call after call."""
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
    def test_close_ends_calls_under_way(self, echo: Echo, caller: Caller):
        """Those that wait for an answer are in doubt, those that wait for a connection were not sent."""
        begun = [caller.begin(ask(number, hang=True), within_s=LONG_S) for number in range(80)]
        echo.wait_for(64)
        wait_until(lambda: len(caller.transport._pool._waiting) == 16)
        started_s = time.monotonic()
        caller.close()
        outcomes = [doubt(future.result(60)) for future in begun]

        assert time.monotonic() - started_s < LONG_S / 2
        assert (64, 16) == (outcomes.count(True), outcomes.count(False))
        echo.wait_until_open(0)

    def test_close_lets_go_of_resting_connections(self, echo: Echo, caller: Caller):
        """All of them, and for good: a later call is not sent."""
        caller.call(ask(1))
        caller.close()
        echo.wait_until_open(0)

        assert not doubt(caller.call(ask(2)))
        assert 0 == echo.counts.open


@contextmanager
def hanging_names(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Names whose resolution does not end; those that are asked for are kept."""
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


class TestNames:
    def test_a_name_that_is_resolved_for_ever_ends_at_the_deadline(self, kind: str, monkeypatch: pytest.MonkeyPatch):
        """Surely unsent, and all callers wait for one resolver only."""
        account: Account = account_at("http://slow.invalid:80")
        with hanging_names(monkeypatch) as asked, Caller(kind, account) as caller:
            started_s = time.monotonic()
            begun = [caller.begin(ask(), within_s=0.2) for _ in range(40)]
            outcomes = [future.result(60) for future in begun]

        assert [False] * 40 == [doubt(outcome) for outcome in outcomes]
        assert ["no connection to slow.invalid:80 within"] * 40 == [str(found.cause)[:39] for found in outcomes]
        assert time.monotonic() - started_s < LONG_S
        assert 1 == len(asked)

    def test_a_name_that_nobody_knows_is_an_error(self, kind: str):
        """Told as what it is."""
        with Caller(kind, account_at("http://no-such-name.invalid")) as caller:
            outcome = caller.call(ask(), within_s=5)

        assert not doubt(outcome)
        assert isinstance(outcome.cause, OSError)

    def test_the_next_address_is_tried(self, kind: str, echo: Echo, monkeypatch: pytest.MonkeyPatch):
        """Where the first refuses."""
        with socket.socket() as closed:
            closed.bind(("127.0.0.1", 0))
            there = [closed.getsockname(), ("127.0.0.1", echo.port)]
        found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", address) for address in there]
        monkeypatch.setattr(lookup.socket, "getaddrinfo", lambda *_, **__: found)
        with Caller(kind, account_at("http://two.invalid")) as caller:
            outcome = caller.call(ask(3))

        assert [3] == numbers([outcome])

    def test_an_endpoint_that_refuses_is_surely_unsent(self, kind: str):
        """Nobody listens there."""
        with socket.socket() as closed:
            closed.bind(("127.0.0.1", 0))
            url = f"http://127.0.0.1:{closed.getsockname()[1]}"
        with Caller(kind, account_at(url)) as caller:
            outcome = caller.call(ask())

        assert not doubt(outcome)
        assert isinstance(outcome.cause, ConnectionRefusedError)
