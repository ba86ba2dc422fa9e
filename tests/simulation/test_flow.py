"""What a limit has used beyond its earnings, over all spans: as every span looked at by itself says."""

from random import Random

import pytest

from tests.simulation.flow import Flow, most_earned


def most_used(uses: list[tuple[int, int]], rate: tuple[int, int]) -> int:
    """The most that any span ending now has used beyond what it earned, each looked at by itself."""
    amount, period = rate
    now_ms = uses[-1][0]
    found = [0]
    for place, (begun_ms, _) in enumerate(uses):
        used = sum(milli for _, milli in uses[place:])
        found.append(used - (now_ms * amount // period - begun_ms * amount // period))
    return max(found)


@pytest.mark.parametrize("seed", range(20))
def test_the_running_maximum_is_that_of_all_spans(seed: int) -> None:
    """Kept up use by use, it says what looking at every span says."""
    random = Random(seed)
    rate = (random.randint(1, 5_000), random.choice((1_000, 7_000, 60_000)))
    flow = Flow(10**9, rate, 0)
    uses, now_ms = [], 0
    for _ in range(200):
        now_ms += random.choice((0, 1, 10, 500, 20_000))
        uses.append((now_ms, random.randint(-500, 3_000)))
        flow.spend(uses[-1][1], now_ms)

        assert most_used(uses, rate) == flow.spans[-1][0]


def test_spans_that_began_with_a_larger_capacity_may_have_used_it() -> None:
    """A capacity that was lowered counts for what begins after it, and only for that."""
    flow = Flow(5_000, (1, 1_000_000), 0)
    flow.spend(5_000, 0)
    flow.limit_to(2_000)

    assert [] == list(flow.broken())

    flow.spend(2_000, 0)

    assert [(7_000, 5_000)] == list(flow.broken())


def test_spans_that_begin_with_a_smaller_capacity_may_not_use_more() -> None:
    """Once what was used before is earned back, the smaller capacity is all there is."""
    flow = Flow(5_000, (1_000, 1_000), 0)
    flow.spend(5_000, 0)
    flow.limit_to(2_000)
    flow.spend(2_001, 10_000)

    assert [(2_001, 2_000)] == list(flow.broken())


def test_a_larger_capacity_counts_at_once() -> None:
    """A capacity that was raised is the largest of every span that goes on."""
    flow = Flow(1_000, (1_000, 1_000), 0)
    flow.spend(1_000, 0)
    flow.limit_to(3_000)
    flow.spend(2_000, 0)

    assert [] == list(flow.broken())
    assert [[3_000, 3_000]] == flow.spans


def test_what_was_earned_at_another_pace_counts_at_that_pace() -> None:
    """A faster rate earns more from when it was put in place."""
    flow = Flow(1_000, (1, 1_000), 0)
    flow.spend(1_000, 0)
    flow.pace_at((1_000, 1_000), 1_000, 1_000)
    flow.spend(500, 1_500)

    assert 1_000 - 1 == flow.spans[-1][0]


def test_clocks_and_delays_earn_what_they_are_off_by() -> None:
    """The largest that was seen counts, rounded up."""
    flow = Flow(1_000, (3, 1_000), 0)
    flow.allow_for(500)
    flow.allow_for(100)

    assert most_earned(3, 1_000, 500) == flow.excess_milli == 2
