"""Describe the lists of a whole namespace, and the queries that find its entities and its audit events.

GSI4 contains every item of a namespace. Items of a list have a sort key that orders the list. All
others have their partition key as sort key, and so has the tombstone of an entity.
"""

from collections.abc import Iterator

from zae_limiter.core.audit import previous_event_id
from zae_limiter.core.outcome import Item
from zae_limiter.schema import attributes, keys
from zae_limiter.schema.operations import Differs, Equals, Key, Query, Update

_INDEX = "GSI4"


def sort_key(key: Key) -> str | None:
    """Return the sort key by which a list finds an item with this key, None if no list contains such items."""
    entity = keys.parse_entity_pk(key.pk)
    if entity is not None and key.sk == keys.sk_meta():
        return keys.gsi4_sk_entity(entity.name)
    usage = keys.parse_usage_sk(key.sk)
    if entity is not None and usage is not None:
        return keys.gsi4_sk_usage(usage.window_key, entity.name, usage.name)
    event_id = keys.parse_audit_sk(key.sk)
    if event_id is not None and keys.parse_audit_pk(key.pk) is not None:
        return keys.gsi4_sk_audit(event_id)
    return None


def old_items(namespace_id: str, limit: int) -> Iterator[Query]:
    """Find the items that may have the sort key of the old layout, which was the partition key of every item."""
    for prefix in (keys.pk_entity(namespace_id, ""), keys.pk_audit(namespace_id, "")):
        yield Query(keys.gsi4_pk(namespace_id), _INDEX, prefix=prefix, limit=limit)


def listed(item: Item) -> Update | None:
    """Change the sort key of an item of the old layout, so that lists contain it; None if it stays as it is."""
    key = Key(item["PK"], item["SK"])
    wanted, seen = sort_key(key), item.get("GSI4SK")
    if wanted is None or seen != keys.gsi4_sk(key.pk) or item.get(attributes.DELETED) is True:
        return None
    # Hazard: the entity may be deleted after the read. Its tombstone must not be listed.
    return Update(key, set={"GSI4SK": wanted}, when=(Equals("GSI4SK", seen), Differs(attributes.DELETED, True)))


def entities(namespace_id: str, after: str | None) -> Query:
    """Find the entities of a namespace, sorted by id: those after ``after``, or all if it is None."""
    pk = keys.gsi4_pk(namespace_id)
    if after is None:
        return Query(pk, _INDEX, prefix=keys.GSI_ENTITY_PREFIX)
    start = {"PK": keys.pk_entity(namespace_id, after), "SK": keys.sk_meta()}
    start |= {"GSI4PK": pk, "GSI4SK": keys.gsi4_sk_entity(after)}
    return Query(pk, _INDEX, prefix=keys.GSI_ENTITY_PREFIX, start=start)


def events(namespace_id: str, before: str | None) -> Query:
    """Find the audit events of a namespace, newest first: those older than the event ``before``, or all if None."""
    pk, prefix = keys.gsi4_pk(namespace_id), keys.GSI_AUDIT_PREFIX
    if before is None:
        return Query(pk, _INDEX, prefix=prefix, descending=True)
    # The id of an event does not contain its entity, so a bound replaces the start key.
    high = keys.gsi4_sk_audit(previous_event_id(before))
    return Query(pk, _INDEX, low=prefix, high=high, descending=True)
