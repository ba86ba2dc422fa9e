"""What reserves do to requests: which can never be admitted, what is above a floor, and what a take leaves."""

from typing import Any

import pytest

from tests.many_shards import after_split, looks
from tests.one_bucket import NOON, Client, after, at, created, level, stored, taking, view
from tests.slot_buckets import ONE, SLOTS, TERMS, cohorts
from zae_limiter.core.errors import AmountExceedsCapacityError, ValidationError
from zae_limiter.core.levels import LevelOfLimit, limit_levels
from zae_limiter.core.limit import Limit
from zae_limiter.core.money import usd
from zae_limiter.core.multi_shard import combined
from zae_limiter.core.reserve import Reserve, check_priority, priority_reserves, require_room
from zae_limiter.core.reserved_take import with_floors

RPM = Limit.per_minute("rpm", 60)
HALF, QUARTER = Reserve(1, 2), Reserve(1, 4)
NEXT_MONTH_S = 1_701_388_800
"""The first of December of 2023, in UTC; noon is on the 14th of November."""


def above(limit: Limit, spent: int, reserve: Reserve) -> LevelOfLimit:
    """Return what a limit has above a reserve, on a bucket of which this much was taken at noon."""
    terms = stored(limit)
    (found,) = limit_levels(view(created(terms, {limit.name: spent})), terms, at(NOON))
    return found.above(reserve)


class TestArguments:
    """Priorities, and the reserves of a limiter."""

    @pytest.mark.parametrize("priority", [-1_000, 0, 1_000])
    def test_priority_within_its_bounds_is_returned(self, priority: int) -> None:
        """The bounds are included."""
        assert priority == check_priority(priority)

    @pytest.mark.parametrize("priority", [-1_001, 1_001, 0.5, True, "1", None])
    def test_priority_that_is_no_whole_number_within_bounds_is_refused(self, priority: Any) -> None:
        """A limiter would order requests by it."""
        with pytest.raises(ValidationError, match="priority"):
            check_priority(priority)
        with pytest.raises(ValidationError, match="priority"):
            priority_reserves({priority: 0.5})

    @pytest.mark.parametrize("value", [0.5, [(-1, 0.5)], "half"], ids=str)
    def test_reserves_that_are_no_dict_are_refused(self, value: Any) -> None:
        """Each reserve belongs to a priority."""
        with pytest.raises(ValidationError, match="must be a dict of priorities and fractions"):
            priority_reserves(value)

    @pytest.mark.parametrize("fraction", [0.0, 1.0, -0.5, float("nan"), 1, "0.5", None], ids=str)
    def test_reserve_that_is_no_fraction_is_refused(self, fraction: Any) -> None:
        """All of a capacity can never be left, and nothing is no reserve."""
        with pytest.raises(ValidationError, match="must be a fraction between 0 and 1") as caught:
            priority_reserves({-1: fraction})
        assert "priority_reserve[-1]" == caught.value.field

    @pytest.mark.parametrize("larger", [0.5, 0.6])
    def test_reserve_that_is_not_smaller_than_that_of_a_lower_priority_is_refused(self, larger: float) -> None:
        """A lower priority must leave more to others."""
        with pytest.raises(ValidationError, match="smaller part than that of priority -5") as caught:
            priority_reserves({-1: larger, -5: 0.5})
        assert ("priority_reserve[-1]", larger) == (caught.value.field, caught.value.value)


class TestRoom:
    """A request and its reserve must fit into the capacity."""

    @pytest.mark.parametrize("amount", [0, 1, 30])
    def test_request_that_leaves_the_reserve_of_a_full_bucket_has_room(self, amount: int) -> None:
        """Half of 60 must remain."""
        require_room(RPM, amount, HALF, "consume")

    def test_request_that_cannot_leave_its_reserve_is_refused(self) -> None:
        """It can never be admitted, so waiting is no use."""
        with pytest.raises(
            AmountExceedsCapacityError, match=r"a reserve of 30 of the capacity .* 'rpm' \(60\)"
        ) as caught:
            require_room(RPM, 31, HALF, "consume")
        assert ("consume[rpm]", 31, ()) == (caught.value.field, caught.value.value, caught.value.statuses)

    def test_reserve_of_money_is_shown_with_its_unit(self) -> None:
        """An amount in millionths would be hard to read."""
        spend = Limit.quota("spend", usd("10"), "day", unit="USD")

        with pytest.raises(AmountExceedsCapacityError, match=r"a reserve of 2\.50 USD of .* \(10\.00 USD\)"):
            require_room(spend, usd("7.51"), QUARTER, "consume")
        require_room(spend, usd("7.50"), QUARTER, "consume")

    def test_request_to_a_soft_limit_always_has_room(self) -> None:
        """It rejects nothing, so it has no floor."""
        require_room(Limit.per_minute("rpm", 60, enforce=False), 61, HALF, "consume")


