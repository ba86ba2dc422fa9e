"""The server's clock, as a client with many calls tracks it."""

from zae_limiter.clock import ServerClock

NOON_S = 1_700_000_000


class SettableClock:
    """A clock that is moved by hand; the machine's time of day is ahead of the server's by this many seconds."""

    def __init__(self, ahead_s: int = 0) -> None:
        self.time_s = 1_000.0
        self.ahead_s = ahead_s

    def now_ms(self) -> int:
        return round((NOON_S + self.ahead_s + self.time_s - 1_000) * 1000)

    def monotonic_s(self) -> float:
        return self.time_s


def known_well(clock: SettableClock) -> ServerClock:
    """Return a server clock known to the millisecond, by responses just before and after the start of a second."""
    server = ServerClock(clock)
    for date_s, at_s in ((NOON_S, 1_000.999), (NOON_S + 1, 1_001.000), (NOON_S + 1, 1_001.001)):
        clock.time_s = at_s
        server.hear(date_s, at_s, at_s)
        server.signing_s()
    return server


def test_server_clock_before_the_first_response_is_the_local_clock() -> None:
    """Nothing else is known."""
    server = ServerClock(SettableClock())

    assert (NOON_S * 1000, NOON_S * 1000) == server.now()
    assert not server.known
    assert not server.unconfirmed


def test_server_clock_advances_between_responses() -> None:
    """It uses the monotonic clock."""
    clock = SettableClock()
    server = known_well(clock)
    clock.time_s += 60

    low, high = server.now()

    assert low <= (NOON_S + 61) * 1000 + 1 <= high
    assert high - low < 50


def test_single_response_with_a_different_time_does_not_move_the_clock() -> None:
    """Neither writes nor signatures use it."""
    clock = SettableClock()
    server = known_well(clock)
    before, signing_s = server.now(), server.signing_s()
    server.hear(NOON_S + 3_601, clock.time_s, clock.time_s, connection=1)

    assert server.suspicious
    assert before == server.now()
    assert signing_s == server.signing_s()


def test_clock_step_is_followed_once_a_second_connection_confirms_it() -> None:
    """A second response of the same connection does not confirm it."""
    clock = SettableClock()
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


def test_response_that_agrees_clears_the_suspect_of_the_clock() -> None:
    """A later response with a different time starts a new suspicion."""
    clock = SettableClock()
    server = known_well(clock)
    before = server.now()
    server.hear(NOON_S + 3_601, clock.time_s, clock.time_s, connection=1)
    server.hear(NOON_S + 1, clock.time_s, clock.time_s, connection=1)
    cleared = not server.suspicious
    server.hear(NOON_S + 3_601, clock.time_s, clock.time_s, connection=2)

    assert cleared
    assert before == server.now()


def test_first_response_that_differs_from_the_local_clock_is_unconfirmed() -> None:
    """Either clock may be wrong, until a second connection confirms the response."""
    clock = SettableClock(ahead_s=10)
    server = ServerClock(clock)
    server.hear(NOON_S, clock.time_s, clock.time_s, connection=1)
    waits = server.unconfirmed
    server.hear(NOON_S, clock.time_s, clock.time_s, connection=2)

    assert waits
    assert not server.unconfirmed
    assert server.known
    assert server.now()[1] <= (NOON_S + 1) * 1000


def test_request_refused_for_its_time_is_signed_with_the_time_of_the_refusal() -> None:
    """A wrong signature time only causes another refusal; writes do not use it."""
    clock = SettableClock()
    server = known_well(clock)
    before = server.now()
    server.hear(NOON_S + 3_601, clock.time_s, clock.time_s, connection=1)
    server.sign_by_suspect()
    by_suspect_s = server.signing_s()
    server.hear(NOON_S + 1, clock.time_s, clock.time_s, connection=1)

    assert abs(by_suspect_s - (NOON_S + 3_601)) <= 1
    assert abs(server.signing_s() - (NOON_S + 1)) <= 1
    assert before == server.now()


def test_response_without_a_date_does_not_change_the_clock() -> None:
    """Some proxies remove it."""
    clock = SettableClock()
    server = known_well(clock)
    before = server.now()
    server.hear(None, clock.time_s, clock.time_s)

    assert before == server.now()


def test_forgotten_time_is_unconfirmed_until_the_next_response() -> None:
    """A restored image may have been stopped for hours, so its time is not used for writes."""
    clock = SettableClock()
    server = known_well(clock)
    server.forget()
    waits = server.unconfirmed
    server.hear(NOON_S + 1, clock.time_s, clock.time_s, connection=3)

    assert waits
    assert server.known
    assert not server.unconfirmed


def test_forget_without_a_known_time_is_not_unconfirmed() -> None:
    """The local clock stays in use."""
    server = ServerClock(SettableClock())
    server.forget()

    assert not server.unconfirmed


def test_no_read_is_scheduled_before_the_first_response() -> None:
    """There are no bounds to narrow yet."""
    server = ServerClock(SettableClock())

    assert server.next_read_s(0.0) is None
    assert server.latest_ms(1_000.0) is None
