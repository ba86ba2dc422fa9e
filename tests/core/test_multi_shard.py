"""Several shards taken as one bucket: their sum, and how a request or a debit is divided among them."""

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.many_shards import Items, applied, grown, have, level, looks, shaken, total
from tests.one_bucket import NOON, apply, at, stored, without_birth
from zae_limiter.core.acquire import GUESSES
from zae_limiter.core.add_or_set import Add, Reset
from zae_limiter.core.bucket import TimeBounds
from zae_limiter.core.bucket_changes import Settlement, Settling
from zae_limiter.core.limit import Limit
from zae_limiter.core.multi_shard import (
    combined,
    credit_across,
    debit_across,
    due_across,
    has_no_room,
    if_covered,
    lacks,
    share_out,
    take_across,
)
from zae_limiter.core.outcome import Applied, Refused
from zae_limiter.core.view import Pace, View
from zae_limiter.schema import bucket_writes
from zae_limiter.schema.bucket_item import StoredLayout

RPM = Limit("rpm", 7, 11, 13)
TPM = Limit("tpm", 90, 1, 7)
TERMS = stored(RPM, TPM)
NAMES = ("rpm", "tpm")

orders = st.lists(st.integers(0, 63), max_size=7)
seeds = st.integers(0, 2**32)
later = st.integers(-1_000, 60_000)
capacities = {"rpm": 7_000, "tpm": 90_000}
wants = st.tuples(st.integers(0, 7_000), st.integers(0, 90_000))


def some_shards(order: list[int], seed: int) -> Items:
    """Return a bucket of shards with random balances."""
    return shaken(grown(TERMS, order), NAMES, seed)


def with_rpm(*balances: int) -> Items:
    """Return two shards with these balances of a limit of which each holds 3,500."""
    return {
        shard: {**item, "b_rpm_tk": tk} for (shard, item), tk in zip(grown(TERMS, [0]).items(), balances, strict=True)
    }


def taken_across(items: Items, milli: Mapping[str, int], now: TimeBounds, refusals: int = 0) -> Items | None:
    """Return the shards after a request was taken from several of them, None if it was not."""
    views = looks(items, now[1], TERMS)
    amounts = [(TERMS.positions[name], wanted) for name, wanted in milli.items()]
    written = take_across(views, amounts, now, refusals)
    if written is None:
        return None
    takes = {shard: bucket_writes.take(views[shard], taking, 1) for shard, taking in written.items()}
    return {**items, **{shard: applied(write, items[shard]) for shard, write in takes.items()}}


