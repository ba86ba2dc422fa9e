"""Quotas and soft limits: what takes and settlements do to an item, and what a lease remembers of them."""

from typing import Any

import pytest

from tests.one_bucket import NOON, Client, after, apply, at, created, step, stored, view
from tests.quota_buckets import (
    AT_RPM,
    AT_SOFT,
    AT_SPEND,
    AT_TRIAL,
    DAY_S,
    MOST_SPENT,
    RPM,
    SPEND,
    TERMS,
    TODAY_EPOCH,
    TOMORROW,
    TOMORROW_EPOCH,
    TOMORROW_S,
    numbers,
    qk,
    settled,
    tokens,
)
from zae_limiter.core.acquire import LOOK, MixedTake, Progress, Reject, is_known_short, taken_by_step
from zae_limiter.core.bucket import TimeBounds
from zae_limiter.core.bucket_changes import Settlement, settle
from zae_limiter.core.limit import Limit
from zae_limiter.core.multi_shard import if_covered
from zae_limiter.core.outcome import Applied, Refused
from zae_limiter.core.top_up import Known, top_up
from zae_limiter.core.top_up import created as creation_of
from zae_limiter.core.tracked import (
    AdmittedMixed,
    EpochCharge,
    Refund,
    Taken,
    changes_of,
    charges_left,
    divided_charges,
    proven,
    refunds_of,
    summed_refunds,
    taken_at_creation,
    with_charges,
)
from zae_limiter.core.view import Admitted, Pace
from zae_limiter.schema import bucket_writes


def client_of(spent: dict[str, int], now_ms: int = NOON) -> Client:
    """Return a client that has just read a bucket with this much taken from it at NOON."""
    client = Client(TERMS, created(TERMS, spent))
    client.look(at(now_ms))
    return client


