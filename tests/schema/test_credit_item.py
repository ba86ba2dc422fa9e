"""The record of an operator's credit is read as it was written, and damage is an error."""

import pytest

from zae_limiter.core.errors import CorruptItemError
from zae_limiter.core.operator_actions import GivenCredit, check_credit
from zae_limiter.schema import credit_item
from zae_limiter.schema.operations import ItemAbsent

CREDIT = GivenCredit("gpt-4", {"rpm": 5, "spend": 10**15}, {"rpm": 5, "spend": 0})
PLACE = credit_item.key("ns", "user-1", "ticket-1")


def test_record_of_a_credit_is_read_as_it_was_written() -> None:
    """It is in the partition of its entity, in no list, and written once."""
    put = credit_item.write(PLACE, CREDIT, 1_700_000_000)

    assert CREDIT == credit_item.from_item(put.item)
    assert (ItemAbsent(),) == put.when
    assert ("ns/ENTITY#user-1", "#CREDIT#ticket-1") == PLACE
    assert ("ns", "ns/ENTITY#user-1", 1_700_000_000) == tuple(put.item[one] for one in ("GSI4PK", "GSI4SK", "ttl"))


def test_longest_idempotency_key_fits_into_a_sort_key() -> None:
    """DynamoDB counts bytes, and a key may have any characters."""
    longest = "\U0001f600" * 128

    assert {"rpm": 1} == check_credit({"rpm": 1}, longest)
    assert 1_024 >= len(credit_item.key("ns", "user-1", longest).sk.encode())


@pytest.mark.parametrize(
    "damage", [{"resource": 7}, {"amounts": 7}, {"given": {"rpm": "5"}}, {"amounts": {"rpm": None}}], ids=str
)
def test_damaged_record_of_a_credit_is_an_error(damage: dict[str, object]) -> None:
    """It names the item and the attribute."""
    item = credit_item.write(PLACE, CREDIT, 0).item

    with pytest.raises(CorruptItemError, match=f"#CREDIT#ticket-1.*{next(iter(damage))}"):
        credit_item.from_item({**item, **damage})