class TestCombined:
    """One limit of all shards together."""

    @given(order=orders, seed=seeds, gap=later)
    def test_available_of_combined_shards_is_exactly_what_can_be_taken(
        self, order: list[int], seed: int, gap: int
    ) -> None:
        """A shard in debt does not reduce the others."""
        items, now = some_shards(order, seed), at(NOON + gap)
        for total_level in combined(list(looks(items).values()), TERMS, now):
            levels = [level(item, total_level.name, now[0]) for item in items.values()]

            if max(levels) < 0:
                assert sum(levels) == total_level.available_milli(now)
            else:
                assert have(items, total_level.name, now[0]) == total_level.available_milli(now)

    @given(order=orders, seed=seeds, gap=later, wants=wants)
    def test_wait_of_combined_shards_ends_at_the_first_admitting_millisecond(
        self, order: list[int], seed: int, gap: int, wants: tuple[int, int]
    ) -> None:
        """A millisecond earlier the request is not taken."""
        items, now = some_shards(order, seed), at(NOON + gap)
        for total_level, wanted in zip(combined(list(looks(items).values()), TERMS, now), wants, strict=True):
            wait_ms = total_level.wait_ms(wanted, now)

            assert taken_across(items, {total_level.name: wanted}, at(now[0] + wait_ms)) is not None
            assert not wait_ms or taken_across(items, {total_level.name: wanted}, at(now[0] + wait_ms - 1)) is None

    def test_wait_of_combined_shards_is_zero_for_exactly_the_available_amount(self) -> None:
        """One millitoken more has a wait."""
        total_level = combined(list(looks(with_rpm(1_500, 700)).values()), TERMS, at(NOON))[0]

        assert 2_200 == total_level.available_milli(at(NOON))
        assert 0 == total_level.wait_ms(2_200, at(NOON))
        assert total_level.wait_ms(2_201, at(NOON)) > 0

    @given(order=orders, seed=seeds, gap=later, wanted=st.integers(0, 7_000), wide_ms=st.integers(0, 3_000))
    def test_wait_of_combined_shards_at_an_uncertain_time_starts_at_the_early_bound(
        self, order: list[int], seed: int, gap: int, wanted: int, wide_ms: int
    ) -> None:
        """Tokens that may not have been refilled yet are waited for."""
        total_level = combined(list(looks(some_shards(order, seed)).values()), TERMS, at(NOON + gap))[0]

        assert total_level.wait_ms(wanted, at(NOON + gap)) == total_level.wait_ms(
            wanted, (NOON + gap, NOON + gap + wide_ms)
        )

    @pytest.mark.parametrize(("balances", "available"), [((0, -1_000), 0), ((1, 1), 2), ((-1, -2), -3)])
    def test_shard_in_debt_does_not_reduce_the_available_tokens_of_others(
        self, balances: tuple[int, int], available: int
    ) -> None:
        """This holds to the millitoken; if all are in debt, the debts add up."""
        total_level = combined(list(looks(with_rpm(*balances)).values()), TERMS, at(NOON))[0]

        assert available == total_level.available_milli(at(NOON))

    def test_less_of_combined_shards_takes_from_the_fullest_shard_first(self) -> None:
        """A request is divided in the same way."""
        total_level = combined(list(looks(with_rpm(1_000, 3_000)).values()), TERMS, at(NOON))[0]
        left = total_level.less(2_000, at(NOON))

        assert [1_000, 1_000] == [part.available_milli(at(NOON)) for part in left.parts]

    def test_combined_shards_on_other_limits_have_the_levels_after_a_rebase(self) -> None:
        """Each is cut to its share of the lower capacity, and a new limit is full."""
        lower = stored(Limit("rpm", 3, 11, 13), Limit("new", 5, 1, 1), stamp=2)
        total_levels = combined(list(looks(with_rpm(3_500, 100)).values()), lower, at(NOON))

        assert [("new", 5_000), ("rpm", 1_600)] == [(one.name, one.available_milli(at(NOON))) for one in total_levels]

    def test_combined_shards_have_the_name_and_the_undivided_limit(self) -> None:
        """The limit is not divided by the shard count."""
        total_levels = combined(list(looks(grown(TERMS, [0, 1])).values()), TERMS, at(NOON))

        assert [("rpm", RPM), ("tpm", TPM)] == [(total_level.name, total_level.limit) for total_level in total_levels]

    def test_zero_tokens_of_combined_shards_in_debt_need_no_wait(self) -> None:
        """The rule is the same for one shard."""
        items = {shard: {**item, "b_rpm_tk": -1_000} for shard, item in grown(TERMS, [0]).items()}
        total_level = combined(list(looks(items).values()), TERMS, at(NOON))[0]

        assert -2_000 == total_level.available_milli(at(NOON))
        assert (True, 0) == (total_level.wait_ms(1, at(NOON)) > 0, total_level.wait_ms(0, at(NOON)))


