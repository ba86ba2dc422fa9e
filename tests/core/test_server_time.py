"""What the answers of a server bound its clock to always holds, whatever the network and the clocks do."""

from dataclasses import dataclass
from fractions import Fraction

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from zae_limiter.core.server_time import Offset, narrowed, offset_of

MOST_PPM = 200
MICRO = 1_000


@dataclass(frozen=True)
class Exchange:
    """A call: what passes before it, until the server answers, and until the answer is received, in microseconds."""

    pause_us: int
    there_us: int
    back_us: int
    ppm: int


delays = st.integers(0, 3_000 * MICRO) | st.integers(0, 50 * MICRO)
exchanges = st.builds(
    Exchange,
    st.integers(0, 120_000 * MICRO) | st.integers(0, 100 * MICRO),
    delays,
    delays,
    st.integers(-MOST_PPM, MOST_PPM) | st.sampled_from([-MOST_PPM, 0, MOST_PPM]),
)


class World:
    """A server's clock and a local one that drifts against it, in exact microseconds."""

    def __init__(self, ahead_us: int) -> None:
        self.local_us = Fraction(0)
        self.server_us = Fraction(1_700_000_000 * 1_000_000 + ahead_us)

    def pass_by(self, local_us: int, ppm: int) -> None:
        self.local_us += local_us
        self.server_us += local_us * (1 + Fraction(ppm, 1_000_000))

    @property
    def local_ms(self) -> int:
        return int(self.local_us // MICRO)

    @property
    def server_ms(self) -> int:
        return int(self.server_us // MICRO)

    def exchange(self, call: Exchange) -> Offset:
        """Let a call pass, and return what it tells."""
        self.pass_by(call.pause_us, call.ppm)
        sent_ms = self.local_ms
        self.pass_by(call.there_us, call.ppm)
        date_s = self.server_ms // 1000
        self.pass_by(call.back_us, call.ppm)
        return offset_of(date_s, sent_ms, self.local_ms)


def run(world: World, calls: list[Exchange]) -> Offset:
    """What is known after these calls."""
    known = None
    for call in calls:
        known = narrowed(known, world.exchange(call))
    assert known is not None
    return known


@given(st.integers(0, 10**12), st.lists(exchanges, min_size=1, max_size=30), exchanges)
def test_the_servers_clock_is_within_the_bounds(ahead_us: int, calls: list[Exchange], after: Exchange):
    """At once and a while later, for every drift up to 200 ppm between calls and every delay there and back."""
    world, known = World(ahead_us), None
    for call in calls:
        world.pass_by(call.pause_us, call.ppm)
        known = narrowed(known, world.exchange(Exchange(0, call.there_us, call.back_us, 0)))
        low, high = known.at(world.local_ms)

        assert low <= world.server_ms <= high
    assert known is not None
    world.pass_by(after.pause_us, after.ppm)
    low, high = known.at(world.local_ms)

    assert low <= world.server_ms <= high


@given(st.integers(0, 10**12), st.lists(exchanges, min_size=1, max_size=30))
@example(999_999, [Exchange(0, 0, 1_000_950, 200)])
def test_the_servers_clock_is_within_the_bounds_of_a_call_in_which_clocks_drift(ahead_us: int, calls: list[Exchange]):
    """A slow call that was answered as soon as it was sent: the local clock has fallen behind since."""
    world, known = World(ahead_us), None
    for call in calls:
        known = narrowed(known, world.exchange(call))
        low, high = known.at(world.local_ms)

        assert low <= world.server_ms <= high


@given(st.integers(0, 10**12), st.lists(exchanges, min_size=2, max_size=20))
def test_an_answer_never_widens_the_bounds(ahead_us: int, calls: list[Exchange]):
    """Against what was known before, as of the same time, nor against the answer alone."""
    world = World(ahead_us)
    known = run(world, calls[:-1])
    heard = world.exchange(calls[-1])
    low, high = narrowed(known, heard).at(world.local_ms)

    assert max(known.at(world.local_ms)[0], heard.at(world.local_ms)[0]) == low
    assert min(known.at(world.local_ms)[1], heard.at(world.local_ms)[1]) == high


def test_bounds_narrow_to_milliseconds_within_a_few_dozen_calls():
    """Calls at odd times see the second's turn from both sides."""
    calls = [Exchange(137_773, 1 * MICRO, 1 * MICRO, 0)] * 60
    world = World(ahead_us=123_456)
    low, high = run(world, calls).at(world.local_ms)

    assert high - low <= 40


def test_one_answer_bounds_to_its_second_and_its_journey():
    """One second, and a millisecond at each end; what it took there and back comes on top."""
    at_once, journey = offset_of(1_000, 520, 520).at(520), offset_of(1_000, 500, 520).at(520)

    assert (1_000_000 - 1, 1_000_000 + 999 + 1) == at_once
    assert 1_000_000 - 1 == journey[0]
    assert 1_000_000 + 999 + 20 + 1 <= journey[1] <= 1_000_000 + 999 + 20 + 2


def test_the_first_answer_is_all_that_is_known():
    """Nothing was known before."""
    heard = offset_of(1_000, 0, 10)

    assert heard == narrowed(None, heard)


@pytest.mark.parametrize("step_s", [-3_600, -2, 2, 3_600])
def test_an_answer_that_contradicts_the_others_holds_alone(step_s: int):
    """A clock was set, and the newest answer knows."""
    known = narrowed(offset_of(1_000, 0, 10), offset_of(1_000, 100, 110))
    heard = offset_of(1_000 + step_s, 200, 210)

    assert heard == narrowed(known, heard)


def test_bounds_widen_with_age():
    """By one millisecond at each end for every five seconds begun, which is 200 ppm."""
    known = offset_of(1_000, 0, 0)
    widths = [high - low for low, high in map(known.at, (0, 1, 5_000, 5_001, 60_000))]

    assert [0, 2, 2, 4, 24] == [width - widths[0] for width in widths]


@given(st.integers(0, 10**12), st.lists(exchanges, min_size=1, max_size=5))
def test_bounds_are_whole_milliseconds(ahead_us: int, calls: list[Exchange]):
    """No float gets into a bucket."""
    world = World(ahead_us)
    known = run(world, calls)
    values = (known.low_ms, known.low_at_ms, known.high_ms, known.high_at_ms, *known.at(world.local_ms))

    assert {int} == set(map(type, values))
