"""What a load test measures: percentiles, merging, JSON."""

import copy
import json
import math
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.loadtest.measured import latencies_of, measurements
from zae_limiter.loadtest import measurements as subject
from zae_limiter.loadtest.measurements import Latencies, LimitKey, Measurements


def merged(*parts: Measurements) -> Measurements:
    total = Measurements()
    for part in parts:
        total.merge(copy.deepcopy(part))
    return total


@given(st.lists(st.floats(0.001, 1e7), min_size=1), st.sampled_from([0.5, 0.95, 0.99, 1.0]))
def test_percentile_of_any_durations_is_at_most_1_percent_above_the_exact_one(
    durations_ms: list[float], share: float
) -> None:
    """It is never below, and never above the longest."""
    exact = sorted(durations_ms)[max(0, math.ceil(share * len(durations_ms)) - 1)]

    found = latencies_of(durations_ms).percentile_ms(share)

    assert found is not None
    assert exact * (1 - 1e-9) <= found <= exact * 1.01 * (1 + 1e-9)
    assert found <= max(durations_ms)


def test_percentile_without_durations_is_none() -> None:
    """Zero would be a claim."""
    assert Latencies().percentile_ms(0.5) is None


# Drawing three measurements is slow.
@settings(max_examples=25)
@given(measurements(), measurements(), measurements())
def test_merge_of_three_does_not_depend_on_the_order(one: Measurements, two: Measurements, three: Measurements) -> None:
    """Workers report to a master in any order, and some reports are merged before they are sent."""
    left = merged(merged(one, two), three)
    right = merged(one, merged(two, three))
    other = merged(three, two, one)

    assert left == right == other


# Drawing three measurements is slow.
@settings(max_examples=25)
@given(measurements(), measurements(), measurements(), st.integers(1, 5))
def test_merge_of_more_limits_than_are_kept_keeps_the_same_in_any_order(
    one: Measurements, two: Measurements, three: Measurements, most: int
) -> None:
    """A limit that is kept in the end has the counts of all processes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(subject, "MOST_LIMITS", most)
        total, every = merged(merged(one, two), three), [one, two, three]

        assert total == merged(one, merged(two, three))
    for key, tally in total.limits.items():
        assert tally.taken == sum(part.limits[key].taken for part in every if key in part.limits)


@settings(max_examples=50)
@given(measurements())
def test_measurements_survive_json(measured: Measurements) -> None:
    """They are sent between processes."""
    assert measured == Measurements.from_dict(json.loads(json.dumps(measured.to_dict())))


def test_tally_of_many_limits_keeps_the_same_ones_in_every_order() -> None:
    """The parent is kept, however late it is seen."""
    keys = [LimitKey(f"user-{number}", "api", "rpm") for number in range(300)]
    found = []
    for seed in range(3):
        measured = Measurements()
        for key in Random(seed).sample(keys, len(keys)):
            measured.tally_of(key, is_ancestor=False)
        measured.tally_of(LimitKey("parent", "api", "rpm"), is_ancestor=True)
        found.append(measured)

    assert 64 == len(found[0].limits)
    assert found[0].limits.keys() == found[1].limits.keys() == found[2].limits.keys()
    assert ("parent", "api", "rpm") in found[0].limits
    assert found[0].limits_left_out


def test_json_of_many_bins_is_small() -> None:
    """A minute of all limits that are kept fits into a message to the master."""
    measured = Measurements()
    for number in range(100):
        tally = measured.tally_of(LimitKey(f"user-{number}", "api", "rpm"), is_ancestor=False)
        for tenth in range(600 if tally else 0):
            assert tally is not None
            tally.take(1, 1_700_000_000 + tenth / 10, 1_700_000_000 + tenth / 10)

    assert len(json.dumps(measured.to_dict())) < 2_000_000
