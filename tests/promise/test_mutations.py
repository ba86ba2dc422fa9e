"""The check of the promise has teeth: a writer with any one fault is found out."""

import pytest

from tests.promise.ledger import BrokenPromiseError
from tests.promise.mutations import SPOILERS
from tests.promise.wander import wander
from tests.promise.world import Meddle

RUNS = 600


def wander_often(spoiler: Meddle) -> None:
    """Let chance try every run."""
    for seed in range(RUNS):
        wander(seed, 150, spoiler)


@pytest.mark.parametrize("spoiler", SPOILERS, ids=lambda spoiler: spoiler.__name__)
def test_a_faulty_writer_is_found_out(spoiler: Meddle) -> None:
    """Each bound, guard and clamp is there for a reason."""
    with pytest.raises(BrokenPromiseError):
        wander_often(spoiler)
