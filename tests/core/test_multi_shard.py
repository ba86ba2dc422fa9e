"""Several shards taken as one bucket: what they hold together, and how a request or a debt is shared out."""

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.many_shards import Items, applied, grown, have, level, looks, shaken, total
from tests.one_bucket import NOON, apply, at, stored, without_birth
from zae_limiter.core.acquire import GUESSES, Take
from zae_limiter.core.bucket import TimeBounds
from zae_limiter.core.bucket_changes import Add, Reset, Settlement, Settling
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
    """A bucket of shards with balances of chance."""
    return shaken(grown(TERMS, order), NAMES, seed)


def with_rpm(*balances: int) -> Items:
    """Two shards with these balances of a limit of which each holds 3,500."""
    return {
        shard: {**item, "b_rpm_tk": tk} for (shard, item), tk in zip(grown(TERMS, [0]).items(), balances, strict=True)
    }


def taken_across(items: Items, milli: Mapping[str, int], now: TimeBounds, refusals: int = 0) -> Items | None:
    """The shards after a request that was taken from several of them, None if it was not."""
    views = looks(items, now[1], TERMS)
    amounts = [(TERMS.positions[name], wanted) for name, wanted in milli.items()]
    written = take_across(views, amounts, now, refusals)
    if written is None:
        return None
    takes = {shard: bucket_writes.take(views[shard], Take(bounds, None, ()), 1) for shard, bounds in written.items()}
    return {**items, **{shard: applied(write, items[shard]) for shard, write in takes.items()}}


class TestCombined:
    """One limit of all shards together."""

    @given(order=orders, seed=seeds, gap=later)
    def test_what_is_available_is_what_can_be_taken(self, order: list[int], seed: int, gap: int) -> None:
        """To the millitoken; a shard in debt holds back no other."""
        items, now = some_shards(order, seed), at(NOON + gap)
        for stand in combined(list(looks(items).values()), TERMS, now):
            levels = [level(item, stand.name, now[0]) for item in items.values()]

            if max(levels) < 0:
                assert sum(levels) == stand.available_milli(now)
            else:
                assert have(items, stand.name, now[0]) == stand.available_milli(now)

    @given(order=orders, seed=seeds, gap=later, wants=wants)
    def test_the_wait_ends_at_the_first_millisecond_it_is_admitted(
        self, order: list[int], seed: int, gap: int, wants: tuple[int, int]
    ) -> None:
        """Then it is taken, and a millisecond earlier it is not."""
        items, now = some_shards(order, seed), at(NOON + gap)
        for stand, wanted in zip(combined(list(looks(items).values()), TERMS, now), wants, strict=True):
            wait_ms = stand.wait_ms(wanted, now)

            assert taken_across(items, {stand.name: wanted}, at(now[0] + wait_ms)) is not None
            assert not wait_ms or taken_across(items, {stand.name: wanted}, at(now[0] + wait_ms - 1)) is None

    def test_what_is_just_there_is_not_waited_for(self) -> None:
        """Nor one millisecond."""
        stand = combined(list(looks(with_rpm(1_500, 700)).values()), TERMS, at(NOON))[0]

        assert 2_200 == stand.available_milli(at(NOON))
        assert 0 == stand.wait_ms(2_200, at(NOON))
        assert stand.wait_ms(2_201, at(NOON)) > 0

    @given(order=orders, seed=seeds, gap=later, wanted=st.integers(0, 7_000), wide_ms=st.integers(0, 3_000))
    def test_at_an_unsure_time_the_wait_is_from_its_early_end(
        self, order: list[int], seed: int, gap: int, wanted: int, wide_ms: int
    ) -> None:
        """What may not have been earned yet is waited for."""
        stand = combined(list(looks(some_shards(order, seed)).values()), TERMS, at(NOON + gap))[0]

        assert stand.wait_ms(wanted, at(NOON + gap)) == stand.wait_ms(wanted, (NOON + gap, NOON + gap + wide_ms))

    @pytest.mark.parametrize(("balances", "available"), [((0, -1_000), 0), ((1, 1), 2), ((-1, -2), -3)])
    def test_a_shard_in_debt_holds_back_no_other(self, balances: tuple[int, int], available: int) -> None:
        """Not even one that has nothing; and every millitoken counts."""
        stand = combined(list(looks(with_rpm(*balances)).values()), TERMS, at(NOON))[0]

        assert available == stand.available_milli(at(NOON))

    def test_what_was_taken_is_gone_from_the_fullest_first(self) -> None:
        """As the request is shared out."""
        stand = combined(list(looks(with_rpm(1_000, 3_000)).values()), TERMS, at(NOON))[0]
        left = stand.less(2_000, at(NOON))

        assert [1_000, 1_000] == [part.available_milli(at(NOON)) for part in left.parts]

    def test_shards_on_other_limits_stand_as_if_they_had_been_brought_up_to_date(self) -> None:
        """Each is cut to its share of the lower capacity, and a limit that is new is full."""
        lower = stored(Limit("rpm", 3, 11, 13), Limit("new", 5, 1, 1), stamp=2)
        stands = combined(list(looks(with_rpm(3_500, 100)).values()), lower, at(NOON))

        assert [("new", 5_000), ("rpm", 1_600)] == [(one.name, one.available_milli(at(NOON))) for one in stands]

    def test_it_is_called_what_the_limit_is_called(self) -> None:
        """And has the limit undivided."""
        stands = combined(list(looks(grown(TERMS, [0, 1])).values()), TERMS, at(NOON))

        assert [("rpm", RPM), ("tpm", TPM)] == [(stand.name, stand.limit) for stand in stands]

    def test_nothing_at_all_needs_no_wait_though_all_shards_owe(self) -> None:
        """As with one shard alone."""
        items = {shard: {**item, "b_rpm_tk": -1_000} for shard, item in grown(TERMS, [0]).items()}
        stand = combined(list(looks(items).values()), TERMS, at(NOON))[0]

        assert -2_000 == stand.available_milli(at(NOON))
        assert (True, 0) == (stand.wait_ms(1, at(NOON)) > 0, stand.wait_ms(0, at(NOON)))


