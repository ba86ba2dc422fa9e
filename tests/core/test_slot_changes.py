"""Slots whose shards or limits change, and limits of concurrent use themselves."""

from typing import Any

import pytest

from tests.many_shards import Items, after_merge, after_split, applied, merging, splitting
from tests.one_bucket import NOON, Client, after, apply, at, created, stored, taking, view
from tests.slot_buckets import HOLD_MS, ONE, RPM, SLOTS, TERMS, WIDTH_MS, cohorts, slots_of, sum_of
from zae_limiter.core.acquire import (
    MixedTake,
    Progress,
    next_step,
)
from zae_limiter.core.errors import RateLimitExceeded, ValidationError
from zae_limiter.core.lazy_dataclass import replace
from zae_limiter.core.limit import Limit, digest, kinds_of_limits
from zae_limiter.core.multi_shard import combined, take_across
from zae_limiter.core.outcome import Refused
from zae_limiter.core.slots import (
    claims_of,
    cohort_end_s,
)
from zae_limiter.core.status import BucketState, LimitStatus
from zae_limiter.core.top_up import Known, top_up
from zae_limiter.core.top_up import created as creation_of
from zae_limiter.core.waiting import next_ask_s
from zae_limiter.schema import bucket_writes


class TestShards:
    """Slots of a bucket with several shards."""

    def shards(self, used: int) -> Items:
        items = {0: created(TERMS, {"slots": used})}
        return after_split(items, 0, at(NOON))

    @pytest.mark.parametrize("used", range(5))
    def test_split_gives_each_shard_whole_slots_of_both_sorts(self, used: int) -> None:
        """The free slots are halved, and each shard has its share of the capacity."""
        items = self.shards(used)

        assert [2_000, 2_000] == [sum_of(item) for item in items.values()]
        assert [(4 - used) // 2 * 1000, (4 - used + 1) // 2 * 1000] == sorted(
            item["b_slots_tk"] for item in items.values()
        )

    def test_split_of_a_bucket_with_a_lowered_capacity_halves_slots_in_use(self) -> None:
        """A shard with all of them would owe slots that the other has free once the capacity is raised again."""
        client = Client(slots_of(Limit.concurrent("slots", 2, hold_seconds=10), stamp=2), created(TERMS, {"slots": 4}))
        client.look(at(NOON))
        client.request({"rpm": 1}, at(NOON))
        items = after_split({0: client.item}, 0, at(NOON))

        assert [(-1_000, 2_000), (-1_000, 2_000)] == [
            (item["b_slots_tk"], sum(cohorts(item).values())) for _, item in sorted(items.items())
        ]

    def test_split_moves_slots_that_end_last_first(self) -> None:
        """The old shard keeps those that are returned soon."""
        item = created(TERMS, {"slots": 1})
        item = after(taking(view(item, NOON + 6_000), TERMS, {"slots": 3}, at(NOON + 6_000)), item)
        _, new = sorted(after_split({0: item}, 0, at(NOON + 6_000)).items())

        assert {max(cohorts(item)): 2_000} == cohorts(new[1])

    def test_split_is_refused_once_its_slots_were_taken_or_returned(self) -> None:
        """The moved slots must still be there."""
        item = created(TERMS, {"slots": 3})
        (end_s,) = cohorts(item)
        decided = splitting({0: item}, 0, at(NOON))
        old, _ = bucket_writes.split(view(item), decided, 1)
        moved = decided.cohorts[1][0][1]

        assert isinstance(apply(old, {**item, f"b_slots_h{end_s}": moved - 1}), Refused)

    def test_merge_is_refused_once_slots_of_the_deleted_shard_have_changed(self) -> None:
        """A renewal moves slots without changing the balance."""
        items = self.shards(4)
        decided = merging(items, 0, 1, at(NOON))
        assert decided is not None
        _, gone = bucket_writes.merge(view(items[0]), view(items[1]), decided, 1)
        (end_s,) = cohorts(items[1])

        applied(gone, items[1])
        assert isinstance(apply(gone, {**items[1], f"b_slots_h{end_s}": 1_000, "b_slots_h9": 1_000}), Refused)

    def test_merge_returns_slots_of_the_deleted_shard_that_have_expired(self) -> None:
        """The others keep their end."""
        later = NOON + HOLD_MS + WIDTH_MS
        merged = after_merge(self.shards(4), 0, 1, at(later))[0]

        assert 4_000 == sum_of(merged)
        assert 2_000 == merged["b_slots_tk"]

    def test_slots_are_taken_from_several_shards_in_whole_slots(self) -> None:
        """Part of a slot on a shard could not be taken again alone."""
        items = self.shards(0)
        views = {shard: view(item) for shard, item in items.items()}
        for refusals in (0, 1):
            written = take_across(views, [(0, 1_000), (1, 3_000)], at(NOON), refusals)
            assert written is not None
            taken = [one.taken for step in written.values() if isinstance(step, MixedTake) for one in step.slots]

            assert [1_000, 2_000] == sorted(taken)
            for shard, step in written.items():
                applied(bucket_writes.take(views[shard], step, 1), items[shard])

    def test_level_of_all_shards_is_the_sum_of_their_free_slots(self) -> None:
        """The wait is until enough cohorts have ended on all of them."""
        seen = [view(item) for item in self.shards(4).values()]
        slots = combined(seen, TERMS, at(NOON))[1]
        end_ms = cohort_end_s(SLOTS, NOON) * 1000

        assert (0, 4_000, False) == (slots.available_milli(at(NOON)), slots.in_use_milli(at(NOON)), slots.is_exact)
        assert (end_ms - NOON, end_ms) == (slots.wait_ms(4_000, at(NOON)), slots.full_ms())
        assert combined(seen, TERMS, at(NOON))[0].in_use_milli(at(NOON)) is None