class TestTake:
    """Takes from quotas and soft limits."""

    def test_quota_that_has_enough_is_charged_to_its_period(self) -> None:
        """What is spent is counted down from the number of the period."""
        client = client_of({"spend": 40})

        assert [] == client.request({"spend": 60}, at(NOON))
        assert (qk(TODAY_EPOCH, 100), 100_000) == numbers(client.item)

    def test_quota_that_has_too_little_rejects_until_its_next_period(self) -> None:
        """Nothing is refilled before the edge, which is 6,400 s after NOON."""
        client = client_of({"spend": 95})
        (spend,) = [one for one in client.request({"spend": 6}, at(NOON)) if one.exceeded]

        assert ("spend", 5, 6_400.0, TOMORROW_S) == (
            spend.limit_name,
            spend.available,
            spend.retry_after_seconds,
            spend.resets_at,
        )

    def test_quota_at_its_edge_is_full_and_loses_what_was_left(self) -> None:
        """The first take of a period begins it, with no write before."""
        client = client_of({"spend": 40}, TOMORROW)

        assert [] == client.request({"spend": 100}, at(TOMORROW))
        assert qk(TOMORROW_EPOCH, 100) == numbers(client.item)[0]
        assert client.request({"spend": 1}, at(TOMORROW))

    def test_quota_whose_edge_may_have_come_does_not_reject_by_a_view(self) -> None:
        """Another client may know that the period has begun."""
        seen = view(created(TERMS, {"spend": 100}), TOMORROW - 1)
        before, around = (TOMORROW - 1_001, TOMORROW - 1_001), (TOMORROW - 1, TOMORROW + 1)

        assert LOOK == step(seen, TERMS, {"spend": 1}, around)
        assert not is_known_short(seen, TERMS, [(AT_SPEND, 1_000)], around, 1_000)
        assert Reject(around) == step(seen, TERMS, {"spend": 1}, around, Progress(trust_ms=1000, looked=True))
        seen.seen_ms = before[0]
        assert Reject(before) == step(seen, TERMS, {"spend": 1}, before)
        assert is_known_short(seen, TERMS, [(AT_SPEND, 1_000)], before, 1_000)

    def test_quota_whose_period_others_may_have_begun_is_read_first(self) -> None:
        """A read is cheaper than a write that is refused."""
        seen = view(created(TERMS, {"spend": 40}), TOMORROW)
        seen.pace = Pace((0.0, 0.0, 9_000.0, 0.0), 9.0, 1_000.0)

        assert LOOK == step(seen, TERMS, {"spend": 1}, at(TOMORROW))
        assert isinstance(step(seen, TERMS, {"spend": 1}, at(TOMORROW), Progress(1000).after_look()), MixedTake)

    def test_soft_quota_that_has_too_little_is_charged_anyway(self) -> None:
        """It counts, and never rejects."""
        client = client_of({"trial": 4})

        assert [] == client.request({"trial": 25}, at(NOON))
        assert (qk(TODAY_EPOCH, 29), 29_000) == numbers(client.item, "trial")

    def test_soft_limit_that_has_the_tokens_is_charged(self) -> None:
        """It shows what is left, like any other limit."""
        client = client_of({"soft": 3})

        assert [] == client.request({"soft": 7}, at(NOON))
        assert (0, 10_000) == tokens(client.item)

    def test_soft_limit_that_lacks_the_tokens_only_counts(self) -> None:
        """Its balance stays, so that it shows the use above the rate by its total."""
        client = client_of({"soft": 3})

        assert [] == client.request({"soft": 8}, at(NOON))
        assert (7_000, 11_000) == tokens(client.item)

    def test_soft_limit_that_overflows_is_charged_from_full(self) -> None:
        """Six seconds earn 1 token, but the limit was full: 4 of 10 are taken, so 6 are left then."""
        client = client_of({}, NOON + 6_000)

        assert [] == client.request({"soft": 4}, at(NOON + 6_000))
        assert (5_000, 4_000) == tokens(client.item)

    def test_request_that_lacks_other_tokens_takes_nothing_of_a_soft_limit(self) -> None:
        """A rejected request was no use."""
        client = client_of({"rpm": 100})

        assert client.request({"rpm": 1, "soft": 1, "trial": 1}, at(NOON))
        assert (10_000, 0) == tokens(client.item)

    def test_take_reports_its_charges_by_epoch_and_omits_what_was_only_counted(self) -> None:
        """The epoch of a soft rate limit is 0."""
        seen = view(created(TERMS, {"soft": 10}))
        taken = step(seen, TERMS, {"rpm": 1, "soft": 2, "spend": 3, "trial": 40}, at(NOON))
        charged = step(view(created(TERMS)), TERMS, {"soft": 2}, at(NOON))
        assert isinstance(taken, MixedTake)
        assert isinstance(charged, MixedTake)

        both = EpochCharge(0, "spend", TODAY_EPOCH, 3_000), EpochCharge(0, "trial", TODAY_EPOCH, 40_000)
        assert Taken((), both) == taken_by_step(seen, taken)
        assert Taken((), (EpochCharge(0, "soft", 0, 2_000),)) == taken_by_step(seen, charged)

    def test_takes_in_flight_change_balances_by_what_they_add_or_set(self) -> None:
        """A period that begins moves the number by the distance of both bands too."""
        seen = view(created(TERMS, {"spend": 40}), TOMORROW)
        amounts = {"soft": 2, "spend": 5}
        taken = step(seen, TERMS, amounts, at(TOMORROW), Progress(1000).after_look())
        assert isinstance(taken, MixedTake)

        # 6,400 s after NOON a limit of 10 per minute is full: its balance plus what was earned is above 10.
        offered = TOMORROW * 10_000 // 60_000 - NOON * 10_000 // 60_000
        moved = -(10**18) * 2 * DAY_S - 5 + 40
        assert [(AT_SOFT, -offered - 2_000), (AT_SPEND, moved)] == changes_of(seen, taken.tracked)

    @pytest.mark.parametrize(("amount", "found"), [(30, (qk(TODAY_EPOCH, 100), 100_000)), (31, None)])
    def test_quota_is_taken_from_by_the_write_that_returns_withheld_tokens(
        self, amount: int, found: tuple[int, int] | None
    ) -> None:
        """Of a rate, 20 of 50 are left and 20 were withheld in 400 ms. A quota had nothing withheld."""
        terms = stored(Limit("rps", 50, 50, 1), SPEND)
        item = created(terms, {"rps": 30, "spend": 70}, NOON + 900)
        seen = view(item, NOON + 900)
        creation = creation_of(seen, (NOON, NOON + 900), 0)
        assert creation is not None
        topping = top_up(creation, seen, terms, [(0, 40_000), (1, amount * 1000)], Known(at(NOON + 400), NOON, 400))

        assert found == (topping and numbers(after(bucket_writes.top_up(seen, topping, 1), item)))
        assert topping is None or [20_000, 0] == topping.returned


