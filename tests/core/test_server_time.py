"""The bounds on a server's clock that its responses give always hold, whatever network and clocks do."""

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from itertools import cycle
from typing import NamedTuple

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from zae_limiter.core.server_time import (
    Heard,
    Offset,
    ServerTime,
    judged,
    machine_offset,
    narrowed,
    next_read_ms,
    offset_of,
)

MOST_PPM = 200
MICRO = 1_000
MOST_READS = 48
LONG_US = 10**9


@dataclass(frozen=True)
class Exchange:
    """A call, in microseconds: the pause before it, the time to the server, and the time back."""

    pause_us: int
    there_us: int
    back_us: int
    ppm: int


ratios = st.floats(1, 2)
delays = st.integers(0, 3_000 * MICRO) | st.integers(0, 50 * MICRO)
exchanges = st.builds(
    Exchange,
    st.integers(0, 120_000 * MICRO) | st.integers(0, 100 * MICRO),
    delays,
    delays,
    st.integers(-MOST_PPM, MOST_PPM) | st.sampled_from([-MOST_PPM, 0, MOST_PPM]),
)


class World:
    """A server's clock and a local clock that drifts against it, in exact microseconds."""

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
        """Make a call, and return the offset that it shows."""
        self.pass_by(call.pause_us, call.ppm)
        sent_ms = self.local_ms
        self.pass_by(call.there_us, call.ppm)
        date_s = self.server_ms // 1000
        self.pass_by(call.back_us, call.ppm)
        return offset_of(date_s, sent_ms, self.local_ms)


def run(world: World, calls: list[Exchange]) -> Offset:
    """Return what is known after these calls."""
    known = None
    for call in calls:
        known = narrowed(known, world.exchange(call))
    assert known is not None
    return known


@given(st.integers(0, 10**12), st.lists(exchanges, min_size=1, max_size=30), exchanges)
def test_server_clock_is_within_the_bounds_with_drift_between_calls(
    ahead_us: int, calls: list[Exchange], after: Exchange
):
    """For every drift up to 200 ppm and every delay, immediately and a while later."""
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
def test_server_clock_is_within_the_bounds_with_drift_during_calls(ahead_us: int, calls: list[Exchange]):
    """For example, a slow call that the server answered immediately."""
    world, known = World(ahead_us), None
    for call in calls:
        known = narrowed(known, world.exchange(call))
        low, high = known.at(world.local_ms)

        assert low <= world.server_ms <= high


@given(st.integers(0, 10**12), st.lists(exchanges, min_size=2, max_size=20))
def test_response_never_widens_the_bounds(ahead_us: int, calls: list[Exchange]):
    """Compared with the earlier bounds at the same time, and with the response alone."""
    world = World(ahead_us)
    known = run(world, calls[:-1])
    heard = world.exchange(calls[-1])
    low, high = narrowed(known, heard).at(world.local_ms)

    assert max(known.at(world.local_ms)[0], heard.at(world.local_ms)[0]) == low
    assert min(known.at(world.local_ms)[1], heard.at(world.local_ms)[1]) == high


def test_bounds_narrow_to_milliseconds_within_a_few_dozen_calls():
    """Calls at irregular times see the start of a second from both sides."""
    calls = [Exchange(137_773, 1 * MICRO, 1 * MICRO, 0)] * 60
    world = World(ahead_us=123_456)
    low, high = run(world, calls).at(world.local_ms)

    assert high - low <= 40


def test_one_response_bounds_the_clock_to_a_second_and_the_round_trip():
    """One second, one millisecond at each end, and the round trip."""
    instant, round_trip = offset_of(1_000, 520, 520).at(520), offset_of(1_000, 500, 520).at(520)

    assert (1_000_000 - 1, 1_000_000 + 999 + 1) == instant
    assert 1_000_000 - 1 == round_trip[0]
    assert 1_000_000 + 999 + 20 + 1 <= round_trip[1] <= 1_000_000 + 999 + 20 + 2


def test_bounds_after_the_first_response_are_those_of_the_response():
    """Nothing was known before."""
    heard = offset_of(1_000, 0, 10)

    assert heard == narrowed(None, heard)


@pytest.mark.parametrize("step_s", [-3_600, -2, 2, 3_600])
def test_response_that_contradicts_the_bounds_replaces_them(step_s: int):
    """A clock was set, and the newest response is correct."""
    known = narrowed(offset_of(1_000, 0, 10), offset_of(1_000, 100, 110))
    heard = offset_of(1_000 + step_s, 200, 210)

    assert heard == narrowed(known, heard)


