"""The order of the requests that wait for a bucket, compared with a slow reference, and its guarantees."""

from collections import Counter
from itertools import count

from hypothesis import given
from hypothesis import strategies as st

from zae_limiter.core.reserve import Reserve
from zae_limiter.core.waiting import AGE_S
from zae_limiter.core.waiting_line import WaitingLine, WaitingRequest

NUMBERS = count(1_000)


def waiting(line, *requests):
    """Let requests join a line: entity, priority, since, amount, weight. Return them."""
    found = []
    for flow, priority, since_s, amount, weight in requests:
        one = WaitingRequest(next(NUMBERS), priority, since_s, 1e9, {"rps": amount})
        one.flow, one.weight = flow, weight
        line.join(one, amount / 10)
        found.append(one)
    return found


def served(line):
    """Admit all requests in turn, and return their entities."""
    found = []
    while (one := line.first()) is not None:
        line.admit(one)
        found.append(one.flow)
    return "".join(found)


def test_line_of_one_entity_is_in_the_order_of_arrival():
    """Requests of the same entity and priority never overtake each other."""
    line = WaitingLine()
    requests = waiting(line, *[("a", 0, number, 1 + number % 3, 1) for number in range(600)])
    for place, one in enumerate(requests):
        assert (place, {"rps": sum(1 + number % 3 for number in range(place))}) == (
            line.ahead(one).requests,
            {"rps": line.ahead(one).demand.get("rps", 0)},
        )
    found = []
    while (one := line.first()) is not None:
        line.admit(one)
        found.append(one)

    assert requests == found
    assert 0 == line.count


def test_line_of_several_entities_takes_turns():
    """An entity with many requests does not delay another one with few."""
    line = WaitingLine()
    waiting(line, *[("a", 0, 0, 1, 1)] * 4, *[("b", 0, 1, 1, 1)] * 2, ("c", 0, 2, 1, 1))

    assert "abcabaa" == served(line)


def test_line_serves_entities_in_proportion_to_their_weights():
    """An entity with the weight 2 gets two turns for each one of an entity with the weight 1."""
    line = WaitingLine()
    waiting(line, *[("a", 0, 0, 1, 1)] * 6, *[("b", 0, 0, 1, 2)] * 6)

    assert {"a": 3, "b": 6} == dict(Counter(served(line)[:9]))


def test_line_charges_large_requests_for_their_size():
    """Fairness is about tokens: a request for four tokens costs four turns of one."""
    line = WaitingLine()
    waiting(line, *[("a", 0, 0, 4, 1)] * 2, *[("b", 0, 0, 1, 1)] * 5)

    assert "abbbbab" == served(line)


def test_large_request_at_the_head_is_not_overtaken():
    """Small requests of the same priority that come later wait behind a large one."""
    line = WaitingLine()
    large, *_ = waiting(line, ("a", 0, 0, 10, 1), *[(name, 0, 1, 1, 1) for name in "bcde"])

    assert large is line.first()


def test_precedence_follows_rank_and_then_arrival():
    """Between two lines, the request goes first that has waited longer with regard to its priority."""
    old, new, high = waiting(WaitingLine(), ("a", 0, 0, 1, 1), ("b", 0, 0, 1, 1), ("c", 1, 0, 1, 1))

    assert [True, False, True] == [old.precedes(new), new.precedes(old), high.precedes(old)]


def test_first_of_a_line_stays_the_first_when_others_join_behind_it():
    """It is not looked for again, and all requests of the line can be listed in their order."""
    line = WaitingLine()
    (first,) = waiting(line, ("a", 0, 0, 1, 1))
    assert first is line.first()
    later = waiting(line, ("a", 0, 1, 1, 1), ("a", 0, 2, 1, 1))

    assert first is line.first()
    assert [first, *later] == list(line)


def test_higher_priority_goes_first():
    """Priorities decide before fairness and arrival."""
    line = WaitingLine()
    waiting(line, ("a", -1, 0, 1, 1), ("b", 0, 1, 1, 1), ("c", 5, 2, 1, 1))

    assert "cba" == served(line)


def test_low_priority_is_served_after_its_age_makes_up_for_it():
    """A request is overtaken only by those of a higher priority that came within AGE_S per step of priority."""
    line = WaitingLine()
    low, *_ = waiting(line, ("a", 0, 0, 1, 1), ("b", 2, 2 * AGE_S - 1, 1, 1), ("c", 2, 2 * AGE_S + 1, 1, 1))

    assert 1 == line.ahead(low).requests
    assert "bac" == served(line)


