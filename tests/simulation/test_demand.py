"""From below: whoever is in want gets at least 98 % of what a limit offers."""

import pytest

from tests.simulation.demand import LEAST, Demand, supply


@pytest.mark.parametrize("seed", [0, 8, 9, 12])
def test_what_a_limit_offers_is_admitted(seed: int) -> None:
    """Under demand that never ends, contention loses next to nothing."""
    found = supply(Demand.of(seed))

    assert LEAST <= found.share, found
