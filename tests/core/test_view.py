"""The limits that a client uses, its view of a bucket, and what it learns about other clients."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import strategies as some
from tests.one_bucket import NOON, after, at, created, own, stored, taking, view, with_balances
from zae_limiter.core.bucket_changes import Settlement
from zae_limiter.core.config import EntityFacts, Links, Resolution
from zae_limiter.core.errors import ValidationError
from zae_limiter.core.limit import Limit
from zae_limiter.core.view import NO_LIMITS, Pace, effective_limits, own_effective_limits, pace_after
from zae_limiter.schema.bucket_item import view_after_take

RPS = Limit("rps", 10, 10, 1)
RPM = Limit("rpm", 100, 100, 60)
TERMS = stored(RPS, RPM)


class TestEffectiveLimits:
    """The limits that a client uses."""

    @given(limits=some.limit_sets())
    def test_effective_limits_are_in_the_order_of_their_names(self, limits: tuple[Limit, ...]) -> None:
        """``positions`` maps every name to its index."""
        terms = stored(*limits)

        assert sorted(limit.name for limit in limits) == [limit.name for limit in terms.limits]
        assert {limit.name: index for index, limit in enumerate(terms.limits)} == dict(terms.positions)

    def test_effective_limits_without_limits_are_none(self) -> None:
        """Nothing is configured at any level."""
        assert effective_limits(Resolution((), 3, None, None, None), 7) is None

    def test_only_limits_of_resources_and_the_system_have_a_ttl_multiplier(self) -> None:
        """Buckets with an entity's own limits are few, and stay."""
        sources = ("entity", "entity_default", "resource", "system")
        terms = [effective_limits(Resolution((RPS,), 1, source, None, None), 7) for source in sources]

        assert [0, 0, 7, 7] == [one.ttl_multiplier for one in terms if one is not None]

    def test_more_effective_limits_than_a_bucket_can_have_raise(self) -> None:
        """Each level has at most as many, but inherited limits add up."""
        limits = tuple(Limit.per_minute(f"l{number}", 5) for number in range(33))

        with pytest.raises(ValidationError, match="at most 32 limits: set fewer, or without inherit"):
            effective_limits(Resolution(limits, 3, "entity", None, None), 7)
        assert effective_limits(Resolution(limits[:32], 3, "entity", None, None), 7) is not None

    def test_effective_limits_contain_parent_and_cascade_of_the_entity(self) -> None:
        """Both are written to the bucket."""
        terms = own_effective_limits(
            Resolution((), 4, None, None, EntityFacts("org-1", True, 2), links=Links("org-1")), (RPS,), 7
        )

        assert ("org-1", True, 4, 7) == (terms.parent_id, terms.cascade, terms.stamp, terms.ttl_multiplier)

    def test_passed_limits_have_a_digest_independent_of_their_order(self) -> None:
        """It distinguishes them from other limits of the same stamp."""
        assert "" == stored(RPS).digest
        assert own(RPS, RPM).digest == own(RPM, RPS).digest != own(RPS).digest

    def test_equal_effective_limits_are_the_same_object(self) -> None:
        """Identical objects need not be compared."""
        resolution = Resolution((RPS,), 1, "system", None, None)
        known = effective_limits(resolution, 7)

        assert known is effective_limits(Resolution((RPS,), 1, "system", None, None), 7, known)
        assert known is not effective_limits(Resolution((RPS,), 2, "system", None, None), 7, known)


class TestLayouts:
    """What stays the same between two rebases."""

    def test_layout_follows_the_limits_it_was_built_from(self) -> None:
        """Stamp, digest and limits agree."""
        layout = view(created(TERMS)).layout

        assert layout.follows(stored(RPM, RPS))
        assert not layout.follows(stored(RPS, RPM, stamp=2))
        assert not layout.follows(own(RPS, RPM))
        assert not layout.follows(stored(RPS))

    def test_layout_that_follows_limits_keeps_them(self) -> None:
        """They are not compared again."""
        assert TERMS is view(created(TERMS), NOON, None, TERMS).layout.terms
        assert view(created(TERMS), NOON, None, stored(RPS)).layout.terms is NO_LIMITS
        assert view(created(TERMS), NOON, None, TERMS).layout.follows(TERMS)

    def test_layout_lists_limits_in_force_before_dormant_ones(self) -> None:
        """Dormant limits are found by name as well."""
        item = created(TERMS, {"rpm": 5})
        item = after(taking(view(item), stored(RPS, stamp=2), {"rps": 1}, at(NOON)), item)
        layout = view(item).layout

        assert ["rps"] == [one.name for one in layout.in_force]
        assert ["rps", "rpm"] == [one.name for one in layout.baselines]
        assert (0, 1, None) == (layout.position("rps"), layout.position("rpm"), layout.position("tpm"))

    def test_view_has_totals_by_position_and_the_write_count(self) -> None:
        """Both come from the item."""
        seen = view(created(TERMS, {"rpm": 5}))

        assert (5_000, 0, 1) == (seen.total(0), seen.total(1), seen.writes)