class TestTake:
    """A request taken from several shards."""

    @given(order=orders, seed=seeds, gap=later, wants=wants)
    def test_it_is_given_if_and_only_if_all_together_have_it(
        self, order: list[int], seed: int, gap: int, wants: tuple[int, int]
    ) -> None:
        """Of every limit, whichever shards that is on."""
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
    def test_each_shard_loses_what_it_gives(
        self, order: list[int], seed: int, gap: int, wants: tuple[int, int], wide_ms: int
    ) -> None:
        """No shard is left with less than nothing at the early end, and none with more than it had at the late one."""
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
    def test_who_was_refused_takes_of_each_what_it_has(self, order: list[int], seed: int, part: int) -> None:
        """So that each keeps as large a part of its own, for those who were faster."""
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
    def test_few_shards_give_much(self, order: list[int], seed: int, wanted: int) -> None:
        """No fewer could have given it: each write of a transaction has its price."""
        items = some_shards(order, seed)
        shares = share_out(looks(items), [(1, wanted)], at(NOON))
        if shares is not None:
            levels = sorted((level(item, "tpm", NOON) for item in items.values()), reverse=True)

            assert sum(levels[: len(shares) - 1]) < wanted

    @pytest.mark.parametrize(("refusals", "shares"), [(0, {1: 1_000}), (1, {0: 250, 1: 750})])
    def test_once_others_were_faster_all_give_a_part(self, refusals: int, shares: dict[int, int]) -> None:
        """A shard that is emptied has no room for them."""
        written = take_across(looks(with_rpm(1_000, 3_000)), [(0, 1_000)], at(NOON), refusals)

        assert written is not None
        assert shares == {shard: bounds[0][1] for shard, bounds in written.items()}

    @pytest.mark.parametrize(("refusals", "least"), [(GUESSES - 1, 3_500), (GUESSES, 2_250)])
    def test_refused_often_it_gives_half_of_the_rest_away_and_never_all(self, refusals: int, least: int) -> None:
        """It is right from halfway between what is asked for and full; before, only from full."""
        views = looks(with_rpm(4_000, -9_000))
        written = take_across(views, [(0, 1_000)], at(NOON), refusals)
        assert written is not None
        write = bucket_writes.take(views[0], Take(written[0], None, ()), 1)

        assert least - 1_000 == applied(write, with_rpm(least, 0)[0])["b_rpm_tk"]
        assert isinstance(apply(write, with_rpm(least - 1, 0)[0]), Refused)

    @given(order=orders, seed=seeds, wants=wants, refusals=st.integers(0, 8))
    def test_among_others_no_token_is_made(
        self, order: list[int], seed: int, wants: tuple[int, int], refusals: int
    ) -> None:
        """Whatever is given away rather than be refused."""
        items, now = some_shards(order, seed), at(NOON + 500)
        views = looks(items, NOON, TERMS)
        for seen in views.values():
            seen.pace = Pace((400.0, 900.0), 3.0, 500.0)
        written = take_across(views, list(enumerate(wants)), now, refusals)
        for shard, bounds in (written or {}).items():
            after = applied(bucket_writes.take(views[shard], Take(bounds, None, ()), 1), items[shard])
            for position, taken, *_ in bounds:
                name = NAMES[position]
                assert 0 <= level(after, name, now[0]) <= level(items[shard], name, now[0]) - taken


