"""The next step of a request, decided from the client's view of the bucket."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import many_shards
from tests import strategies as some
from tests.one_bucket import (
    NOON,
    Client,
    after,
    apply,
    at,
    balance,
    created,
    level,
    own,
    refused_so_often,
    step,
    stored,
    taking,
    view,
    with_balances,
    write_of,
)
from zae_limiter.core.acquire import (
    GUESSES,
    HALVINGS,
    Create,
    Look,
    Progress,
    Rebase,
    Reject,
    Resolve,
    Take,
    amounts_of,
    is_known_short,
)
from zae_limiter.core.bucket import Baseline
from zae_limiter.core.errors import AmountExceedsCapacityError, ValidationError
from zae_limiter.core.levels import LimitLevel, limit_levels, statuses
from zae_limiter.core.limit import Limit
from zae_limiter.core.outcome import Applied, Refused
from zae_limiter.core.view import Pace

RPS = Limit("rps", 10, 10, 1)
RPM = Limit("rpm", 100, 100, 60)
TERMS = stored(RPS)
FRESH = Progress(trust_ms=1000)


class TestAmounts:
    """The amounts of a request, per limit."""

    def test_amounts_are_millitokens_by_position_of_the_limit(self) -> None:
        """Limits are in the order of their names."""
        assert [(1, 5_000), (0, 0)] == list(amounts_of({"rps": 5, "rpm": 0}, stored(RPS, RPM)))

    def test_amount_above_the_capacity_raises_with_limit_and_capacity(self) -> None:
        """It can never be admitted."""
        with pytest.raises(ValidationError) as refused:
            amounts_of({"rps": 11}, TERMS)

        assert isinstance(refused.value, AmountExceedsCapacityError)

        assert ("consume[rps]", 11) == (refused.value.field, refused.value.value)
        assert "'rps' (10)" in refused.value.reason

    @pytest.mark.parametrize("amount", [-1, 1.0, True, None, "1", float("nan"), 10**18 + 1])
    def test_amount_that_is_no_integer_from_zero_raises(self, amount: object) -> None:
        """The error names the limit and the amount."""
        with pytest.raises(ValidationError) as refused:
            amounts_of({"rps": amount}, TERMS)  # type: ignore[dict-item] # that is the point

        assert ("consume[rps]", amount) == (refused.value.field, refused.value.value)
        assert f"must be a whole number from 0 to {10**18}" == refused.value.reason

    @pytest.mark.parametrize(("unit", "call"), [("USD", 'usd("0.04")'), ("EUR", 'money("0.04", "EUR")')])
    def test_float_of_a_money_limit_raises_with_the_function_to_call(self, unit: str, call: str) -> None:
        """A caller may take 0.04 for four cents."""
        terms = stored(Limit.quota("spend", 5_000_000, unit=unit))
        with pytest.raises(ValidationError) as refused:
            amounts_of({"spend": 0.04}, terms)  # type: ignore[dict-item] # that is the point

        assert f"must be a whole number from 0 to {10**18}; money is in micro-units, such as {call}" == (
            refused.value.reason
        )

    def test_unknown_limit_raises_with_the_known_limits(self) -> None:
        """A misspelt name is found quickly."""
        with pytest.raises(ValidationError, match="in force are: rpm, rps") as refused:
            amounts_of({"rsp": 1}, stored(RPS, RPM))

        assert ("consume", "rsp") == (refused.value.field, refused.value.value)

    @pytest.mark.parametrize(("consume", "field"), [({"rsp": 1}, "adjust"), ({"rps": -1}, "adjust[rps]")])
    def test_invalid_amount_of_an_adjust_names_the_argument_of_adjust(
        self, consume: dict[str, int], field: str
    ) -> None:
        """A caller that adjusts a lease has not passed a ``consume``."""
        with pytest.raises(ValidationError) as refused:
            amounts_of(consume, TERMS, "adjust")

        assert field == refused.value.field


class TestWithoutAView:
    """A bucket without a view is read, and created if it does not exist."""

    def test_bucket_without_a_view_is_read_first(self) -> None:
        """A read is cheaper than a refused write."""
        assert isinstance(step(None, TERMS, {"rps": 1}, at(NOON)), Look)

    def test_missing_bucket_is_created_after_the_read(self) -> None:
        """It is created with the known limits."""
        assert isinstance(step(None, TERMS, {"rps": 1}, at(NOON), FRESH.after_look()), Create)

    def test_deleted_bucket_is_created_after_the_limits_are_read_again(self) -> None:
        """It may have been deleted with its entity."""
        gone = FRESH.after_vanishing()

        assert isinstance(step(None, TERMS, {"rps": 1}, at(NOON), gone), Resolve)
        assert isinstance(step(None, TERMS, {"rps": 1}, at(NOON), gone.after_resolve(None)), Create)

    def test_request_without_speculation_reads_once_before_its_take(self) -> None:
        """Speculative writes are turned off."""
        look_first = Progress(trust_ms=1000, look_first=True)
        seen = view(created(TERMS))

        assert isinstance(step(seen, TERMS, {"rps": 1}, at(NOON), look_first), Look)
        assert isinstance(step(seen, TERMS, {"rps": 1}, at(NOON), look_first.after_look()), Take)


def test_take_without_expiry_has_no_condition_on_limits_that_it_does_not_name() -> None:
    """Only a take that sets a ttl must know that no limit is in debt."""
    terms = stored(RPS, RPM)
    chosen = step(view(created(terms)), terms, {"rps": 1}, at(NOON))

    assert isinstance(chosen, Take)
    assert (None, ()) == (chosen.expires_s, chosen.solvent)


class TestKnownShort:
    """A fresh view that lacks tokens rejects before anything is written to any bucket of the request."""

    @pytest.mark.parametrize(("age_ms", "expected"), [(0, True), (999, True), (1_000, False), (-1, False)])
    def test_only_a_fresh_view_is_known_short(self, age_ms: int, expected: bool) -> None:
        """Other clients may return tokens, so an older view is read first."""
        seen = view(with_balances(created(TERMS), rps=-50_000))

        assert expected is is_known_short(seen, TERMS, [(0, 1_000)], at(NOON + age_ms), 1_000)

    def test_view_with_enough_tokens_is_not_known_short(self) -> None:
        """The request is written."""
        assert not is_known_short(view(created(TERMS)), TERMS, [(0, 1_000)], at(NOON), 1_000)

    def test_view_on_other_limits_is_not_known_short(self) -> None:
        """The level under the limits in force is known only after the rebase."""
        seen = view(with_balances(created(stored(RPS, RPM)), rps=-50_000))

        assert not is_known_short(seen, TERMS, [(0, 1_000)], at(NOON), 1_000)


class TestRejecting:
    """A request is rejected by a fresh view, or after a read."""

    @pytest.mark.parametrize(("age_ms", "expected"), [(0, Reject), (999, Reject), (1_000, Look), (-1, Look)])
    def test_view_rejects_only_while_it_is_fresh(self, age_ms: int, expected: type) -> None:
        """Other clients may return tokens."""
        seen = view(with_balances(created(TERMS), rps=-50_000))

        assert isinstance(step(seen, TERMS, {"rps": 1}, at(NOON + age_ms)), expected)

    def test_trust_of_zero_always_reads_before_rejecting(self) -> None:
        """0 disables local rejection."""
        seen = view(with_balances(created(TERMS), rps=0))

        assert isinstance(step(seen, TERMS, {"rps": 1}, at(NOON), Progress(trust_ms=0)), Look)

    def test_short_view_after_a_read_rejects_whatever_its_age(self) -> None:
        """The bucket is not read a second time."""
        seen = view(with_balances(created(TERMS), rps=-90_000))

        assert isinstance(step(seen, TERMS, {"rps": 1}, at(NOON + 5_000), FRESH.after_look()), Reject)

    def test_refused_request_is_judged_at_the_time_of_its_write(self) -> None:
        """Tokens refilled since then do not count; tokens that were there do."""
        seen = view(with_balances(created(TERMS), rps=0))
        asked = FRESH.after_refusal(at(NOON + 99), guessed=True)

        chosen = step(seen, TERMS, {"rps": 1}, at(NOON + 500), asked)

        assert Reject(at(NOON + 99)) == chosen
        assert isinstance(
            step(seen, TERMS, {"rps": 1}, at(NOON + 500), FRESH.after_refusal(at(NOON + 100), guessed=True)), Take
        )

    def test_refused_request_at_an_uncertain_time_is_judged_at_its_early_bound(self) -> None:
        """Tokens that may not have been refilled yet do not count."""
        seen = view(with_balances(created(TERMS), rps=0))
        asked = (NOON + 99, NOON + 200)

        assert Reject(asked) == step(seen, TERMS, {"rps": 1}, at(NOON + 500), FRESH.after_refusal(asked, guessed=True))

    def test_refused_request_rejects_without_a_read(self) -> None:
        """The refusal returned the current bucket, even if the clock was set back since."""
        seen = view(with_balances(created(TERMS), rps=0), NOON + 5_000)
        refused = FRESH.after_refusal(at(NOON + 1_000), guessed=True)

        assert Reject(at(NOON)) == step(seen, TERMS, {"rps": 1}, at(NOON), refused)
        assert isinstance(step(seen, TERMS, {"rps": 1}, at(NOON)), Look)

    def test_request_that_has_read_takes_without_a_second_read(self) -> None:
        """One read is enough to write, even if other clients have taken since."""
        terms = stored(Limit("rps", 1_000, 1_000, 1))
        seen = view(created(terms))
        seen.pace = Pace((100_000.0,), 1.0, 1_000.0)

        assert isinstance(step(seen, terms, {"rps": 1}, at(NOON + 100)), Look)
        assert isinstance(step(seen, terms, {"rps": 1}, at(NOON + 100), FRESH.after_look()), Take)

    def test_recreated_bucket_is_not_judged_at_a_time_before_its_creation(self) -> None:
        """The bucket that refused the write was deleted since."""
        seen = view(with_balances(created(TERMS), rps=0))
        refused = FRESH.after_refusal(at(NOON), guessed=True)

        assert Reject(at(NOON)) == step(seen, TERMS, {"rps": 1}, at(NOON + 500), refused)
        assert isinstance(step(seen, TERMS, {"rps": 1}, at(NOON + 500), refused.after_vanishing()), Take)

    def test_zero_tokens_of_a_limit_in_debt_are_taken(self) -> None:
        """A request for nothing needs no tokens, and its write leaves the debt unchanged."""
        seen = view(with_balances(created(TERMS), rps=-1))

        chosen = step(seen, TERMS, {"rps": 0}, at(NOON))

        assert isinstance(chosen, Take)
        assert [] == chosen.bounds


class TestOtherLimits:
    """A bucket that was built from other limits than the client's."""

    def test_bucket_with_older_limits_is_rebased_with_the_take(self) -> None:
        """Both are one write."""
        chosen = step(view(created(TERMS)), stored(RPM, RPS, stamp=2), {"rps": 1}, at(NOON))

        assert isinstance(chosen, Rebase)
        assert chosen.takes

    def test_bucket_with_older_limits_and_too_few_tokens_is_rebased_without_a_take(self) -> None:
        """Nothing is taken in that write."""
        seen = view(with_balances(created(TERMS), rps=0))
        chosen = step(seen, stored(RPM, RPS, stamp=2), {"rps": 1}, at(NOON))

        assert isinstance(chosen, Rebase)
        assert chosen.takes is False

    @pytest.mark.parametrize("mine", [stored(RPM, stamp=4), stored(RPM, stamp=5)])
    def test_client_with_older_limits_reads_them_again(self, mine: object) -> None:
        """A client with older limits, or different limits of the same stamp, must not write them back."""
        seen = view(created(stored(RPS, stamp=5)))

        assert isinstance(step(seen, mine, {"rpm": 1}, at(NOON)), Resolve)

    def test_older_limits_that_were_read_again_rebase_the_bucket(self) -> None:
        """This happens after a backup was restored."""
        seen = view(created(stored(RPS, stamp=5)))
        older = stored(RPM, stamp=4)

        assert isinstance(step(seen, older, {"rpm": 1}, at(NOON), FRESH.after_resolve(5)), Rebase)

    def test_limits_read_before_the_bucket_changed_are_read_again(self) -> None:
        """The client has seen that the bucket has newer limits."""
        seen = view(created(stored(RPS, stamp=6)))
        older = stored(RPM, stamp=5)
        done = FRESH.after_resolve(4).after_refusal(at(NOON), guessed=False)

        assert isinstance(step(seen, older, {"rpm": 1}, at(NOON), done), Resolve)

    def test_passed_limits_rebase_the_bucket_without_a_read(self) -> None:
        """The same stamp with another digest is the caller's choice."""
        seen = view(created(TERMS))

        assert isinstance(step(seen, own(RPS), {"rps": 1}, at(NOON)), Rebase)
        assert isinstance(step(seen, own(RPS, stamp=0), {"rps": 1}, at(NOON)), Resolve)

    def test_limits_in_another_order_do_not_rebase_the_bucket(self) -> None:
        """Limits are ordered by name."""
        seen = view(created(stored(RPS, RPM)))

        assert isinstance(step(seen, stored(RPM, RPS), {"rps": 1}, at(NOON)), Take)


