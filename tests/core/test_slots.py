"""Slots: every write keeps the balance and the slots in use at the capacity, and no slot has two holders."""

from dataclasses import dataclass, field
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.many_shards import Items, after_merge, after_split, merging
from tests.one_bucket import NOON, Client, after, apply, at, created, stored, taking, view
from tests.slot_buckets import HOLD_MS, ONE, RPM, SLOTS, TERMS, WIDTH_MS, cohorts, share_of, slots_of, sum_of
from zae_limiter.core.acquire import (
    LOOK,
    MixedTake,
    Progress,
    Rebase,
    Reject,
    Take,
    is_known_short,
    next_step,
    taken_by_step,
)
from zae_limiter.core.add_or_set import Effort
from zae_limiter.core.bucket import LimitShare
from zae_limiter.core.bucket_changes import Settlement, Settling, settle, summed
from zae_limiter.core.levels import held_statuses, held_statuses_of, limit_levels, statuses
from zae_limiter.core.limit import Limit
from zae_limiter.core.multi_shard import if_covered
from zae_limiter.core.outcome import Refused
from zae_limiter.core.slots import (
    Claim,
    MixedView,
    SlotLevel,
    SlotRelease,
    SlotTake,
    by_shard,
    claims_of,
    cohort_end_s,
    divided,
    item_expiry_s,
    not_ended,
    released_across,
    releases_fit,
    take_slots,
    taken_from,
)
from zae_limiter.core.take_and_settle import take_and_settle
from zae_limiter.core.tracked import Taken
from zae_limiter.core.view import Pace
from zae_limiter.schema import bucket_writes
from zae_limiter.schema.bucket_item import BucketView


def release(item: dict[str, Any], claim: Claim, now_ms: int = NOON) -> Any:
    """Return what a table answers to the return of a claim."""
    seen = view(item, now_ms)
    settling = Settling([], held=False, birth=item["bi"], releases=(SlotRelease(*claim[1:]),))
    return apply(bucket_writes.settle(seen, settling, 1), item)


@dataclass
class World:
    """All shards of one bucket, and the claims of all holders."""

    items: Items
    terms: Any
    now_ms: int = NOON
    claims: list[Claim] = field(default_factory=list)

    def live(self) -> int:
        """Return the slots that holders may still rely on."""
        return sum(claim.milli for claim in self.claims if claim.end_s * 1000 > self.now_ms)

    def take(self, shard: int, amount: int) -> None:
        client = Client(self.terms, self.items[shard])
        client.look(at(self.now_ms))
        seen = client.seen
        assert seen is not None
        if not client.request({"rpm": 0, "slots": amount}, at(self.now_ms)):
            (chosen, *_) = client.steps
            claims = claims_of(shard, self.terms.limits, [(1, amount * 1000)], self.now_ms)
            assert isinstance(chosen, Rebase) or Taken(claims) == taken_by_step(seen, chosen)  # type: ignore[arg-type]  # a step that takes is a Take
            self.claims += claims
        self.items = {**self.items, shard: client.item}

    def give_back(self, number: int) -> None:
        claim = self.claims.pop(number % len(self.claims))
        live = not_ended([SlotRelease(*claim[1:])], self.now_ms)
        seen = {shard: view(item, self.now_ms) for shard, item in self.items.items()}
        for shard, parts in released_across(seen, live).items():
            settling = Settling([], held=False, birth=self.items[shard]["bi"], releases=tuple(parts))
            self.items = {**self.items, shard: after(bucket_writes.settle(seen[shard], settling, 1), self.items[shard])}


kinds = st.sampled_from(["take", "take", "back", "wait", "split", "merge", "limit"])
actions = st.lists(st.tuples(kinds, st.integers(0, 63), st.integers(1, 3)), max_size=40)


@given(steps=actions)
def test_slots_are_conserved_by_every_write(steps: list[tuple[str, int, int]]) -> None:
    """Free slots and slots in use are the capacity on every shard, and never more are held than any capacity allows."""
    world, largest, stamp = World({0: created(TERMS)}, TERMS), 4_000, 1
    for what, number, amount in steps:
        shards = sorted(world.items)
        shard = shards[number % len(shards)]
        if what == "take":
            world.take(shard, min(amount, world.terms.limits[1].capacity))
        elif what == "back" and world.claims:
            world.give_back(number)
        elif what == "wait":
            world.now_ms += amount * 3_000
        elif what == "split" and len(shards) < 8 and world.items[shard]["shard_count"] < 64:
            world.items = after_split(world.items, shard, at(world.now_ms))
        elif what == "merge" and len(shards) > 1:
            other = shard - world.items[shard]["shard_count"] // 2
            if other in world.items and merging(world.items, other, shard, at(world.now_ms)) is not None:
                world.items = after_merge(world.items, other, shard, at(world.now_ms))
        elif what == "limit":
            stamp += 1
            world.terms = slots_of(Limit.concurrent("slots", 1 + number % 6, hold_seconds=10), stamp=stamp)
            largest = max(largest, (1 + number % 6) * 1000)
        for item in world.items.values():
            assert share_of(item) == sum_of(item)
            assert all(milli >= 0 for milli in cohorts(item).values())
        assert world.live() <= largest