class TestLevels:
    """What a limit has above a floor."""

    def test_rate_limit_above_a_floor_has_less_and_waits_longer(self) -> None:
        """Of 60, 40 are left and 30 must remain. One token is earned each second."""
        found = above(RPM, 20, HALF)

        assert ("rpm", RPM, True) == (found.name, found.limit, found.is_exact)
        assert (10_000, None, None) == (
            found.available_milli(at(NOON)),
            found.in_use_milli(at(NOON)),
            found.resets_s(at(NOON)),
        )
        assert [0, 0, 5_000] == [found.wait_ms(milli, at(NOON)) for milli in (0, 10_000, 15_000)]
        assert NOON + 20_000 == found.full_ms()

    def test_rate_limit_above_a_floor_has_less_after_a_take(self) -> None:
        """The floor stays the same."""
        found = above(RPM, 20, HALF).less(4_000, at(NOON))

        assert [6_000, 7_000] == [found.available_milli(at(NOON + later_ms)) for later_ms in (0, 1_000)]

    def test_limit_above_another_floor_has_what_that_floor_leaves(self) -> None:
        """Floors do not add up: a quarter of 60 is 15."""
        assert 25_000 == above(RPM, 20, HALF).above(QUARTER).available_milli(at(NOON))

    def test_slots_above_a_floor_wait_for_the_end_of_a_hold(self) -> None:
        """Of 4 slots, 3 are free and 2 must remain. The hold of the other one ends after 10 s."""
        found = above(SLOTS, 1, HALF)

        assert (1_000, 1_000, False) == (
            found.available_milli(at(NOON)),
            found.in_use_milli(at(NOON)),
            found.is_exact,
        )
        assert [0, 10_000] == [found.wait_ms(milli, at(NOON)) for milli in (1_000, 2_000)]
        assert NOON + 10_000 == found.full_ms()

    def test_quota_above_a_floor_waits_for_the_next_period(self) -> None:
        """Of 100, 60 are left and 25 must remain."""
        found = above(Limit.quota("spend", 100), 40, QUARTER)

        assert (35_000, NEXT_MONTH_S) == (found.available_milli(at(NOON)), found.resets_s(at(NOON)))
        assert [0, NEXT_MONTH_S * 1000 - NOON] == [found.wait_ms(milli, at(NOON)) for milli in (35_000, 36_000)]

    def test_limit_of_several_shards_has_what_is_above_all_their_floors(self) -> None:
        """Each shard keeps its part of the floor, so the one that is emptier than that gives nothing."""
        terms = stored(RPM)
        items = after_split({0: created(terms)}, 0, at(NOON))
        items[1] = after(taking(view(items[1]), terms, {"rpm": 20}, at(NOON)), items[1])
        (found,) = combined([*looks(items).values()], terms, at(NOON))

        assert 40_000 == found.available_milli(at(NOON))
        assert 15_000 == found.above(HALF).available_milli(at(NOON))


class TestTakes:
    """A take that leaves its reserve."""

    def test_request_to_a_new_bucket_leaves_the_reserve(self) -> None:
        """The bucket is created with the request taken, and nothing else."""
        client = Client(stored(RPM), reserve=HALF)

        assert [] == client.request({"rpm": 30}, at(NOON))
        assert 30_000 == level(client.item, "rpm", NOON)
        (status,) = client.request({"rpm": 1}, at(NOON))
        assert (30, 30, True, 1.0) == (
            status.available,
            status.reserved,
            status.exceeded,
            status.retry_after_seconds,
        )

    def test_request_to_a_known_bucket_takes_only_what_it_asks_for(self) -> None:
        """The floor is a condition of the write, and is not taken."""
        client = Client(stored(RPM), created(stored(RPM), {"rpm": 10}), reserve=HALF)

        assert [] == client.request({"rpm": 20}, at(NOON))
        assert (30_000, 30_000) == (level(client.item, "rpm", NOON), client.item["b_rpm_tc"])
        assert [] != client.request({"rpm": 1}, at(NOON))
        assert [] == client.request({"rpm": 1}, at(NOON + 1_000))

    def test_request_for_slots_leaves_the_reserve(self) -> None:
        """Of 4 slots, 2 must remain free."""
        client = Client(TERMS, created(TERMS), reserve=HALF)

        assert [[], []] == [client.request(ONE, at(NOON)) for _ in range(2)]
        assert (2_000, [2_000]) == (client.item["b_slots_tk"], [*cohorts(client.item).values()])
        assert 98_000 == level(client.item, "rpm", NOON)
        assert [(False, 50), (True, 2)] == [(one.exceeded, one.reserved) for one in client.request(ONE, at(NOON))]

    def test_request_to_a_quota_leaves_the_reserve(self) -> None:
        """Of 100, 25 must remain. The second request is in a period that has begun."""
        terms = stored(Limit.quota("spend", 100))
        client = Client(terms, created(terms), reserve=QUARTER)

        assert [[], []] == [client.request({"spend": amount}, at(NOON)) for amount in (50, 25)]
        assert 75_000 == client.item["b_spend_tc"]
        (status,) = client.request({"spend": 1}, at(NOON))
        assert (25, 25, True) == (status.available, status.reserved, status.exceeded)

    def test_amounts_with_floors_are_those_that_must_be_there(self) -> None:
        """A limit of which nothing is taken has no floor."""
        terms = stored(RPM, Limit.per_minute("tpm", 1_000))
        amounts = [(0, 2_000), (1, 0)]

        assert [(0, 32_000), (1, 0)] == with_floors(None, terms, amounts, HALF)
        assert amounts == with_floors(None, terms, amounts, None)

    def test_amounts_with_floors_on_a_shard_have_its_part_of_the_floor(self) -> None:
        """Two shards keep 15 of 30 each."""
        terms = stored(RPM)
        items = after_split({0: created(terms)}, 0, at(NOON))

        assert [(0, 17_000)] == with_floors(view(items[1]), terms, [(0, 2_000)], HALF)
