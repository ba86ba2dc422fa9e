"""What one write does to each limit of a bucket: the writer table, row by row, on the item."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.one_bucket import (
    NOON,
    Client,
    after,
    apply,
    at,
    balance,
    created,
    level,
    refused_so_often,
    settling,
    stored,
    taking,
    view,
    with_balances,
)
from zae_limiter.core.add_or_set import Effort
from zae_limiter.core.bucket_changes import SHORT, take
from zae_limiter.core.limit import Limit
from zae_limiter.core.outcome import Applied, Refused

RPS = Limit("rps", 10, 10, 1)
"""Ten tokens, ten a second: 10 millitokens a millisecond, on any grid."""

RPM = Limit("rpm", 100, 100, 60)
TERMS = stored(RPS)
small_limits = st.builds(Limit, st.just("rps"), st.integers(1, 50), st.integers(1, 50), st.integers(1, 90))


class TestTake:
    """ADD tk -n if n-E <= tk <= cap-E; SET tk = T-E-n if tk >= T-E, T = cap for one client alone."""

    def test_take_from_a_bucket_that_is_not_full_subtracts_within_two_bounds(self) -> None:
        """Other clients may have taken down to the amount, or credited up to full."""
        item = with_balances(created(TERMS), rps=1_000)
        write = taking(view(item), TERMS, {"rps": 3}, at(NOON + 400))

        for tk in (-1_000, 0, 6_000):
            assert tk - 3_000 == balance(after(write, with_balances(item, rps=tk)), "rps")
        for tk in (-1_001, 6_001):
            assert isinstance(apply(write, with_balances(item, rps=tk)), Refused)

    def test_take_from_an_overflowing_bucket_sets_the_rest_of_a_full_one(self) -> None:
        """The overflow is cut: T = cap for a single client."""
        item = with_balances(created(TERMS), rps=9_000)
        write = taking(view(item), TERMS, {"rps": 3}, at(NOON + 400))

        for tk in (6_000, 6_001, 50_000):
            assert 3_000 == balance(after(write, with_balances(item, rps=tk)), "rps")
            assert 7_000 == level(after(write, with_balances(item, rps=tk)), "rps", NOON + 400)
        assert isinstance(apply(write, with_balances(item, rps=5_999)), Refused)

    def test_take_from_an_exactly_full_bucket_subtracts(self) -> None:
        """Adding and setting agree there; it adds, since other clients may have taken since."""
        item = with_balances(created(TERMS), rps=6_000)
        write = taking(view(item), TERMS, {"rps": 3}, at(NOON + 400))

        assert 3_000 == balance(after(write, item), "rps")
        assert 2_999 == balance(after(write, with_balances(item, rps=5_999)), "rps")

    def test_take_of_more_than_the_level_of_the_view_is_short(self) -> None:
        """The write would be refused; a millitoken less is available."""
        seen = view(with_balances(created(TERMS), rps=1_000))

        assert SHORT == take(seen, [(0, 5_001)], at(NOON + 400), Effort())
        assert [(0, 5_000, 1_000, 6_000, None)] == take(seen, [(0, 5_000)], at(NOON + 400), Effort())

    def test_take_of_more_than_the_share_of_a_shard_is_short(self) -> None:
        """However much overflows, one of two shards never has more than half of the capacity."""
        seen = view({**with_balances(created(TERMS), rps=50_000), "shard_count": 2})

        assert SHORT == take(seen, [(0, 5_001)], at(NOON), Effort())
        assert isinstance(take(seen, [(0, 5_000)], at(NOON), Effort()), list)

    def test_shard_refills_only_its_share(self) -> None:
        """Of four refilled tokens, one of two shards has two."""
        seen = view({**with_balances(created(TERMS), rps=0), "shard_count": 2})

        assert SHORT == take(seen, [(0, 2_001)], at(NOON + 400), Effort())
        assert [(0, 2_000, 0, 3_000, None)] == take(seen, [(0, 2_000)], at(NOON + 400), Effort())

    def test_take_may_add_to_some_limits_and_set_others(self) -> None:
        """Each limit is decided separately."""
        terms = stored(RPS, RPM)
        item = with_balances(created(terms), rps=0)
        later = NOON + 300

        item = after(taking(view(item), terms, {"rps": 2, "rpm": 5}, at(later)), item)

        assert 1_000 == level(item, "rps", later)
        assert 95_000 == level(item, "rpm", later)
        assert (2_000, 5_000, 2) == (item["b_rps_tc"], item["b_rpm_tc"], item["b_wcu_tc"])

    def test_take_does_not_change_limits_that_it_does_not_name(self) -> None:
        """Not even an overflow of them is cut."""
        terms = stored(RPS, RPM)
        item = created(terms)

        after_take = after(taking(view(item), terms, {"rps": 2}, at(NOON + 1)), item)

        assert balance(item, "rpm") == balance(after_take, "rpm")

    def test_take_at_an_uncertain_time_uses_the_early_bound_for_its_minimum(self) -> None:
        """Tokens that may not have been refilled yet are not taken."""
        item = with_balances(created(TERMS), rps=1_000)
        write = taking(view(item), TERMS, {"rps": 3}, (NOON + 300, NOON + 500))

        assert -3_000 == balance(after(write, with_balances(item, rps=0)), "rps")
        assert isinstance(apply(write, with_balances(item, rps=-1)), Refused)

    def test_take_at_an_uncertain_time_uses_the_late_bound_for_its_maximum(self) -> None:
        """Tokens that may overflow are cut."""
        item = with_balances(created(TERMS), rps=1_000)
        write = taking(view(item), TERMS, {"rps": 3}, (NOON + 300, NOON + 500))

        assert 2_000 == balance(after(write, with_balances(item, rps=5_000)), "rps")
        assert isinstance(apply(write, with_balances(item, rps=5_001)), Refused)

    def test_set_at_an_uncertain_time_uses_the_late_bound(self) -> None:
        """SET to cap - E - n with the maximum refill."""
        item = with_balances(created(TERMS), rps=9_000)
        write = taking(view(item), TERMS, {"rps": 3}, (NOON + 300, NOON + 500))

        assert 2_000 == balance(after(write, item), "rps")

    @given(
        limit=small_limits,
        tk=st.integers(-60_000, 60_000),
        seen=st.integers(-60_000, 60_000),
        elapsed=st.integers(0, 10_000),
        data=st.data(),
    )
    def test_applied_take_is_correct_whatever_the_view_was(
        self, limit: Limit, tk: int, seen: int, elapsed: int, data: st.DataObject
    ) -> None:
        """It had the tokens, cut the overflow, and took exactly n before retries discard any."""
        terms, now = stored(limit), NOON + elapsed
        tokens = data.draw(st.integers(1, limit.capacity))
        item = with_balances(created(terms), rps=seen)
        if level(item, "rps", now) < tokens * 1000:
            return
        progress = refused_so_often(data.draw(st.integers(0, 7)), at(now))
        write = taking(view(item, now), terms, {"rps": tokens}, at(now), progress)
        held = with_balances(item, rps=tk)
        answer = apply(write, held)

        if isinstance(answer, Applied):
            left = level(answer.new, "rps", now)
            assert 0 <= left <= level(held, "rps", now) - tokens * 1000
            if progress.refusals < 3:
                assert left == level(held, "rps", now) - tokens * 1000
        elif progress.refusals >= 6:
            assert level(held, "rps", now) < tokens * 1000


class TestDebit:
    """ADD tk -d if tk <= cap-E; SET tk = cap-E-d if tk > cap-E."""

    def test_debit_may_put_a_balance_below_zero(self) -> None:
        """Debt comes only from settling."""
        item = with_balances(created(TERMS), rps=0)

        item = after(settling(view(item), at(NOON), debits={"rps": 25}), item)

        assert -25_000 == balance(item, "rps")
        assert 25_000 == item["b_rps_tc"]

    def test_debit_below_full_subtracts_at_any_level(self) -> None:
        """There is no lower bound."""
        item = with_balances(created(TERMS), rps=0)
        write = settling(view(item), at(NOON + 400), debits={"rps": 2})

        for tk in (-99_000, 6_000):
            assert tk - 2_000 == balance(after(write, with_balances(item, rps=tk)), "rps")
        assert isinstance(apply(write, with_balances(item, rps=6_001)), Refused)

    def test_debit_of_an_overflowing_bucket_cuts_the_overflow_first(self) -> None:
        """Overflow does not offset the debit."""
        item = with_balances(created(TERMS), rps=9_000)
        write = settling(view(item), at(NOON + 400), debits={"rps": 2})

        for tk in (6_001, 90_000):
            assert 4_000 == balance(after(write, with_balances(item, rps=tk)), "rps")
        assert isinstance(apply(write, with_balances(item, rps=6_000)), Refused)

    def test_debit_at_an_uncertain_time_uses_the_late_bound(self) -> None:
        """Tokens that may overflow do not offset the debit."""
        item = with_balances(created(TERMS), rps=9_000)

        item = after(settling(view(item), (NOON + 300, NOON + 500), debits={"rps": 2}), item)

        assert 3_000 == balance(item, "rps")

    @pytest.mark.parametrize("tries", range(64))
    def test_retried_debit_never_raises_a_level(self, tries: int) -> None:
        """After refusals it lowers its target and discards tokens, but never debits less."""
        item = with_balances(created(TERMS), rps=9_000)
        write = settling(view(item), at(NOON + 400), debits={"rps": 2}, tries=tries)

        for tk in (-9_000, 0, 1_000, 6_000, 6_001, 90_000):
            answer = apply(write, with_balances(item, rps=tk))
            if isinstance(answer, Applied):
                assert level(answer.new, "rps", NOON + 400) <= min(10_000, tk + 4_000) - 2_000

    def test_retried_debit_with_a_lower_target_accepts_more_balances(self) -> None:
        """Half the capacity after two refusals, a quarter after four."""
        item = with_balances(created(TERMS), rps=9_000)

        for tries, least in ((1, 6_001), (2, 1_000), (4, -1_500)):
            write = settling(view(item), at(NOON + 400), debits={"rps": 2}, tries=tries)

            assert isinstance(apply(write, with_balances(item, rps=least)), Applied)
            assert isinstance(apply(write, with_balances(item, rps=least - 1)), Refused)


class TestCredit:
    """ADD tk +d if the limit exists, without any other condition."""

    def test_credit_is_applied_to_a_bucket_that_changed_since_the_view(self) -> None:
        """The next take cuts the overflow."""
        item = created(TERMS)
        write = settling(view(item), at(NOON), credits={"rps": 4})
        moved = {**with_balances(item, rps=9_000), "rf": NOON + 5, "cv": 9, "ld": "x", "shard_count": 4}

        assert 13_000 == balance(after(write, moved), "rps")
        assert -4_000 == after(write, moved)["b_rps_tc"]

    def test_overflow_from_a_credit_is_cut_by_the_next_take(self) -> None:
        """A credit never makes a bucket hold more than its capacity."""
        item = created(TERMS)
        item = after(settling(view(item), at(NOON), credits={"rps": 4}), item)

        item = after(taking(view(item), TERMS, {"rps": 10}, at(NOON)), item)

        assert 0 == level(item, "rps", NOON)

    def test_credit_of_a_removed_limit_is_refused_and_then_left_out(self) -> None:
        """The write is refused, and the limit is dropped from the next one."""
        item = created(stored(RPS, RPM))
        write = settling(view(item), at(NOON), credits={"rps": 4, "rpm": 1})
        gone = {name: value for name, value in item.items() if not name.startswith("b_rpm")}

        assert isinstance(apply(write, gone), Refused)
        assert settling(view(gone), at(NOON), credits={"rpm": 1}) is None
        assert 14_000 == balance(after(settling(view(gone), at(NOON), credits={"rps": 4, "rpm": 1}), gone), "rps")

    def test_credit_with_a_debit_requires_the_generation_of_the_view(self) -> None:
        """The debit depends on the bucket being unchanged."""
        item = created(stored(RPS, RPM))
        write = settling(view(item), at(NOON), debits={"rps": 1, "gone": 1}, credits={"rpm": 1})

        assert (9_000, 101_000) == tuple(balance(after(write, item), name) for name in ("rps", "rpm"))
        assert isinstance(apply(write, {**item, "gn": 9}), Refused)


class TestExactness:
    """Refill is exact to a millitoken for every limit, after any sequence of accesses."""

    @given(
        fast=st.builds(Limit, st.just("fast"), st.integers(1, 20), st.integers(1, 50), st.integers(1, 7)),
        slow=st.builds(Limit, st.just("slow"), st.integers(1, 5), st.integers(1, 5), st.integers(600, 100_000)),
        steps=st.lists(st.tuples(st.integers(0, 5_000), st.integers(0, 6), st.integers(0, 2)), max_size=30),
    )
    def test_single_client_differs_from_the_ideal_bucket_by_less_than_a_millitoken(
        self, fast: Limit, slow: Limit, steps: list[tuple[int, int, int]]
    ) -> None:
        """The ideal bucket refills continuously and loses nothing."""
        client = Client(stored(fast, slow))
        client.request({"fast": 0}, at(NOON))
        ideal = {limit.name: Fraction(limit.capacity_milli) for limit in (fast, slow)}
        now = NOON
        for wait_ms, want_fast, want_slow in steps:
            now += wait_ms
            consume = {"fast": min(want_fast, fast.capacity), "slow": min(want_slow, slow.capacity)}
            for limit in (fast, slow):
                rate = Fraction(limit.refill_amount_milli, limit.refill_period_ms)
                ideal[limit.name] = min(Fraction(limit.capacity_milli), ideal[limit.name] + rate * wait_ms)
            if not client.request(consume, at(now)):
                ideal = {name: held - consume[name] * 1000 for name, held in ideal.items()}

            assert all(abs(level(client.item, name, now) - held) < 1 for name, held in ideal.items())