def test_bounds_widen_with_age():
    """By one millisecond at each end per started five seconds, which is 200 ppm."""
    known = offset_of(1_000, 0, 0)
    widths = [high - low for low, high in map(known.at, (0, 1, 5_000, 5_001, 60_000))]

    assert [0, 2, 2, 4, 24] == [width - widths[0] for width in widths]


@given(st.integers(0, 10**12), st.lists(exchanges, min_size=1, max_size=5))
def test_bounds_are_whole_milliseconds(ahead_us: int, calls: list[Exchange]):
    """No float is written to a bucket."""
    world = World(ahead_us)
    known = run(world, calls)
    values = (known.low_ms, known.low_at_ms, known.high_ms, known.high_at_ms, *known.at(world.local_ms))

    assert {int} == set(map(type, values))


MACHINE = machine_offset(1_000_000, 0)
KNOWN = ServerTime(offset_of(1_000, 0, 10))
STEPS_S = [-3_600, -60, 60, 3_600]


def response(date_s: int, at_ms: int, connection: int = 1) -> Heard:
    """Return a response that took 10 ms."""
    return Heard(offset_of(date_s, at_ms, at_ms + 10), connection)


def after(*heard: Heard, before: ServerTime = KNOWN, machine: Offset = MACHINE) -> ServerTime:
    """Return what is known after these responses."""
    for one in heard:
        before = judged(before, one, machine)
    return before


@pytest.mark.parametrize("step_s", STEPS_S)
def test_single_response_with_a_different_time_is_only_a_suspect(step_s: int):
    """The known bounds do not change."""
    wrong = response(1_000 + step_s, 100)

    assert ServerTime(KNOWN.known, wrong) == after(wrong)


@pytest.mark.parametrize("step_s", STEPS_S)
def test_second_connection_that_agrees_confirms_a_clock_step(step_s: int):
    """From then on, only the two responses count."""
    first, second = response(1_000 + step_s, 100, 1), response(1_000 + step_s, 200, 2)

    assert ServerTime(narrowed(first.offset, second.offset)) == after(first, second)


@pytest.mark.parametrize("step_s", STEPS_S)
def test_second_response_of_the_same_connection_does_not_confirm_a_clock_step(step_s: int):
    """Both may come from one host with a wrong clock."""
    first, second = response(1_000 + step_s, 100, 1), response(1_000 + step_s, 200, 1)

    assert ServerTime(KNOWN.known, Heard(narrowed(first.offset, second.offset), 1)) == after(first, second)


def test_response_that_agrees_with_the_bounds_clears_the_suspect():
    """Two wrong responses with a correct one in between confirm nothing."""
    right = response(1_000, 200, 2)
    found = after(response(4_600, 100, 1), right, response(4_600, 300, 3))

    assert narrowed(KNOWN.known, right.offset) == found.known
    assert found.suspect == response(4_600, 300, 3)


def test_two_wrong_responses_that_disagree_do_not_confirm_a_clock_step():
    """The newer one becomes the suspect."""
    newer = response(8_200, 200, 2)

    assert ServerTime(KNOWN.known, newer) == after(response(4_600, 100, 1), newer)


@pytest.mark.parametrize("gap_ms", [1, 500])
def test_contradiction_of_up_to_half_a_second_is_accepted_immediately(gap_ms: int):
    """Hosts of one service differ by some milliseconds, and clocks are corrected by as much."""
    known = Offset(1_000_000, 1_000, 1_000_000, 1_000)
    heard = Offset(1_000_001 + gap_ms, 1_000, 1_000_999, 1_000)

    assert ServerTime(heard) == judged(ServerTime(known), Heard(heard, 1), MACHINE)


def test_contradiction_of_more_than_half_a_second_is_suspected():
    """Half a second is the limit."""
    known = Offset(1_000_000, 1_000, 1_000_000, 1_000)
    heard = Heard(Offset(1_000_502, 1_000, 1_001_500, 1_000), 1)

    assert ServerTime(known, heard) == judged(ServerTime(known), heard, MACHINE)


@pytest.mark.parametrize("ahead_ms", [-1_999, 0, 1_999])
def test_first_response_near_the_local_clock_is_accepted(ahead_ms: int):
    """Within two seconds, plus the second that a date does not resolve."""
    heard = response(1_000, 0)

    assert ServerTime(heard.offset) == after(
        heard, before=ServerTime(), machine=machine_offset(1_000_500 + ahead_ms, 0)
    )