class TestRebase:
    """Slots whose limits change."""

    def moved(self, item: dict[str, Any], terms: Any, now_ms: int = NOON) -> dict[str, Any]:
        client = Client(terms, item)
        client.look(at(now_ms))
        assert [] == client.request({"rpm": 1}, at(now_ms))
        return dict(client.item)

    def test_added_slots_are_free_but_for_those_that_are_taken_with_them(self) -> None:
        """The move takes in the same write."""
        client = Client(slots_of(SLOTS, stamp=2), created(stored(RPM)))
        client.look(at(NOON))
        client.request(ONE, at(NOON))

        assert (3_000, {cohort_end_s(SLOTS, NOON): 1_000}) == (client.item["b_slots_tk"], cohorts(client.item))

    def test_added_slots_that_are_too_few_reject(self) -> None:
        """The shard's share counts."""
        items = after_split({0: created(stored(RPM))}, 0, at(NOON))
        client = Client(slots_of(SLOTS, stamp=2), items[1])
        client.look(at(NOON))

        assert client.request({"slots": 3}, at(NOON))

    @pytest.mark.parametrize(("used", "gap_ms", "stays"), [(0, 0, False), (1, 0, True), (1, HOLD_MS + WIDTH_MS, False)])
    def test_removed_slots_stay_while_any_is_in_use(self, used: int, gap_ms: int, stays: bool) -> None:
        """A limit that is removed and added again does not forget its holders."""
        found = self.moved(created(TERMS, {"slots": used}), stored(RPM, stamp=2), NOON + gap_ms)

        assert stays == ("b_slots_tk" in found) == ("b_slots_dm" in found)
        assert stays == bool(cohorts(found))

    def test_removed_slots_that_are_added_again_have_their_holders(self) -> None:
        """The dormant limit is in force again, with its new capacity."""
        dormant = self.moved(created(TERMS, {"slots": 3}), stored(RPM, stamp=2))
        again = self.moved(dormant, slots_of(Limit.concurrent("slots", 5, hold_seconds=10), stamp=3))

        assert (5_000, 2_000, False) == (sum_of(again), again["b_slots_tk"], "b_slots_dm" in again)

    def test_slots_that_become_tokens_are_a_named_error(self) -> None:
        """Both kinds use the same attributes."""
        item = created(TERMS, {"slots": 1})
        for terms, seen in (
            (stored(RPM, Limit("slots", 9, 9, 60), stamp=2), view(item)),
            (slots_of(Limit.concurrent("rpm2", 9), stamp=2), view(created(stored(RPM, Limit("rpm2", 9, 9, 60))))),
        ):
            with pytest.raises(ValidationError, match="Choose another name"):
                next_step(seen, terms, [(0, 1_000)], at(NOON), Progress(trust_ms=1000))

    def test_move_of_a_bucket_that_expires_keeps_the_later_expiry(self) -> None:
        """Slots in use must not be forgotten."""
        item = {**created(slots_of(SLOTS, ttl=2), {"slots": 1}), "ttl": 2_000_000_000}
        terms = slots_of(Limit.concurrent("slots", 5, hold_seconds=10), ttl=2, stamp=2)

        assert 2_000_000_000 == self.moved(item, terms)["ttl"]