class TestTake:
    """A request taken from several shards."""

    @given(order=orders, seed=seeds, gap=later, wants=wants)
    def test_request_is_divided_exactly_if_all_shards_together_have_the_tokens(
        self, order: list[int], seed: int, gap: int, wants: tuple[int, int]
    ) -> None:
        """This holds for every limit."""
        items, now = some_shards(order, seed), at(NOON + gap)
        milli = dict(zip(NAMES, wants, strict=True))
        shares = share_out(looks(items), [(TERMS.positions[name], wanted) for name, wanted in milli.items()], now)

        assert all(have(items, name, now[0]) >= wanted for name, wanted in milli.items() if wanted) == (
            shares is not None
        )
        if shares is not None:
            for position, wanted in enumerate(wants):
                given = [part for parts in shares.values() for one, part in parts if one == position]
                assert wanted == sum(given)
                assert min(given, default=1) > 0

    @given(order=orders, seed=seeds, gap=later, wants=wants, wide_ms=st.integers(0, 3_000))
    def test_shards_lose_together_exactly_what_was_taken(
        self, order: list[int], seed: int, gap: int, wants: tuple[int, int], wide_ms: int
    ) -> None:
        """No shard drops below zero at the early bound, or gains at the late one."""
        items, now = some_shards(order, seed), (NOON + gap, NOON + gap + wide_ms)
        taken = taken_across(items, dict(zip(NAMES, wants, strict=True)), now)
        if taken is not None:
            for name, wanted in zip(NAMES, wants, strict=True):
                before = sum(level(item, name, now[1]) for item in items.values())
                after = sum(level(item, name, now[1]) for item in taken.values())
                totals = [sum(item[f"b_{name}_tc"] for item in one.values()) for one in (items, taken)]

                assert after <= before - wanted
                assert after == before - wanted or wide_ms
                assert wanted == totals[1] - totals[0]

    @given(order=orders, seed=seeds, part=st.integers(1, 1_000))
    def test_evenly_divided_request_takes_the_same_part_of_every_shard(
        self, order: list[int], seed: int, part: int
    ) -> None:
        """Each shard keeps a part of its tokens for concurrent requests."""
        items = some_shards(order, seed)
        wanted = have(items, "tpm", NOON) * part // 1_000
        shares = share_out(looks(items), [(1, wanted)], at(NOON), evenly=True)
        if wanted:
            assert shares is not None
            given = {shard: parts[0][1] for shard, parts in shares.items()}
            assert wanted == sum(given.values())
            for shard, item in items.items():
                assert given.get(shard, 0) <= max(0, level(item, "tpm", NOON)) * part / 1_000 + 1

    @given(order=orders, seed=seeds, wanted=st.integers(1, 90_000))
    def test_request_is_taken_from_as_few_shards_as_possible(self, order: list[int], seed: int, wanted: int) -> None:
        """Each write of a transaction has a cost."""
        items = some_shards(order, seed)
        shares = share_out(looks(items), [(1, wanted)], at(NOON))
        if shares is not None:
            levels = sorted((level(item, "tpm", NOON) for item in items.values()), reverse=True)

            assert sum(levels[: len(shares) - 1]) < wanted

    @pytest.mark.parametrize(("refusals", "shares"), [(0, {1: 1_000}), (1, {0: 250, 1: 750})])
    def test_refused_request_is_divided_evenly_among_the_shards(self, refusals: int, shares: dict[int, int]) -> None:
        """An emptied shard leaves nothing for concurrent requests."""
        written = take_across(looks(with_rpm(1_000, 3_000)), [(0, 1_000)], at(NOON), refusals)

        assert written is not None
        assert shares == {shard: taking.bounds[0][1] for shard, taking in written.items()}

    @pytest.mark.parametrize(("refusals", "least"), [(GUESSES - 1, 3_500), (GUESSES, 2_250)])
    def test_often_refused_request_discards_half_of_the_rest_and_never_all(self, refusals: int, least: int) -> None:
        """It is accepted from halfway between the amount and full; before, only from full."""
        views = looks(with_rpm(4_000, -9_000))
        written = take_across(views, [(0, 1_000)], at(NOON), refusals)
        assert written is not None
        write = bucket_writes.take(views[0], written[0], 1)

        assert least - 1_000 == applied(write, with_rpm(least, 0)[0])["b_rpm_tk"]
        assert isinstance(apply(write, with_rpm(least - 1, 0)[0]), Refused)

    @given(order=orders, seed=seeds, wants=wants, refusals=st.integers(0, 8))
    def test_take_from_several_shards_under_load_creates_no_tokens(
        self, order: list[int], seed: int, wants: tuple[int, int], refusals: int
    ) -> None:
        """It may discard tokens to avoid a refusal."""
        items, now = some_shards(order, seed), at(NOON + 500)
        views = looks(items, NOON, TERMS)
        for seen in views.values():
            seen.pace = Pace((400.0, 900.0), 3.0, 500.0)
        written = take_across(views, list(enumerate(wants)), now, refusals)
        for shard, taking in (written or {}).items():
            after = applied(bucket_writes.take(views[shard], taking, 1), items[shard])
            for position, taken, *_ in taking.bounds:
                name = NAMES[position]
                assert 0 <= level(after, name, now[0]) <= level(items[shard], name, now[0]) - taken


