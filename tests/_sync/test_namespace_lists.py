"""Lists of a whole namespace: entities by id, audit events and usage with the newest first."""  # generated from _async by tools/mirror.py; do not edit

from datetime import UTC, datetime, timedelta, timezone

import pytest

from zae_limiter import Limit, SyncRateLimiter, ValidationError
from zae_limiter._sync.store import usage as usage_module
from zae_limiter.core.timestamp import ms_from_iso
from zae_limiter.schema.operations import Delete, Key, Put

from .clients import CountingTable, another, everything_in

LIMITS = [Limit.per_minute("rpm", 100_000)]
NEW_YEAR_MS = ms_from_iso("2024-01-01T00:00:00Z")
HOUR_MS = 3_600_000


@pytest.fixture
def other(repo):
    """Another namespace of the same table."""
    repo.register_namespace("other")
    return repo.namespace("other")


def use(repo, entity_id="user-1", resource="gpt-4", amount=1):
    """Acquire tokens and keep them."""
    with SyncRateLimiter(repo).acquire(entity_id, resource, {"rpm": amount}, limits=LIMITS):
        pass


def pages_of_entities(repo, limit):
    found, cursor = repo.list_entities(limit)
    assert len(found) <= limit
    while cursor is not None:
        page, cursor = repo.list_entities(limit, cursor)
        assert len(page) <= limit
        found += page
    return [entity.id for entity in found]


def pages_of_usage(repo, limit, **filters):
    found, after = repo.get_usage_snapshots(**filters, limit=limit)
    while after is not None:
        page, after = repo.get_usage_snapshots(**filters, limit=limit, next_key=after)
        assert len(page) <= limit
        found += page
    return found


class TestEntities:
    def test_list_entities_returns_created_entities_by_id(self, repo, other, limiter):
        """Ids with limits or buckets alone are not entities, and other namespaces have lists of their own."""
        repo.create_entity("org-1", "Org")
        made = repo.create_entity("key-1", parent_id="org-1", cascade=True, metadata={"tier": "gold"})
        repo.set_limits("limited", LIMITS)
        use(repo)
        other.create_entity("elsewhere")

        found, cursor = repo.list_entities()
        assert (["key-1", "org-1"], None) == ([entity.id for entity in found], cursor)
        assert made == found[0]
        assert (found, None) == limiter.list_entities()

    def test_list_entities_leaves_out_deleted_ones(self, repo):
        """An entity that is created again is listed again."""
        for name in ("a", "b", "c"):
            repo.create_entity(name)
        repo.delete_entity("a")
        repo.delete_entity("b")
        repo.create_entity("b")

        assert ["b", "c"] == [entity.id for entity in (repo.list_entities())[0]]

    @pytest.mark.parametrize("limit", [1, 3, 100])
    def test_pages_of_entities_have_each_entity_once(self, repo, limit):
        """No page is larger than requested, and deleted entities leave no gap."""
        for number in range(7):
            repo.create_entity(f"user-{number}")
        repo.delete_entity("user-3")

        assert [f"user-{number}" for number in (0, 1, 2, 4, 5, 6)] == pages_of_entities(repo, limit)

    def test_pages_of_entities_continue_if_the_last_one_is_deleted(self, repo):
        """The cursor is a place in the order of ids, not an item."""
        for name in ("a", "b", "c"):
            repo.create_entity(name)
        first, cursor = repo.list_entities(1)
        repo.delete_entity("a")

        assert ["a"] == [entity.id for entity in first]
        assert ["b", "c"] == [entity.id for entity in (repo.list_entities(cursor=cursor))[0]]

    def test_list_entities_reads_a_hundred_items_per_call(self, repo):
        """The values of a page are read in one batch."""
        for number in range(120):
            repo.create_entity(f"user-{number}")
        counting = another(repo, CountingTable)
        counting.scope.table.drain()
        found, _ = counting.list_entities()

        assert (120, 2) == (len(found), counting.scope.table.drain().count("batch_get"))

    @pytest.mark.parametrize("arguments", [{"limit": 0}, {"limit": "5"}, {"cursor": "x"}, {"cursor": 5}])
    def test_list_entities_with_an_invalid_argument_raises_with_its_field(self, repo, arguments):
        """The error names the argument."""
        with pytest.raises(ValidationError) as raised:
            repo.list_entities(**arguments)

        assert [raised.value.field] == list(arguments)