class TestRetries:
    """Contention alone is never a reason to reject."""

    @given(
        limit=st.builds(Limit, st.just("rps"), st.integers(1, 50), st.integers(1, 50), st.integers(1, 9)),
        seen_tk=st.integers(-50_000, 50_000),
        tk=st.integers(-50_000, 50_000),
        elapsed=st.integers(0, 3_000),
        data=st.data(),
    )
    def test_last_retry_is_refused_only_by_a_bucket_that_lacks_the_tokens(
        self, limit: Limit, seen_tk: int, tk: int, elapsed: int, data: st.DataObject
    ) -> None:
        """T = n: every level of at least n is accepted."""
        terms, now = stored(limit), at(NOON + elapsed)
        tokens = data.draw(st.integers(1, limit.capacity))
        item = with_balances(created(terms), rps=seen_tk)
        last = refused_so_often(GUESSES + HALVINGS, now)
        chosen = step(view(item), terms, {"rps": tokens}, now, last)
        if isinstance(chosen, Reject):
            assert level(item, "rps", now[0]) < tokens * 1000
            return

        held = with_balances(item, rps=tk)
        answer = apply(write_of(chosen, view(item), terms, {"rps": tokens}, now), held)

        assert isinstance(answer, Applied) == (level(held, "rps", now[0]) >= tokens * 1000)

    def test_middle_retry_from_a_full_bucket_discards_half_of_the_rest(self) -> None:
        """T is halfway between n and the level that was seen."""
        item = with_balances(created(TERMS), rps=12_000)
        write = taking(view(item), TERMS, {"rps": 2}, at(NOON), refused_so_often(GUESSES, at(NOON)))

        for tk in (6_000, 8_000, 50_000):
            assert 4_000 == balance(after(write, with_balances(item, rps=tk)), "rps")
        assert isinstance(apply(write, with_balances(item, rps=5_999)), Refused)

    def test_last_retry_from_a_full_bucket_discards_all_of_the_rest(self) -> None:
        """T = n; the retry before it was still halfway."""
        item = with_balances(created(TERMS), rps=12_000)
        refusals = GUESSES + HALVINGS
        before, last = (
            taking(view(item), TERMS, {"rps": 2}, at(NOON), refused_so_often(count, at(NOON)))
            for count in (refusals - 1, refusals)
        )

        assert isinstance(apply(before, with_balances(item, rps=5_999)), Refused)
        for tk in (2_000, 5_999, 12_000):
            assert 0 == balance(after(last, with_balances(item, rps=tk)), "rps")
        assert isinstance(apply(last, with_balances(item, rps=1_999)), Refused)

    def test_middle_retry_from_a_bucket_that_is_not_full_discards_nothing(self) -> None:
        """Subtracting is exact from n up to full."""
        item = with_balances(created(TERMS), rps=8_000)
        write = taking(view(item), TERMS, {"rps": 2}, at(NOON), refused_so_often(GUESSES, at(NOON)))

        for tk in (2_000, 8_000, 10_000):
            assert tk - 2_000 == balance(after(write, with_balances(item, rps=tk)), "rps")

    @pytest.mark.parametrize("refusals", range(GUESSES))
    def test_first_retries_discard_nothing(self, refusals: int) -> None:
        """A wrong prediction is corrected by the refusal."""
        item = with_balances(created(TERMS), rps=8_000)
        write = taking(view(item), TERMS, {"rps": 2}, at(NOON), refused_so_often(refusals, at(NOON)))

        assert 6_000 == balance(after(write, item), "rps")


