"""Convert the record of an operator's credit to an item and back.

The record is written in one transaction with the credit. So it proves to every later call with its
key that the credit was given.
"""

from collections.abc import Mapping

from zae_limiter.core.operator_actions import GivenCredit
from zae_limiter.core.outcome import Item
from zae_limiter.schema import attributes, fields, keys
from zae_limiter.schema.operations import ItemAbsent, Key, Put

_AMOUNTS = "amounts"
_GIVEN = "given"


def key(namespace_id: str, entity_id: str, idempotency_key: str) -> Key:
    """Return the key of the record of a credit."""
    return Key(keys.pk_entity(namespace_id, entity_id), keys.sk_credit(idempotency_key))


def write(place: Key, credit: GivenCredit, expires_s: int) -> Put:
    """Write the record of a credit that was not given yet; it expires at ``expires_s``, in seconds since the epoch."""
    item = {
        "PK": place.pk,
        "SK": place.sk,
        attributes.RESOURCE: credit.resource,
        _AMOUNTS: dict(credit.amounts),
        _GIVEN: dict(credit.given),
        attributes.TTL: expires_s,
        **keys.gsi4_attributes(place.pk),
    }
    return Put(item, (ItemAbsent(),))


def from_item(item: Item) -> GivenCredit:
    """Return the credit of a record.

    Raises:
        CorruptItemError: The item is damaged.
    """
    amounts = _numbers(item, _AMOUNTS)
    return GivenCredit(fields.text(item, attributes.RESOURCE), amounts, _numbers(item, _GIVEN))


def _numbers(item: Item, name: str) -> Mapping[str, int]:
    found = fields.mapping(item, name)
    for limit_name, amount in found.items():
        if type(limit_name) is not str or type(amount) is not int:
            fields.damaged(item, name, "a map of integers")
    return found