class TestDebit:
    """A debt charged to all shards."""

    @given(order=orders, seed=seeds, gap=later, debt=st.integers(0, 200_000))
    def test_all_of_it_is_charged(self, order: list[int], seed: int, gap: int, debt: int) -> None:
        """To the millitoken, whether or not it is there; an overflow pays nothing of it."""
        items, now = some_shards(order, seed), at(NOON + gap)
        charged = self.charged(items, {"rpm": debt}, now)

        assert total(_cut(items, now[0]), "rpm", now[0]) - debt == total(_cut(charged, now[0]), "rpm", now[0])
        assert debt == sum(charged[shard]["b_rpm_tc"] - items[shard]["b_rpm_tc"] for shard in items)
        assert total(items, "tpm", now[0]) == total(charged, "tpm", now[0])

    @given(order=orders, seed=seeds, gap=later, part=st.integers(0, 100))
    def test_no_shard_owes_while_others_have(self, order: list[int], seed: int, gap: int, part: int) -> None:
        """Where all together have it, nobody is in debt for it who was not before."""
        items, now = some_shards(order, seed), at(NOON + gap)
        debt = have(items, "tpm", now[0]) * part // 100
        charged = self.charged(items, {"tpm": debt}, now)

        assert have(items, "tpm", now[0]) - debt == have(charged, "tpm", now[0])
        for shard, item in charged.items():
            assert level(item, "tpm", now[0]) >= min(0, level(items[shard], "tpm", now[0]))

    @given(order=orders, debt=st.integers(0, 10**6))
    def test_what_nobody_has_is_owed_by_share(self, order: list[int], debt: int) -> None:
        """So that all have paid back at about the same time."""
        items = {shard: {**item, "b_rpm_tk": 0} for shard, item in grown(TERMS, order).items()}
        charged = self.charged(items, {"rpm": debt}, at(NOON))

        for item in charged.values():
            assert abs(level(item, "rpm", NOON) + debt / item["shard_count"]) <= 1

    @pytest.mark.parametrize(("balances", "fullest"), [((1_000, 3_000), 1), ((3_000, 1_000), 0)])
    def test_the_fullest_is_charged_first(self, balances: tuple[int, int], fullest: int) -> None:
        """One write does where one shard has it."""
        charges = debit_across(looks(with_rpm(*balances)), [("rpm", 2_000)], at(NOON))

        assert [fullest] == list(charges)

    def test_a_debit_holds(self) -> None:
        """It depends on the bucket being as it was seen."""
        items = with_rpm(1_000, 0)
        views = looks(items)
        write = bucket_writes.settle(views[0], debit_across(views, [("rpm", 500)], at(NOON))[0], 1)

        assert isinstance(apply(write, items[0]), Applied)
        assert isinstance(apply(write, {**items[0], "gn": 9}), Refused)

    def test_at_an_unsure_time_they_have_what_they_surely_have(self) -> None:
        """The rest is owed by both, though it may have been earned."""
        charges = debit_across(looks(with_rpm(0, 2_000)), [("rpm", 2_500)], (NOON, NOON + 2_000))

        assert {0: [250], 1: [2_250]} == {shard: [part.spent for part in one.parts] for shard, one in charges.items()}

    def test_a_full_shard_is_charged_by_adding(self) -> None:
        """At the full mark nothing overflows, and others may have taken since."""
        views = looks(with_rpm(3_500, -9_000))
        write = bucket_writes.settle(views[0], debit_across(views, [("rpm", 100)], at(NOON))[0], 1)

        assert [3_400, 3_300] == [applied(write, with_rpm(tk, 0)[0])["b_rpm_tk"] for tk in (3_500, 3_400)]

    def test_an_overflow_pays_nothing(self) -> None:
        """It is cut first; where there turns out to be none, the write is refused."""
        views = looks(with_rpm(3_600, -9_000))
        write = bucket_writes.settle(views[0], debit_across(views, [("rpm", 100)], at(NOON))[0], 1)

        assert [3_400, 3_400] == [applied(write, with_rpm(tk, 0)[0])["b_rpm_tk"] for tk in (3_501, 9_000)]
        for tk in (3_499, 3_500):
            assert isinstance(apply(write, with_rpm(tk, 0)[0]), Refused)

    def test_a_shard_that_lacks_the_limit_is_not_charged(self) -> None:
        """It has yet to be put on the limits in force; the others bear it all."""
        items = grown(TERMS, [0])
        lacking = {name: value for name, value in items[1].items() if not name.startswith("b_rpm_")}
        charges = debit_across(looks({0: items[0], 1: lacking}), [("rpm", 9_000)], at(NOON))

        assert {0: [9_000]} == {shard: [part.spent for part in charge.parts] for shard, charge in charges.items()}

    def test_nobody_is_charged_with_a_limit_that_is_no_more(self) -> None:
        """It was taken out, and filled up since."""
        assert {} == debit_across(looks(grown(TERMS, [0])), [("gone", 9_000)], at(NOON))

    @staticmethod
    def charged(items: Items, debits: Mapping[str, int], now: TimeBounds) -> Items:
        """The shards once they were charged."""
        views = looks(items)
        charges = debit_across(views, list(debits.items()), now)
        writes = {shard: bucket_writes.settle(views[shard], charge, 1) for shard, charge in charges.items()}
        return {**items, **{shard: applied(write, items[shard]) for shard, write in writes.items()}}


