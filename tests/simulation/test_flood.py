"""Far more requests than a limit offers are answered, and in time."""

import pytest

from tests.simulation.demand import LEAST
from tests.simulation.flood import Flood, ebb


@pytest.mark.parametrize("seed", [30, 37, 57])
def test_a_flood_is_told_that_there_is_too_little(seed: int) -> None:
    """Nobody waits in a queue until there is no time left, and what is earned is admitted all the same."""
    found = ebb(Flood.of(seed))

    assert found.away == 0, found
    assert LEAST <= found.share, found
