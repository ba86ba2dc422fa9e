"""What was used, in hours, days and months, counted exactly once."""  # generated from _async by tools/mirror.py; do not edit

import pytest

from zae_limiter import Limit, SyncRateLimiter, UsageSnapshot, UsageSummary, ValidationError
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
    """Return what was used by the start of its window."""
    found, _ = repo.get_usage_snapshots(**({"entity_id": "user-1"} | filters), window_type=window_type)
    return {one.window_start: one.counters for one in found}


def test_a_snapshot_tells_what_was_used_in_a_window(repo, limiter):
    """One of each kind, by limit, in tokens; every write of the bucket is an event."""
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


def test_reading_again_counts_nothing_again(repo, limiter):
    """What is new since is added."""
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
def test_what_is_used_belongs_to_its_hour(limiter, clock, before, border, windows):
    """A millisecond decides, and the first moment of a window is in it."""
    clock.time_ms = ms_from_iso(border) - 1
    take(limiter, {"rpm": 1})
    clock.advance(1)
    take(limiter, {"rpm": 2})
    take(limiter, {"rpm": 4})

    assert {before: {"rpm": 1}, border: {"rpm": 6}} == counters(limiter)
    for kind, expected in windows.items():
        found = counters(limiter, kind)
        assert (expected, 7) == (len(found), sum(used["rpm"] for used in found.values()))


def test_an_hour_that_is_read_late_stays_the_hour_it_was(repo, limiter, clock):
    """Whenever it is asked for."""
    take(limiter, {"rpm": 1})
    clock.advance(100 * HOUR_MS)

    assert {"2024-01-01T00:00:00Z": {"rpm": 1}} == counters(repo)


def test_adjusting_counts_what_was_used_in_the_end(repo, limiter):
    """Up and down, and what is given back is not used."""
    with limiter.acquire("user-1", "gpt-4", {"tpm": 500}) as lease:
        lease.adjust(tpm=200)
    with limiter.acquire("user-1", "gpt-4", {"tpm": 500}) as lease:
        lease.adjust(tpm=-400)
    with pytest.raises(ZeroDivisionError):
        with limiter.acquire("user-1", "gpt-4", {"tpm": 5_000}):
            raise ZeroDivisionError

    assert {"2024-01-01T00:00:00Z": {"tpm": 800}} == counters(repo)


def test_what_is_given_back_later_is_subtracted_then(repo, limiter, clock):
    """An hour may end below nothing; the day adds up."""
    with limiter.acquire("user-1", "gpt-4", {"tpm": 500}) as lease:
        clock.advance(HOUR_MS)
        lease.adjust(tpm=-300)

    assert [500, -300] == [used["tpm"] for used in (counters(repo)).values()]
    assert [200] == [used["tpm"] for used in (counters(repo, "daily")).values()]


def test_a_limit_taken_out_and_put_back_loses_nothing(repo, limiter, clock):
    """Its total starts anew, what it had counted stays counted."""
    take(limiter, {"rpm": 1, "tpm": 500})
    clock.advance(120_000)
    for limits in (LIMITS[:1], LIMITS):
        limiter.set_system_defaults(limits)
        take(limiter, {"rpm": 1})
    take(limiter, {"rpm": 1, "tpm": 250})

    assert {"2024-01-01T00:00:00Z": {"rpm": 4, "tpm": 750}} == counters(repo)


def test_a_deleted_bucket_keeps_its_usage(repo, limiter):
    """And one that is created anew adds to it."""
    take(limiter, {"rpm": 1})
    (bucket,) = buckets_in(repo)
    repo.scope.table.write(Delete(Key(bucket["PK"], bucket["SK"])))
    take(SyncRateLimiter(another(repo)), {"rpm": 2})

    assert {"2024-01-01T00:00:00Z": {"rpm": 3}} == counters(repo)


def test_the_write_counter_never_shows(repo, limiter):
    """Nor do markers."""
    take(limiter, {"rpm": 1})

    found, _ = repo.get_usage_snapshots("user-1")
    assert [{"rpm"}] * 3 == [set(one.counters) for one in found]


def test_snapshots_expire(repo, limiter):
    """90 days after their window."""
    take(limiter, {"rpm": 1})
    counters(repo)

    ttls = [item["ttl"] for key, item in everything_in(repo).items() if key[1].startswith("#USAGE#")]
    ends = ["2024-01-01T01:00:00Z", "2024-01-02T00:00:00Z", "2024-02-01T00:00:00Z"]
    assert [ms_from_iso(end) // 1000 + 90 * 86_400 for end in ends] == sorted(ttls)


def used_by_many(limiter, clock):
    """Three entities use two resources in three hours."""
    for hour in range(3):
        for number in range(3):
            for resource in ("gpt-4", "gpt-4o"):
                with limiter.acquire(f"user-{number}", resource, {"rpm": 1 + hour}):
                    pass
        clock.advance(HOUR_MS)


def test_snapshots_are_found_by_entity_and_by_resource(repo, limiter, clock):
    """By both, they are those of both; a resource is not one whose name only begins so."""
    used_by_many(limiter, clock)

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


def test_times_are_the_first_and_last_a_window_may_begin_at(repo, limiter, clock):
    """Both included, in any offset."""
    used_by_many(limiter, clock)

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
def test_pages_add_up_to_the_whole(repo, limiter, clock, filters, limit):
    """None is missing and none comes twice, filtered or not; no page is larger than was asked."""
    used_by_many(limiter, clock)
    for kind in (None, "hourly", "monthly"):
        whole, _ = repo.get_usage_snapshots(**filters, window_type=kind)
        found, after = repo.get_usage_snapshots(**filters, window_type=kind, limit=limit)
        while after is not None:
            page, after = repo.get_usage_snapshots(**filters, window_type=kind, limit=limit, next_key=after)
            assert len(page) <= limit
            found += page

        assert whole == found


def test_a_summary_adds_up_windows_of_one_kind(repo, limiter, clock):
    """Hours unless it is told otherwise, so that nothing is counted for its hour and again for its day."""
    used_by_many(limiter, clock)

    hours = ("2024-01-01T00:00:00Z", "2024-01-01T02:00:00Z")
    assert UsageSummary(3, {"rpm": 6}, {"rpm": 2.0}, *hours) == repo.get_usage_summary("user-1", "gpt-4")
    assert UsageSummary(9, {"rpm": 18}, {"rpm": 2.0}, *hours) == limiter.get_usage_summary(resource="gpt-4")
    assert {"rpm": 12} == (repo.get_usage_summary("user-1", window_type="daily")).total
    assert {"rpm": 3} == (repo.get_usage_summary("user-1", "gpt-4", start_time=hours[1])).total
    assert UsageSummary(0, {}, {}, None, None) == repo.get_usage_summary("nobody")


@pytest.mark.parametrize(
    ("filters", "field"),
    [
        ({}, "entity_id"),
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
def test_filters_that_cannot_be_are_refused(repo, filters, field):
    """The error names the filter."""
    with pytest.raises(ValidationError) as raised:
        repo.get_usage_snapshots(**filters)
    assert field == raised.value.field
