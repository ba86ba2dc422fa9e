"""From below: whoever is in want gets at least 98 % of what a limit offers, and nobody waits in vain."""

import pytest

from tests.simulation.demand import in_want
from tests.simulation.first_seconds import first_seconds
from tests.simulation.flood import flooded
from tests.simulation.supply import LEAST


@pytest.mark.parametrize("seed", [0, 8, 9, 12])
def test_what_a_limit_offers_is_admitted(seed: int) -> None:
    """Under demand that never ends, contention loses next to nothing."""
    found = in_want(seed)

    assert LEAST <= found.share, found


@pytest.mark.parametrize("seed", [4, 15, 28])
def test_a_flood_is_told_that_there_is_too_little(seed: int) -> None:
    """Nobody waits in a queue until there is no time left, and what is earned is admitted all the same."""
    found = flooded(seed)

    assert found.away == 0, found
    assert LEAST <= found.share, found


@pytest.mark.parametrize("seed", [0, 4, 12, 17, 43])
def test_a_new_client_on_a_new_bucket_admits_what_the_limit_offers(seed: int) -> None:
    """In its first three seconds, though it knows the server's time only to the second."""
    found = first_seconds(seed)

    assert found.away == 0, found
    assert LEAST <= found.share, found
