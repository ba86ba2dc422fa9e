"""Lists of a whole namespace on real engines, async and sync, before and after the migration that makes them."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.dynamodb.engines import Engine
from tests.dynamodb.test_migrations import put, upgrade
from tests.dynamodb.trees import KINDS, tree
from zae_limiter import Limit
from zae_limiter._async import dynamodb_table as async_table
from zae_limiter._sync import dynamodb_table as sync_table
from zae_limiter.core.usage import WINDOW_TYPES, window_at
from zae_limiter.core.version import VersionRecord
from zae_limiter.schema import usage_item, version_item
from zae_limiter.schema.keys import BucketKey
from zae_limiter.schema.operations import Key

DEADLINE_S = 60.0
LIMITS = [Limit.per_minute("rpm", 100)]
FIRST_MS = 1_704_067_200_000
HOUR_MS = 3_600_000


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> Iterator[Any]:
    with tree(request.param) as entered:
        yield entered


@pytest.fixture
def place(engine: Engine, table_name: str) -> str:
    return f"dynamodb://{table_name}?region=us-east-1&endpoint_url={engine.url}"


@pytest.fixture(autouse=True)
def no_lag(monkeypatch: pytest.MonkeyPatch) -> None:
    """Skip the wait for indexes, since those of an engine are always current."""
    for table in (async_table, sync_table):
        monkeypatch.setattr(table.DynamoTable, "index_lag_s", 0.0)


def write(kind: Any, repo: Any, operation: Any) -> None:
    written = repo.scope.table.write(operation)
    if hasattr(kind, "run"):
        kind.run(written)


def use(kind: Any, repo: Any) -> list[Key]:
    """Create entities with limits, and count usage of two days; return the keys of what was counted."""
    for number in range(7):
        repo.create_entity(f"user-{number}")
        repo.set_limits(f"user-{number}", LIMITS, principal=str(number))
    repo.delete_entity("user-3")
    keys = {}
    for hour in range(0, 48, 6):
        for number in range(3):
            bucket = BucketKey(repo.scope.namespace_id, f"user-{number}", "gpt-4", 0)
            for window_type in WINDOW_TYPES:
                window = window_at(window_type, FIRST_MS + hour * HOUR_MS)
                usage = usage_item.AddUsage(bucket, window, {"rpm": 1_000}, 1, str(hour + 1))
                seen = keys.get(usage.key)
                write(kind, repo, usage_item.add(usage, seen, None))
                keys[usage.key] = usage_item.pad_sequence(usage.sequence)
    return list(keys)


def pages(read: Any, name: str, **filters: Any) -> list[Any]:
    """Return all items of a list that is read in pages of four; ``name`` is the argument for the next page."""
    found, after = read(limit=4, **filters)
    while after is not None:
        page, after = read(limit=4, **filters, **{name: after})
        found += page
    return found


def pages_of_events(repo: Any) -> list[Any]:
    found = page = repo.get_audit_events(limit=4)
    while len(page) == 4:
        page = repo.get_audit_events(limit=4, start_event_id=page[-1].event_id)
        found = found + page
    return found


def lists(repo: Any) -> list[Any]:
    """Return the lists of a namespace."""
    return [
        repo.list_entities()[0],
        repo.get_audit_events(limit=1_000),
        *(repo.get_usage_snapshots(window_type=kind, limit=1_000)[0] for kind in (None, *WINDOW_TYPES)),
    ]


def test_lists_of_a_namespace_are_sorted_and_their_pages_complete(kind: Any, place: str) -> None:
    """Entities are sorted by id, audit events and usage have the newest first, and pages have all of them once."""
    with kind.open(f"{place}&create=true", deadline_s=DEADLINE_S) as repo:
        use(kind, repo)
        entities, events, whole, hours, days, months = lists(repo)
        paged = [pages(repo.list_entities, "cursor"), pages_of_events(repo)]
        paged += [pages(repo.get_usage_snapshots, "next_key", window_type=kind) for kind in (None, *WINDOW_TYPES)]
        summary = repo.get_usage_summary(window_type="daily", start_time="2024-01-02")

    assert [f"user-{number}" for number in (0, 1, 2, 4, 5, 6)] == [entity.id for entity in entities]
    assert sorted(events, key=lambda event: event.event_id, reverse=True) == events
    assert 7 + 7 + 2 + 1 == len(events)
    assert (33, 24, 6, 3) == (len(whole), len(hours), len(days), len(months))
    assert sorted((one.window_start for one in hours), reverse=True) == [one.window_start for one in hours]
    assert [entities, events, whole, hours, days, months] == paged
    assert (3, {"rpm": 12}) == (summary.snapshot_count, summary.total)


def test_items_of_the_older_schema_are_listed_after_an_upgrade(kind: Any, place: str) -> None:
    """The lists are the same as before the items were made old."""
    with kind.open(f"{place}&create=true", deadline_s=DEADLINE_S) as repo:
        counted = use(kind, repo)
        before = lists(repo)
        table, namespace_id = repo.scope.table, repo.scope.namespace_id
        keys = [Key(f"{namespace_id}/ENTITY#{one.id}", "#META") for one in before[0]] + counted
        keys += [Key(f"{namespace_id}/AUDIT#{one.entity_id}", f"#AUDIT#{one.event_id}") for one in before[1][:-1]]
        for key in keys:
            item = table.get(key, consistent=True)
            item = kind.run(item) if hasattr(kind, "run") else item
            put(kind, repo, {**item, "GSI4SK": key.pk})
        hidden = lists(repo)
        put(kind, repo, version_item.to_item(VersionRecord("1.0.0")))
    dry, done, again = upgrade(kind, place, dry_run=True), upgrade(kind, place), upgrade(kind, place)
    with kind.open(place, deadline_s=DEADLINE_S) as repo:
        after = lists(repo)

    assert [0, 1, 0, 0, 0, 0] == [len(one) for one in hidden]
    assert ([len(keys)], [len(keys)], []) == ([one.moved for one in dry], [one.moved for one in done], again)
    assert before == after
