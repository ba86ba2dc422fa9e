"""The writes of slots, their attributes, and what is read of them."""

from typing import Any

import pytest

from tests.many_shards import after_split
from tests.one_bucket import NOON, OWNER, after, apply, at, created, stored, taking, view
from zae_limiter.core.acquire import MixedTake, Progress, next_step
from zae_limiter.core.bucket_changes import Settling
from zae_limiter.core.errors import CorruptItemError
from zae_limiter.core.limit import Limit
from zae_limiter.core.outcome import Applied, Missing, Refused
from zae_limiter.core.slots import MixedView, SlotRelease, SlotRenewal
from zae_limiter.core.view import NO_LIMITS
from zae_limiter.schema import attributes, bucket_writes, config_item, slot_writes
from zae_limiter.schema.bucket_item import MixedLayout, capacity_of, states_of, view_after_write, view_of
from zae_limiter.schema.direct_writes import BucketMixedTake, SlotReturn
from zae_limiter.schema.operations import AbsentOrAtMost, Update
from zae_limiter.tables import evaluate

RPM, SLOTS = Limit("rpm", 100, 100, 60), Limit.concurrent("slots", 4, hold_seconds=10)
TERMS = stored(RPM, SLOTS)
END_S = NOON // 1000 + 10
COHORT = f"b_slots_h{END_S}"


def moved(item: dict[str, Any], milli: int, expires_s: int | None = None) -> Any:
    """Return what a table answers to a renewal."""
    return apply(slot_writes.renew(view(item), [SlotRenewal("slots", END_S, END_S + 10, milli)], expires_s, 5), item)


class TestAttributes:
    """The names of cohorts."""

    @pytest.mark.parametrize("limit_name", ["slots", "a_b", "x.h1"])
    def test_cohort_attribute_is_parsed_back(self, limit_name: str) -> None:
        """The name of a limit may contain underscores."""
        name = attributes.cohort_attribute(limit_name, 1_700_000_010)

        assert (limit_name, 1_700_000_010) == attributes.parse_cohort_attribute(name)
        assert attributes.parse_bucket_attribute(name) is None

    @pytest.mark.parametrize("end", ["c", "s", "", "007", "-7", "\u0661", "7" * 13])
    def test_other_ends_are_no_cohorts(self, end: str) -> None:
        """Only the form that is written is read."""
        assert attributes.parse_cohort_attribute(f"b_slots_h{end}") is None

    @pytest.mark.parametrize("name", ["b__h7", "l_slots_h7", "b_slots_x7"])
    def test_other_names_are_no_cohorts(self, name: str) -> None:
        """Only the form that is written is read."""
        assert attributes.parse_cohort_attribute(name) is None

    @pytest.mark.parametrize(("item", "holds"), [({}, True), ({"a": 5}, True), ({"a": 6}, False), ({"a": "z"}, True)])
    def test_absent_or_at_most_is_what_dynamodb_decides(self, item: dict[str, Any], holds: bool) -> None:
        """A comparison with something else than a number is false, and so its negation is true."""
        assert holds == AbsentOrAtMost("a", 5).holds(item)


class TestTake:
    """Slots that are taken."""

    def test_take_of_nothing_only_requires_the_hold(self) -> None:
        """DynamoDB refuses an empty list of ranges."""
        seen = view(created(TERMS))
        write = bucket_writes.take(seen, MixedTake([], None, (), []), 5)

        assert (seen.layout.guard,) == write.when


