"""The next step of a request, from what is known of the bucket."""

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
    LimitLevel,
    Look,
    Progress,
    Rebase,
    Reject,
    Resolve,
    Take,
    amounts_of,
    covers,
    is_known_short,
    limit_levels,
    statuses,
)
from zae_limiter.core.bucket import Baseline
from zae_limiter.core.errors import ValidationError
from zae_limiter.core.limit import Limit
from zae_limiter.core.outcome import Applied, Refused
from zae_limiter.core.view import Pace

RPS = Limit("rps", 10, 10, 1)
RPM = Limit("rpm", 100, 100, 60)
TERMS = stored(RPS)
FRESH = Progress(trust_ms=1000)


class TestAmounts:
    """What is asked for."""

    def test_tokens_become_millitokens_by_position(self) -> None:
        """Limits stand in the order of their names."""
        assert [(1, 5_000), (0, 0)] == list(amounts_of({"rps": 5, "rpm": 0}, stored(RPS, RPM)))

    def test_more_than_the_capacity_can_never_be_admitted(self) -> None:
        """The error names the limit and its capacity."""
        with pytest.raises(ValidationError) as refused:
            amounts_of({"rps": 11}, TERMS)

        assert ("consume[rps]", 11) == (refused.value.field, refused.value.value)
        assert "'rps' (10)" in refused.value.reason

    @pytest.mark.parametrize("amount", [-1, 1.0, True, None, "1", float("nan")])
    def test_an_amount_is_a_whole_number(self, amount: object) -> None:
        """Zero or more; the error names the limit and what was asked for."""
        with pytest.raises(ValidationError) as refused:
            amounts_of({"rps": amount}, TERMS)  # type: ignore[dict-item] # that is the point

        assert ("consume[rps]", amount) == (refused.value.field, refused.value.value)
        assert "must be a whole number, zero or more" == refused.value.reason

    def test_an_unknown_limit_is_told_the_known_ones(self) -> None:
        """So a misspelt name is found at once."""
        with pytest.raises(ValidationError, match="in force are: rpm, rps") as refused:
            amounts_of({"rsp": 1}, stored(RPS, RPM))

        assert ("consume", "rsp") == (refused.value.field, refused.value.value)

    @pytest.mark.parametrize(("consume", "field"), [({"rsp": 1}, "adjust"), ({"rps": -1}, "adjust[rps]")])
    def test_an_error_is_told_of_what_the_caller_passed(self, consume: dict[str, int], field: str) -> None:
        """Whoever adjusts a lease has not passed a ``consume``."""
        with pytest.raises(ValidationError) as refused:
            amounts_of(consume, TERMS, "adjust")

        assert field == refused.value.field


class TestWithoutAView:
    """A bucket that was not seen is looked at, and created if there is none."""

    def test_a_bucket_that_was_not_seen_is_looked_at(self) -> None:
        """A read is cheaper than a refused write."""
        assert isinstance(step(None, TERMS, {"rps": 1}, at(NOON)), Look)

    def test_a_bucket_that_is_not_there_is_created(self) -> None:
        """By the limits that are known."""
        assert isinstance(step(None, TERMS, {"rps": 1}, at(NOON), FRESH.after_look()), Create)

    def test_a_bucket_that_vanished_is_created_once_the_limits_were_read_again(self) -> None:
        """It may have gone with its entity."""
        gone = FRESH.after_vanishing()

        assert isinstance(step(None, TERMS, {"rps": 1}, at(NOON), gone), Resolve)
        assert isinstance(step(None, TERMS, {"rps": 1}, at(NOON), gone.after_resolve(None)), Create)

    def test_without_speculation_every_request_looks_first(self) -> None:
        """Once."""
        careful = Progress(trust_ms=1000, look_first=True)
        seen = view(created(TERMS))

        assert isinstance(step(seen, TERMS, {"rps": 1}, at(NOON), careful), Look)
        assert isinstance(step(seen, TERMS, {"rps": 1}, at(NOON), careful.after_look()), Take)


def test_a_take_from_a_bucket_that_never_expires_asks_nothing_of_limits_it_does_not_touch() -> None:
    """Only who sets a time must know that nobody owes."""
    terms = stored(RPS, RPM)
    chosen = step(view(created(terms)), terms, {"rps": 1}, at(NOON))

    assert isinstance(chosen, Take)
    assert (None, ()) == (chosen.expires_s, chosen.solvent)


