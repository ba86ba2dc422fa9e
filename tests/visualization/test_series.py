"""Snapshots become series without gaps, and nothing is lost or counted twice."""

from hypothesis import given
from hypothesis import strategies as st

from tests import strategies as some
from tests.visualization.snapshots import snapshot
from zae_limiter.visualization.series import SeriesBounds, series_of

MANY = SeriesBounds(windows=10_000, parts=6)


def test_series_has_zero_for_hours_without_usage():
    """A chart has a position for every hour between the first and the last."""
    (series,) = series_of([snapshot("2026-01-15T08:00Z", {"rpm": 5}), snapshot("2026-01-15T11:00Z", {"rpm": 7})], MANY)

    assert [5, 0, 0, 7] == series.amounts
    assert (12, 3) == (series.total, series.peak)
    assert "user-1 · gpt-4" == series.whose


def test_series_never_adds_different_kinds_of_windows():
    """The usage of an hour is already in its day."""
    both = [snapshot("2026-01-15T08:00Z", {"rpm": 5}), snapshot("2026-01-15", {"rpm": 5}, kind="daily")]

    assert [("hourly", 5), ("daily", 5)] == [(one.window_type, one.total) for one in series_of(both, MANY)]


def test_series_of_a_month_ends_where_the_next_begins():
    """Months have different lengths."""
    months = [snapshot(f"2026-{month:02}-01", {"rpm": month}, kind="monthly") for month in (1, 3)]

    (series,) = series_of(months, MANY)

    assert ["2026-01", "2026-02", "2026-03"] == [window.key for window in series.windows]
    assert [1, 0, 3] == series.amounts


def test_series_of_too_many_hours_becomes_days():
    """Windows that are too fine are summed into longer ones, and the series names the counted ones."""
    hours = [snapshot(f"2026-01-{day:02}T{hour:02}:00Z", {"rpm": 1}) for day in (1, 2, 3) for hour in (9, 10)]

    (series,) = series_of(hours, SeriesBounds(windows=48, parts=6))

    assert ("hourly", "daily") == (series.counted_in, series.window_type)
    assert [2, 2, 2] == series.amounts


def test_series_names_the_largest_parts_and_sums_the_others():
    """A legend has room for few."""
    used = {"a": 1, "b": 40, "c": 2, "d": 30}
    shown = [snapshot("2026-01-15T08:00Z", {"rpm": amount}, entity_id=name) for name, amount in used.items()]

    (series,) = series_of(shown, SeriesBounds(windows=48, parts=3))

    assert [("b", 40), ("d", 30), ("2 others", 3)] == [(part.label, part.total) for part in series.parts]
    assert "4 entities · gpt-4" == series.whose


def test_series_names_parts_by_what_differs():
    """The resources of one entity, the entities of one resource, or both."""
    one = snapshot("2026-01-15T08:00Z", {"rpm": 2})
    of_another = snapshot("2026-01-15T08:00Z", {"rpm": 1}, entity_id="user-2")
    of_search = snapshot("2026-01-15T08:00Z", {"rpm": 1}, resource="search")

    def names(*snapshots):
        return [part.label for part in series_of(snapshots, MANY)[0].parts]

    assert ["user-1"] == names(one)
    assert ["user-1", "user-2"] == names(one, of_another)
    assert ["gpt-4", "search"] == names(one, of_search)
    assert ["user-1 · gpt-4", "user-1 · search", "user-2 · gpt-4"] == names(one, of_another, of_search)


@given(
    used=st.lists(
        st.tuples(st.integers(0, 400), st.sampled_from("abcdefgh"), st.integers(-50, 1_000)), min_size=1, max_size=40
    ),
    windows=st.integers(1, 60),
    parts=st.integers(1, 5),
)
def test_series_in_little_room_keeps_its_total(used, windows, parts):
    """The total of a series is that of its snapshots, and it keeps within its bounds."""
    shown = [
        snapshot(f"2026-01-{1 + hour // 24:02}T{hour % 24:02}:00Z", {"rpm": amount}, entity_id=name)
        for hour, name, amount in used
    ]

    (series,) = series_of(shown, SeriesBounds(windows, parts))

    assert sum(amount for _, _, amount in used) == series.total == sum(series.amounts)
    assert len(series.parts) <= parts
    assert len(series.windows) <= windows + 1 or series.window_type == "monthly"


@given(st.sets(st.tuples(some.entity_ids, some.resources), min_size=1, max_size=5))
def test_series_has_a_part_for_each_pair_of_names(pairs):
    """No two pairs have the same label."""
    used = [snapshot("2026-01-15T08:00Z", {"rpm": 1}, entity_id=one, resource=other) for one, other in pairs]
    (series,) = series_of(used, MANY)

    assert [1] * len(pairs) == [part.total for part in series.parts]