class TestTake:
    """Slots taken in the same write as tokens."""

    def test_take_joins_the_cohort_of_its_end(self) -> None:
        """Slots that are taken at about the same time end together."""
        item = created(TERMS)
        for gap_ms in (100, 1_000):
            item = after(taking(view(item, NOON + gap_ms), TERMS, ONE, at(NOON + gap_ms)), item)

        assert {cohort_end_s(SLOTS, NOON + 100): 2_000} == cohorts(item)
        assert (2_000, 2_000, 2_000) == (item["b_rpm_tc"], item["b_slots_tk"], item["b_slots_tc"])

    @given(gap_ms=st.integers(0, 1_000_000))
    def test_end_of_a_cohort_is_between_one_and_one_and_a_half_holds_away(self, gap_ms: int) -> None:
        """The end is a multiple of half the hold, so that a bucket has few cohorts."""
        left_ms = cohort_end_s(SLOTS, NOON + gap_ms) * 1000 - NOON - gap_ms

        assert HOLD_MS <= left_ms < HOLD_MS + WIDTH_MS

    def test_take_returns_expired_slots_and_removes_their_cohorts(self) -> None:
        """Their holders are gone."""
        item = created(TERMS, {"slots": 4})
        later = NOON + HOLD_MS + WIDTH_MS
        seen = view(item, later)
        found = after(taking(seen, TERMS, ONE, at(later)), item)

        assert 4_000 == seen.level(1, later)
        assert {cohort_end_s(SLOTS, later): 1_000} == cohorts(found)
        assert 3_000 == found["b_slots_tk"]

    @pytest.mark.parametrize("changed", [{"b_slots_h{}": 3_000}, {"b_slots_tk": -4_000}, {"gn": 9}])
    def test_take_on_an_outdated_view_is_refused(self, changed: dict[str, int]) -> None:
        """An expired cohort must be as it was seen, and there must be enough free slots."""
        item = created(TERMS, {"slots": 4})
        later = NOON + HOLD_MS + WIDTH_MS
        write = taking(view(item, later), TERMS, ONE, at(later))
        (end_s,) = cohorts(item)

        assert isinstance(
            apply(write, {**item, **{key.format(end_s): value for key, value in changed.items()}}), Refused
        )

    def test_take_at_an_uncertain_time_joins_the_later_cohort_and_frees_only_what_has_surely_ended(self) -> None:
        """Both ends of the time count, each to the strict side."""
        item = created(TERMS, {"slots": 4})
        (end_s,) = cohorts(item)
        early, late = end_s * 1000 - 1, end_s * 1000 + 9_000
        seen = view(item, late)
        assert isinstance(seen, MixedView)

        assert take_slots(seen, [(1, 1_000)], (early, late)) is None
        found = take_slots(seen, [(1, 1_000)], (early + 1, late))
        assert found is not None
        assert cohort_end_s(SLOTS, late) == found[1][0].end_s

    def test_take_on_other_limits_frees_and_takes_slots_after_the_move(self) -> None:
        """A move alone leaves expired slots as they are."""
        item = created(TERMS, {"slots": 4})
        later = NOON + HOLD_MS + WIDTH_MS
        more = slots_of(Limit.concurrent("slots", 6, hold_seconds=10), stamp=2)
        client = Client(more, item)
        client.look(at(later))

        assert [] == client.request({"slots": 6}, at(later))
        assert (6_000, {cohort_end_s(SLOTS, later): 6_000}) == (sum_of(client.item), cohorts(client.item))

    def test_slots_at_the_time_of_a_refused_write_decide(self) -> None:
        """Contention does not turn a rejection into a wait."""
        item = created(TERMS, {"slots": 4})
        later = NOON + HOLD_MS + WIDTH_MS
        progress = Progress(trust_ms=1000).after_refusal(at(NOON), guessed=True)

        assert Reject(at(NOON)) == next_step(view(item, later), TERMS, [(1, 1_000)], at(later), progress)

    @pytest.mark.parametrize(("age_ms", "rejects"), [(149, True), (150, False)])
    def test_view_without_free_slots_rejects_only_while_it_is_very_young(self, age_ms: int, rejects: bool) -> None:
        """Slots are returned at any time, so a view is no upper bound."""
        seen, now = view(created(TERMS, {"slots": 4})), at(NOON + age_ms)
        chosen = next_step(seen, TERMS, [(1, 1_000)], now, Progress(trust_ms=1000))

        assert (Reject(now) if rejects else LOOK) == chosen
        assert rejects == is_known_short(seen, TERMS, [(1, 1_000)], now, 1000)

    def test_take_of_a_shared_limit_that_needs_a_look_looks(self) -> None:
        """The other limits of the bucket are estimated as usual."""
        seen = view(created(TERMS, {"rpm": 90}), NOON)
        seen.pace = Pace((9_000.0, 0.0), 9.0, 10.0)

        assert LOOK == next_step(seen, TERMS, [(0, 5_000)], at(NOON + 50), Progress(trust_ms=1000))

    @pytest.mark.parametrize(
        ("consume", "debt", "expires"), [(ONE, 0, True), ({"slots": 1}, 0, True), ({"slots": 1}, 200_000, False)]
    )
    def test_take_of_slots_sets_the_expiry_unless_a_limit_is_in_debt(
        self, consume: dict[str, int], debt: int, expires: bool
    ) -> None:
        """An item that expired would forget the debt, and it must not forget slots in use."""
        terms = slots_of(SLOTS, ttl=2)
        item = created(terms)
        item = {**item, "b_rpm_tk": item["b_rpm_tk"] - debt}
        found = after(taking(view(item), terms, consume, at(NOON)), item)

        assert expires == ("ttl" in found)
        assert not expires or found["ttl"] >= max(cohorts(found))

    def test_late_take_does_not_bring_the_expiry_forward(self) -> None:
        """Slots that were taken since would be forgotten too early."""
        terms = slots_of(SLOTS, ttl=2)
        item = created(terms)
        late = taking(view(item), terms, ONE, at(NOON))
        newer = after(taking(view(item), terms, ONE, at(NOON + 600_000)), item)

        assert isinstance(apply(late, newer), Refused)
        again = after(taking(view(newer), terms, ONE, at(NOON + 599_000)), newer)
        assert newer["ttl"] == again["ttl"]

    def test_item_that_never_expires_has_no_expiry_to_extend(self) -> None:
        """None means never."""
        seen = view(created(TERMS))

        assert item_expiry_s(seen, None) is None
        assert 60 * 17 == item_expiry_s(view(created(stored(RPM))), 60 * 17)

    def test_slots_never_count_as_owed(self) -> None:
        """Their balance is negative after the capacity was lowered, and the bucket may still expire."""
        terms = slots_of(Limit.concurrent("slots", 1, hold_seconds=10), ttl=2, stamp=2)
        item = created(slots_of(SLOTS, ttl=2), {"slots": 3})
        client = Client(terms, item)
        client.look(at(NOON))

        assert [] == client.request({"rpm": 1}, at(NOON))
        assert (-2_000, True) == (client.item["b_slots_tk"], "ttl" in client.item)


