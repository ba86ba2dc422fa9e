"""Under more demand than a limit offers, 98 % of the offer is admitted, and no request fails as unavailable."""

from unittest import mock

import pytest

from tests.simulation.demand import under_demand
from tests.simulation.first_seconds import first_seconds
from tests.simulation.flood import under_flood
from tests.simulation.invariants import Violation
from tests.simulation.supply import LEAST
from zae_limiter.core.top_up import Creation


@pytest.mark.parametrize("seed", [0, 8, 9, 12])
def test_constant_demand_on_a_limit_is_admitted_at_98_percent_of_the_offer(seed: int) -> None:
    """Contention loses at most 2 % of what a limit earns."""
    found = under_demand(seed)

    assert LEAST <= found.share, found


@pytest.mark.parametrize("seed", [4, 15, 28])
def test_flood_on_a_limit_is_rejected_without_unavailable_errors(seed: int) -> None:
    """Requests beyond the limit are rejected before their deadline, and the earned tokens are still admitted."""
    found = under_flood(seed)

    assert found.unavailable == 0, found
    assert LEAST <= found.share, found


@pytest.mark.parametrize("seed", [0, 4, 12, 17, 43])
def test_new_client_on_a_new_bucket_admits_98_percent_in_its_first_seconds(seed: int) -> None:
    """This holds although a new client knows the server's time only to the second."""
    found = first_seconds(seed)

    assert found.unavailable == 0, found
    assert LEAST <= found.share, found


def test_top_up_beyond_a_full_bucket_violates_an_invariant() -> None:
    """The invariants compare each balance with that of a bucket created at the true time."""
    with mock.patch.object(Creation, "_earned", return_value=0), pytest.raises(Violation, match="a balance rose by"):
        first_seconds(0)
