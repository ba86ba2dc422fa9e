"""What a user sees of limits and buckets."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import strategies as some
from zae_limiter.core.errors import ValidationError
from zae_limiter.core.limit import Limit
from zae_limiter.core.status import (
    BucketState,
    CapacityTotals,
    EntityCapacity,
    LimitStatus,
    OnUnavailable,
    check_on_unavailable,
)

RPM = Limit.per_minute("rpm", 100, burst=150)


@pytest.mark.parametrize(("available", "requested", "deficit"), [(10, 3, 0), (3, 3, 0), (3, 10, 7), (-5, 1, 6)])
def test_deficit_is_the_amount_that_was_missing(available: int, requested: int, deficit: int) -> None:
    """A debt is part of it."""
    status = LimitStatus("user-1", "gpt-4", "rpm", RPM, available, requested, deficit > 0, 0.0)

    assert deficit == status.deficit


def test_status_as_dict_contains_status_and_limit() -> None:
    """The dictionary is complete."""
    expected = {
        "entity_id": "user-1",
        "resource": "gpt-4",
        "limit_name": "rpm",
        "capacity": 150,
        "refill_amount": 100,
        "refill_period_seconds": 60,
        "available": 3,
        "requested": 5,
        "deficit": 2,
        "exceeded": True,
        "retry_after_seconds": 1.2,
    }

    assert expected == LimitStatus("user-1", "gpt-4", "rpm", RPM, 3, 5, True, 1.2).as_dict()


@pytest.mark.parametrize(("milli", "tokens"), [(0, 0), (1_999, 1), (-1, -1), (-1_000, -1)])
def test_tokens_of_a_bucket_are_rounded_down(milli: int, tokens: int) -> None:
    """A part of a token cannot be taken, and a debt is never understated."""
    state = BucketState("user-1", "gpt-4", "rpm", milli, 0, 100_000, 100_000, 60_000)

    assert tokens == state.tokens
    assert 100 == state.capacity


@given(st.lists(st.builds(EntityCapacity, st.just("user-1"), st.integers(1, 1000), st.integers(-1000, 1000))))
def test_resource_capacity_is_the_sum_of_its_entities(entities: list[EntityCapacity]) -> None:
    """Entities are added a few at a time."""
    totals = CapacityTotals("gpt-4", "rpm")
    totals.add(entities[:3])
    totals.add(entities[3:])
    total = totals.capacity()

    assert sum(entity.capacity for entity in entities) == total.total_capacity
    assert sum(entity.available for entity in entities) == total.total_available
    assert entities == total.entities


def test_utilization_is_the_percentage_in_use() -> None:
    """In debt it is above 100; without entities it is 0."""
    half = EntityCapacity("user-1", 100, 50)
    debt = EntityCapacity("user-2", 100, -50)

    assert (50.0, 150.0) == (half.utilization_pct, debt.utilization_pct)
    totals = CapacityTotals("gpt-4", "rpm")
    assert 0.0 == totals.capacity().utilization_pct
    totals.add([half, debt])
    assert 100.0 == totals.capacity().utilization_pct


@pytest.mark.parametrize(
    ("value", "choice"),
    [(None, None), ("allow", OnUnavailable.ALLOW), ("block", OnUnavailable.BLOCK), (OnUnavailable.BLOCK, "block")],
)
def test_on_unavailable_may_be_a_string(value: object, choice: OnUnavailable | None) -> None:
    """A command line or an environment variable passes it."""
    assert choice == check_on_unavailable(value)


@given(some.broken_texts | some.not_whole_numbers.filter(lambda value: value is not None))
def test_invalid_on_unavailable_raises_with_the_two_choices(value: object) -> None:
    """The error names both."""
    with pytest.raises(ValidationError, match="'allow' or 'block'"):
        check_on_unavailable(value)
