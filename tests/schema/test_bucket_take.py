"""A take that an embedded table applies without its changes and conditions being made."""

from typing import Any

import pytest

from tests.one_bucket import NOON, OWNER, at, stored
from zae_limiter.core.acquire import Progress, Take, next_step
from zae_limiter.core.errors import ValidationError
from zae_limiter.core.limit import Limit
from zae_limiter.core.outcome import Missing
from zae_limiter.schema import bucket_writes
from zae_limiter.schema.bucket_item import view_of
from zae_limiter.schema.bucket_writes import Signature, create
from zae_limiter.schema.direct_writes import BucketTake
from zae_limiter.schema.operations import Update
from zae_limiter.tables import evaluate

LIMITS = (Limit("rpm", 100, 100, 60), Limit("rps", 10, 10, 1))
CHANGES: list[dict[str, Any]] = [
    {},
    {"b_rpm_tk": -100_000},
    {"b_rpm_tk": 10**9},
    {"b_rpm_tk": True},
    {"b_rpm_tk": None},
    {"b_rpm_tc": "many"},
    {"b_rpm_tc": None},
    {"b_wcu_tc": True},
    {"b_wcu_tc": None},
    {"gn": 7},
    {"bi": None},
    {"ttl": 1},
    {"ttl": None},
]


@pytest.mark.parametrize("change", CHANGES, ids=str)
@pytest.mark.parametrize("amounts", [[(0, 1_000), (1, 2_000)], [(0, 1_000)], []], ids=str)
@pytest.mark.parametrize("spent", [0, 5_000, 20_000])
@pytest.mark.parametrize("ttl", [0, 3])
def test_bucket_take_does_to_every_item_what_its_update_does(
    ttl: int, spent: int, amounts: list[tuple[int, int]], change: dict[str, Any]
) -> None:
    """It is applied without its conditions being made, and refused by them. None stands for an absent attribute."""
    terms = stored(*LIMITS, ttl=ttl)
    created = create(OWNER, terms, {"rpm": spent, "rps": spent}, NOON, Signature(1, 2)).item
    view = view_of(created, NOON, None, terms)
    taking = next_step(view, terms, amounts, at(NOON + 1_500), Progress(trust_ms=0, looked=True))
    item = {name: value for name, value in {**created, **change}.items() if value is not None}
    assert isinstance(taking, Take)

    expected = _applied(bucket_writes.take(view, taking, 5), item)

    assert expected == _applied(BucketTake(view, taking, 5), item)
    assert Missing() == evaluate.apply(BucketTake(view, taking, 5), {})


def _applied(update: Update, item: dict[str, Any]) -> object:
    """Return the result of an update, with the types of its values; the reason if it is invalid."""
    try:
        result = evaluate.apply(update, item)
    except ValidationError as error:
        return str(error)
    return {name: (type(value), value) for name, value in result.items()} if isinstance(result, dict) else result


def test_bucket_take_reads_as_its_update() -> None:
    """Changes and conditions are made when they are read, and unknown attributes do not exist."""
    terms = stored(*LIMITS)
    view = view_of(create(OWNER, terms, {"rpm": 5_000}, NOON, Signature(1, 2)).item, NOON, None, terms)
    taking = next_step(view, terms, [(0, 1_000)], at(NOON + 1), Progress(trust_ms=0, looked=True))
    assert isinstance(taking, Take)
    update, lazy = bucket_writes.take(view, taking, 5), BucketTake(view, taking, 5)

    assert (update.key, update.when, update.add) == (lazy.key, lazy.when, lazy.add)
    assert (update.set, update.remove) == (lazy.set, lazy.remove)
    with pytest.raises(AttributeError, match="unknown"):
        _ = lazy.unknown


@pytest.mark.parametrize("taken", [(0,), (0, 1), (1, 0)])
def test_bucket_take_names_all_that_it_writes(taken: tuple[int, ...]) -> None:
    """Takes from all limits of equal layouts return the same object."""
    terms = stored(*LIMITS, ttl=3)
    view = view_of(create(OWNER, terms, {}, NOON, Signature(1, 2)).item, NOON, None, terms)
    amounts = [(position, 1_000) for position in taken]
    taking = next_step(view, terms, amounts, at(NOON + 1), Progress(trust_ms=0, looked=True))
    assert isinstance(taking, Take)
    take = BucketTake(view, taking, 5)
    names = take.written_names()

    assert names is not None
    assert {*take.add, *take.set} == {*names}
    assert (len(taken) == len(LIMITS)) == (names is BucketTake(view, taking, 6).written_names())


def test_bucket_take_that_removes_the_expiry_names_nothing() -> None:
    """A take without an expiry removes it."""
    terms = stored(*LIMITS, ttl=0)
    view = view_of(create(OWNER, terms, {}, NOON, Signature(1, 2)).item, NOON, None, terms)
    taking = next_step(view, terms, [(0, 1_000)], at(NOON + 1), Progress(trust_ms=0, looked=True))
    assert isinstance(taking, Take)

    assert BucketTake(view, taking, 5).written_names() is None