class TestCreation:
    """Buckets that a take creates."""

    def test_creation_of_a_bucket_with_enforced_rate_limits_charges_nothing_that_is_remembered(self) -> None:
        """Such a lease needs no memory."""
        assert taken_at_creation([RPM], [(0, 1_000)], NOON) is None

    def test_creation_charges_quotas_and_soft_limits_that_have_the_tokens(self) -> None:
        """A soft limit that lacks them only counts, and a request of 0 charges nothing."""
        amounts = [(AT_RPM, 1_000), (AT_SOFT, 11_000), (AT_SPEND, 7_000), (AT_TRIAL, 0)]
        spend, soft = EpochCharge(0, "spend", TODAY_EPOCH, 7_000), EpochCharge(0, "soft", 0, 10_000)

        assert Taken((), (spend,)) == taken_at_creation(TERMS.limits, amounts, NOON)
        assert Taken((), (soft,)) == taken_at_creation(TERMS.limits, [(AT_SOFT, 10_000)], NOON)

    def test_created_bucket_has_the_balances_of_what_it_charged(self) -> None:
        """The totals have all of the use."""
        item = created(TERMS, {"soft": 11, "spend": 7, "trial": 40})

        assert (10_000, 11_000) == tokens(item)
        assert (qk(TODAY_EPOCH, 7), 7_000) == numbers(item)
        assert (qk(TODAY_EPOCH, 40), 40_000) == numbers(item, "trial")

    def test_bucket_that_is_created_near_an_edge_starts_in_the_later_period(self) -> None:
        """A bucket that was created at the latest time earns nothing twice."""
        amounts = [(AT_SPEND, 7_000)]

        assert Taken((), (EpochCharge(0, "spend", TOMORROW_EPOCH, 7_000),)) == taken_at_creation(
            TERMS.limits, amounts, TOMORROW
        )

    def test_result_of_a_creation_has_its_birth_and_charges(self) -> None:
        """A refund reaches only the bucket that was charged."""
        charge = EpochCharge(0, "spend", TODAY_EPOCH, 7_000)

        assert AdmittedMixed(TERMS, 3, (), (charge,)) == Taken((), (charge,)).admitted(TERMS, 3)


