"""Describe the queries that find usage snapshots: those of an entity, of a resource, or of a whole namespace.

The snapshots of an entity are in its partition. Those of a resource and of a namespace are found
through an index, whose sort keys begin with the key of the window. So the query reads only the
windows between two times.
"""

from zae_limiter.core.lazy_dataclass import replace
from zae_limiter.core.usage import UsageFilter, UsagePosition, Window, window_key_before, window_of_key
from zae_limiter.schema import keys
from zae_limiter.schema.operations import Key, Page, Query

_PREFIX = keys.GSI_USAGE_PREFIX
_AFTER_SEPARATOR = "$"
"""The character after ``#``: a bound that ends with it includes all sort keys of a window."""


def query(namespace_id: str, wanted: UsageFilter, after: UsagePosition | None) -> Query:
    """Find snapshots, and some that the filter does not include: those after a position, or all if it is None.

    Snapshots of an entity are sorted by resource and window, those of a resource by window. Those
    of a namespace are sorted by window, the newest first.
    """
    if wanted.entity_id is not None:
        return _of_entity(keys.pk_entity(namespace_id, wanted.entity_id), wanted, after)
    if wanted.resource is not None:
        found = _of_index("GSI2", keys.gsi2_pk_resource(namespace_id, wanted.resource), wanted)
    else:
        found = replace(_of_index("GSI4", keys.gsi4_pk(namespace_id), wanted), descending=True)
    return found if after is None else replace(found, start=_start(found, namespace_id, after))


def following(asked: Query, wanted: UsageFilter, page: Page) -> Query | None:
    """Return the query for the next page, None if the page was the last.

    In the list of a namespace it skips the windows of other types.
    """
    last = window_of(Key(page.items[-1]["PK"], page.items[-1]["SK"])) if page.items else None
    skippable = asked.descending and last is not None and wanted.window_type not in (None, last.type)
    if page.next is None or last is None or not skippable:
        return asked.after(page)
    high = _bound(window_key_before(last, str(wanted.window_type)))
    return replace(asked, high=high, start=None)


def window_of(key: Key) -> Window | None:
    """Return the window of a snapshot, None for a key of another kind."""
    parsed = keys.parse_usage_sk(key.sk)
    return None if parsed is None else window_of_key(parsed.window_key)


def resource_of(key: Key) -> str | None:
    """Return the resource of a snapshot, None for a key of another kind."""
    parsed = keys.parse_usage_sk(key.sk)
    return None if parsed is None else parsed.name


def position_of(key: Key) -> UsagePosition | None:
    """Return the position of a snapshot, None for a key of another kind."""
    entity, usage = keys.parse_entity_pk(key.pk), keys.parse_usage_sk(key.sk)
    return None if entity is None or usage is None else UsagePosition(usage.window_key, entity.name, usage.name)


def _of_entity(pk: str, wanted: UsageFilter, after: UsagePosition | None) -> Query:
    prefix = keys.SK_USAGE_PREFIX if wanted.resource is None else keys.sk_usage(wanted.resource, "")
    start = None if after is None else {"PK": pk, "SK": keys.sk_usage(after.resource, after.window_key)}
    return Query(pk, prefix=prefix, start=start)


def _of_index(index: str, pk: str, wanted: UsageFilter) -> Query:
    low, high = wanted.key_range
    return Query(pk, index, low=f"{_PREFIX}{low}", high=_bound(high) if high else f"{_PREFIX[:-1]}{_AFTER_SEPARATOR}")


def _bound(window_key: str) -> str:
    return f"{_PREFIX}{window_key}{_AFTER_SEPARATOR}"


def _start(found: Query, namespace_id: str, after: UsagePosition) -> dict[str, str]:
    window_key, entity_id, resource = after
    in_namespace = found.index == "GSI4"
    sort = keys.gsi4_sk_usage(*after) if in_namespace else keys.gsi2_sk_usage(window_key, entity_id)
    key = {"PK": keys.pk_entity(namespace_id, entity_id), "SK": keys.sk_usage(resource, window_key)}
    return key | {f"{found.index}PK": found.pk, f"{found.index}SK": sort}