class TestClaims:
    """What leases hold."""

    def test_take_without_slots_claims_nothing(self) -> None:
        """Other limits have no holders."""
        terms = stored(RPM)
        seen = view(created(terms))
        step = next_step(seen, terms, [(0, 1_000)], at(NOON), Progress(trust_ms=1))
        assert isinstance(step, Take)

        assert taken_by_step(seen, step) is None

    def test_claims_of_a_batch_are_divided_by_the_requests(self) -> None:
        """Each request gets what it asked for, whatever the shards gave."""
        claims = [Claim(0, "slots", 9, 1_000), Claim(1, "slots", 9, 2_000)]

        assert [
            (Claim(0, "slots", 9, 1_000), Claim(1, "slots", 9, 1_000)),
            (),
            (Claim(1, "slots", 9, 1_000),),
        ] == divided(claims, [{"slots": 2, "rpm": 1}, {"rpm": 1}, {"slots": 1}])

    def test_slots_that_end_first_are_returned_first(self) -> None:
        """The others need no renewal for longer."""
        gone, left = taken_from([Claim(0, "slots", 9, 1_000), Claim(0, "slots", 5, 1_000)], {"slots": 1})

        assert ([Claim(0, "slots", 5, 1_000)], [Claim(0, "slots", 9, 1_000)]) == (gone, left)

    def test_slots_that_end_together_are_released_as_one_sum(self) -> None:
        """One condition per cohort is enough."""
        claims = [Claim(0, "slots", 9, 1_000), Claim(2, "slots", 9, 1_000), Claim(0, "slots", 9, 2_000)]

        assert {0: (SlotRelease("slots", 9, 3_000),), 2: (SlotRelease("slots", 9, 1_000),)} == by_shard(claims)

    def test_release_needs_its_cohort_and_the_birth_number(self) -> None:
        """Otherwise it would free the slot of another holder."""
        item = created(TERMS, {"slots": 2})
        (end_s,) = cohorts(item)
        claim = Claim(0, "slots", end_s, 2_000)
        found = release(item, claim)

        assert (4_000, {end_s: 0}) == (found.new["b_slots_tk"], cohorts(dict(found.new)))
        assert isinstance(release(dict(found.new), claim), Refused)
        seen = view(item)
        write = bucket_writes.settle(seen, Settling([], False, item["bi"], (SlotRelease(*claim[1:]),)), 1)
        assert isinstance(apply(write, {**item, "bi": 99}), Refused)

    def test_release_fits_only_a_view_that_has_its_slots(self) -> None:
        """Another view shows that a split has moved them."""
        seen = view(created(TERMS, {"slots": 2}))
        assert isinstance(seen, MixedView)
        (end_s,) = dict(seen.cohorts[1])

        assert [True, False, False, False] == [
            releases_fit(seen, [SlotRelease(*one)])
            for one in (
                ("slots", end_s, 2_000),
                ("slots", end_s, 3_000),
                ("slots", end_s + 1, 1_000),
                ("other", end_s, 1_000),
            )
        ]

    def test_release_across_skips_shards_without_slots(self) -> None:
        """A shard may be on older limits."""
        seen = {0: view(created(stored(RPM))), 1: view(created(TERMS, {"slots": 1}))}
        (end_s,) = cohorts(created(TERMS, {"slots": 1}))

        assert {1: [SlotRelease("slots", end_s, 1_000)]} == released_across(seen, [SlotRelease("slots", end_s, 1_500)])
        assert {} == released_across({0: seen[1]}, [SlotRelease("other", end_s, 1_000)])
        assert {} == released_across({0: seen[1]}, [SlotRelease("slots", end_s + 5, 1_000)])

    def test_settlements_of_one_shard_sum_their_releases(self) -> None:
        """They are written together."""
        one = Settlement((), (("rpm", 5),), 7, (SlotRelease("slots", 9, 1_000),), 2)

        assert Settlement((), (("rpm", 10),), 7, (SlotRelease("slots", 9, 2_000),), 2) == summed([one, one])

    def test_settlement_keeps_its_releases_when_it_is_netted(self) -> None:
        """Debits and credits of one limit become their difference."""
        both = Settlement((("rpm", 5),), (("rpm", 2),), 7, (SlotRelease("slots", 9, 1_000),), 2)

        assert Settlement((("rpm", 3),), (), 7, (SlotRelease("slots", 9, 1_000),), 2) == both.due(7)

    def test_debit_and_release_are_one_write(self) -> None:
        """The return of a slot costs nothing beside an adjustment."""
        item = created(TERMS, {"slots": 1, "rpm": 1})
        (end_s,) = cohorts(item)
        seen = view(item)
        owed = Settlement((("rpm", 2_000),), (), item["bi"], (SlotRelease("slots", end_s, 1_000),))
        found = after(bucket_writes.settle(seen, if_covered(seen, settle(seen, owed, at(NOON), 0), NOON), 1), item)

        assert (97_000, 4_000) == (found["b_rpm_tk"], found["b_slots_tk"])

    def test_bucket_with_slots_is_not_taken_from_and_settled_in_one_write(self) -> None:
        """Slots are returned at once, so nothing waits for the next take."""
        item = created(TERMS)

        assert take_and_settle(view(item), TERMS, [(0, 1_000)], Settlement(), at(NOON), Progress(trust_ms=1)) is None