class TestSettle:
    """Debits and refunds."""

    def refund(self, amount: int, epoch: int = TODAY_EPOCH, name: str = "spend") -> Refund:
        return Refund(name, epoch, amount * 1000, amount * 1000)

    def test_debit_of_a_quota_may_leave_a_debt(self) -> None:
        """What was used was used."""
        assert (qk(TODAY_EPOCH, 120), 120_000) == numbers(settled(created(TERMS, {"spend": 40}), {"spend": 80}))

    def test_debit_after_the_edge_is_charged_to_the_new_period(self) -> None:
        """It is written at that time."""
        item = settled(created(TERMS, {"spend": 40}), {"spend": 30}, now_ms=TOMORROW)

        assert (qk(TOMORROW_EPOCH, 30), 70_000) == numbers(item)

    def test_refund_to_the_current_epoch_raises_the_balance(self) -> None:
        """It takes the use off the count."""
        item = settled(created(TERMS, {"spend": 40}), {}, (self.refund(10),))

        assert (qk(TODAY_EPOCH, 30), 30_000) == numbers(item)

    def test_refund_to_an_ended_epoch_is_only_taken_off_the_count(self) -> None:
        """The amount of a period that has ended is lost."""
        item = settled(created(TERMS, {"spend": 40}), {}, (self.refund(10, TODAY_EPOCH - 2 * DAY_S),))

        assert (qk(TODAY_EPOCH, 40), 30_000) == numbers(item)

    @pytest.mark.parametrize(("now_ms", "epoch", "spent"), [(NOON, TODAY_EPOCH, 60), (TOMORROW, TOMORROW_EPOCH, 30)])
    def test_debit_and_refund_together_are_one_change_of_the_epoch_of_the_debit(
        self, now_ms: int, epoch: int, spent: int
    ) -> None:
        """After the edge, only the debit is charged."""
        item = settled(created(TERMS, {"spend": 40}), {"spend": 30}, (self.refund(10),), now_ms)

        assert (qk(epoch, spent), 60_000) == numbers(item)

    def test_refund_to_a_saturated_quota_gives_nothing_back(self) -> None:
        """It has lost count."""
        item = {**created(TERMS, {"spend": 40}), "b_spend_qk": qk(TODAY_EPOCH, MOST_SPENT)}
        found = settled(item, {"spend": 30}, (self.refund(10),))

        assert (qk(TODAY_EPOCH, MOST_SPENT), 60_000) == numbers(found)

    def test_refund_of_a_soft_limit_raises_its_balance_by_what_was_charged(self) -> None:
        """Of 9 that were counted 6 were charged, and 2 more are owed."""
        item = settled(created(TERMS, {"soft": 10}), {"soft": 2}, (Refund("soft", 0, 6_000, 9_000),))

        assert (4_000, 3_000) == tokens(item)

    def test_refund_of_a_soft_limit_leaves_out_what_a_quota_of_its_name_was_charged(self) -> None:
        """The limit had another kind at the time of the take."""
        item = settled(created(TERMS, {"soft": 10}), {}, (self.refund(6, name="soft"),))

        assert (0, 4_000) == tokens(item)

    def test_debit_of_a_soft_limit_leaves_a_debt_of_at_most_one_capacity(self) -> None:
        """Otherwise one large use would show a limit as empty for hours."""
        owing = settled(created(TERMS, {"soft": 10}), {"soft": 25})

        assert (-10_000, 35_000) == tokens(owing)
        assert (-10_000, 40_000) == tokens(settled(owing, {"soft": 5}))

    def test_debit_of_a_soft_limit_that_overflows_is_charged_from_full(self) -> None:
        """An overflow pays no debt: 6 of 10 are left at 60 s, when 10 were earned."""
        item = settled(created(TERMS), {"soft": 4}, now_ms=NOON + 60_000)

        assert (-4_000, 4_000) == tokens(item)

    def test_debit_of_a_soft_limit_that_a_refund_pays_in_part_charges_the_rest(self) -> None:
        """Of 4, a refund pays 1. One that pays all of it leaves even an overflow as it is."""
        refund = Refund("soft", 0, 1_000, 1_000)

        assert (7_000, 3_000) == tokens(settled(created(TERMS), {"soft": 4}, (refund,)))
        assert (10_000, 0) == tokens(settled(created(TERMS), {"soft": 1}, (refund,), NOON + 60_000))

    def test_debit_that_one_shard_must_cover_is_refused_once_its_quota_lacks_it(self) -> None:
        """All shards are charged then."""
        item = created(TERMS, {"spend": 40})
        seen = view(item)
        settling = if_covered(seen, settle(seen, Settlement((("spend", 30_000),)), at(NOON), 0), NOON)
        write = bucket_writes.settle(seen, settling, 5)

        assert isinstance(apply(write, {**item, "b_spend_qk": qk(TODAY_EPOCH, 70)}), Applied)
        assert isinstance(apply(write, {**item, "b_spend_qk": qk(TODAY_EPOCH, 71)}), Refused)

    @pytest.mark.parametrize(("name", "debt"), [("spend", 61), ("soft", 11)])
    def test_debit_that_a_shard_never_covers_is_charged_anyway(self, name: str, debt: int) -> None:
        """A quota that had too little when it was seen stays in debt, and a soft limit is not asked."""
        seen = view(created(TERMS, {"spend": 40}))
        settling = settle(seen, Settlement(((name, debt * 1000),)), at(NOON), 0)

        assert settling.parts == if_covered(seen, settling, NOON).parts


