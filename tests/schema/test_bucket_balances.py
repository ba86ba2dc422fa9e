"""What is left of a bucket, over all its shards, without a take."""

from typing import Any

import pytest

from tests.many_shards import grown
from tests.one_bucket import NOON, at, balance, created, own, stored, with_balances
from zae_limiter.core.errors import CorruptItemError
from zae_limiter.core.limit import Limit
from zae_limiter.core.status import Balance
from zae_limiter.core.view import EffectiveLimits
from zae_limiter.schema.bucket_balances import balances_of, full_balances

BUCKET = "user-1", "gpt-4"
NOON_S = 1_700_000_000
MIDNIGHT_S = 1_700_006_400
RPM = Limit("rpm", 100, 100, 60)
SPEND = Limit.quota("spend", 50, every="day")
SLOTS = Limit.concurrent("slots", 4, hold_seconds=10)


def left(shards: list[dict[str, Any]], in_force: EffectiveLimits | None, now_ms: int = NOON) -> dict[str, int]:
    """Return what is left of each limit."""
    return {one.limit_name: one.available for one in balances_of(BUCKET, shards, in_force, at(now_ms))}


def test_balances_of_a_bucket_have_when_each_limit_is_full() -> None:
    """A quota is full at the end of its period, and slots when their cohort ends."""
    terms = stored(RPM, SLOTS, SPEND)
    item = created(terms, {"rpm": 40, "slots": 1, "spend": 7})
    expected = [
        Balance("user-1", "gpt-4", RPM, 60, full_at=NOON_S + 24),
        Balance("user-1", "gpt-4", SLOTS, 3, in_use=1, full_at=NOON_S + 10),
        Balance("user-1", "gpt-4", SPEND, 43, resets_at=MIDNIGHT_S, full_at=MIDNIGHT_S),
    ]

    assert expected == balances_of(BUCKET, [item], terms, at(NOON))


def test_balances_of_a_limit_that_was_refilled_are_those_of_now() -> None:
    """25 tokens in 15 seconds; a full limit has no time at which it is full."""
    item = created(stored(RPM), {"rpm": 40})

    assert {"rpm": 85} == left([item], stored(RPM), NOON + 15_000)
    assert [None] == [one.full_at for one in balances_of(BUCKET, [item], stored(RPM), at(NOON + 24_000))]


def test_balances_of_a_bucket_that_does_not_exist_are_full() -> None:
    """Nothing is used, whatever the kind of the limit."""
    terms = stored(RPM, SLOTS, SPEND)
    expected = [
        Balance("user-1", "gpt-4", RPM, 100),
        Balance("user-1", "gpt-4", SLOTS, 4, in_use=0),
        Balance("user-1", "gpt-4", SPEND, 50, resets_at=MIDNIGHT_S),
    ]

    assert expected == balances_of(BUCKET, [], terms, at(NOON))
    assert expected == full_balances(BUCKET, terms.limits, at(NOON))


def test_balances_without_limits_in_force_are_empty() -> None:
    """The limits that the bucket was used with may not be in force any more."""
    assert [] == balances_of(BUCKET, [], None, at(NOON))
    assert [] == balances_of(BUCKET, [created(stored(RPM))], None, at(NOON))


def test_balances_after_a_change_of_limits_are_by_the_new_ones() -> None:
    """The bucket has not been used since: what it had stays, and a new limit is full."""
    item = created(stored(RPM), {"rpm": 40})
    changed = stored(Limit("rpm", 200, 200, 60), Limit("tpm", 9, 9, 60), stamp=2)

    assert {"rpm": 60, "tpm": 9} == left([item], changed)


def test_balances_of_a_bucket_with_limits_of_its_caller_are_by_those() -> None:
    """The configuration does not apply to it."""
    item = created(own(RPM), {"rpm": 40})

    assert {"rpm": 60} == left([item], stored(Limit("tpm", 9, 9, 60)))
    assert {"rpm": 60} == left([item], None)


@pytest.mark.parametrize(("taken", "expected"), [((0, 0), 100), ((10, 5), 85), ((60, 0), 50), ((60, 70), -30)])
def test_balances_of_several_shards_are_their_sum(taken: tuple[int, int], expected: int) -> None:
    """A shard in debt does not reduce what the other one has."""
    items = grown(stored(RPM), [0])
    shards = [with_balances(item, rpm=balance(item, "rpm") - taken[one] * 1000) for one, item in items.items()]

    assert {"rpm": expected} == left(shards, stored(RPM))


def test_balances_of_a_damaged_shard_raise_corrupt_item() -> None:
    """No balance is made up."""
    with pytest.raises(CorruptItemError):
        balances_of(BUCKET, [{**created(stored(RPM)), "b_rpm_tk": "many"}], stored(RPM), at(NOON))