class TestLimitLevels:
    """The levels of a bucket's limits, as a client sees them."""

    def test_levels_of_a_missing_bucket_are_full(self) -> None:
        """It would be created full."""
        assert [10_000] == [one.available_milli(at(NOON)) for one in limit_levels(None, TERMS, at(NOON))]
        assert [LimitLevel(Baseline.of(RPS, NOON + 5), 10_000)] == limit_levels(None, TERMS, (NOON, NOON + 5))

    def test_levels_of_a_bucket_on_the_clients_limits_are_those_of_the_view(self) -> None:
        """They are computed for the requested time."""
        levels = limit_levels(view(with_balances(created(TERMS), rps=-3_000)), TERMS, at(NOON + 100))

        assert [-2_000] == [one.available_milli(at(NOON + 100)) for one in levels]
        assert [300] == [one.wait_ms(1_000, at(NOON + 100)) for one in levels]
        assert [0] == [one.wait_ms(-2_000, at(NOON + 100)) for one in levels]

    @given(
        order=st.lists(st.integers(0, 63), max_size=4),
        seed=st.integers(0, 2**32),
        new=st.builds(Limit, st.just("rps"), st.integers(1, 20), st.integers(1, 20), st.integers(1, 9)),
        moment=st.tuples(st.integers(-1_000, 2_000), st.integers(0, 500)),
        wait_ms=st.integers(0, 5_000),
    )
    def test_levels_of_a_bucket_on_other_limits_are_those_after_a_rebase(
        self, order: list[int], seed: int, new: Limit, moment: tuple[int, int], wait_ms: int
    ) -> None:
        """New limits are full, old ones cut, each shard by its share; then they refill at the new rate."""
        gap, wide_ms = moment
        terms, now = stored(new, RPM, stamp=2), (NOON + gap, NOON + gap + wide_ms)
        for item in many_shards.shaken(many_shards.grown(TERMS, order), ["rps"], seed, 9_000).values():
            levels = limit_levels(view(item), terms, now)
            moved = after(taking(view(item), terms, {}, now), item)

            for then_ms in (moved["rf"], now[1] + 1_000 + wait_ms):
                assert [many_shards.level(moved, name, then_ms) for name in ("rpm", "rps")] == [
                    one.available_milli(at(then_ms)) for one in levels
                ]

    @given(
        limit=some.limits,
        tk=st.integers(-(10**21), 10**21),
        elapsed=st.integers(0, 10**10),
        data=st.data(),
    )
    def test_status_reports_the_exact_wait(self, limit: Limit, tk: int, elapsed: int, data: st.DataObject) -> None:
        """The level reaches the amount at that time, and not a millisecond earlier."""
        terms, now = stored(limit), at(NOON + elapsed)
        tokens = data.draw(st.integers(1, limit.capacity))
        item = {**created(terms), f"b_{limit.name}_tk": tk}
        levels = limit_levels(view(item), terms, now)
        (reported,) = statuses(("user-1", "gpt-4"), levels, amounts_of({limit.name: tokens}, terms), now, now)
        wait_ms = levels[0].wait_ms(tokens * 1000, now)

        assert ("user-1", "gpt-4", limit.name, limit) == (
            reported.entity_id,
            reported.resource,
            reported.limit_name,
            reported.limit,
        )
        assert tokens == reported.requested
        assert reported.exceeded == (level(item, limit.name, now[0]) < tokens * 1000)
        assert reported.available == level(item, limit.name, now[0]) // 1000
        assert reported.retry_after_seconds == (wait_ms / 1000 if reported.exceeded else 0.0)
        if reported.exceeded:
            assert level(item, limit.name, now[0] + wait_ms - 1) < tokens * 1000
            assert level(item, limit.name, now[0] + wait_ms) >= tokens * 1000

    def test_status_of_huge_amounts_is_exact_to_the_token(self) -> None:
        """All arithmetic is in integers."""
        large = Limit("tpm", 10**18, 1, 1)
        terms = stored(large)
        levels = limit_levels(view(with_balances(created(terms), tpm=-1_000)), terms, at(NOON))
        amounts = amounts_of({"tpm": 10**18 - 1}, terms)

        (reported,) = statuses(("user-1", "gpt-4"), levels, amounts, at(NOON), at(NOON))

        assert (10**18 - 1, -1) == (reported.requested, reported.available)

    def test_status_of_a_limit_that_was_not_requested_is_never_exceeded(self) -> None:
        """It is reported, even if it is in debt."""
        terms = stored(RPS, RPM)
        seen = view(with_balances(created(terms), rpm=-7_000))

        reported = statuses(
            ("user-1", "gpt-4"), limit_levels(seen, terms, at(NOON)), amounts_of({"rps": 1}, terms), at(NOON), at(NOON)
        )

        assert [("rpm", -7, 0, False, 0.0), ("rps", 10, 1, False, 0.0)] == [
            (one.limit_name, one.available, one.requested, one.exceeded, one.retry_after_seconds) for one in reported
        ]


def test_single_client_makes_one_write_per_request() -> None:
    """Whether the bucket is full or not, and however much was refilled."""
    client = Client(TERMS)
    client.request({"rps": 1}, at(NOON))

    for elapsed in range(0, 5_000, 150):
        assert not client.request({"rps": 1}, at(NOON + elapsed))
        assert [Take] == [type(one) for one in client.steps]