class TestPace:
    """How fast other clients use a bucket, learned from responses."""

    def test_pace_of_a_single_client_is_none(self) -> None:
        """Its own takes do not count."""
        item = created(TERMS)
        seen = view(item, NOON, None, TERMS)
        for elapsed in (0, 5, 700):
            item = after(taking(seen, TERMS, {"rps": 1}, at(NOON + elapsed)), item)
            seen = view_after_take(seen, item, [(1, 1_000)], NOON + elapsed)

        assert seen.pace is None

    def test_pace_is_what_other_clients_took_since_the_last_view(self) -> None:
        """Per limit, and per write."""
        item = created(TERMS)
        seen = view(item, NOON, None, TERMS)
        for _ in range(4):
            item = after(taking(view(item), TERMS, {"rps": 1, "rpm": 3}, at(NOON)), item)

        pace = view(item, NOON + 100, seen, TERMS).pace

        assert pace is not None
        assert (120.0, 40.0) == (pace.expected(0, 1), pace.expected(1, 1))
        assert (3_000.0, 1_000.0) == (pace.size(0), pace.size(1))
        assert 12_000.0 == pace.expected(0, 100)

    @pytest.mark.parametrize("elapsed_ms", [-3, 0, 1])
    def test_pace_between_views_of_the_same_time_assumes_one_millisecond(self, elapsed_ms: int) -> None:
        """A clock may not move, or be set back."""
        item = created(TERMS)
        seen = view(item, NOON, None, TERMS)
        item = after(taking(view(item), TERMS, {"rps": 2}, at(NOON)), item)

        pace = view(item, NOON + elapsed_ms, seen, TERMS).pace

        assert pace is not None
        assert 2_000.0 == pace.expected(1, 1)

    def test_pace_of_two_seconds_ago_counts_half(self) -> None:
        """Tokens, writes and their time are all halved."""
        seen = view(created(TERMS), NOON, None, TERMS)
        seen.pace = Pace((0.0, 1_000.0), 10.0, 400.0)
        numbers = (*seen.numbers[:2], seen.total(0), seen.total(1) + 600, seen.writes + 4)

        assert Pace((0.0, 1_100.0), 9.0, 2_200.0) == pace_after(seen, numbers, (), NOON + 2_000)

    def test_pace_does_not_include_the_clients_own_take(self) -> None:
        """The rest was taken by other clients."""
        item = created(TERMS, {"rps": 1})
        seen = view(item, NOON, None, TERMS)
        others = after(taking(view(item), TERMS, {"rps": 2}, at(NOON)), item)
        item = after(taking(seen, TERMS, {"rps": 5}, at(NOON + 10)), others)

        pace = view_after_take(seen, item, [(1, 5_000)], NOON + 10).pace

        assert pace is not None
        assert (0.0, 200.0) == (pace.expected(0, 1), pace.expected(1, 1))

    def test_pace_is_zero_if_other_clients_credited_more_than_they_took(self) -> None:
        """A pace is never negative."""
        item = {**created(TERMS, {"rps": 5}), "b_rps_tc": 5_000}
        seen = view(item, NOON, None, TERMS)
        item = {**with_balances(item, rps=9_000), "b_rps_tc": 1_000, "b_wcu_tc": 2}

        pace = view(item, NOON + 10, seen, TERMS).pace

        assert pace is not None
        assert 0.0 == pace.expected(1, 1_000)

    @given(pause_ms=st.integers(60_000, 10**9))
    def test_pace_is_none_after_a_long_pause(self, pause_ms: int) -> None:
        """Other clients that stopped long ago do not affect the prediction."""
        item = created(TERMS)
        seen = view(item, NOON, None, TERMS)
        item = after(taking(view(item), TERMS, {"rps": 2}, at(NOON)), item)
        busy = view(item, NOON + 1, seen, TERMS)
        quiet = busy
        for times in range(1, 40):
            quiet = view(item, NOON + times * pause_ms, quiet, TERMS)

        assert busy.pace is not None
        assert quiet.pace is None

    def test_pace_decreases_when_other_clients_take_less(self) -> None:
        """Older takes count for less."""
        item = created(TERMS)
        seen = view(item, NOON, None, TERMS)
        busy_item = {**item, "b_rps_tc": 100_000, "b_wcu_tc": 101}
        busy = view(busy_item, NOON + 100, seen, TERMS)
        calm = view({**busy_item, "b_wcu_tc": 102}, NOON + 1_000, busy, TERMS)

        assert busy.pace is not None
        assert calm.pace is not None
        assert busy.pace.expected(1, 1) > calm.pace.expected(1, 1)

    def test_rebase_to_the_same_number_of_limits_keeps_the_pace(self) -> None:
        """The other clients are still there; with another number, the pace is reset."""
        item = created(TERMS)
        seen = view(item, NOON, None, TERMS)
        item = after(taking(view(item), TERMS, {"rps": 2}, at(NOON)), item)
        busy = view(item, NOON + 1, seen, TERMS)
        same = after(taking(busy, stored(RPM, RPS, stamp=2), {}, at(NOON + 1)), item)
        more = after(taking(busy, stored(RPM, RPS, Limit("tpm", 1, 1, 1), stamp=2), {}, at(NOON + 1)), item)

        assert busy.pace == view(same, NOON + 2, busy).pace
        assert view(more, NOON + 2, busy).pace is None


def test_layout_has_all_limits_of_a_settlement_or_not() -> None:
    """A client with an old view reads the bucket first if a limit is missing."""
    layout = view(created(TERMS)).layout

    assert layout.has_all(Settlement(debits=(("rps", 1_000),), credits=(("rpm", 1_000),)).names)
    assert not layout.has_all(Settlement(credits=(("tpm", 1_000),)).names)
