"""Convert buckets of the old layout, which were stored with their entity (``ENTITY#`` / ``#BUCKET#``).

In the old layout a burst (``bx``) beside the capacity was the ceiling; now the capacity is. Balance
and baseline had the same meaning, so they are kept. So the level stays the same at any time, to the
millitoken.
"""

from zae_limiter.core.errors import CorruptItemError, ValidationError
from zae_limiter.core.limit import Limit
from zae_limiter.core.names import RESERVED_LIMIT_NAME
from zae_limiter.core.outcome import Item
from zae_limiter.core.view import EffectiveLimits
from zae_limiter.schema import attributes, bucket_writes, fields, keys
from zae_limiter.schema.bucket_writes import Owner, Signature
from zae_limiter.schema.operations import Delete, Key, Matches, Put

SK_PREFIX = "#BUCKET#"

_BURST = "bx"
_OLDEST_STAMP = -1
"""Lower than the stamp of any configuration, so that the first take rebases the bucket to the limits in force."""


def owner_of(key: Key) -> Owner | None:
    """Return the owner of a bucket in the old layout, None for a key of another kind."""
    entity = keys.parse_entity_pk(key.pk)
    resource = key.sk.removeprefix(SK_PREFIX)
    if entity is None or resource == key.sk or not resource or "#" in resource:
        return None
    return Owner(entity.namespace_id, entity.name, resource)


def moved(item: Item, ttl_multiplier: int, signature: Signature) -> tuple[Put, Delete]:
    """Return the two writes of the transaction that moves a bucket to its own partition.

    Its totals start at 0, because earlier usage was counted already. It gets an expiry if it had
    one.

    Raises:
        CorruptItemError: The item is not a bucket of the old layout, or is damaged.
    """
    try:
        return _moved(item, ttl_multiplier, signature)
    except ValidationError as error:
        raise CorruptItemError(fields.location(item), f"it is not a complete bucket: {error}") from error


def _moved(item: Item, ttl_multiplier: int, signature: Signature) -> tuple[Put, Delete]:
    old = Key(fields.text(item, "PK"), fields.text(item, "SK"))
    owner = owner_of(old)
    names = sorted(name for name in _limit_names(item) if name != RESERVED_LIMIT_NAME)
    if owner is None or not names:
        raise CorruptItemError(fields.location(item), "it is not a bucket of the old layout")
    limits = [_limit(item, name) for name in names]
    balances = {name: _number(item, name, attributes.TOKENS) for name in names}
    start_ms = fields.number(item, attributes.BASELINE)
    terms = EffectiveLimits(
        limits=tuple(limits),
        stamp=_OLDEST_STAMP,
        digest="",
        ttl_multiplier=ttl_multiplier if attributes.TTL in item else 0,
        positions={name: position for position, name in enumerate(names)},
        parent_id=fields.optional_text(item, attributes.PARENT_ID),
        cascade=fields.flag(item, attributes.CASCADE),
    )
    spent = {limit.name: limit.capacity_milli - balances[limit.name] for limit in limits}
    new = bucket_writes.create(owner, terms, spent, start_ms, signature)
    uncounted = {attributes.bucket_attribute(name, attributes.TOTAL_CONSUMED): 0 for name in names}
    held = {attributes.BASELINE: start_ms}
    held |= {attributes.bucket_attribute(name, attributes.TOKENS): balances[name] for name in names}
    unchanged = Matches(tuple(held), tuple(held.values()))
    return Put({**new.item, **uncounted}, new.when), Delete(old, (unchanged,))


def _limit_names(item: Item) -> list[str]:
    found = (attributes.parse_bucket_attribute(name) for name in item)
    return [one.limit_name for one in found if one is not None and one.field == attributes.TOKENS]


def _limit(item: Item, name: str) -> Limit:
    ceiling = attributes.CAPACITY if attributes.bucket_attribute(name, _BURST) not in item else _BURST
    return Limit(
        name,
        _whole(item, name, ceiling),
        _whole(item, name, attributes.REFILL_AMOUNT),
        _whole(item, name, attributes.REFILL_PERIOD),
    )


def _whole(item: Item, name: str, field: str) -> int:
    whole, rest = divmod(_number(item, name, field), 1000)
    return fields.damaged(item, attributes.bucket_attribute(name, field), "whole thousands") if rest else whole


def _number(item: Item, name: str, field: str) -> int:
    return fields.number(item, attributes.bucket_attribute(name, field))
