"""The running maximum of a flow equals the maximum over all spans, each computed by itself."""

from random import Random

import pytest

from tests.simulation.flow import Flow, most_earned


def most_used(uses: list[tuple[int, int]], rate: tuple[int, int]) -> int:
    """Return the most that any span ending now used beyond its earnings, computed span by span."""
    amount, period = rate
    now_ms = uses[-1][0]
    found = [0]
    for place, (begun_ms, _) in enumerate(uses):
        used = sum(milli for _, milli in uses[place:])
        found.append(used - (now_ms * amount // period - begun_ms * amount // period))
    return max(found)


@pytest.mark.parametrize("seed", range(20))
def test_running_maximum_of_random_uses_equals_the_maximum_over_all_spans(seed: int) -> None:
    """After every use, the constant-time update agrees with the slow computation."""
    random = Random(seed)
    rate = (random.randint(1, 5_000), random.choice((1_000, 7_000, 60_000)))
    flow = Flow(10**9, rate, 0)
    uses, now_ms = [], 0
    for _ in range(200):
        now_ms += random.choice((0, 1, 10, 500, 20_000))
        uses.append((now_ms, random.randint(-500, 3_000)))
        flow.spend(uses[-1][1], now_ms)

        assert most_used(uses, rate) == flow.spans[-1][0]


def test_span_from_before_a_lowered_capacity_may_have_used_the_larger_one() -> None:
    """A lowered capacity counts only for spans that begin after it."""
    flow = Flow(5_000, (1, 1_000_000), 0)
    flow.spend(5_000, 0)
    flow.change_capacity(2_000)

    assert [] == list(flow.exceeded())

    flow.spend(2_000, 0)

    assert [(7_000, 5_000)] == list(flow.exceeded())


def test_span_after_a_lowered_capacity_may_use_only_the_smaller_one() -> None:
    """Once the earlier use is earned back, the smaller capacity is the limit."""
    flow = Flow(5_000, (1_000, 1_000), 0)
    flow.spend(5_000, 0)
    flow.change_capacity(2_000)
    flow.spend(2_001, 10_000)

    assert [(2_001, 2_000)] == list(flow.exceeded())


def test_raised_capacity_counts_for_every_open_span() -> None:
    """A span that goes on has the raised capacity as its largest."""
    flow = Flow(1_000, (1_000, 1_000), 0)
    flow.spend(1_000, 0)
    flow.change_capacity(3_000)
    flow.spend(2_000, 0)

    assert [] == list(flow.exceeded())
    assert [[3_000, 3_000]] == flow.spans


def test_changed_rate_earns_from_the_time_of_the_change() -> None:
    """Earnings before the change count at the old rate, later ones at the new rate."""
    flow = Flow(1_000, (1, 1_000), 0)
    flow.spend(1_000, 0)
    flow.change_rate((1_000, 1_000), 1_000, 1_000)
    flow.spend(500, 1_500)

    assert 1_000 - 1 == flow.spans[-1][0]


def test_allowance_for_clocks_and_delays_is_the_largest_seen_rounded_up() -> None:
    """It is what the limit earns in the largest error seen."""
    flow = Flow(1_000, (3, 1_000), 0)
    flow.allow_for(500)
    flow.allow_for(100)

    assert most_earned(3, 1_000, 500) == flow.excess_milli == 2