class TestKnownShort:
    """A fresh view that is short rejects before anything is written to any bucket of the request."""

    @pytest.mark.parametrize(("age_ms", "expected"), [(0, True), (999, True), (1_000, False), (-1, False)])
    def test_only_a_fresh_view_is_evidence(self, age_ms: int, expected: bool) -> None:
        """Other clients may return tokens, so an older view is read first."""
        seen = view(with_balances(created(TERMS), rps=-50_000))

        assert expected is is_known_short(seen, TERMS, [(0, 1_000)], at(NOON + age_ms), 1_000)

    def test_a_view_that_has_enough_is_not_short(self) -> None:
        """The request is written."""
        assert not is_known_short(view(created(TERMS)), TERMS, [(0, 1_000)], at(NOON), 1_000)

    def test_a_view_on_other_limits_is_no_evidence(self) -> None:
        """What the bucket has under the limits in force is known after the rebase."""
        seen = view(with_balances(created(stored(RPS, RPM)), rps=-50_000))

        assert not is_known_short(seen, TERMS, [(0, 1_000)], at(NOON), 1_000)


class TestCovers:
    """The quick test that a view has the tokens: it never says so of a bucket that lacks them."""

    @given(
        limit=some.limits, tk=st.integers(-20_000, 20_000), elapsed=st.integers(-10, 10_000), tokens=st.integers(0, 30)
    )
    def test_covers_is_never_true_of_a_bucket_that_lacks_the_tokens(
        self, limit: Limit, tk: int, elapsed: int, tokens: int
    ) -> None:
        """And always true of one that has them once its baseline is reached."""
        item = {**created(stored(limit)), f"b_{limit.name}_tk": tk}
        now_ms = NOON + elapsed
        enough = level(item, limit.name, now_ms) >= tokens * 1000

        found = covers(view(item), {limit.name: tokens}, now_ms)

        assert found == (enough and elapsed >= 0)

    def test_limit_that_the_bucket_lacks_asks_nothing_of_it(self) -> None:
        """A parent limits only some of a request."""
        assert covers(view(created(TERMS)), {"other": 10**9}, NOON)

    def test_one_shard_of_several_covers_nothing(self) -> None:
        """What it lacks another may have, so the exact test decides."""
        shards = many_shards.looks(many_shards.grown(TERMS, [0]), NOON, TERMS)

        assert not covers(shards[0], {"rps": 0}, NOON)

    def test_amount_that_is_no_number_is_left_to_the_exact_test(self) -> None:
        """It names the error."""
        assert not covers(view(created(TERMS)), {"rps": "1"}, NOON)  # type: ignore[dict-item] # what is tested