class TestCredits:
    @given(orders, seeds, later, st.integers(0, 200_000))
    def test_all_is_given_back(self, order: list[int], seed: int, wait_ms: int, milli: int) -> None:
        """Neither more nor less, whatever the shards have."""
        items = some_shards(order, seed)
        now = at(NOON + wait_ms)

        given_back = self.credited(items, {"tpm": milli}, now)

        assert total(items, "tpm", now[0]) + milli == total(given_back, "tpm", now[0])
        assert milli == sum(items[shard]["b_tpm_tc"] - given_back[shard]["b_tpm_tc"] for shard in items)

    @pytest.mark.parametrize(("balances", "emptiest"), [((2_500, -500), 1), ((-500, 2_500), 0)])
    def test_the_emptiest_gets_it_first(self, balances: tuple[int, int], emptiest: int) -> None:
        """One write does where one shard has the room."""
        given = credit_across(looks(with_rpm(*balances)), Settlement(credits=(("rpm", 3_000),)), at(NOON))

        assert [emptiest] == list(given)

    def test_a_credit_holds_nothing(self) -> None:
        """It is applied though the bucket was rebased since it was seen."""
        items = with_rpm(0, 3_500)
        views = looks(items)
        settlement = Settlement(credits=(("rpm", 1_000),))
        write = bucket_writes.settle(views[0], credit_across(views, settlement, at(NOON))[0], 1)

        assert 1_000 == applied(write, {**items[0], "rf": NOON + 5, "cv": 9})["b_rpm_tk"]

    @given(orders, st.integers(0, 90))
    def test_nothing_is_cut_off_that_there_is_room_for(self, order: list[int], tokens: int) -> None:
        """What was taken from some shards fits into all of them."""
        items = grown(TERMS, order)
        taken = taken_across(items, {"tpm": tokens * 1000}, at(NOON))
        assert taken is not None

        given_back = self.credited(taken, {"tpm": tokens * 1000}, at(NOON))

        assert 90_000 == have(given_back, "tpm", NOON)

    def test_credits_of_a_birth_reach_only_shards_that_have_it(self) -> None:
        """Each credit also requires the birth number, for a shard may be re-created before it arrives."""
        items = with_rpm(0, 0)
        views = looks({0: items[0], 1: without_birth(items[1])})
        given = credit_across(views, Settlement(credits=(("rpm", 1_000),), birth=1), at(NOON))
        write = bucket_writes.settle(views[0], given[0], 1)

        assert [0] == list(given)
        assert 1_000 == applied(write, items[0])["b_rpm_tk"]
        assert isinstance(apply(write, {**items[0], "bi": 2}), Refused)
        assert {} == credit_across(views, Settlement(credits=(("rpm", 1_000),), birth=2), at(NOON))

    def test_what_is_due_to_all_shards_is_netted_if_they_have_one_birth(self) -> None:
        """Shards with and without a birth number are charged in full, and credited one by one."""
        items = with_rpm(0, 0)
        owed = Settlement((("rpm", 3_000),), (("rpm", 1_000),), 1)
        mixed = looks({0: items[0], 1: without_birth(items[1])})

        assert Settlement((("rpm", 2_000),), (), 1) == due_across(looks(items), owed)
        assert owed == due_across(mixed, owed)

    def test_a_limit_that_is_no_more_is_left_out(self) -> None:
        """There is nowhere to give it back to."""
        assert {} == credit_across(looks(grown(TERMS, [0])), Settlement(credits=(("gone", 9_000),)), at(NOON))

    @staticmethod
    def credited(items: Items, credits: Mapping[str, int], now: TimeBounds) -> Items:
        """The shards once they were given something back."""
        views = looks(items)
        parts = credit_across(views, Settlement(credits=tuple(credits.items())), now)
        writes = {shard: bucket_writes.settle(views[shard], part, 1) for shard, part in parts.items()}
        return {**items, **{shard: applied(write, items[shard]) for shard, write in writes.items()}}


