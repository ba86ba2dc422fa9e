"""The writes of quotas and soft limits, their attributes, and what an embedded table makes of a take."""

from typing import Any

import pytest

from tests.many_shards import after_split
from tests.one_bucket import NOON, Client, after, at, created, stored, taking, view
from tests.quota_buckets import (
    DAY_S,
    RPM,
    SOFT,
    SPEND,
    TERMS,
    TODAY_EPOCH,
    TOMORROW,
    TOMORROW_EPOCH,
    TOMORROW_S,
    TRIAL,
    numbers,
    qk,
    tokens,
)
from tests.slot_buckets import cohorts
from zae_limiter.core.acquire import MixedTake, Progress, next_step
from zae_limiter.core.limit import Limit
from zae_limiter.core.outcome import Missing, Refused
from zae_limiter.core.view import EffectiveLimits
from zae_limiter.schema import bucket_writes
from zae_limiter.schema.bucket_item import BucketView, view_of
from zae_limiter.schema.direct_writes import BucketMixedTake
from zae_limiter.schema.operations import Update
from zae_limiter.tables import evaluate

CALLS = Limit.concurrent("calls", 2, hold_seconds=10, enforce=False)
EXPIRING = stored(RPM, SOFT, SPEND, TRIAL, ttl=3)

changes = pytest.mark.parametrize(
    "change",
    [
        {},
        {"b_spend_qk": qk(TODAY_EPOCH, 60)},
        {"b_spend_qk": qk(TODAY_EPOCH, 96)},
        {"b_spend_qk": qk(TODAY_EPOCH, -1)},
        {"b_spend_qk": qk(TOMORROW_EPOCH, 3)},
        {"b_spend_qk": qk(TODAY_EPOCH - 2 * DAY_S, 3)},
        {"b_spend_qk": None},
        {"b_spend_qk": "many"},
        {"b_spend_tc": None},
        {"b_trial_tc": True},
        {"b_soft_tk": 10**6},
        {"b_soft_tk": -(10**6)},
        {"b_soft_tk": None},
        {"b_rpm_tk": -(10**6)},
        {"gn": 7},
        {"ttl": None},
        {"ttl": 2_000_000_000},
    ],
    ids=str,
)


def step_of(seen: BucketView, terms: EffectiveLimits, consume: dict[str, int], now_ms: int) -> MixedTake:
    """Return the take of a request that is admitted."""
    amounts = [(terms.positions[name], amount * 1000) for name, amount in consume.items()]
    chosen = next_step(seen, terms, amounts, at(now_ms), Progress(trust_ms=0, looked=True))
    assert isinstance(chosen, MixedTake)
    return chosen


def result(update: Update, item: dict[str, Any]) -> object:
    """Return the result of an update, or the kind of its error."""
    try:
        return evaluate.apply(update, item)
    except Exception as error:  # noqa: BLE001 - both forms must fail alike
        return type(error)


class TestDirectTake:
    """Takes that an embedded table applies without reading their conditions."""

    @changes
    @pytest.mark.parametrize("now_ms", [NOON, NOON + 60_000, TOMORROW])
    @pytest.mark.parametrize("soft", [2, 11], ids=["charged", "counted"])
    @pytest.mark.parametrize("terms", [TERMS, EXPIRING], ids=["kept", "expiring"])
    def test_direct_take_does_what_its_update_does(
        self, terms: EffectiveLimits, soft: int, now_ms: int, change: dict[str, Any]
    ) -> None:
        """Whatever another client has changed since the view, both are refused or both write the same."""
        new = created(terms, {"spend": 40})
        seen = view_of(new, NOON, None, terms)
        step = step_of(seen, terms, {"rpm": 1, "soft": soft, "spend": 5, "trial": 12}, now_ms)
        item = {name: value for name, value in {**new, **change}.items() if value is not None}

        assert result(bucket_writes.take(seen, step, 5), item) == result(BucketMixedTake(seen, step, 5), item)
        assert Missing() == evaluate.apply(BucketMixedTake(seen, step, 5), {})

    @pytest.mark.parametrize(("spent", "is_applied"), [(95, True), (96, False)])
    def test_direct_take_is_refused_once_others_have_taken_what_it_needs(self, spent: int, is_applied: bool) -> None:
        """A quota of 100 has 5 left after 95."""
        seen = view(created(TERMS, {"spend": 40}))
        write = BucketMixedTake(seen, step_of(seen, TERMS, {"spend": 5}, NOON), 5)
        found = write.applied_to({**created(TERMS, {"spend": 40}), "b_spend_qk": qk(TODAY_EPOCH, spent)})

        assert is_applied == (found is not None)
        assert found is None or qk(TODAY_EPOCH, 100) == found["b_spend_qk"]

    @pytest.mark.parametrize("soft", [2, 11])
    def test_direct_take_names_all_attributes_that_it_writes(self, soft: int) -> None:
        """A file then writes only these numbers."""
        seen = view_of(created(EXPIRING, {"spend": 40}), NOON, None, EXPIRING)
        consume = {"rpm": 1, "soft": soft, "spend": 5, "trial": 12}
        write = BucketMixedTake(seen, step_of(seen, EXPIRING, consume, NOON), 5)

        assert {*write.add, *write.set} == {*(write.written_names() or ())}

    def test_direct_take_that_removes_the_expiry_names_nothing(self) -> None:
        """A bucket with limits of its own never expires."""
        seen = view(created(TERMS))

        assert BucketMixedTake(seen, step_of(seen, TERMS, {"spend": 5}, NOON), 5).written_names() is None