class TestDebit:
    """A debit divided among all shards."""

    @given(order=orders, seed=seeds, gap=later, debt=st.integers(0, 200_000))
    def test_debit_of_shards_is_charged_in_full(self, order: list[int], seed: int, gap: int, debt: int) -> None:
        """To the millitoken, into debt if needed; overflow does not offset it."""
        items, now = some_shards(order, seed), at(NOON + gap)
        charged = self.charged(items, {"rpm": debt}, now)

        assert total(_cut(items, now[0]), "rpm", now[0]) - debt == total(_cut(charged, now[0]), "rpm", now[0])
        assert debt == sum(charged[shard]["b_rpm_tc"] - items[shard]["b_rpm_tc"] for shard in items)
        assert total(items, "tpm", now[0]) == total(charged, "tpm", now[0])

    @given(order=orders, seed=seeds, gap=later, part=st.integers(0, 100))
    def test_debit_puts_no_shard_into_debt_while_others_have_tokens(
        self, order: list[int], seed: int, gap: int, part: int
    ) -> None:
        """If all together have the amount, no shard gets into debt."""
        items, now = some_shards(order, seed), at(NOON + gap)
        debt = have(items, "tpm", now[0]) * part // 100
        charged = self.charged(items, {"tpm": debt}, now)

        assert have(items, "tpm", now[0]) - debt == have(charged, "tpm", now[0])
        for shard, item in charged.items():
            assert level(item, "tpm", now[0]) >= min(0, level(items[shard], "tpm", now[0]))

    @given(order=orders, debt=st.integers(0, 10**6))
    def test_debit_beyond_the_available_tokens_is_divided_by_share(self, order: list[int], debt: int) -> None:
        """All shards pay their debt back at about the same time."""
        items = {shard: {**item, "b_rpm_tk": 0} for shard, item in grown(TERMS, order).items()}
        charged = self.charged(items, {"rpm": debt}, at(NOON))

        for item in charged.values():
            assert abs(level(item, "rpm", NOON) + debt / item["shard_count"]) <= 1

    @pytest.mark.parametrize(("balances", "fullest"), [((1_000, 3_000), 1), ((3_000, 1_000), 0)])
    def test_debit_is_charged_to_the_fullest_shard_first(self, balances: tuple[int, int], fullest: int) -> None:
        """One write is enough if one shard has the tokens."""
        charges = debit_across(looks(with_rpm(*balances)), [("rpm", 2_000)], at(NOON))

        assert [fullest] == list(charges)

    def test_debit_of_a_shard_requires_the_generation_of_the_view(self) -> None:
        """It depends on the bucket being unchanged."""
        items = with_rpm(1_000, 0)
        views = looks(items)
        write = bucket_writes.settle(views[0], debit_across(views, [("rpm", 500)], at(NOON))[0], 1)

        assert isinstance(apply(write, items[0]), Applied)
        assert isinstance(apply(write, {**items[0], "gn": 9}), Refused)

    def test_debit_of_shards_at_an_uncertain_time_uses_the_early_bound(self) -> None:
        """The rest becomes a debt of both, even if it may have been refilled."""
        charges = debit_across(looks(with_rpm(0, 2_000)), [("rpm", 2_500)], (NOON, NOON + 2_000))

        assert {0: [250], 1: [2_250]} == {shard: [part.spent for part in one.parts] for shard, one in charges.items()}

    def test_debit_of_an_exactly_full_shard_subtracts(self) -> None:
        """Nothing overflows there, and other clients may have taken since."""
        views = looks(with_rpm(3_500, -9_000))
        write = bucket_writes.settle(views[0], debit_across(views, [("rpm", 100)], at(NOON))[0], 1)

        assert [3_400, 3_300] == [applied(write, with_rpm(tk, 0)[0])["b_rpm_tk"] for tk in (3_500, 3_400)]

    def test_debit_of_an_overflowing_shard_cuts_the_overflow_first(self) -> None:
        """If there is no overflow after all, the write is refused."""
        views = looks(with_rpm(3_600, -9_000))
        write = bucket_writes.settle(views[0], debit_across(views, [("rpm", 100)], at(NOON))[0], 1)

        assert [3_400, 3_400] == [applied(write, with_rpm(tk, 0)[0])["b_rpm_tk"] for tk in (3_501, 9_000)]
        for tk in (3_499, 3_500):
            assert isinstance(apply(write, with_rpm(tk, 0)[0]), Refused)

    def test_debit_skips_a_shard_that_lacks_the_limit(self) -> None:
        """That shard has yet to be rebased; the others are charged in full."""
        items = grown(TERMS, [0])
        lacking = {name: value for name, value in items[1].items() if not name.startswith("b_rpm_")}
        charges = debit_across(looks({0: items[0], 1: lacking}), [("rpm", 9_000)], at(NOON))

        assert {0: [9_000]} == {shard: [part.spent for part in charge.parts] for shard, charge in charges.items()}

    def test_debit_of_a_removed_limit_charges_no_shard(self) -> None:
        """The limit was removed and is full since."""
        assert {} == debit_across(looks(grown(TERMS, [0])), [("gone", 9_000)], at(NOON))

    @staticmethod
    def charged(items: Items, debits: Mapping[str, int], now: TimeBounds) -> Items:
        """Return the shards after a debit."""
        views = looks(items)
        charges = debit_across(views, list(debits.items()), now)
        writes = {shard: bucket_writes.settle(views[shard], charge, 1) for shard, charge in charges.items()}
        return {**items, **{shard: applied(write, items[shard]) for shard, write in writes.items()}}


