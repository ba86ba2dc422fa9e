"""What a settled call costs on a busy bucket."""

import pytest

from tests.simulation.settled_calls import units_per_call


@pytest.mark.parametrize("per_second", [20, 50])
def test_settled_call_on_a_busy_bucket_costs_about_one_unit(per_second: float) -> None:
    """The settlement is part of the next take. Only a settlement that no take follows in time is a write of its own."""
    assert 1.0 <= units_per_call(per_second, 0.25, 20) <= 1.1


def test_settled_call_costs_two_units_by_default() -> None:
    """The take is one write, and the settlement is another."""
    assert 1.95 <= units_per_call(20, 0.0, 20) <= 2.1


def test_settled_call_on_a_quiet_bucket_waits_for_the_interval() -> None:
    """At one call a second, a take follows within 0.25 s for a fifth of the calls."""
    assert 1.6 <= units_per_call(1, 0.25, 100) <= 1.9
