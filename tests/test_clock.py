"""The server's clock, as a client that makes many calls keeps it."""

from zae_limiter.clock import ServerClock

NOON_S = 1_700_000_000


class Steady:
    """A clock that is moved by hand; the machine's time of day is ahead of the server's by this many seconds."""

    def __init__(self, ahead_s: int = 0) -> None:
        self.time_s = 1_000.0
        self.ahead_s = ahead_s

    def now_ms(self) -> int:
        return round((NOON_S + self.ahead_s + self.time_s - 1_000) * 1000)

    def monotonic_s(self) -> float:
        return self.time_s


def known_well(clock: Steady) -> ServerClock:
    """A server's clock that answers just before and just after the turn of a second have told to the millisecond."""
    server = ServerClock(clock)
    for date_s, at_s in ((NOON_S, 1_000.999), (NOON_S + 1, 1_001.000), (NOON_S + 1, 1_001.001)):
        clock.time_s = at_s
        server.hear(date_s, at_s, at_s)
        server.signing_s()
    return server


def test_before_the_first_answer_it_is_the_machines() -> None:
    """There is nothing else to go by."""
    server = ServerClock(Steady())

    assert (NOON_S * 1000, NOON_S * 1000) == server.now()
    assert not server.known
    assert not server.unconfirmed


def test_it_goes_on_between_answers() -> None:
    """By the clock that never goes back."""
    clock = Steady()
    server = known_well(clock)
    clock.time_s += 60

    low, high = server.now()

    assert low <= (NOON_S + 61) * 1000 + 1 <= high
    assert high - low < 50


def test_one_response_from_another_time_moves_nothing() -> None:
    """Neither writes nor signatures use it, though responses that say nothing new are heard only now and then."""
    clock = Steady()
    server = known_well(clock)
    before, signing_s = server.now(), server.signing_s()
    server.hear(NOON_S + 3_601, clock.time_s, clock.time_s, connection=1)

    assert server.suspicious
    assert before == server.now()
    assert signing_s == server.signing_s()


def test_a_clock_that_was_set_is_followed_once_another_connection_confirms_it() -> None:
    """The same connection again is no second witness."""
    clock = Steady()
    server = known_well(clock)
    before = server.now()
    for connection in (1, 1):
        server.hear(NOON_S + 3_601, clock.time_s, clock.time_s, connection)
    once = server.now()
    server.hear(NOON_S + 3_601, clock.time_s, clock.time_s, connection=2)

    assert before == once
    assert server.now()[0] >= (NOON_S + 3_600) * 1000
    assert abs(server.signing_s() - (NOON_S + 3_601)) <= 1
    assert not server.suspicious


def test_a_response_that_agrees_clears_the_suspect() -> None:
    """Then a later response from another time is the first of its kind again."""
    clock = Steady()
    server = known_well(clock)
    before = server.now()
    server.hear(NOON_S + 3_601, clock.time_s, clock.time_s, connection=1)
    server.hear(NOON_S + 1, clock.time_s, clock.time_s, connection=1)
    cleared = not server.suspicious
    server.hear(NOON_S + 3_601, clock.time_s, clock.time_s, connection=2)

    assert cleared
    assert before == server.now()


def test_a_machine_that_is_off_has_nothing_confirmed_by_one_connection() -> None:
    """The first response differs from the machine's clock, and either may be wrong."""
    clock = Steady(ahead_s=10)
    server = ServerClock(clock)
    server.hear(NOON_S, clock.time_s, clock.time_s, connection=1)
    waits = server.unconfirmed
    server.hear(NOON_S, clock.time_s, clock.time_s, connection=2)

    assert waits
    assert not server.unconfirmed
    assert server.known
    assert server.now()[1] <= (NOON_S + 1) * 1000


def test_a_request_refused_for_its_time_is_signed_by_the_refusal() -> None:
    """A wrong signature time only causes another refusal; what is written is not decided by it."""
    clock = Steady()
    server = known_well(clock)
    before = server.now()
    server.hear(NOON_S + 3_601, clock.time_s, clock.time_s, connection=1)
    server.sign_by_suspect()
    by_suspect_s = server.signing_s()
    server.hear(NOON_S + 1, clock.time_s, clock.time_s, connection=1)

    assert abs(by_suspect_s - (NOON_S + 3_601)) <= 1
    assert abs(server.signing_s() - (NOON_S + 1)) <= 1
    assert before == server.now()


def test_an_answer_without_a_date_says_nothing() -> None:
    """Some proxies take it away."""
    clock = Steady()
    server = known_well(clock)
    before = server.now()
    server.hear(None, clock.time_s, clock.time_s)

    assert before == server.now()


def test_a_forgotten_time_is_unconfirmed_until_a_response_shows_it() -> None:
    """A restored image may have stood still for hours; nothing is written by the time it remembers."""
    clock = Steady()
    server = known_well(clock)
    server.forget()
    waits = server.unconfirmed
    server.hear(NOON_S + 1, clock.time_s, clock.time_s, connection=3)

    assert waits
    assert server.known
    assert not server.unconfirmed


def test_a_server_without_dates_has_nothing_to_forget() -> None:
    """The machine's clock stays in charge."""
    server = ServerClock(Steady())
    server.forget()

    assert not server.unconfirmed


def test_the_next_read_is_not_planned_before_a_response() -> None:
    """Nothing is known that could be narrowed."""
    server = ServerClock(Steady())

    assert server.next_read_s(0.0) is None
    assert server.latest_ms(1_000.0) is None