class TestCredits:
    """A credit divided among all shards."""

    @given(orders, seeds, later, st.integers(0, 200_000))
    def test_credit_of_shards_is_given_in_full(self, order: list[int], seed: int, wait_ms: int, milli: int) -> None:
        """Neither more nor less, whatever the levels are."""
        items = some_shards(order, seed)
        now = at(NOON + wait_ms)

        given_back = self.credited(items, {"tpm": milli}, now)

        assert total(items, "tpm", now[0]) + milli == total(given_back, "tpm", now[0])
        assert milli == sum(items[shard]["b_tpm_tc"] - given_back[shard]["b_tpm_tc"] for shard in items)

    @pytest.mark.parametrize(("balances", "emptiest"), [((2_500, -500), 1), ((-500, 2_500), 0)])
    def test_credit_is_given_to_the_emptiest_shard_first(self, balances: tuple[int, int], emptiest: int) -> None:
        """One write is enough if one shard has the room."""
        given = credit_across(looks(with_rpm(*balances)), Settlement(credits=(("rpm", 3_000),)), at(NOON))

        assert [emptiest] == list(given)

    def test_credit_of_a_shard_has_no_condition_on_the_generation(self) -> None:
        """It is applied even if the bucket was rebased since it was seen."""
        items = with_rpm(0, 3_500)
        views = looks(items)
        settlement = Settlement(credits=(("rpm", 1_000),))
        write = bucket_writes.settle(views[0], credit_across(views, settlement, at(NOON))[0], 1)

        assert 1_000 == applied(write, {**items[0], "rf": NOON + 5, "cv": 9})["b_rpm_tk"]

    @given(orders, st.integers(0, 90))
    def test_credit_of_shards_overflows_no_shard_while_another_has_room(self, order: list[int], tokens: int) -> None:
        """The tokens taken from some shards fit into all of them."""
        items = grown(TERMS, order)
        taken = taken_across(items, {"tpm": tokens * 1000}, at(NOON))
        assert taken is not None

        given_back = self.credited(taken, {"tpm": tokens * 1000}, at(NOON))

        assert 90_000 == have(given_back, "tpm", NOON)

    def test_credit_reaches_only_shards_with_its_birth_number(self) -> None:
        """The write requires the number too, since a shard may be recreated before it arrives."""
        items = with_rpm(0, 0)
        views = looks({0: items[0], 1: without_birth(items[1])})
        given = credit_across(views, Settlement(credits=(("rpm", 1_000),), birth=1), at(NOON))
        write = bucket_writes.settle(views[0], given[0], 1)

        assert [0] == list(given)
        assert 1_000 == applied(write, items[0])["b_rpm_tk"]
        assert isinstance(apply(write, {**items[0], "bi": 2}), Refused)
        assert {} == credit_across(views, Settlement(credits=(("rpm", 1_000),), birth=2), at(NOON))

    def test_debits_and_credits_are_netted_only_if_all_shards_have_the_birth_number(self) -> None:
        """Otherwise shards are debited in full, and credited one by one."""
        items = with_rpm(0, 0)
        owed = Settlement((("rpm", 3_000),), (("rpm", 1_000),), 1)
        mixed = looks({0: items[0], 1: without_birth(items[1])})

        assert Settlement((("rpm", 2_000),), (), 1) == due_across(looks(items), owed)
        assert owed == due_across(mixed, owed)

    def test_credit_of_a_removed_limit_reaches_no_shard(self) -> None:
        """There is no balance to credit."""
        assert {} == credit_across(looks(grown(TERMS, [0])), Settlement(credits=(("gone", 9_000),)), at(NOON))

    @staticmethod
    def credited(items: Items, credits: Mapping[str, int], now: TimeBounds) -> Items:
        """Return the shards after a credit."""
        views = looks(items)
        parts = credit_across(views, Settlement(credits=tuple(credits.items())), now)
        writes = {shard: bucket_writes.settle(views[shard], part, 1) for shard, part in parts.items()}
        return {**items, **{shard: applied(write, items[shard]) for shard, write in writes.items()}}


