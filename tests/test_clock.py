"""The server's clock, as a client that makes many calls keeps it."""

from zae_limiter.clock import ServerClock

NOON_S = 1_700_000_000


class Steady:
    """A clock that is moved by hand; the machine's time of day is of no interest."""

    def __init__(self) -> None:
        self.time_s = 1_000.0

    def now_ms(self) -> int:
        return 0

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

    assert (0, 0) == server.now()
    assert not server.known


def test_it_goes_on_between_answers() -> None:
    """By the clock that never goes back."""
    clock = Steady()
    server = known_well(clock)
    clock.time_s += 60

    low, high = server.now()

    assert low <= (NOON_S + 61) * 1000 + 1 <= high
    assert high - low < 50


def test_a_clock_that_was_set_is_noticed_at_once() -> None:
    """Though answers that say nothing new are heard only now and then: the next call must be signed by it."""
    clock = Steady()
    server = known_well(clock)
    clock.time_s += 0.001
    server.hear(NOON_S + 3_601, clock.time_s, clock.time_s)

    assert abs(server.signing_s() - (NOON_S + 3_601)) <= 1
    assert server.now()[0] >= (NOON_S + 3_600) * 1000


def test_an_answer_without_a_date_says_nothing() -> None:
    """Some proxies take it away."""
    clock = Steady()
    server = known_well(clock)
    before = server.now()
    server.hear(None, clock.time_s, clock.time_s)

    assert before == server.now()
