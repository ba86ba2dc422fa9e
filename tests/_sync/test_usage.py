"""Usage per hour, day and month, with everything counted exactly once."""  # generated from _async by tools/mirror.py; do not edit

import pytest

from zae_limiter import ALL_RESOURCES, Limit, SyncRateLimiter, UsageSnapshot, UsageSummary, ValidationError
from zae_limiter.core.timestamp import ms_from_iso
from zae_limiter.schema.operations import Delete, Key

from .clients import another, buckets_in, everything_in, take

LIMITS = [Limit.per_minute("rpm", 100_000), Limit.per_minute("tpm", 10**9)]
NEW_YEAR_MS = ms_from_iso("2024-01-01T00:00:00Z")
HOUR_MS = 3_600_000


@pytest.fixture
def limiter(repo, clock):
    clock.time_ms = NEW_YEAR_MS
    repo.scope.table.now()
    made = SyncRateLimiter(repo)
    made.set_system_defaults(LIMITS)
    return made


def counters(repo, window_type="hourly", **filters):
    """Return the counters by the start of their window."""
    found, _ = repo.get_usage_snapshots(**({"entity_id": "user-1"} | filters), window_type=window_type)
    return {one.window_start: one.counters for one in found}


def test_usage_snapshots_contain_tokens_and_events_per_window(repo, limiter):
    """One snapshot per kind of window; every write of the bucket is an event."""
    take(limiter, {"rpm": 1, "tpm": 500})
    take(limiter, {"rpm": 1, "tpm": 250})

    found, after = repo.get_usage_snapshots("user-1")
    assert after is None
    used = {"rpm": 2, "tpm": 750}
    assert [
        UsageSnapshot("user-1", "gpt-4", "2024-01-01T00:00:00Z", "2024-02-01T00:00:00Z", "monthly", used, 2),
        UsageSnapshot("user-1", "gpt-4", "2024-01-01T00:00:00Z", "2024-01-02T00:00:00Z", "daily", used, 2),
        UsageSnapshot("user-1", "gpt-4", "2024-01-01T00:00:00Z", "2024-01-01T01:00:00Z", "hourly", used, 2),
    ] == found
    assert found == (limiter.get_usage_snapshots("user-1"))[0]


def test_reading_usage_repeatedly_counts_nothing_twice(repo, limiter):
    """Only consumption since the last read is added."""
    take(limiter, {"rpm": 1})
    for _ in range(3):
        assert {"2024-01-01T00:00:00Z": {"rpm": 1, "tpm": 0}} == zeroed(repo)
    take(limiter, {"rpm": 5})

    assert {"2024-01-01T00:00:00Z": {"rpm": 6, "tpm": 0}} == zeroed(repo)


def zeroed(repo):
    """Return the hourly counters, with a zero for a limit that was not used."""
    return {start: {"rpm": 0, "tpm": 0} | used for start, used in (counters(repo)).items()}


@pytest.mark.parametrize(
    ("before", "border", "windows"),
    [
        ("2024-01-01T00:00:00Z", "2024-01-01T01:00:00Z", {"daily": 1, "monthly": 1}),
        ("2024-01-01T23:00:00Z", "2024-01-02T00:00:00Z", {"daily": 2, "monthly": 1}),
        ("2024-02-29T23:00:00Z", "2024-03-01T00:00:00Z", {"daily": 2, "monthly": 2}),
    ],
)
def test_consumption_at_a_window_border_belongs_to_the_window_of_its_millisecond(
    limiter, clock, before, border, windows
):
    """The first millisecond of a window belongs to it."""
    clock.time_ms = ms_from_iso(border) - 1
    take(limiter, {"rpm": 1})
    clock.advance(1)
    take(limiter, {"rpm": 2})
    take(limiter, {"rpm": 4})

    assert {before: {"rpm": 1}, border: {"rpm": 6}} == counters(limiter)
    for kind, expected in windows.items():
        found = counters(limiter, kind)
        assert (expected, 7) == (len(found), sum(used["rpm"] for used in found.values()))


def test_usage_read_much_later_is_still_in_its_own_hour(repo, limiter, clock):
    """The time of the read makes no difference."""
    take(limiter, {"rpm": 1})
    clock.advance(100 * HOUR_MS)

    assert {"2024-01-01T00:00:00Z": {"rpm": 1}} == counters(repo)