class TestView:
    """Views of buckets with slots."""

    def test_bucket_without_slots_was_seen_to_follow_its_terms(self) -> None:
        """A bucket with slots remembers them apart, because no request has its terms."""
        terms = stored(RPM)

        assert terms is view(created(terms), terms=terms).layout.seen_terms
        assert TERMS is view(created(TERMS), terms=TERMS).layout.seen_terms

    def test_view_after_takes_in_flight_has_their_slots(self) -> None:
        """Cohorts that two of them remove are added to the balance once."""
        item = created(TERMS, {"slots": 3})
        (end_s,) = cohorts(item)
        seen = view(item)
        assert isinstance(seen, MixedView)
        one = SlotTake(1, 1_000, -2_000, 2_000, end_s + 15, ((end_s, 3_000),))

        found = seen.after([one, one])

        assert (2_000, ((end_s + 15, 2_000),)) == (found.numbers[1], found.cohorts[1])
        assert seen.level(0, NOON) == found.level(0, NOON)

    def test_statuses_have_the_slots_in_use_and_an_inexact_wait(self) -> None:
        """The wait is the longest possible: until the first cohort ends that frees enough."""
        item = created(TERMS, {"slots": 3})
        item = after(taking(view(item, NOON + 6_000), TERMS, {"slots": 1}, at(NOON + 6_000)), item)
        now = at(NOON + 6_000)
        levels = limit_levels(view(item), TERMS, now)
        rpm, slots = statuses(("user-1", "gpt-4"), levels, [(1, 2_000)], now, now)

        assert (None, True, 4, False, 0) == (rpm.in_use, rpm.exact, slots.in_use, slots.exact, slots.available)
        assert (min(cohorts(item)) * 1000 - now[0]) / 1000 == slots.retry_after_seconds
        assert {"hold_seconds": 10, "in_use": 4, "exact": False}.items() <= slots.as_dict().items()

    def test_held_statuses_have_the_slots_in_use(self) -> None:
        """A lease sees them without a call."""
        seen = view(created(TERMS, {"slots": 3}))
        found = held_statuses_of(("user-1", "gpt-4"), seen, TERMS, {"slots": 3}, {}, at(NOON))

        assert [("rpm", 100, None), ("slots", 1, 3)] == [(one.limit_name, one.available, one.in_use) for one in found]
        assert found == held_statuses(
            ("user-1", "gpt-4"), limit_levels(seen, TERMS, at(NOON)), {"slots": 3}, {}, at(NOON)
        )

    def test_levels_of_a_bucket_that_does_not_exist_are_full(self) -> None:
        """No slot is in use."""
        (_, slots) = limit_levels(None, TERMS, at(NOON))

        assert (4_000, 0, 0) == (
            slots.available_milli(at(NOON)),
            slots.in_use_milli(at(NOON)),
            slots.wait_ms(4_000, at(NOON)),
        )

    def test_levels_on_other_limits_have_the_difference_of_the_capacities(self) -> None:
        """Slots in use stay in use, and a limit of another kind counts as full."""
        seen = view(created(TERMS, {"slots": 3}))
        lower = slots_of(Limit.concurrent("slots", 2, hold_seconds=10), stamp=2)
        other = stored(RPM, Limit("slots", 9, 9, 60), stamp=2)

        assert -1_000 == limit_levels(seen, lower, at(NOON))[1].available_milli(at(NOON))
        assert 9_000 == limit_levels(seen, other, at(NOON))[1].available_milli(at(NOON))

    def test_level_after_a_take_is_lower_by_the_slots(self) -> None:
        """A take of none changes nothing."""
        seen = view(created(TERMS, {"slots": 1}))
        level = limit_levels(seen, TERMS, at(NOON))[1]
        assert isinstance(level, SlotLevel)

        assert (1_000, True) == (
            level.less(2_000, at(NOON)).available_milli(at(NOON)),
            level.less(0, at(NOON)) is level,
        )
        assert ("slots", SLOTS) == (level.name, level.limit)

    def test_wait_for_more_than_all_slots_in_use_is_until_the_last_cohort_ends(self) -> None:
        """A lowered capacity may have negative free slots."""
        level = SlotLevel(LimitShare.of(SLOTS), -2_000, ((NOON // 1000 + 5, 1_000),))

        assert (5_000, 0) == (level.wait_ms(1_000, at(NOON)), level.wait_ms(0, at(NOON)))


def test_random_views_never_take_a_slot_twice() -> None:
    """Clients with old views race for the last slots. The table decides."""
    random = Random(3)
    item, taken = created(TERMS), 0
    views: list[BucketView] = [view(item)] * 3
    for _ in range(60):
        who = random.randrange(3)
        chosen = next_step(views[who], TERMS, [(1, 1_000)], at(NOON), Progress(trust_ms=1000, effort=Effort(sure=True)))
        if isinstance(chosen, MixedTake):
            found = apply(bucket_writes.take(views[who], chosen, random.getrandbits(60)), item)
            taken += not isinstance(found, Refused)
            item = item if isinstance(found, Refused) else dict(found.new)  # type: ignore[union-attr]  # a table answers with an item
        views[who] = view(item)

    assert (4, 0) == (taken, item["b_slots_tk"])