def test_oldest_of_a_lower_priority_is_found_after_others_have_left():
    """Requests that have left do not count as the oldest."""
    line = WaitingLine()
    first, second, high = waiting(line, ("a", 0, 0, 1, 1), ("b", 0, 1, 1, 1), ("c", 1, 2 * AGE_S, 1, 1))
    line.leave(first)

    assert second is line.first()
    assert (1, {"rps": 1}) == line.ahead(high)


def test_request_that_moves_goes_before_later_requests_of_its_entity():
    """A request keeps its age in another line, whatever its order of arrival there."""
    line = WaitingLine()
    moved = WaitingRequest(1, 0, 0.0, 1e9, {"rps": 1})
    moved.flow = "b"
    waiting(line, ("a", 0, 5, 1, 1), ("b", 0, 6, 1, 1), ("b", 0, 7, 1, 1))
    line.join(moved, 0.1)
    other = WaitingRequest(2, 0, 0.0, 1e9, {"rps": 1})
    other.flow = "d"
    line.join(other, 0.1)

    assert (0, 1) == (line.ahead(moved).requests, line.ahead(other).requests)
    assert moved is line.first()


def test_request_that_moves_is_not_behind_later_ones_of_a_higher_priority():
    """Only those that are older, with regard to their priority, are surely ahead of it."""
    line = WaitingLine()
    moved = WaitingRequest(1, 0, 0.0, 1e9, {"rps": 1})
    waiting(line, ("a", 1, AGE_S / 2, 1, 1), ("b", 1, 2 * AGE_S, 1, 1))
    line.join(moved, 0.1)

    assert (1, {"rps": 1}) == line.ahead(moved)


def test_requests_that_leave_are_not_charged_to_their_entity():
    """An entity that gives up, and comes again, is not behind for turns that it did not use."""
    line = WaitingLine()
    waiting(line, ("a", 0, 0, 1, 1))
    for _ in range(3):
        for one in waiting(line, *[("b", 0, 1, 5, 1)] * 3)[::-1]:
            line.leave(one)
    again, other = waiting(line, ("b", 0, 2, 1, 1), ("a", 0, 2, 1, 1))

    assert 1 == line.ahead(again).requests
    assert 2 == line.ahead(other).requests


def test_entity_that_left_the_middle_keeps_the_order_of_its_others():
    """A request that leaves does not let a later one of its entity overtake an earlier one."""
    line = WaitingLine()
    _, second, third = waiting(line, *[("a", 0, 0, 1, 1)] * 3)
    line.leave(second)
    (later,) = waiting(line, ("a", 0, 1, 1, 1))

    assert line.ahead(third).requests < line.ahead(later).requests


def test_flows_that_are_gone_are_forgotten():
    """The memory of a line is bounded by the requests that wait, not by the entities that ever did."""
    line = WaitingLine()
    waiting(line, ("stays", 0, 0, 1, 0.001))
    for number in range(200):
        one = WaitingRequest(next(NUMBERS), 0, 0.0, 1e9, {"rps": 1})
        one.flow = f"entity-{number}"
        line.join(one, 0.1)
        line.leave(one)

    assert len(line._classes[0.0, 0]._flows) < 30


def test_request_with_a_reserve_goes_after_all_without_one():
    """However long it has waited, it waits for tokens that the others leave."""
    line = WaitingLine()
    patient = WaitingRequest(1, 5, 0.0, 1e9, {"rps": 3}, Reserve(1, 2))
    line.join(patient, 0.3)
    (late,) = waiting(line, ("a", 0, 1_000 * AGE_S, 2, 1))

    assert late is line.first()
    assert (0, {}) == line.ahead(late)
    assert (1, {"rps": 2}) == line.ahead(patient)


def test_total_of_requests_with_one_priority_and_reserve_is_their_sum():
    """It is unknown if they differ, because some are not ahead of others then."""
    line = WaitingLine()
    assert line.total() is None

    waiting(line, ("a", 0, 0, 2, 1), ("b", 0, 0, 5, 1))
    assert {"rps": 7} == line.total()

    (high,) = waiting(line, ("c", 1, 0, 4, 1))
    assert line.total() is None

    line.admit(high)
    assert {"rps": 7} == line.total()


def test_request_that_joins_the_middle_of_a_long_line_keeps_the_order():
    """The first turn of an entity comes before the second of another one, which has 128 requests."""
    line = WaitingLine()
    others = waiting(line, *[("a", 0, 0, 1, 1)] * 128)
    (one,) = waiting(line, ("b", 0, 1, 3, 1))

    assert (1, {"rps": 1}) == line.ahead(one)
    assert (4, {"rps": 6}) == line.ahead(others[3])
    assert (128, {"rps": 130}) == line.ahead(others[-1])
    assert "ab" + 127 * "a" == served(line)