class TestRejecting:
    """A request is rejected by a fresh view, or by a look."""

    @pytest.mark.parametrize(("age_ms", "expected"), [(0, Reject), (999, Reject), (1_000, Look), (-1, Look)])
    def test_a_view_rejects_for_a_short_time_only(self, age_ms: int, expected: type) -> None:
        """Others may give back what they took."""
        seen = view(with_balances(created(TERMS), rps=-50_000))

        assert isinstance(step(seen, TERMS, {"rps": 1}, at(NOON + age_ms)), expected)

    def test_no_trust_is_always_a_look(self) -> None:
        """0 turns local rejection off."""
        seen = view(with_balances(created(TERMS), rps=0))

        assert isinstance(step(seen, TERMS, {"rps": 1}, at(NOON), Progress(trust_ms=0)), Look)

    def test_after_a_look_it_is_final(self) -> None:
        """However old the view has become by then."""
        seen = view(with_balances(created(TERMS), rps=-90_000))

        assert isinstance(step(seen, TERMS, {"rps": 1}, at(NOON + 5_000), FRESH.after_look()), Reject)

    def test_a_refused_request_is_judged_at_the_time_it_asked(self) -> None:
        """What has been earned since does not count; what was there then does."""
        seen = view(with_balances(created(TERMS), rps=0))
        asked = FRESH.after_refusal(at(NOON + 99), guessed=True)

        chosen = step(seen, TERMS, {"rps": 1}, at(NOON + 500), asked)

        assert Reject(at(NOON + 99)) == chosen
        assert isinstance(
            step(seen, TERMS, {"rps": 1}, at(NOON + 500), FRESH.after_refusal(at(NOON + 100), guessed=True)), Take
        )

    def test_a_refused_request_is_judged_at_the_early_end_of_an_unsure_time(self) -> None:
        """What may not have been earned then was not there."""
        seen = view(with_balances(created(TERMS), rps=0))
        asked = (NOON + 99, NOON + 200)

        assert Reject(asked) == step(seen, TERMS, {"rps": 1}, at(NOON + 500), FRESH.after_refusal(asked, guessed=True))

    def test_what_a_refusal_told_needs_no_look(self) -> None:
        """The answer is the bucket as it is, though the clock was set back since."""
        seen = view(with_balances(created(TERMS), rps=0), NOON + 5_000)
        refused = FRESH.after_refusal(at(NOON + 1_000), guessed=True)

        assert Reject(at(NOON)) == step(seen, TERMS, {"rps": 1}, at(NOON), refused)
        assert isinstance(step(seen, TERMS, {"rps": 1}, at(NOON)), Look)

    def test_who_has_looked_does_not_look_again(self) -> None:
        """Unsure of what others have taken since, one look is enough to write."""
        terms = stored(Limit("rps", 1_000, 1_000, 1))
        seen = view(created(terms))
        seen.pace = Pace((100_000.0,), 1.0, 1_000.0)

        assert isinstance(step(seen, terms, {"rps": 1}, at(NOON + 100)), Look)
        assert isinstance(step(seen, terms, {"rps": 1}, at(NOON + 100), FRESH.after_look()), Take)

    def test_a_bucket_made_anew_is_not_judged_at_a_time_before_it(self) -> None:
        """The one that refused has vanished since."""
        seen = view(with_balances(created(TERMS), rps=0))
        refused = FRESH.after_refusal(at(NOON), guessed=True)

        assert Reject(at(NOON)) == step(seen, TERMS, {"rps": 1}, at(NOON + 500), refused)
        assert isinstance(step(seen, TERMS, {"rps": 1}, at(NOON + 500), refused.after_vanishing()), Take)

    def test_zero_of_a_limit_in_debt_is_admitted(self) -> None:
        """A request for nothing needs no tokens, and its write leaves the debt as it is."""
        seen = view(with_balances(created(TERMS), rps=-1))

        chosen = step(seen, TERMS, {"rps": 0}, at(NOON))

        assert isinstance(chosen, Take)
        assert [] == chosen.bounds


class TestOtherLimits:
    """A bucket that was built from other limits than the client's."""

    def test_newer_limits_are_brought_to_it(self) -> None:
        """And the request taken in the same write."""
        chosen = step(view(created(TERMS)), stored(RPM, RPS, stamp=2), {"rps": 1}, at(NOON))

        assert isinstance(chosen, Rebase)
        assert chosen.takes

    def test_without_the_tokens_only_the_limits_are_brought(self) -> None:
        """Nothing is taken in that write."""
        seen = view(with_balances(created(TERMS), rps=0))
        chosen = step(seen, stored(RPM, RPS, stamp=2), {"rps": 1}, at(NOON))

        assert isinstance(chosen, Rebase)
        assert chosen.takes is False

    @pytest.mark.parametrize("mine", [stored(RPM, stamp=4), stored(RPM, stamp=5)])
    def test_older_limits_are_read_again_first(self, mine: object) -> None:
        """A client that is behind must not bring a bucket back; nor one that read something else of the same stamp."""
        seen = view(created(stored(RPS, stamp=5)))

        assert isinstance(step(seen, mine, {"rpm": 1}, at(NOON)), Resolve)

    def test_limits_that_were_read_again_and_are_older_still_win(self) -> None:
        """A backup was restored."""
        seen = view(created(stored(RPS, stamp=5)))
        older = stored(RPM, stamp=4)

        assert isinstance(step(seen, older, {"rpm": 1}, at(NOON), FRESH.after_resolve(5)), Rebase)

    def test_limits_read_before_a_bucket_was_upgraded_do_not_bring_it_back(self) -> None:
        """They are read again once the client has seen that the bucket has newer ones."""
        seen = view(created(stored(RPS, stamp=6)))
        older = stored(RPM, stamp=5)
        done = FRESH.after_resolve(4).after_refusal(at(NOON), guessed=False)

        assert isinstance(step(seen, older, {"rpm": 1}, at(NOON), done), Resolve)

    def test_limits_of_ones_own_need_no_reading(self) -> None:
        """The same stamp with another digest is a caller's choice."""
        seen = view(created(TERMS))

        assert isinstance(step(seen, own(RPS), {"rps": 1}, at(NOON)), Rebase)
        assert isinstance(step(seen, own(RPS, stamp=0), {"rps": 1}, at(NOON)), Resolve)

    def test_the_same_limits_in_another_order_are_the_same(self) -> None:
        """Limits stand by name."""
        seen = view(created(stored(RPS, RPM)))

        assert isinstance(step(seen, stored(RPM, RPS), {"rps": 1}, at(NOON)), Take)