class TestTake:
    """Takes as updates."""

    def test_take_of_a_soft_limit_that_only_counts_is_never_refused_by_its_balance(self) -> None:
        """There is nothing that the balance must have."""
        item = created(TERMS)
        write = taking(view(item), TERMS, {"soft": 11}, at(NOON))

        assert [(-90_000, 11_000)] == [tokens(after(write, {**item, "b_soft_tk": -90_000}))]

    def test_soft_slots_are_taken_beyond_their_capacity(self) -> None:
        """The free slots become negative, and the slots in use have an end like any others."""
        terms = stored(CALLS, RPM)
        item = created(terms, {"calls": 2})
        found = after(taking(view(item), terms, {"calls": 1}, at(NOON)), {**item, "b_calls_tk": -7_000})

        assert (-8_000, {NOON // 1000 + 10: 3_000}) == (found["b_calls_tk"], cohorts(found, "calls"))

    def test_take_after_the_edge_is_refused_once_another_client_has_begun_the_period(self) -> None:
        """It would reset what that client has spent."""
        item = created(TERMS, {"spend": 40})
        write = taking(view(item, TOMORROW), TERMS, {"spend": 5}, at(TOMORROW))
        begun = {**item, "b_spend_qk": qk(TOMORROW_EPOCH, 1)}

        assert qk(TOMORROW_EPOCH, 5) == numbers(after(write, item))[0]
        assert Refused(begun) == evaluate.apply(write, begun)

    def test_debt_of_a_quota_does_not_keep_an_item(self) -> None:
        """The item lives longer than the period, and so than the debt."""
        client = Client(EXPIRING, {**created(EXPIRING), "b_spend_qk": qk(TODAY_EPOCH, 130)})
        client.look(at(NOON))

        assert [] == client.request({"rpm": 1}, at(NOON))
        assert TOMORROW_S <= client.item["ttl"]


class TestOtherWriters:
    """Creates, splits and rebases."""

    def test_created_item_has_the_amount_and_schedule_of_a_quota(self) -> None:
        """It has no capacity and no refill, which older code would read."""
        item = created(TERMS)

        assert (100, "d 0000 UTC", True) == (item["b_spend_qa"], item["b_spend_qs"], item["b_soft_sf"])
        assert not {"b_spend_tk", "b_spend_cp", "b_spend_ra", "b_spend_rp", "b_spend_sf"} & item.keys()

    def test_created_item_with_a_use_above_a_soft_rate_has_no_debt(self) -> None:
        """So it may expire."""
        assert "ttl" in created(EXPIRING, {"soft": 11, "trial": 40})

    def test_split_gives_the_new_shard_all_that_a_limit_is(self) -> None:
        """The options of a limit and its schedule are on every shard."""
        old, new = (item for _, item in sorted(after_split({0: created(TERMS, {"spend": 60})}, 0, at(NOON)).items()))
        kept = {name for name in old if name.startswith("b_") and not name.endswith(("_tk", "_qk", "_tc"))}

        assert {name: old[name] for name in kept} == {name: new[name] for name in kept}
        assert view(new).layout.limits == TERMS.limits

    def test_dormant_quota_keeps_its_amount_and_has_no_capacity(self) -> None:
        """It does not refill, so there is no largest capacity to remember."""
        client = Client(stored(RPM, stamp=2), created(TERMS, {"spend": 40}))
        client.look(at(NOON))
        client.request({"rpm": 1}, at(NOON))

        assert (True, 100, False) == (
            client.item["b_spend_dm"],
            client.item["b_spend_qa"],
            "b_spend_cp" in client.item,
        )