class TestAudit:
    def change(self, repo, clock, times=1):
        """Make a change at every level, a second apart."""
        for number in range(times):
            repo.set_system_defaults(LIMITS, principal=f"system {number}")
            clock.advance(1_000)
            repo.set_resource_defaults("gpt-4", LIMITS, principal=f"resource {number}")
            clock.advance(1_000)
            repo.set_limits(f"user-{number}", LIMITS, principal=f"entity {number}")
            clock.advance(1_000)

    def test_audit_events_of_a_namespace_are_those_of_all_ids_newest_first(self, repo, other, clock):
        """Events of the namespace itself are included; those of other namespaces are not."""
        clock.advance(1_000)
        self.change(other, clock)
        self.change(repo, clock)

        found = other.get_audit_events()
        assert ["entity 0", "resource 0", "system 0", None] == [event.principal for event in found]
        assert ("namespace_registered", "$NAMESPACE:other") == (found[-1].action, found[-1].entity_id)
        assert found == SyncRateLimiter(other).get_audit_events()
        assert found == sorted(found, key=lambda event: event.event_id, reverse=True)

    @pytest.mark.parametrize("limit", [1, 2, 5, 100])
    def test_pages_of_audit_events_have_each_event_once_while_new_ones_are_written(self, repo, clock, limit):
        """New events are newer than the first page, so they are on none of the next pages."""
        self.change(repo, clock, times=4)
        whole = repo.get_audit_events()
        found = page = repo.get_audit_events(None, limit)
        while len(page) == limit:
            self.change(repo, clock)
            page = repo.get_audit_events(None, limit, page[-1].event_id)
            found = found + page

        assert whole == found

    def test_audit_events_of_more_than_one_batch_are_all_read(self, repo, clock):
        """A batch has a hundred items."""
        for number in range(130):
            repo.set_limits("user-1", LIMITS, principal=str(number))

        found = repo.get_audit_events(limit=1_000)
        assert [str(number) for number in reversed(range(130))] == [event.principal for event in found[:130]]

    def test_audit_event_that_is_gone_leaves_no_gap_in_a_page(self, repo, clock):
        """An index may still have an entry of an item that has expired."""
        self.change(repo, clock, times=2)
        whole = repo.get_audit_events()

        class Expired(CountingTable):
            def batch_get(self, keys, *, consistent=False, until_s=None):
                items = super().batch_get(keys, consistent=consistent, until_s=until_s)
                return [None if item and item.get("event_id") == whole[1].event_id else item for item in items]

        assert [whole[0], *whole[2:4]] == another(repo, Expired).get_audit_events(limit=3)


