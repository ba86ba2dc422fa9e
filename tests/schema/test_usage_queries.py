"""The queries that find usage: of an entity, of a resource, and of a whole namespace."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import strategies as some
from zae_limiter.core.usage import WINDOW_TYPES, UsageFilter, UsagePosition, Window, window_at
from zae_limiter.schema import keys, usage_queries
from zae_limiter.schema.operations import Key, Page, Query

AFTER = UsagePosition("2024-01-02", "user-1", "gpt-4")
TIMES = {"start_time": "2024-01-01T10:00:00Z", "end_time": "2024-01-03T12:30:00Z"}
LAST = {"PK": "x", "SK": "y"}


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ({"entity_id": "user-1"}, Query("ns/ENTITY#user-1", prefix="#USAGE#")),
        ({"entity_id": "user-1", "resource": "gpt-4"}, Query("ns/ENTITY#user-1", prefix="#USAGE#gpt-4#")),
        ({"resource": "gpt-4"}, Query("ns/RESOURCE#gpt-4", "GSI2", low="USAGE#", high="USAGE$")),
        ({}, Query("ns", "GSI4", low="USAGE#", high="USAGE$", descending=True)),
        (TIMES, Query("ns", "GSI4", low="USAGE#2024-01", high="USAGE#2024-01-03T12:00:00Z$", descending=True)),
        (
            {**TIMES, "window_type": "daily"},
            Query("ns", "GSI4", low="USAGE#2024-01-01", high="USAGE#2024-01-03$", descending=True),
        ),
    ],
)
def test_usage_query_reads_only_the_windows_between_two_times(filters: dict[str, Any], expected: Query) -> None:
    """Without a type, the range contains the windows of all types."""
    assert expected == usage_queries.query("ns", UsageFilter(**filters), None)


@pytest.mark.parametrize(
    ("filters", "index"),
    [
        ({"entity_id": "user-1"}, {}),
        ({"resource": "gpt-4"}, {"GSI2PK": "ns/RESOURCE#gpt-4", "GSI2SK": "USAGE#2024-01-02#user-1"}),
        ({}, {"GSI4PK": "ns", "GSI4SK": "USAGE#2024-01-02#user-1#gpt-4"}),
    ],
)
def test_usage_query_continues_after_a_position(filters: dict[str, Any], index: dict[str, str]) -> None:
    """All keys of the snapshot follow from its position."""
    start = {"PK": "ns/ENTITY#user-1", "SK": "#USAGE#gpt-4#2024-01-02", **index}

    assert start == usage_queries.query("ns", UsageFilter(**filters), AFTER).start


def test_resource_of_a_key_is_that_of_its_snapshot() -> None:
    """Other items of an entity have none."""
    found = [usage_queries.resource_of(Key("ns/ENTITY#user-1", sk)) for sk in ("#USAGE#_all_#2024-01", "#META")]

    assert ["_all_", None] == found


windows = st.builds(window_at, st.sampled_from(WINDOW_TYPES), some.times_ms)


@given(windows, st.none() | st.sampled_from(WINDOW_TYPES), some.times_ms, some.times_ms, st.data())
def test_every_window_of_a_filter_is_in_the_range_of_its_query(
    window: Window, window_type: str | None, first_ms: int, last_ms: int, data: st.DataObject
) -> None:
    """A range that left one out would lose usage."""
    times = [window_at("hourly", at_ms).start for at_ms in (first_ms, last_ms)]
    start, end = (data.draw(st.sampled_from([None, time])) for time in times)
    wanted = UsageFilter(None, None, window_type, start, end)
    query = usage_queries.query("ns", wanted, None)
    sort = keys.gsi4_sk_usage(window.key, "~", "z")

    assert str(query.low) <= sort <= str(query.high) or not wanted.admits(window)


@given(windows, windows, st.sampled_from(WINDOW_TYPES))
def test_skipped_windows_are_all_of_other_types(at: Window, other: Window, window_type: str) -> None:
    """The next query ends below the last entry, and above every wanted window before it."""
    wanted = UsageFilter(window_type=window_type)
    query = usage_queries.query("ns", wanted, None)
    page = Page([{"PK": "ns/ENTITY#a", "SK": keys.sk_usage("gpt-4", at.key)}], LAST)
    following = usage_queries.following(query, wanted, page)
    sort, last = keys.gsi4_sk_usage(other.key, "a", "r"), keys.gsi4_sk_usage(at.key, "", "")

    assert following is not None
    if at.type == window_type:
        assert query.after(page) == following
    else:
        assert (None, True) == (following.start, str(following.high) < last)
        assert sort <= str(following.high) or sort >= last or other.type != window_type


@pytest.mark.parametrize(
    ("filters", "items", "last"),
    [
        ({"window_type": "daily"}, [], LAST),
        ({"window_type": "daily"}, [{"PK": "ns/ENTITY#a", "SK": "#USAGE#gpt-4#2024-01-01T00:00:00Z"}], None),
        ({"window_type": "daily"}, [{"PK": "ns/ENTITY#a", "SK": "#USAGE#gpt-4#damaged"}], LAST),
        ({}, [{"PK": "ns/ENTITY#a", "SK": "#USAGE#gpt-4#2024-01-01"}], LAST),
        (
            {"resource": "gpt-4", "window_type": "daily"},
            [{"PK": "ns/ENTITY#a", "SK": "#USAGE#gpt-4#2024-01-01T00:00:00Z"}],
            LAST,
        ),
    ],
)
def test_usage_query_skips_nothing_if_it_cannot_tell(
    filters: dict[str, Any], items: list[dict[str, str]], last: dict[str, str] | None
) -> None:
    """It then reads the next page, or none after the last."""
    wanted = UsageFilter(**filters)
    query = usage_queries.query("ns", wanted, None)
    page = Page(items, last)

    assert query.after(page) == usage_queries.following(query, wanted, page)


def test_position_of_a_snapshot_follows_from_its_key() -> None:
    """Items of other kinds have none."""
    assert AFTER == usage_queries.position_of(Key("ns/ENTITY#user-1", "#USAGE#gpt-4#2024-01-02"))
    assert usage_queries.position_of(Key("ns/ENTITY#user-1", "#META")) is None
    assert usage_queries.position_of(Key("ns/AUDIT#user-1", "#USAGE#gpt-4#2024-01-02")) is None
