"""Prepared takes: which buckets and takes are left to plans, and what a prepared take has charged."""

from typing import Any

import pytest

from tests.many_shards import after_split
from tests.one_bucket import NOON, at, created, stored, view, with_balances, without_birth
from zae_limiter.core.limit import Limit
from zae_limiter.core.slots import Claim
from zae_limiter.core.tracked import EpochCharge
from zae_limiter.core.view import EffectiveLimits
from zae_limiter.schema.prepared_takes import PreparedAdmitted, PreparedTake, PreparedTakes, prepare
from zae_limiter.tables import evaluate

RPM, SLOTS = Limit("rpm", 100, 100, 60), Limit.concurrent("slots", 4, hold_seconds=10)
SPEND = Limit.quota("spend", 50, every="day")
SOFT = Limit("tpm", 60, 60, 60, enforce=False)
DAY_S = 1_699_920_000
"""The start of the day of noon, in UTC."""


def prepared(terms: EffectiveLimits, item: dict[str, Any], now_ms: int = NOON) -> PreparedTakes:
    """Return how the next take from a bucket is made."""
    found = prepare(view(item, terms=terms).layout, terms, item, now_ms)
    assert found is not None
    return found


def is_taken(terms: EffectiveLimits, item: dict[str, Any], consume: dict[str, Any], at_ms: int = NOON) -> bool:
    """Return whether a take is made as prepared, and not left to a plan."""
    return prepared(terms, item, at_ms).after_take(item, consume, at_ms, 5) is not None


def shard() -> dict[str, Any]:
    """Return one shard of two."""
    return after_split({0: created(stored(RPM, SPEND))}, 0, at(NOON))[1]


@pytest.mark.parametrize(
    ("terms", "item"),
    [
        (stored(RPM, SPEND), shard()),
        (stored(RPM, SPEND), without_birth(created(stored(RPM, SPEND)))),
        (stored(RPM, SPEND, stamp=2), created(stored(RPM, SPEND))),
        (stored(SLOTS, Limit.concurrent("jobs", 2, hold_seconds=10)),) * 2,
    ],
    ids=["shard", "without birth", "other limits", "two limits of slots"],
)
def test_takes_from_an_unusual_bucket_are_not_prepared(terms: EffectiveLimits, item: Any) -> None:
    """They are left to plans."""
    found = created(terms) if isinstance(item, EffectiveLimits) else item

    assert prepare(view(found, terms=terms).layout, terms, found, NOON) is None


@pytest.mark.parametrize("amount", [0, -1, 1.5, True, "1"])
def test_take_of_no_whole_number_of_tokens_is_left_to_a_plan(amount: Any) -> None:
    """A plan checks it, and takes nothing if it is 0."""
    terms = stored(RPM, SPEND)

    assert is_taken(terms, created(terms), {"rpm": 1, "spend": 1})
    assert not is_taken(terms, created(terms), {"rpm": 1, "spend": amount})


def test_first_take_of_a_period_is_left_to_a_plan() -> None:
    """The quota still has the number of yesterday. The rate limit can be taken from as prepared."""
    terms = stored(RPM, SPEND)
    item = created(terms, {"spend": 1}, NOON - 86_400_000)

    assert not is_taken(terms, item, {"rpm": 1, "spend": 1})
    assert is_taken(terms, item, {"rpm": 1})


class TestExpiry:
    """Takes that change whether, or when, the item expires are left to plans."""

    @pytest.mark.parametrize(("before", "after"), [(0, 3), (3, 0)])
    def test_take_that_adds_or_removes_the_expiry_is_left_to_a_plan(self, before: int, after: int) -> None:
        """The limits were moved to another level of the configuration."""
        old, new = (stored(RPM, SLOTS, ttl=ttl) for ttl in (before, after))
        item = created(old, {"slots": 1})

        assert is_taken(old, item, {"rpm": 1, "slots": 1})
        assert not is_taken(new, item, {"rpm": 1, "slots": 1})

    def test_take_that_moves_the_expiry_is_left_to_a_plan(self) -> None:
        """The item must live for three times a minute after a take."""
        terms = stored(RPM, SLOTS, ttl=3)
        item = {**created(terms), "ttl": NOON // 1000 + 200}

        assert is_taken(terms, item, {"rpm": 1}, NOON + 19_999)
        assert not is_taken(terms, item, {"rpm": 1}, NOON + 20_000)

    def test_take_from_a_bucket_in_debt_is_left_to_a_plan(self) -> None:
        """It must not expire. A debt of one token is paid after a second."""
        terms = stored(RPM, SLOTS, Limit("tpm", 60, 60, 60), ttl=3)
        item = {**with_balances(created(terms), tpm=-1_000), "ttl": NOON // 1000 + 400}

        assert not is_taken(terms, item, {"rpm": 1}, NOON + 999)
        assert is_taken(terms, item, {"rpm": 1}, NOON + 1_000)


class TestAdmitted:
    """What a prepared take has charged."""

    def test_prepared_take_claims_its_slots_and_charges_its_quotas(self) -> None:
        """A lease returns them to the same cohort and the same period."""
        terms = stored(RPM, SLOTS, SPEND)
        item = created(terms, {"slots": 1}, birth=77)
        result = PreparedAdmitted(prepared(terms, item), {"rpm": 1, "slots": 2, "spend": 7})

        assert (terms, 77) == (result.terms, result.birth)
        assert (Claim(0, "slots", NOON // 1000 + 10, 2_000),) == result.claims
        assert (EpochCharge(0, "spend", 2 * DAY_S, 7_000),) == result.charges

    def test_prepared_take_from_a_soft_rate_limit_charges_it(self) -> None:
        """It has no period, and its epoch is 0. Without slots, there is no claim."""
        terms = stored(RPM, SOFT)
        result = PreparedAdmitted(prepared(terms, created(terms)), {"rpm": 1, "tpm": 5})

        assert () == result.claims
        assert (EpochCharge(0, "tpm", 0, 5_000),) == result.charges


def test_prepared_take_of_the_item_that_was_seen_is_the_one_that_was_computed() -> None:
    """It is not computed twice."""
    terms = stored(RPM, SPEND)
    item, consume = created(terms), {"rpm": 1, "spend": 7}
    found = prepared(terms, item)
    taken = found.after_take(item, consume, NOON, 5)
    assert taken is not None

    assert taken is evaluate.apply(PreparedTake(found, consume, NOON, 5, item, taken), item)
    assert (99_000, 7_000, 2) == (taken["b_rpm_tk"], taken["b_spend_tc"], taken["b_wcu_tc"])