def _cut(items: Items, now_ms: int) -> Items:
    """Return the shards without their overflow."""
    return {
        shard: item | {f"b_{name}_tk": item[f"b_{name}_tk"] - _overflow(item, name, now_ms) for name in NAMES}
        for shard, item in items.items()
    }


def _overflow(item: dict[str, int], name: str, now_ms: int) -> int:
    return total({0: item}, name, now_ms) - level(item, name, now_ms)


class TestOneShardOrAll:
    """A settlement goes to one shard if that has the tokens or the room, otherwise to all of them."""

    def first(self, rpm: int) -> View[StoredLayout]:
        return looks(with_rpm(rpm, 0), NOON, TERMS)[0]

    @pytest.mark.parametrize(("debt", "expected"), [(2_000, False), (2_001, True)])
    def test_debit_goes_to_all_shards_if_one_lacks_the_tokens(self, debt: int, expected: bool) -> None:
        """A debit that the shard can cover stays on it."""
        assert expected == lacks(self.first(2_000), Settlement(debits=(("rpm", debt),)), NOON, 0)

    @pytest.mark.parametrize(("refusals", "expected"), [(1, False), (2, True)])
    def test_debit_goes_to_all_shards_after_two_refusals(self, refusals: int, expected: bool) -> None:
        """Other clients keep changing the shard."""
        assert expected == lacks(self.first(2_000), Settlement(debits=(("rpm", 1),)), NOON, refusals)

    @pytest.mark.parametrize(("credit", "expected"), [(1_500, False), (1_501, True)])
    def test_credit_goes_to_all_shards_if_one_has_no_room(self, credit: int, expected: bool) -> None:
        """Tokens that do not fit one share may fit another."""
        assert expected == has_no_room(self.first(2_000), Settlement(credits=(("rpm", credit),)), NOON)

    def test_settlement_goes_to_all_shards_if_the_shard_was_not_seen(self) -> None:
        """All shards are read then."""
        assert lacks(None, Settlement(), NOON, 0)
        assert has_no_room(None, Settlement(), NOON)

    def test_limit_that_the_shard_lacks_does_not_move_a_settlement_to_all_shards(self) -> None:
        """Removed limits are left out."""
        gone = Settlement((("gone", 9_999),), (("gone", 9_999),))

        assert not lacks(self.first(2_000), gone, NOON, 0)
        assert not has_no_room(self.first(2_000), gone, NOON)

    def test_covered_debit_requires_the_tokens(self) -> None:
        """Credits, and debits that set a balance, do not change."""
        credit, reset = Add(1, -5, 5, None, None), Reset(1, 5, 7, 8)
        settling = Settling([Add(0, 700, -700, None, 3_500), credit, reset], held=True, birth=4)

        found = if_covered(self.first(2_000), settling, NOON)

        assert Settling([Add(0, 700, -700, 700, 3_500), credit, reset], held=True, birth=4) == found