class TestWait:
    """Requests that wait for a slot."""

    @pytest.mark.parametrize(("rpm_wait", "waits"), [(None, 0.25), (0.1, 0.25), (3.0, 3.0)])
    def test_request_that_waits_for_a_slot_asks_again_soon(self, rpm_wait: float | None, waits: float) -> None:
        """Slots may be returned at any time. Tokens come at an exact time."""
        slots = LimitStatus("user-1", "gpt-4", "slots", SLOTS, 0, 1, True, 60.0, False, 4)
        rpm = LimitStatus("user-1", "gpt-4", "rpm", RPM, 0, 1, True, rpm_wait or 0.0)

        assert waits == next_ask_s(RateLimitExceeded([slots] if rpm_wait is None else [rpm, slots]))
        assert 3.0 == next_ask_s(RateLimitExceeded([replace(rpm, retry_after_seconds=3.0)]))


class TestTopUp:
    """A bucket whose creator knew the time roughly."""

    def test_top_up_takes_slots_in_the_same_write(self) -> None:
        """Nothing of the slots was withheld."""
        wide, later = (NOON, NOON + 900), at(NOON + 60_000)
        item = created(TERMS, {"rpm": 100, "slots": 1}, NOON + 900)
        seen = view(item, NOON + 900)
        made = creation_of(seen, wide, 0)
        assert made is not None
        creation = made.after(seen, [(0, 100_000), (1, 1_000)], 0)
        known = Known(at(NOON + 1_000), NOON, 100)

        topping = top_up(creation, seen, TERMS, [(0, 1_000), (1, 1_000)], known)
        assert topping is not None
        found = after(bucket_writes.top_up(seen, topping, 1), item)
        assert (4_000, 2_000, 0) == (sum_of(found), found["b_slots_tk"], topping.returned[1])
        assert top_up(creation, seen, TERMS, [(1, 9_000)], known) is None
        assert later[0] > NOON


class TestLimit:
    """The limit itself."""

    def test_slots_survive_a_dictionary(self) -> None:
        """The hold is only there for slots, so dictionaries of rate limits stay as they are."""
        assert SLOTS == Limit.from_dict(SLOTS.to_dict())
        assert ["hold_seconds"] == list(SLOTS.to_dict().keys() - RPM.to_dict().keys())

    def test_slots_have_no_rate(self) -> None:
        """They are returned, not refilled."""
        assert (0.0, True, False, 5) == (
            SLOTS.refill_rate,
            SLOTS.is_concurrent,
            RPM.is_concurrent,
            SLOTS.cohort_seconds,
        )
        assert 15_000 == SLOTS.fill_time_ms

    def test_digest_depends_on_the_hold(self) -> None:
        """Another hold is another limit."""
        assert digest([SLOTS]) != digest([Limit.concurrent("slots", 4, hold_seconds=20)])

    def test_kind_of_slots_must_be_allowed(self) -> None:
        """Older code would take them for limits that never refill."""
        assert (["slots"], []) == (kinds_of_limits([RPM, SLOTS]), kinds_of_limits([RPM]))

    def test_slots_have_a_short_repr(self) -> None:
        """It has the numbers that the limit has."""
        assert "Limit(name='slots', capacity=4, hold_seconds=10)" == repr(SLOTS)
        assert "refill_amount=100, refill_period_seconds=60" in repr(RPM)

    def test_slots_with_a_refill_are_refused(self) -> None:
        """They are returned, not refilled."""
        with pytest.raises(ValidationError, match="slots are returned and not refilled"):
            Limit("slots", 5, 1, 1, 60)

    def test_claims_of_a_request_are_those_of_its_slots(self) -> None:
        """A request of 0 claims nothing."""
        assert () == claims_of(0, TERMS.limits, [(0, 1_000), (1, 0)], NOON)

    def test_state_counts_the_slots_in_use(self) -> None:
        """Those whose end has passed are free."""
        state = BucketState("user-1", "gpt-4", "slots", 1_000, NOON, 4_000, 0, 0, 0, 10, ((5, 1_000), (9, 2_000)))

        assert [3, 2, 0] == [state.in_use(now_ms) for now_ms in (4_999, 5_000, 9_000)]

    def test_status_of_a_rate_limit_is_exact(self) -> None:
        """It has no slots in use."""
        status = LimitStatus("user-1", "gpt-4", "rpm", RPM, 1, 0, False, 0.0)

        assert (True, None, False) == (status.exact, status.in_use, "in_use" in status.as_dict())