def _cut(items: Items, now_ms: int) -> Items:
    """The shards without what they could not hold."""
    return {
        shard: item | {f"b_{name}_tk": item[f"b_{name}_tk"] - _overflow(item, name, now_ms) for name in NAMES}
        for shard, item in items.items()
    }


def _overflow(item: dict[str, int], name: str, now_ms: int) -> int:
    return total({0: item}, name, now_ms) - level(item, name, now_ms)


class TestOneShardOrAll:
    """A settlement goes to one shard if that has the tokens or the room, else to all of them."""

    def first(self, rpm: int) -> View[StoredLayout]:
        return looks(with_rpm(rpm, 0), NOON, TERMS)[0]

    @pytest.mark.parametrize(("debt", "expected"), [(2_000, False), (2_001, True)])
    def test_debt_goes_to_all_shards_if_one_lacks_the_tokens(self, debt: int, expected: bool) -> None:
        """A debt that the shard can pay stays on it."""
        assert expected == lacks(self.first(2_000), Settlement(debits=(("rpm", debt),)), NOON, 0)

    @pytest.mark.parametrize(("refusals", "expected"), [(1, False), (2, True)])
    def test_debt_goes_to_all_shards_after_two_refusals(self, refusals: int, expected: bool) -> None:
        """Others keep changing the shard."""
        assert expected == lacks(self.first(2_000), Settlement(debits=(("rpm", 1),)), NOON, refusals)

    @pytest.mark.parametrize(("credit", "expected"), [(1_500, False), (1_501, True)])
    def test_credit_goes_to_all_shards_if_one_has_no_room(self, credit: int, expected: bool) -> None:
        """What does not fit one share may fit another."""
        assert expected == has_no_room(self.first(2_000), Settlement(credits=(("rpm", credit),)), NOON)

    def test_shard_that_was_not_seen_decides_nothing(self) -> None:
        """All shards are read then."""
        assert lacks(None, Settlement(), NOON, 0)
        assert has_no_room(None, Settlement(), NOON)

    def test_limit_that_the_shard_lacks_asks_nothing_of_it(self) -> None:
        """Limits that were removed are left out."""
        gone = Settlement((("gone", 9_999),), (("gone", 9_999),))

        assert not lacks(self.first(2_000), gone, NOON, 0)
        assert not has_no_room(self.first(2_000), gone, NOON)

    def test_covered_debit_requires_the_tokens(self) -> None:
        """Credits, and debits that set a balance, stay as they are."""
        credit, reset = Add(1, -5, 5, None, None), Reset(1, 5, 7, 8)
        settling = Settling([Add(0, 700, -700, None, 3_500), credit, reset], held=True, birth=4)

        found = if_covered(self.first(2_000), settling, NOON)

        assert Settling([Add(0, 700, -700, 700, 3_500), credit, reset], held=True, birth=4) == found
