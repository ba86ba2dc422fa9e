"""From below: whoever is in want gets at least 98 % of what a limit offers, and nobody waits in vain."""

from unittest import mock

import pytest

from tests.simulation.demand import in_want
from tests.simulation.first_seconds import first_seconds
from tests.simulation.flood import flooded
from tests.simulation.invariants import Violation
from tests.simulation.supply import LEAST
from zae_limiter.core.top_up import Creation


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


def test_a_top_up_of_what_would_have_overflowed_is_noticed() -> None:
    """The books compare with a bucket that was created at the true time."""
    with mock.patch.object(Creation, "_earned", return_value=0), pytest.raises(Violation, match="a balance rose by"):
        first_seconds(0)