class TestUsage:
    @pytest.fixture
    def used(self, repo, other, clock):
        """Two days of usage by three entities of two resources, six hours apart."""
        clock.time_ms = NEW_YEAR_MS
        for _ in range(8):
            for number in range(3):
                for resource in ("gpt-4", "search"):
                    use(repo, f"user-{number}", resource)
            use(other, amount=100)
            clock.advance(6 * HOUR_MS)
        return repo

    @pytest.mark.parametrize(("window_type", "windows"), [("hourly", 8), ("daily", 2), ("monthly", 1)])
    def test_usage_of_a_namespace_has_the_newest_windows_first(self, used, window_type, windows):
        """Each window has a snapshot for every entity and resource of this namespace alone."""
        found, after = used.get_usage_snapshots(window_type=window_type)
        starts = [one.window_start for one in found]

        assert (6 * windows, None) == (len(found), after)
        assert sorted(starts, reverse=True) == starts
        assert {1 if windows == 8 else 4 if windows == 2 else 8} == {one.counters["rpm"] for one in found}

    def test_usage_of_a_namespace_without_a_window_type_has_all(self, used):
        """They are in the order of their keys, which begin with the time."""
        found, _ = used.get_usage_snapshots(limit=1_000)
        kinds = [one.window_type for one in found]

        assert {"hourly": 48, "daily": 12, "monthly": 6} == {kind: kinds.count(kind) for kind in kinds}
        assert ["hourly", "monthly"] == [kinds[0], kinds[-1]]

    @pytest.mark.parametrize("limit", [1, 2, 5, 100])
    @pytest.mark.parametrize("kind", [None, "hourly", "daily", "monthly"])
    def test_pages_of_usage_have_each_snapshot_once(self, used, kind, limit):
        """Windows of other types are skipped between two pages as well."""
        whole, _ = used.get_usage_snapshots(window_type=kind, limit=1_000)

        assert whole == pages_of_usage(used, limit, window_type=kind)

    def test_pages_of_usage_have_each_snapshot_once_while_new_windows_are_written(self, used, clock):
        """New windows are newer than the first page."""
        whole, _ = used.get_usage_snapshots(window_type="hourly", limit=1_000)
        found, after = used.get_usage_snapshots(window_type="hourly", limit=5)
        while after is not None:
            clock.advance(HOUR_MS)
            use(used, "user-0")
            page, after = used.get_usage_snapshots(window_type="hourly", limit=5, next_key=after)
            found += page

        assert whole == found

    @pytest.mark.parametrize(
        "times",
        [
            {"start_time": "2024-01-01T06:00:00Z", "end_time": "2024-01-01T18:00:00Z"},
            {
                "start_time": datetime(2024, 1, 1, 6, tzinfo=UTC),
                "end_time": datetime(2024, 1, 1, 20, tzinfo=timezone(timedelta(hours=2))),
            },
        ],
        ids=["text", "datetime"],
    )
    def test_usage_of_a_namespace_between_two_times_includes_both(self, used, times):
        """Times are text or datetimes."""
        found, _ = used.get_usage_snapshots(window_type="hourly", **times)
        summary = used.get_usage_summary(**times)

        assert ["06", "12", "18"] == sorted({one.window_start[11:13] for one in found})
        assert (18, {"rpm": 18}) == (summary.snapshot_count, summary.total)

    @pytest.mark.parametrize(("window_type", "snapshots"), [("hourly", 48), ("daily", 12), ("monthly", 6)])
    def test_usage_summary_of_a_namespace_adds_up_all_entities_and_resources(self, used, window_type, snapshots):
        """The total is the same for every type of window."""
        summary = used.get_usage_summary(window_type=window_type)

        assert (snapshots, {"rpm": 48}) == (summary.snapshot_count, summary.total)

    def test_daily_usage_skips_the_hours_in_a_few_calls(self, repo, clock, monkeypatch):
        """At most two queries per day are needed, however many hours the days have."""
        monkeypatch.setattr(usage_module, "_MOST_PER_PAGE", 10)
        clock.time_ms = NEW_YEAR_MS
        for _ in range(48):
            for number in range(5):
                use(repo, f"user-{number}")
            clock.advance(HOUR_MS)
        repo.get_usage_snapshots()
        counting = another(repo, CountingTable)
        counting.scope.table.drain()
        found, _ = counting.get_usage_snapshots(window_type="daily")

        # The first page has only hours. Each of the others begins with a day.
        assert (10, 3) == (len(found), counting.scope.table.drain().count("query"))

    def test_snapshot_that_is_gone_leaves_no_gap_in_a_page(self, used):
        """An index may still have an entry of an item that has expired."""
        whole, _ = used.get_usage_snapshots(window_type="hourly")
        gone = whole[1]
        pk = f"{used.scope.namespace_id}/ENTITY#{gone.entity_id}"

        class Expired(CountingTable):
            def batch_get(self, keys, *, consistent=False, until_s=None):
                items = super().batch_get(keys, consistent=consistent, until_s=until_s)
                lost = Key(pk, f"#USAGE#{gone.resource}#{gone.window_start}")
                return [None if key == lost else item for key, item in zip(keys, items, strict=True)]

        found = pages_of_usage(another(used, Expired), 2, window_type="hourly")
        assert [one for one in whole if one != gone] == found

    def test_next_key_is_short_and_readable(self, used):
        """It names the last snapshot of the page."""
        _, after = used.get_usage_snapshots(window_type="daily", limit=1)

        assert {"window": "2024-01-02", "entity_id": "user-2", "resource": "search"} == after


def test_items_that_a_tenant_forges_in_its_own_index_are_not_listed_and_are_purged(repo):
    """A list checks the sort key against the key of the item, but a purge does not."""
    namespace_id = repo.register_namespace("team")
    team = repo.namespace("team")
    team.create_entity("a")
    before = [team.list_entities(), team.get_audit_events(), team.get_usage_snapshots()]
    for number, sort in enumerate(("ENTITY#b", "AUDIT#1800000000000-0000000000000001", "USAGE#2024-01-01#a#gpt-4")):
        pk = f"{namespace_id}/BUCKET#x#gpt-4#0"
        repo.scope.table.write(Put({"PK": pk, "SK": f"#{number}", "GSI4PK": namespace_id, "GSI4SK": sort}))

    assert before == [team.list_entities(), team.get_audit_events(), team.get_usage_snapshots()]
    repo.delete_namespace("team")
    repo.purge_namespace(namespace_id)
    assert [] == [key for key in everything_in(repo) if key[0].startswith(f"{namespace_id}/")]


def test_entity_whose_item_is_missing_is_not_listed(repo):
    """An index may lag behind the table."""
    repo.create_entity("a")
    repo.create_entity("b")

    class Lagging(CountingTable):
        def query(self, query):
            page = super().query(query)
            if query.index == "GSI4":
                self.table.write(Delete(Key(f"{repo.scope.namespace_id}/ENTITY#a", "#META")))
            return page

    assert ["b"] == [entity.id for entity in (another(repo, Lagging).list_entities(1))[0]]