class TestTryingAgain:
    """Contention alone is never a reason to reject."""

    @given(
        limit=st.builds(Limit, st.just("rps"), st.integers(1, 50), st.integers(1, 50), st.integers(1, 9)),
        seen_tk=st.integers(-50_000, 50_000),
        tk=st.integers(-50_000, 50_000),
        elapsed=st.integers(0, 3_000),
        data=st.data(),
    )
    def test_the_last_try_is_refused_only_by_a_bucket_that_lacks_the_tokens(
        self, limit: Limit, seen_tk: int, tk: int, elapsed: int, data: st.DataObject
    ) -> None:
        """T = n: any level that reaches n will do."""
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

    def test_halfway_there_it_gives_half_of_the_rest_away(self) -> None:
        """From a full bucket: T is halfway between n and the level that was seen."""
        item = with_balances(created(TERMS), rps=12_000)
        write = taking(view(item), TERMS, {"rps": 2}, at(NOON), refused_so_often(GUESSES, at(NOON)))

        for tk in (6_000, 8_000, 50_000):
            assert 4_000 == balance(after(write, with_balances(item, rps=tk)), "rps")
        assert isinstance(apply(write, with_balances(item, rps=5_999)), Refused)

    def test_in_the_end_it_gives_all_of_the_rest_away(self) -> None:
        """T = n, where the try before it was still halfway."""
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

    def test_halfway_there_a_limit_that_is_not_full_loses_nothing(self) -> None:
        """To subtract is right from n up to full."""
        item = with_balances(created(TERMS), rps=8_000)
        write = taking(view(item), TERMS, {"rps": 2}, at(NOON), refused_so_often(GUESSES, at(NOON)))

        for tk in (2_000, 8_000, 10_000):
            assert tk - 2_000 == balance(after(write, with_balances(item, rps=tk)), "rps")

    @pytest.mark.parametrize("refusals", range(GUESSES))
    def test_the_first_tries_give_nothing_away(self, refusals: int) -> None:
        """A wrong guess is put right by what the refusal said."""
        item = with_balances(created(TERMS), rps=8_000)
        write = taking(view(item), TERMS, {"rps": 2}, at(NOON), refused_so_often(refusals, at(NOON)))

        assert 6_000 == balance(after(write, item), "rps")