class TestRenew:
    """Slots that are moved to a later end."""

    def test_renewal_moves_slots_and_keeps_the_balance(self) -> None:
        """They stay in use."""
        found = moved(created(TERMS, {"slots": 3}), 2_000)

        assert isinstance(found, Applied)
        assert (1_000, 2_000, 1_000) == (
            found.new[COHORT],
            found.new[f"b_slots_h{END_S + 10}"],
            found.new["b_slots_tk"],
        )

    @pytest.mark.parametrize("changed", [{COHORT: 1_000}, {"bi": 9}, {"shard_count": 2}])
    def test_renewal_of_slots_that_are_gone_is_refused(self, changed: dict[str, int]) -> None:
        """They ended, the bucket was created again, or a split has moved them."""
        item = created(TERMS, {"slots": 3})
        write = slot_writes.renew(view(item), [SlotRenewal("slots", END_S, END_S + 10, 2_000)], None, 5)

        assert isinstance(apply(write, {**item, **changed}), Refused)

    def test_renewal_moves_the_expiry_only_of_an_item_that_has_one(self) -> None:
        """An expiry that was removed since belongs to a debt."""
        item = created(stored(RPM, SLOTS, ttl=2), {"slots": 3})
        extended = moved(item, 1_000, 2_000_000_000)

        assert 2_000_000_000 == extended.new["ttl"]
        gone = {name: value for name, value in item.items() if name != "ttl"}
        assert isinstance(moved(gone, 1_000, 2_000_000_000), Refused)
        assert "ttl" not in moved(gone, 1_000).new

    def test_renewal_of_an_item_without_a_birth_number_does_not_require_one(self) -> None:
        """An older version created it, and the next move adds one."""
        item = created(TERMS, {"slots": 3})
        older = {name: value for name, value in item.items() if name != "bi"}

        assert isinstance(moved(older, 1_000), Applied)


class TestDirect:
    """The usual writes, which an embedded table applies without their conditions."""

    changes = pytest.mark.parametrize(
        "change",
        [
            {},
            {"b_slots_tk": 0},
            {"b_slots_tk": "x"},
            {"b_slots_tc": None},
            {COHORT: "x"},
            {COHORT: 7_000},
            {COHORT: None},
            {"gn": 7},
            {"bi": 9},
            {"ttl": 1},
            {"ttl": 2_000_000_000},
            {"b_wcu_tc": None},
            {"b_rpm_tk": -(10**9)},
        ],
        ids=str,
    )

    @changes
    @pytest.mark.parametrize("ttl", [0, 3])
    @pytest.mark.parametrize(("used", "gap_ms"), [(2, 0), (2, 20_000)])
    def test_direct_take_does_what_its_update_does(
        self, used: int, gap_ms: int, ttl: int, change: dict[str, Any]
    ) -> None:
        """It is applied without its conditions being made, and refused by them."""
        terms = stored(RPM, SLOTS, ttl=ttl)
        seen = view_of(created(terms, {"slots": used}), NOON, None, terms)
        step = next_step(seen, terms, [(0, 1_000), (1, 2_000)], at(NOON + gap_ms), Progress(trust_ms=0, looked=True))
        item = changed(created(terms, {"slots": used}), change)
        assert isinstance(step, MixedTake)

        assert result(bucket_writes.take(seen, step, 5), item) == result(BucketMixedTake(seen, step, 5), item)
        assert Missing() == evaluate.apply(BucketMixedTake(seen, step, 5), {})

    @changes
    def test_direct_return_does_what_its_update_does(self, change: dict[str, Any]) -> None:
        """A slot is returned only to the bucket and the cohort that it was taken from."""
        seen = view(created(TERMS, {"slots": 2}))
        item = changed(created(TERMS, {"slots": 2}), change)
        release = SlotRelease("slots", END_S, 1_000)
        settling = Settling([], held=False, birth=1, releases=(release,))

        assert result(bucket_writes.settle(seen, settling, 5), item) == result(SlotReturn(seen, release, 5), item)

    def test_direct_writes_name_all_attributes_that_they_change(self) -> None:
        """A file then writes only these numbers."""
        terms = stored(RPM, SLOTS, ttl=3)
        seen = view_of(created(terms, {"slots": 2}), NOON, None, terms)
        step = next_step(seen, terms, [(0, 1_000), (1, 2_000)], at(NOON), Progress(trust_ms=0, looked=True))
        assert isinstance(step, MixedTake)
        take, back = BucketMixedTake(seen, step, 5), SlotReturn(seen, SlotRelease("slots", END_S, 1_000), 5)

        for write in (take, back):
            assert {*write.add, *write.set} == {*(write.written_names() or ())}


def changed(item: dict[str, Any], change: dict[str, Any]) -> dict[str, Any]:
    """Return the item with other attributes; None stands for an absent one."""
    return {name: value for name, value in {**item, **change}.items() if value is not None}