@pytest.mark.parametrize("ahead_ms", [-3_600_000, -10_000, 10_000, 3_600_000])
def test_first_response_far_from_the_local_clock_needs_a_second_connection(ahead_ms: int):
    """One of the two clocks is wrong, and a second connection decides."""
    machine = machine_offset(1_000_500 + ahead_ms, 0)
    first, second = response(1_000, 0, 1), response(1_000, 100, 2)
    once = after(first, before=ServerTime(), machine=machine)

    assert ServerTime(None, first) == once
    assert ServerTime(narrowed(first.offset, second.offset)) == judged(once, second, machine)


def test_second_response_near_the_local_clock_replaces_a_wrong_first_one():
    """The local clock and the second connection agree."""
    right = response(1_000, 100, 2)

    assert ServerTime(right.offset) == after(response(4_600, 0, 1), right, before=ServerTime())


class Bounded(NamedTuple):
    """The milliseconds from the first response to a read, and the width of the bounds after it."""

    after_ms: int
    width_ms: int


def located(ahead_us: int, trips: Iterable[tuple[int, int]]) -> list[Bounded]:
    """Return the bounds after each read until the start of the second is located, for these trips in microseconds."""
    world = World(ahead_us)
    there_us, back_us = next(each := cycle(trips))
    known = world.exchange(Exchange(0, there_us, back_us, 0))
    begun_ms, shortest_us, found = world.local_ms, 0, []
    while (at_ms := next_read_ms(known, world.local_ms, shortest_us // MICRO)) is not None and len(found) < MOST_READS:
        pause_us = max(0, at_ms - world.local_ms) * MICRO
        there_us, back_us = next(each)
        known = narrowed(known, world.exchange(Exchange(pause_us, there_us, back_us, 0)))
        shortest_us = min(shortest_us or LONG_US, there_us + back_us)
        low, high = known.at(world.local_ms)
        found.append(Bounded(world.local_ms - begun_ms, high - low))
        assert low <= world.server_ms <= high
    return found


@given(st.integers(0, 10**9), st.integers(500, 50_000))
@example(0, 601)
@example(0, 5_000)
def test_scheduled_reads_locate_the_start_of_the_second(ahead_us: int, trip_us: int):
    """After one second the width is 40 ms plus a round trip, after two 10 ms or two round trips."""
    reads = located(ahead_us, [(trip_us // 2, trip_us // 2)])
    trip_ms = -(-trip_us // MICRO)
    in_a_second = [read.width_ms for read in reads if read.after_ms <= 1_000 + trip_ms]

    assert len(reads) < MOST_READS
    assert in_a_second[-1] <= max(40, trip_ms) + trip_ms + 4
    assert reads[-1].width_ms <= max(10, 2 * trip_ms + 4)
    assert reads[-1].after_ms <= 2_000 + trip_ms


@given(st.integers(0, 10**9), st.integers(250, 25_000), st.lists(st.tuples(ratios, ratios), min_size=1, max_size=50))
def test_scheduled_reads_locate_the_start_of_the_second_with_varying_trips(
    ahead_us: int, way_us: int, longer: list[tuple[float, float]]
):
    """Trips that vary by a factor of two leave two of the longest ones after two seconds."""
    reads = located(ahead_us, [(int(way_us * there), int(way_us * back)) for there, back in longer])
    shortest_ms, longest_ms = 2 * way_us // MICRO, -(-4 * way_us // MICRO)
    in_two_seconds = [read.width_ms for read in reads if read.after_ms <= 2_000 + 2 * longest_ms]

    assert in_two_seconds[-1] <= max(10, 2 * longest_ms + 4) + longest_ms - shortest_ms


def test_no_read_is_scheduled_if_the_bounds_are_narrow():
    """Ten milliseconds are enough."""
    assert next_read_ms(Offset(0, 0, 8, 0), 0, 1) is None


@pytest.mark.parametrize("age_ms", [-60_000, -1, 0, 1, 60_000])
def test_latest_time_in_the_past_allows_for_drift(age_ms: int):
    """A clock may have drifted either way, so bounds widen into the past as well."""
    known = offset_of(1_000, 0, 0)

    assert age_ms + known.high_ms + abs(age_ms) // 5_000 < known.latest_at(age_ms) <= age_ms + known.high_ms + 15
