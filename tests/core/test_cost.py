"""The cost of a call replaces what was taken for it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zae_limiter import InvalidNameError, ValidationError
from zae_limiter.core.cost import cost_changes

AMOUNTS = st.dictionaries(st.sampled_from(["rpm", "tpm", "spend"]), st.integers(0, 10**18))


def test_cost_none_changes_nothing():
    """A call without a known cost keeps what was taken."""
    assert {} == cost_changes({"rpm": 1}, (), None)


def test_cost_of_a_taken_limit_is_the_difference():
    """Above or below what was taken."""
    assert {"tpm": 230, "rpm": 0} == cost_changes({"rpm": 1, "tpm": 500}, (), {"tpm": 730, "rpm": 1})
    assert {"tpm": -380} == cost_changes({"rpm": 1, "tpm": 500}, (), {"tpm": 120})


def test_cost_of_a_limit_that_was_not_taken_is_the_whole_amount():
    """Every limit in force can have a cost."""
    assert {"spend": 7} == cost_changes({"rpm": 1}, (), {"spend": 7})


def test_cost_of_a_counted_limit_is_added():
    """What was taken is replaced once, by the first amount."""
    assert {"tpm": 20} == cost_changes({"tpm": 500}, {"tpm"}, {"tpm": 20})


@given(AMOUNTS, st.lists(AMOUNTS | st.none(), max_size=5))
def test_changes_of_all_items_lead_to_the_sum_of_their_costs(taken, costs):
    """A limit that no item counts keeps what was taken."""
    held, counted = dict(taken), set()
    for cost in costs:
        for name, change in cost_changes(taken, counted, cost).items():
            held[name] = held.get(name, 0) + change
        counted |= (cost or {}).keys()

    sums = {name: sum((cost or {}).get(name, 0) for cost in costs) for name in counted}

    assert {**taken, **sums} == held


@pytest.mark.parametrize("cost", [730, "tpm", ["tpm"], [("tpm", 1)]])
def test_cost_that_is_no_mapping_is_rejected(cost):
    """A number alone does not say which limit it belongs to."""
    with pytest.raises(ValidationError, match="cost"):
        cost_changes({"tpm": 1}, (), cost)


@pytest.mark.parametrize("amount", [-1, 1.5, True, "7", 10**18 + 1, None])
def test_cost_with_an_invalid_amount_is_rejected(amount):
    """An amount is a whole number from 0."""
    with pytest.raises(ValidationError, match=r"cost\[tpm\]"):
        cost_changes({"tpm": 1}, (), {"tpm": amount})


def test_cost_with_an_invalid_name_is_rejected():
    """As everywhere, before anything is changed."""
    with pytest.raises(InvalidNameError):
        cost_changes({"tpm": 1}, (), {"t p m": 1})