def result(update: Update, item: dict[str, Any]) -> object:
    """Return the result of an update, or the kind of its error."""
    try:
        return evaluate.apply(update, item)
    except Exception as error:  # noqa: BLE001 - both forms must fail alike
        return type(error)


class TestRead:
    """Views and states of items with slots."""

    def test_view_keeps_its_layout_and_learns_which_limits_it_follows(self) -> None:
        """No request has the terms of such a layout, so that other buckets pay nothing for slots."""
        item = created(TERMS, {"slots": 1})
        seen = view_of(item, NOON, None, TERMS)
        assert isinstance(seen.layout, MixedLayout)

        assert (NO_LIMITS, True, True) == (
            seen.layout.terms,
            seen.layout.follows(TERMS),
            seen.layout.follows(stored(RPM, SLOTS)),
        )
        assert view_of(item, NOON, seen, TERMS).layout is seen.layout

    def test_view_after_an_own_write_has_no_pace_of_others(self) -> None:
        """The write counter rose by one, for this write."""
        item = created(TERMS)
        seen = view_of(item, NOON, None, TERMS)
        found = view_after_write(seen, after(taking(seen, TERMS, {"slots": 1}, at(NOON)), item), [(1, 1_000)], NOON)
        others = view_after_write(seen, {**item, "b_wcu_tc": 9}, [], NOON)

        assert isinstance(found, MixedView)
        assert (None, ((END_S, 1_000),)) == (found.pace, found.cohorts[1])
        assert others.pace is not None
        plain = created(stored(RPM))
        assert not isinstance(view_after_write(view(plain), {**plain, "b_wcu_tc": 2}, [], NOON), MixedView)

    def test_incomplete_item_after_an_own_write_is_a_named_error(self) -> None:
        """A view never has fewer numbers than its layout."""
        item = created(TERMS)
        damaged = {name: value for name, value in item.items() if name != "b_rpm_tk"}

        with pytest.raises(CorruptItemError, match="b_rpm_tk"):
            view_after_write(view(item), damaged, [], NOON)

    def test_damaged_cohort_is_a_named_error(self) -> None:
        """Nothing is decided on an item that no writer could have made."""
        with pytest.raises(CorruptItemError, match=COHORT):
            view({**created(TERMS, {"slots": 1}), COHORT: "many"})

    def test_state_of_several_shards_has_the_sum_of_their_slots(self) -> None:
        """A shard that is not on the newest limits yet has its whole share free."""
        items = after_split({0: created(TERMS, {"slots": 3})}, 0, at(NOON))
        _, slots = states_of(list(items.values()), 0)
        older = after_split({0: created(stored(RPM))}, 0, at(NOON))
        mixed = states_of([{**items[0], "cv": 2}, older[1]], 0)[1]

        assert (1_000, 4_000, 10, ((END_S, 3_000),)) == (
            slots.tokens_milli,
            slots.capacity_milli,
            slots.hold_seconds,
            slots.cohorts,
        )
        assert 3_000 == slots.total_consumed_milli
        assert items[0]["b_slots_tk"] + 2_000 == mixed.tokens_milli

    def test_capacity_of_slots_counts_those_that_have_ended_as_free(self) -> None:
        """They have no holder any more."""
        item = created(TERMS, {"slots": 3})

        assert [(4_000, 1_000, None), (4_000, 4_000, None)] == [
            capacity_of([item], "slots", NOON + gap) for gap in (0, 20_000)
        ]
        assert (100_000, 100_000, None) == capacity_of([item], "rpm", NOON)

    def test_config_record_keeps_slots(self) -> None:
        """They have a hold instead of a refill."""
        place = config_item.entity_place("ns000000000", "user-1", "gpt-4")
        record = config_item.write(place, [RPM, SLOTS], None).item

        assert (RPM, SLOTS) == config_item.from_item(record).limits
        assert ({"l_slots_cp": 4, "l_slots_hs": 10}) == {
            key: record[key] for key in record if key.startswith("l_slots")
        }

    def test_created_item_belongs_to_its_owner(self) -> None:
        """Slots change nothing of its key."""
        assert OWNER.entity_id == created(TERMS)["entity_id"]