class Reference:
    """The same order, by looking at all requests each time."""

    def __init__(self, line):
        self.line = line
        self.waiting = []

    def order_of(self, priority):
        same = [one for one in self.waiting if one.priority == priority]
        return sorted(same, key=lambda one: (one.tag, one.number))

    def first(self):
        best = None
        for priority in sorted({one.priority for one in self.waiting}, reverse=True):
            if best is None:
                best = self.order_of(priority)[0]
            else:
                oldest = min(self.order_of(priority), key=lambda one: one.number)
                best = oldest if oldest.rank < best.rank else best
        return best

    def check(self):
        assert len(self.waiting) == self.line.count
        assert self.first() is self.line.first()
        assert sorted(one.number for one in self.waiting) == sorted(one.number for one in self.line)
        for one in self.waiting:
            same = self.order_of(one.priority)
            ahead = same[: same.index(one)]
            others = [other for other in self.waiting if other.priority != one.priority and other.rank < one.rank]
            newest = max((other.number for other in self.waiting), default=0) == one.number
            if newest:
                others += [other for other in self.waiting if other.priority > one.priority and other not in others]
            found = self.line.ahead(one)

            assert len(ahead) + len(others) == found.requests
            total = sum(other.consume["rps"] for other in ahead + others)
            assert total == found.demand.get("rps", 0)


STEPS = st.lists(
    st.one_of(
        st.tuples(
            st.just("join"),
            st.sampled_from("abcd"),
            st.sampled_from([0, 0, 0, 1, -2]),
            st.integers(1, 5),
            st.sampled_from([1.0, 1.0, 3.0]),
        ),
        st.tuples(st.sampled_from(["admit", "leave", "wait"]), st.integers(0, 100)),
    ),
    max_size=60,
)


def run(steps):
    """Yield a line and what was just admitted, after each step."""
    line, now_s, number = WaitingLine(), 0.0, 0
    reference = Reference(line)
    for step in steps:
        admitted = None
        if step[0] == "join":
            number += 1
            one = WaitingRequest(number, step[2], now_s, 1e9, {"rps": step[3]})
            one.flow, one.weight = step[1], step[4]
            line.join(one, step[3] / 5)
            reference.waiting.append(one)
        elif step[0] == "wait":
            now_s += step[1] / 5
        elif reference.waiting:
            if step[0] == "admit":
                admitted = line.first()
                line.admit(admitted)
            else:
                line.leave(reference.waiting[step[1] % len(reference.waiting)])
            gone = admitted or reference.waiting[step[1] % len(reference.waiting)]
            reference.waiting.remove(gone)
        yield line, reference, admitted


@given(STEPS)
def test_line_agrees_with_its_reference(steps):
    """The first request, and what is ahead of each, are those of a slow sorted list."""
    for _, reference, _ in run(steps):
        reference.check()


@given(STEPS)
def test_no_request_overtakes_an_older_one_of_its_entity_and_priority(steps):
    """Whatever joins and leaves, an entity's requests of one priority are admitted in their order of arrival."""
    for _, reference, admitted in run(steps):
        if admitted is not None:
            older = [one for one in reference.waiting if one.number < admitted.number]
            assert [] == [one for one in older if one.flow == admitted.flow and one.priority == admitted.priority]


@given(STEPS)
def test_higher_priority_overtakes_only_within_the_age_bound(steps):
    """A request is overtaken by one of a higher priority only if that came within AGE_S per step of priority."""
    for _, reference, admitted in run(steps):
        for one in [] if admitted is None else reference.waiting:
            if one.priority < admitted.priority:
                assert admitted.since_s - one.since_s <= AGE_S * (admitted.priority - one.priority)
            elif one.priority > admitted.priority:
                assert one.since_s - admitted.since_s >= AGE_S * (one.priority - admitted.priority)


@given(st.lists(st.integers(1, 5), min_size=6, max_size=6), st.sampled_from([1, 2, 4]))
def test_endless_newcomers_do_not_starve_a_request(amounts, weight):
    """Virtual time advances with each admission, so that entities that come later wait behind older requests."""
    line = WaitingLine()
    patient = waiting(line, *[("bulk", 0, 0, amount, weight) for amount in amounts])
    for number in range(400):
        one = WaitingRequest(next(NUMBERS), 0, 1.0, 1e9, {"rps": 1})
        one.flow = f"entity-{number}"
        line.join(one, 0.1)
        line.admit(line.first())

    assert all(one not in list(line) for one in patient)