def test_usage_counts_the_final_consumption_of_a_lease(repo, limiter):
    """Adjustments count in both directions, and credited tokens are not used."""
    with limiter.acquire("user-1", "gpt-4", {"tpm": 500}) as lease:
        lease.adjust(tpm=200)
    with limiter.acquire("user-1", "gpt-4", {"tpm": 500}) as lease:
        lease.adjust(tpm=-400)
    with pytest.raises(ZeroDivisionError):
        with limiter.acquire("user-1", "gpt-4", {"tpm": 5_000}):
            raise ZeroDivisionError

    assert {"2024-01-01T00:00:00Z": {"tpm": 800}} == counters(repo)


def test_credit_in_a_later_hour_is_subtracted_in_that_hour(repo, limiter, clock):
    """An hour may become negative; the day adds up."""
    with limiter.acquire("user-1", "gpt-4", {"tpm": 500}) as lease:
        clock.advance(HOUR_MS)
        lease.adjust(tpm=-300)

    assert [500, -300] == [used["tpm"] for used in (counters(repo)).values()]
    assert [200] == [used["tpm"] for used in (counters(repo, "daily")).values()]


def test_limit_that_is_removed_and_added_again_loses_no_usage(repo, limiter, clock):
    """Its counter restarts at zero, and what was counted stays."""
    take(limiter, {"rpm": 1, "tpm": 500})
    clock.advance(120_000)
    for limits in (LIMITS[:1], LIMITS):
        limiter.set_system_defaults(limits)
        take(limiter, {"rpm": 1})
    take(limiter, {"rpm": 1, "tpm": 250})

    assert {"2024-01-01T00:00:00Z": {"rpm": 4, "tpm": 750}} == counters(repo)


def test_usage_of_a_deleted_bucket_is_kept(repo, limiter):
    """A recreated bucket adds to it."""
    take(limiter, {"rpm": 1})
    (bucket,) = buckets_in(repo)
    repo.scope.table.write(Delete(Key(bucket["PK"], bucket["SK"])))
    take(SyncRateLimiter(another(repo)), {"rpm": 2})

    assert {"2024-01-01T00:00:00Z": {"rpm": 3}} == counters(repo)


def test_usage_snapshots_do_not_contain_the_write_counter(repo, limiter):
    """Internal markers are left out too."""
    take(limiter, {"rpm": 1})

    found, _ = repo.get_usage_snapshots("user-1")
    assert [{"rpm"}] * 3 == [set(one.counters) for one in found]