class TestStandings:
    """How a bucket's limits stand for a client."""

    def test_a_bucket_that_is_not_there_stands_full(self) -> None:
        """It would be created full."""
        assert [10_000] == [one.available_milli(at(NOON)) for one in limit_levels(None, TERMS, at(NOON))]
        assert [LimitLevel(Baseline.of(RPS, NOON + 5), 10_000)] == limit_levels(None, TERMS, (NOON, NOON + 5))

    def test_a_bucket_on_the_clients_limits_stands_as_seen(self) -> None:
        """At the time that is asked for."""
        stands = limit_levels(view(with_balances(created(TERMS), rps=-3_000)), TERMS, at(NOON + 100))

        assert [-2_000] == [one.available_milli(at(NOON + 100)) for one in stands]
        assert [300] == [one.wait_ms(1_000, at(NOON + 100)) for one in stands]
        assert [0] == [one.wait_ms(-2_000, at(NOON + 100)) for one in stands]

    @given(
        order=st.lists(st.integers(0, 63), max_size=4),
        seed=st.integers(0, 2**32),
        new=st.builds(Limit, st.just("rps"), st.integers(1, 20), st.integers(1, 20), st.integers(1, 9)),
        moment=st.tuples(st.integers(-1_000, 2_000), st.integers(0, 500)),
        wait_ms=st.integers(0, 5_000),
    )
    def test_a_bucket_on_other_limits_stands_as_a_rebase_would_leave_it(
        self, order: list[int], seed: int, new: Limit, moment: tuple[int, int], wait_ms: int
    ) -> None:
        """New limits full, old ones cut, each shard by its share, and from then on they earn at the new rate."""
        gap, wide_ms = moment
        terms, now = stored(new, RPM, stamp=2), (NOON + gap, NOON + gap + wide_ms)
        for item in many_shards.shaken(many_shards.grown(TERMS, order), ["rps"], seed, 9_000).values():
            stands = limit_levels(view(item), terms, now)
            moved = after(taking(view(item), terms, {}, now), item)

            for then_ms in (moved["rf"], now[1] + 1_000 + wait_ms):
                assert [many_shards.level(moved, name, then_ms) for name in ("rpm", "rps")] == [
                    one.available_milli(at(then_ms)) for one in stands
                ]

    @given(
        limit=some.limits,
        tk=st.integers(-(10**21), 10**21),
        elapsed=st.integers(0, 10**10),
        data=st.data(),
    )
    def test_a_status_tells_exactly_when_a_retry_will_do(
        self, limit: Limit, tk: int, elapsed: int, data: st.DataObject
    ) -> None:
        """Level at that time reaches the amount, and a millisecond before it does not."""
        terms, now = stored(limit), at(NOON + elapsed)
        tokens = data.draw(st.integers(1, limit.capacity))
        item = {**created(terms), f"b_{limit.name}_tk": tk}
        stands = limit_levels(view(item), terms, now)
        (told,) = statuses(("user-1", "gpt-4"), stands, amounts_of({limit.name: tokens}, terms), now, now)
        wait_ms = stands[0].wait_ms(tokens * 1000, now)

        assert ("user-1", "gpt-4", limit.name, limit) == (told.entity_id, told.resource, told.limit_name, told.limit)
        assert tokens == told.requested
        assert told.exceeded == (level(item, limit.name, now[0]) < tokens * 1000)
        assert told.available == level(item, limit.name, now[0]) // 1000
        assert told.retry_after_seconds == (wait_ms / 1000 if told.exceeded else 0.0)
        if told.exceeded:
            assert level(item, limit.name, now[0] + wait_ms - 1) < tokens * 1000
            assert level(item, limit.name, now[0] + wait_ms) >= tokens * 1000

    def test_amounts_are_told_to_the_token_however_large(self) -> None:
        """They are whole numbers all the way."""
        large = Limit("tpm", 10**18, 1, 1)
        terms = stored(large)
        stands = limit_levels(view(with_balances(created(terms), tpm=-1_000)), terms, at(NOON))
        amounts = amounts_of({"tpm": 10**18 - 1}, terms)

        (told,) = statuses(("user-1", "gpt-4"), stands, amounts, at(NOON), at(NOON))

        assert (10**18 - 1, -1) == (told.requested, told.available)

    def test_a_limit_that_was_not_asked_for_is_told_and_never_exceeded(self) -> None:
        """Though it owes."""
        terms = stored(RPS, RPM)
        seen = view(with_balances(created(terms), rpm=-7_000))

        told = statuses(
            ("user-1", "gpt-4"), limit_levels(seen, terms, at(NOON)), amounts_of({"rps": 1}, terms), at(NOON), at(NOON)
        )

        assert [("rpm", -7, 0, False, 0.0), ("rps", 10, 1, False, 0.0)] == [
            (one.limit_name, one.available, one.requested, one.exceeded, one.retry_after_seconds) for one in told
        ]


def test_a_client_alone_writes_once_per_request() -> None:
    """Whether the bucket is full or not, and whatever was earned."""
    client = Client(TERMS)
    client.request({"rps": 1}, at(NOON))

    for elapsed in range(0, 5_000, 150):
        assert not client.request({"rps": 1}, at(NOON + elapsed))
        assert [Take] == [type(one) for one in client.steps]
