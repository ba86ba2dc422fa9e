"""What the answers of a server bound its clock to always holds, whatever the network and the clocks do."""

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
    """A call: what passes before it, until the server answers, and until the answer is received, in microseconds."""

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


MACHINE = machine_offset(1_000_000, 0)
KNOWN = ServerTime(offset_of(1_000, 0, 10))
STEPS_S = [-3_600, -60, 60, 3_600]


def response(date_s: int, at_ms: int, connection: int = 1) -> Heard:
    """A response that took 10 ms."""
    return Heard(offset_of(date_s, at_ms, at_ms + 10), connection)


def after(*heard: Heard, before: ServerTime = KNOWN, machine: Offset = MACHINE) -> ServerTime:
    """What is known after these responses."""
    for one in heard:
        before = judged(before, one, machine)
    return before


@pytest.mark.parametrize("step_s", STEPS_S)
def test_a_single_response_from_another_time_is_only_suspected(step_s: int):
    """What is known stays as it was."""
    wrong = response(1_000 + step_s, 100)

    assert ServerTime(KNOWN.known, wrong) == after(wrong)


@pytest.mark.parametrize("step_s", STEPS_S)
def test_a_second_connection_that_agrees_confirms_a_step(step_s: int):
    """From then on both of them are all that is known."""
    first, second = response(1_000 + step_s, 100, 1), response(1_000 + step_s, 200, 2)

    assert ServerTime(narrowed(first.offset, second.offset)) == after(first, second)


@pytest.mark.parametrize("step_s", STEPS_S)
def test_the_same_connection_confirms_nothing(step_s: int):
    """Its two responses may come from one host with one wrong clock; what both say is suspected."""
    first, second = response(1_000 + step_s, 100, 1), response(1_000 + step_s, 200, 1)

    assert ServerTime(KNOWN.known, Heard(narrowed(first.offset, second.offset), 1)) == after(first, second)


def test_a_response_that_agrees_with_what_is_known_clears_the_suspect():
    """Two wrong responses with a right one between them confirm nothing."""
    right = response(1_000, 200, 2)
    found = after(response(4_600, 100, 1), right, response(4_600, 300, 3))

    assert narrowed(KNOWN.known, right.offset) == found.known
    assert found.suspect == response(4_600, 300, 3)


def test_two_wrong_responses_that_disagree_confirm_nothing():
    """The newer one is suspected in place of the older."""
    newer = response(8_200, 200, 2)

    assert ServerTime(KNOWN.known, newer) == after(response(4_600, 100, 1), newer)


@pytest.mark.parametrize("gap_ms", [1, 500])
def test_a_slight_contradiction_is_accepted_at_once(gap_ms: int):
    """Hosts of one service differ by some milliseconds, and clocks are corrected by as much."""
    known = Offset(1_000_000, 1_000, 1_000_000, 1_000)
    heard = Offset(1_000_001 + gap_ms, 1_000, 1_000_999, 1_000)

    assert ServerTime(heard) == judged(ServerTime(known), Heard(heard, 1), MACHINE)


def test_a_larger_contradiction_is_suspected():
    """Half a second is the limit."""
    known = Offset(1_000_000, 1_000, 1_000_000, 1_000)
    heard = Heard(Offset(1_000_502, 1_000, 1_001_500, 1_000), 1)

    assert ServerTime(known, heard) == judged(ServerTime(known), heard, MACHINE)


@pytest.mark.parametrize("ahead_ms", [-1_999, 0, 1_999])
def test_a_first_response_near_the_machines_clock_is_accepted(ahead_ms: int):
    """Up to two seconds and the second that a date does not resolve."""
    heard = response(1_000, 0)

    assert ServerTime(heard.offset) == after(
        heard, before=ServerTime(), machine=machine_offset(1_000_500 + ahead_ms, 0)
    )


@pytest.mark.parametrize("ahead_ms", [-3_600_000, -10_000, 10_000, 3_600_000])
def test_a_first_response_far_from_the_machines_clock_needs_another_connection(ahead_ms: int):
    """One of the two clocks is wrong, and a second connection decides."""
    machine = machine_offset(1_000_500 + ahead_ms, 0)
    first, second = response(1_000, 0, 1), response(1_000, 100, 2)
    once = after(first, before=ServerTime(), machine=machine)

    assert ServerTime(None, first) == once
    assert ServerTime(narrowed(first.offset, second.offset)) == judged(once, second, machine)


def test_a_second_response_near_the_machines_clock_refutes_a_wrong_first_one():
    """The machine's clock and the second connection agree."""
    right = response(1_000, 100, 2)

    assert ServerTime(right.offset) == after(response(4_600, 0, 1), right, before=ServerTime())


class Bounded(NamedTuple):
    """How many ms after the first response a read was answered, and how many ms wide the bounds are then."""

    after_ms: int
    width_ms: int


def located(ahead_us: int, trips: Iterable[tuple[int, int]]) -> list[Bounded]:
    """What each read leaves until the turn of the second is located, by the times there and back in microseconds."""
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
def test_chosen_reads_locate_the_turn_of_the_second(ahead_us: int, trip_us: int):
    """One turn leaves 40 ms and a round trip within a second, the next leaves 10 ms or two round trips."""
    reads = located(ahead_us, [(trip_us // 2, trip_us // 2)])
    trip_ms = -(-trip_us // MICRO)
    in_a_second = [read.width_ms for read in reads if read.after_ms <= 1_000 + trip_ms]

    assert len(reads) < MOST_READS
    assert in_a_second[-1] <= max(40, trip_ms) + trip_ms + 4
    assert reads[-1].width_ms <= max(10, 2 * trip_ms + 4)
    assert reads[-1].after_ms <= 2_000 + trip_ms


@given(st.integers(0, 10**9), st.integers(250, 25_000), st.lists(st.tuples(ratios, ratios), min_size=1, max_size=50))
def test_chosen_reads_locate_the_turn_of_the_second_by_the_longest_trips(
    ahead_us: int, way_us: int, longer: list[tuple[float, float]]
):
    """Trips that vary up to the double leave two of the longest ones after two turns, and less after more turns."""
    reads = located(ahead_us, [(int(way_us * there), int(way_us * back)) for there, back in longer])
    shortest_ms, longest_ms = 2 * way_us // MICRO, -(-4 * way_us // MICRO)
    in_two_seconds = [read.width_ms for read in reads if read.after_ms <= 2_000 + 2 * longest_ms]

    assert in_two_seconds[-1] <= max(10, 2 * longest_ms + 4) + longest_ms - shortest_ms


def test_a_time_that_is_known_well_is_not_read_for():
    """Ten milliseconds are enough."""
    assert next_read_ms(Offset(0, 0, 8, 0), 0, 1) is None


@pytest.mark.parametrize("age_ms", [-60_000, -1, 0, 1, 60_000])
def test_the_latest_time_of_the_past_allows_for_drift(age_ms: int):
    """A clock may have drifted either way, so a bound widens into the past as well."""
    known = offset_of(1_000, 0, 0)

    assert age_ms + known.high_ms + abs(age_ms) // 5_000 < known.latest_at(age_ms) <= age_ms + known.high_ms + 15