def test_usage_snapshots_expire_90_days_after_their_window(repo, limiter):
    """The ttl attribute is set from the end of the window."""
    take(limiter, {"rpm": 1})
    counters(repo)

    ttls = [item["ttl"] for key, item in everything_in(repo).items() if key[1].startswith("#USAGE#")]
    ends = ["2024-01-01T01:00:00Z", "2024-01-02T00:00:00Z", "2024-02-01T00:00:00Z"]
    assert [ms_from_iso(end) // 1000 + 90 * 86_400 for end in ends] == sorted(ttls)


def use_by_three_entities(limiter, clock):
    """Let three entities use two resources in three hours."""
    for hour in range(3):
        for number in range(3):
            for resource in ("gpt-4", "gpt-4o"):
                with limiter.acquire(f"user-{number}", resource, {"rpm": 1 + hour}):
                    pass
        clock.advance(HOUR_MS)


def test_usage_snapshots_are_filtered_by_entity_and_by_resource(repo, limiter, clock):
    """Names are compared in full, not by prefix."""
    use_by_three_entities(limiter, clock)

    by_entity, _ = repo.get_usage_snapshots("user-1", window_type="hourly")
    by_resource, _ = repo.get_usage_snapshots(resource="gpt-4", window_type="hourly")
    by_both, _ = repo.get_usage_snapshots("user-1", "gpt-4", "hourly")
    assert [("gpt-4", 1), ("gpt-4", 2), ("gpt-4", 3), ("gpt-4o", 1), ("gpt-4o", 2), ("gpt-4o", 3)] == [
        (one.resource, one.counters["rpm"]) for one in by_entity
    ]
    assert [(f"user-{number}", 1 + hour) for hour in range(3) for number in range(3)] == [
        (one.entity_id, one.counters["rpm"]) for one in by_resource
    ]
    assert by_entity[:3] == by_both
    assert ([], None) == repo.get_usage_snapshots("nobody")


def test_start_and_end_time_bound_the_start_of_the_windows(repo, limiter, clock):
    """Both bounds are inclusive and may have any UTC offset."""
    use_by_three_entities(limiter, clock)

    for filters in ({"entity_id": "user-1", "resource": "gpt-4"}, {"entity_id": None, "resource": "gpt-4"}):
        for times, expected in (
            ({"start_time": "2024-01-01T01:00:00Z"}, {2, 3}),
            ({"end_time": "2024-01-01T02:00:00+01:00"}, {1, 2}),
            ({"start_time": "2024-01-01T00:00:01Z", "end_time": "2024-01-01T01:59:59Z"}, {2}),
            ({"start_time": "2025-01-01"}, set()),
        ):
            found, _ = repo.get_usage_snapshots(**filters, **times, window_type="hourly")
            assert expected == {one.counters["rpm"] for one in found}


@pytest.mark.parametrize("limit", [1, 2, 5, 100])
@pytest.mark.parametrize("filters", [{"entity_id": "user-1"}, {"resource": "gpt-4"}])
def test_paging_through_usage_snapshots_returns_each_once(repo, limiter, clock, filters, limit):
    """With and without filters; no page is larger than requested."""
    use_by_three_entities(limiter, clock)
    for kind in (None, "hourly", "monthly"):
        whole, _ = repo.get_usage_snapshots(**filters, window_type=kind)
        found, after = repo.get_usage_snapshots(**filters, window_type=kind, limit=limit)
        while after is not None:
            page, after = repo.get_usage_snapshots(**filters, window_type=kind, limit=limit, next_key=after)
            assert len(page) <= limit
            found += page

        assert whole == found


def test_usage_summary_adds_windows_of_one_kind(repo, limiter, clock):
    """Hours by default, so that nothing is counted for its hour and again for its day."""
    use_by_three_entities(limiter, clock)

    hours = ("2024-01-01T00:00:00Z", "2024-01-01T02:00:00Z")
    assert UsageSummary(3, {"rpm": 6}, {"rpm": 2.0}, *hours) == repo.get_usage_summary("user-1", "gpt-4")
    assert UsageSummary(9, {"rpm": 18}, {"rpm": 2.0}, *hours) == limiter.get_usage_summary(resource="gpt-4")
    assert {"rpm": 12} == (repo.get_usage_summary("user-1", window_type="daily")).total
    assert {"rpm": 3} == (repo.get_usage_summary("user-1", "gpt-4", start_time=hours[1])).total
    assert UsageSummary(0, {}, {}, None, None) == repo.get_usage_summary("nobody")


@pytest.mark.parametrize("entity_id", ["user-1", None])
def test_usage_summary_without_a_resource_counts_no_token_twice(repo, limiter, entity_id):
    """The bucket across resources counts the same tokens again, so only a summary of it includes them."""
    repo.set_limits("user-1", [LIMITS[0], Limit.per_day("spend", 100)], resource=ALL_RESOURCES)
    for resource in ("gpt-4", "search"):
        with limiter.acquire("user-1", resource, {"rpm": 2, "spend": 5}):
            pass

    each = repo.get_usage_summary(entity_id)
    across = repo.get_usage_summary(entity_id, ALL_RESOURCES)
    listed, _ = repo.get_usage_snapshots(entity_id, window_type="hourly")
    assert (2, {"rpm": 4}) == (each.snapshot_count, each.total)
    assert (1, {"rpm": 4, "spend": 10}) == (across.snapshot_count, across.total)
    assert [ALL_RESOURCES, "gpt-4", "search"] == sorted(one.resource for one in listed)


@pytest.mark.parametrize(
    ("filters", "field"),
    [
        ({"entity_id": "a#b"}, "entity_id"),
        ({"resource": "a#b"}, "resource"),
        ({"entity_id": "a", "window_type": "weekly"}, "window_type"),
        ({"entity_id": "a", "start_time": "yesterday"}, "start_time"),
        ({"entity_id": "a", "end_time": 5}, "end_time"),
        ({"entity_id": "a", "limit": 0}, "limit"),
        ({"entity_id": "a", "next_key": {"PK": "x"}}, "next_key"),
        ({"entity_id": "a", "next_key": "x"}, "next_key"),
        ({"resource": "a", "next_key": {"PK": "x", "SK": "y"}}, "next_key"),
    ],
)
def test_get_usage_snapshots_with_an_invalid_filter_raises_with_its_field(repo, filters, field):
    """The error names the filter."""
    with pytest.raises(ValidationError) as raised:
        repo.get_usage_snapshots(**filters)
    assert field == raised.value.field
