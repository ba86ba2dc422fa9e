"""The lists of a namespace: sort keys of their items, and the queries that find them."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import strategies as some
from zae_limiter.core.audit import make_event_id
from zae_limiter.core.config import EntityFacts
from zae_limiter.core.entity import Entity
from zae_limiter.schema import entity_item, keys, namespace_lists
from zae_limiter.schema.operations import Differs, Equals, Key, Query, Update

EVENT = "1704117600000-00000000000000ff"


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        (Key("ns/ENTITY#a", "#META"), "ENTITY#a"),
        (Key("ns/ENTITY#a", "#USAGE#gpt-4/v1#2024-01-01"), "USAGE#2024-01-01#a#gpt-4/v1"),
        (Key("ns/AUDIT#a", f"#AUDIT#{EVENT}"), f"AUDIT#{EVENT}"),
        (Key("_/AUDIT#$NAMESPACE:a", f"#AUDIT#{EVENT}"), f"AUDIT#{EVENT}"),
        (Key("ns/ENTITY#a", "#CONFIG#gpt-4"), None),
        (Key("ns/BUCKET#a#gpt-4#0", "#META"), None),
        (Key("ns/BUCKET#a#gpt-4#0", "#USAGE#gpt-4#2024-01-01"), None),
        (Key("ns/ENTITY#a", f"#AUDIT#{EVENT}"), None),
        (Key("ns/SYSTEM#", "#CONFIG"), None),
    ],
)
def test_only_entities_usage_and_audit_events_are_listed(key: Key, expected: str | None) -> None:
    """The sort key follows from the key of the item."""
    assert expected == namespace_lists.sort_key(key)


def test_item_of_the_old_layout_gets_its_sort_key() -> None:
    """The write requires that the item still has the old one, and is not a tombstone."""
    item = entity_item.to_item("ns", Entity("a"), 1) | {"GSI4SK": "ns/ENTITY#a"}
    expected = Update(
        Key("ns/ENTITY#a", "#META"),
        set={"GSI4SK": "ENTITY#a"},
        when=(Equals("GSI4SK", "ns/ENTITY#a"), Differs("deleted", True)),
    )

    assert expected == namespace_lists.listed(item)


def test_items_that_are_listed_already_or_never_stay_as_they_are() -> None:
    """These are entities of the new layout, tombstones, limits, and items without an index key."""
    live = entity_item.to_item("ns", Entity("a"), 1)
    gone = entity_item.tombstone("ns", "a", EntityFacts(None, False, 1)).item
    limits = {"PK": "ns/ENTITY#a", "SK": "#CONFIG#gpt-4", "GSI4SK": "ns/ENTITY#a"}
    hidden = {"PK": "ns/ENTITY#a", "SK": "#META"}

    assert [None] * 4 == [namespace_lists.listed(item) for item in (live, gone, limits, hidden)]


def test_old_items_are_searched_by_the_partition_keys_of_entities_and_audit_events() -> None:
    """An item that has its new sort key is not found again."""
    assert [
        Query("ns", "GSI4", prefix="ns/ENTITY#", limit=7),
        Query("ns", "GSI4", prefix="ns/AUDIT#", limit=7),
    ] == list(namespace_lists.old_items("ns", 7))


def test_entities_query_continues_after_an_entity() -> None:
    """Its keys follow from its id."""
    start = {"PK": "ns/ENTITY#a", "SK": "#META", "GSI4PK": "ns", "GSI4SK": "ENTITY#a"}

    assert Query("ns", "GSI4", prefix="ENTITY#") == namespace_lists.entities("ns", None)
    assert Query("ns", "GSI4", prefix="ENTITY#", start=start) == namespace_lists.entities("ns", "a")


def test_events_query_reads_backwards_and_ends_below_an_event() -> None:
    """The entity of that event is unknown, so a bound is used."""
    older = Query("ns", "GSI4", low="AUDIT#", high="AUDIT#1704117600000-00000000000000fe", descending=True)

    assert Query("ns", "GSI4", prefix="AUDIT#", descending=True) == namespace_lists.events("ns", None)
    assert older == namespace_lists.events("ns", EVENT)


@given(st.lists(st.tuples(some.times_ms, st.integers(0, 2**64 - 1)), min_size=2))
def test_sort_keys_of_events_are_in_the_order_of_time(events: list[tuple[int, int]]) -> None:
    """Events of the same millisecond are ordered by their number."""
    sorts = [keys.gsi4_sk_audit(make_event_id(*event)) for event in sorted(set(events))]

    assert all(one < other for one, other in pairwise(sorts))