class TestTimeBounds:
    """Writes at a time that is known roughly: each bound is used on its strict side."""

    def after_take(self, item: dict[str, Any], soft: int, now: TimeBounds, balance: int) -> object:
        """Return the stored numbers after a soft take that was decided by a view; None if the table refuses it."""
        chosen = step(view(item, now[1]), TERMS, {"soft": soft}, now)
        assert isinstance(chosen, MixedTake)
        found = apply(bucket_writes.take(view(item, now[1]), chosen, 5), {**item, "b_soft_tk": balance})
        return tokens(found.new) if isinstance(found, Applied) else None

    @pytest.mark.parametrize(("soft", "found"), [(4, (-1_000, 11_000)), (5, (3_000, 12_000))])
    def test_soft_limit_is_charged_if_it_has_the_tokens_at_the_earliest_time(
        self, soft: int, found: tuple[int, int]
    ) -> None:
        """Of 3 and what 6 s to 18 s have earned, only 4 are certain."""
        item = created(TERMS, {"soft": 7})

        assert found == self.after_take(item, soft, (NOON + 6_000, NOON + 18_000), 3_000)
        assert self.after_take(item, 4, (NOON + 6_000, NOON + 18_000), 2_999) is None

    def test_soft_limit_that_may_overflow_at_the_latest_time_is_set(self) -> None:
        """It may have earned 1 of the 10 that are full, which must not pay for the take."""
        assert (5_000, 4_000) == self.after_take(created(TERMS), 4, (NOON, NOON + 6_000), 10_000)

    @pytest.mark.parametrize(("balance", "found"), [(3_000, (-4_000, 4_000)), (2_999, None)])
    def test_soft_limit_that_is_set_must_have_the_tokens_at_the_earliest_time(
        self, balance: int, found: tuple[int, int] | None
    ) -> None:
        """Six seconds have surely earned 1 of 4 tokens, and 60 s may have filled it."""
        assert found == self.after_take(created(TERMS), 4, (NOON + 6_000, NOON + 60_000), balance)

    def test_soft_limit_that_is_just_full_is_added_to(self) -> None:
        """So a take of another client in between does not refuse the write."""
        assert (5_000, 4_000) == self.after_take(created(TERMS), 4, at(NOON), 9_000)

    @pytest.mark.parametrize(
        ("now", "proof"),
        [
            ((NOON + 3, NOON + 7), (NOON + 3, NOON + 7)),
            ((TOMORROW + 3, TOMORROW + 7), (TOMORROW + 3, TOMORROW + 7)),
        ],
    )
    def test_number_of_a_past_period_proves_no_time(self, now: TimeBounds, proof: TimeBounds) -> None:
        """Only a later edge does."""
        assert proof == proven([view(created(TERMS))], now)

    @pytest.mark.parametrize("late_ms", [NOON + 7, TOMORROW + 2_007])
    def test_number_of_a_later_period_proves_that_its_edge_has_come(self, late_ms: int) -> None:
        """The latest time is then no earlier than that. A bucket without quotas proves nothing."""
        seen = view({**created(TERMS), "b_spend_qk": qk(TOMORROW_EPOCH, 3)})

        assert (TOMORROW, max(TOMORROW, late_ms)) == proven([view(created(TERMS)), seen], (NOON, late_ms))
        assert (NOON, late_ms) == proven([view(created(stored(RPM)))], (NOON, late_ms))

    def test_debit_near_an_edge_is_charged_to_the_period_of_the_earliest_time(self) -> None:
        """The new one may not have begun."""
        item, now = created(TERMS, {"spend": 40}), (TOMORROW - 1_000, TOMORROW + 1_000)
        seen = view(item, now[1])
        parts = settle(seen, Settlement((("spend", 30_000),)), now, 0)

        assert qk(TODAY_EPOCH, 70) == numbers(after(bucket_writes.settle(seen, parts, 5), item))[0]

    @pytest.mark.parametrize(("balance", "found"), [(0, (-11_000, 35_000)), (-1, None)])
    def test_debit_of_a_soft_limit_counts_what_it_has_surely_earned(
        self, balance: int, found: tuple[int, int] | None
    ) -> None:
        """Of 25, it is charged the 1 that it has at the earliest time, and a debt of 10."""
        item, now = created(TERMS, {"soft": 10}), (NOON + 6_000, NOON + 12_000)
        seen = view(item, now[1])
        parts = settle(seen, Settlement((("soft", 25_000),)), now, 0)
        answer = apply(bucket_writes.settle(seen, parts, 5), {**item, "b_soft_tk": balance})

        assert found == (tokens(answer.new) if isinstance(answer, Applied) else None)

    @pytest.mark.parametrize(("balance", "found"), [(10_000, (6_000, 3_000)), (9_001, (6_000, 3_000)), (9_000, None)])
    def test_debit_of_a_soft_limit_that_may_overflow_at_the_latest_time_is_set(
        self, balance: int, found: tuple[int, int] | None
    ) -> None:
        """Six seconds may have earned 1. Of a debit of 4, a refund pays 1."""
        item, now = created(TERMS), (NOON, NOON + 6_000)
        seen = view(item, now[1])
        owed = Settlement((("soft", 4_000),), refunds=(Refund("soft", 0, 1_000, 1_000),))
        answer = apply(bucket_writes.settle(seen, settle(seen, owed, now, 0), 5), {**item, "b_soft_tk": balance})

        assert found == (tokens(answer.new) if isinstance(answer, Applied) else None)


class TestMemory:
    """What a lease remembers of its charges."""

    OLD = EpochCharge(0, "spend", TODAY_EPOCH, 5_000)
    NEW = EpochCharge(1, "spend", TOMORROW_EPOCH, 3_000)
    SOFT = EpochCharge(1, "soft", 0, 2_000)

    def test_charges_of_a_group_are_divided_among_its_requests(self) -> None:
        """Each request gets back what it was charged, in order, and what was only counted is charged to none."""
        charges = [self.OLD, self.NEW, self.SOFT]

        assert [
            (self.OLD._replace(milli=4_000),),
            (self.OLD._replace(milli=1_000), self.NEW._replace(milli=2_000), self.SOFT),
            (self.NEW._replace(milli=1_000),),
            (),
        ] == divided_charges(charges, [{"spend": 4}, {"spend": 3, "soft": 3}, {"spend": 1, "soft": 1}, {"rpm": 1}])

    def test_later_take_adds_its_charges_to_those_of_the_lease(self) -> None:
        """A lease may take more than once."""
        before, later = AdmittedMixed(TERMS, 1, (), (self.OLD,)), AdmittedMixed(TERMS, 1, (), (self.NEW,))

        assert AdmittedMixed(TERMS, 1, (), (self.OLD, self.NEW)) == with_charges(before, later)
        assert before is with_charges(before, Admitted(TERMS, 1))

    @pytest.mark.parametrize(("birth", "kept"), [(None, 7), (4, 4)])
    def test_first_take_with_charges_keeps_the_birth_that_is_known(self, birth: int | None, kept: int) -> None:
        """A lease that took nothing before knows no bucket yet."""
        later = AdmittedMixed(TERMS, 7, (), (self.NEW,))

        assert AdmittedMixed(TERMS, kept, (), (self.NEW,)) == with_charges(Admitted(TERMS, birth), later)

    def test_charges_left_after_a_refund_are_those_of_the_oldest_epochs(self) -> None:
        """The newest epoch gets its amount back first, because an older one may have ended."""
        charges = (self.OLD, self.NEW, self.SOFT)

        assert (self.OLD._replace(milli=4_000), self.SOFT) == charges_left(charges, {"spend": 4})

    def test_refunds_go_to_the_shards_that_were_charged(self) -> None:
        """What exceeds the charges was only counted, so it is taken off the count of the newest shard."""
        charges = (self.OLD, self.NEW, self.SOFT)

        assert {
            1: (
                Refund("spend", TOMORROW_EPOCH, 3_000, 3_000),
                Refund("soft", 0, 2_000, 2_000),
                Refund("soft", 0, 0, 4_000),
            ),
            0: (Refund("spend", TODAY_EPOCH, 1_000, 1_000),),
        } == refunds_of(charges, ["spend", "soft", "trial"], {"spend": 4, "soft": 6})

    def test_refund_of_what_was_only_counted_goes_to_the_first_shard(self) -> None:
        """No shard was charged."""
        assert {0: (Refund("soft", 0, 0, 4_000),)} == refunds_of((), ["soft"], {"soft": 4})

    def test_refunds_of_one_epoch_are_one(self) -> None:
        """They are one change of a balance."""
        one, other = Refund("spend", TODAY_EPOCH, 1_000, 2_000), Refund("spend", TOMORROW_EPOCH, 5_000, 5_000)

        assert (Refund("spend", TODAY_EPOCH, 2_000, 4_000), other) == summed_refunds([one, other, one])
