"""Quotas and soft limits whose limits change: amounts, schedules, kinds, and limits that are added or removed."""

from typing import Any

import pytest

from tests.one_bucket import NOON, Client, at, created, step, stored, view
from tests.quota_buckets import (
    RPM,
    SOFT,
    SPEND,
    TERMS,
    TODAY_EPOCH,
    TOMORROW,
    TOMORROW_EPOCH,
    TRIAL,
    numbers,
    qk,
    tokens,
)
from zae_limiter.core.acquire import Rebase
from zae_limiter.core.errors import ValidationError
from zae_limiter.core.lazy_dataclass import replace
from zae_limiter.core.levels import limit_levels
from zae_limiter.core.limit import Limit
from zae_limiter.core.tracked import EpochCharge, Taken
from zae_limiter.core.view import EffectiveLimits

HOURLY = Limit.quota("spend", 100, every="hour")
HOURLY_TRIAL = Limit.quota("trial", 10, every="hour", enforce=False)
NEXT_HOUR_S = 1_700_002_800
ACTION = 2 * NOON // 1000 + 1
"""The epoch of an action at NOON, which is odd."""


def client_of(item: dict[str, Any], *limits: Limit, now_ms: int = NOON) -> Client:
    """Return a client with newer limits that has just read the bucket."""
    client = Client(stored(*limits, stamp=2), item)
    client.look(at(now_ms))
    return client


def moved(item: dict[str, Any], *limits: Limit, now_ms: int = NOON, **consume: int) -> dict[str, Any]:
    """Return the item after a request with newer limits that is admitted by one write."""
    client = client_of(item, *limits, now_ms=now_ms)
    assert [] == client.request(consume or {"rpm": 1}, at(now_ms))
    assert 1 == len(client.steps)
    return client.item


def is_rejected(item: dict[str, Any], *limits: Limit, **consume: int) -> bool:
    """Return whether a request with newer limits is rejected after the bucket was moved."""
    client = client_of(item, *limits)
    return any(status.exceeded and status.limit.enforce for status in client.request(consume, at(NOON)))


class TestAmount:
    """A quota that gets another amount."""

    def test_changed_amount_keeps_what_was_spent(self) -> None:
        """Of a new amount of 50, 10 are left after 40."""
        item, half = created(TERMS, {"spend": 40}), Limit.quota("spend", 50, every="day")

        assert (qk(TODAY_EPOCH, 50), 50_000) == numbers(moved(item, RPM, half, spend=10))
        assert is_rejected(item, RPM, half, spend=11)

    def test_changed_amount_without_a_request_writes_no_balance(self) -> None:
        """The number that is stored does not depend on the amount."""
        item = moved(created(TERMS, {"spend": 40, "trial": 4}), RPM, Limit.quota("spend", 50, every="day"), TRIAL)

        assert (qk(TODAY_EPOCH, 40), qk(TODAY_EPOCH, 4)) == (numbers(item)[0], numbers(item, "trial")[0])

    def test_changed_amount_of_a_soft_quota_is_no_reason_to_reject(self) -> None:
        """It may go into debt."""
        item = created(TERMS, {"trial": 4})

        assert (qk(TODAY_EPOCH, 13), 13_000) == numbers(
            moved(item, Limit.quota("trial", 9, every="day", enforce=False), trial=9), "trial"
        )

    def test_quota_that_becomes_soft_no_longer_rejects(self) -> None:
        """What it has spent is kept."""
        item = moved(created(TERMS, {"spend": 95}), RPM, replace(SPEND, enforce=False), spend=10)

        assert (qk(TODAY_EPOCH, 105), False) == (numbers(item)[0], view(item).layout.limits[1].enforce)

    def test_quota_that_is_enforced_again_rejects(self) -> None:
        """A debt that was left while it was soft counts."""
        assert is_rejected(created(TERMS, {"trial": 12}), RPM, replace(TRIAL, enforce=True), trial=1)


class TestSchedule:
    """A quota that gets another schedule."""

    def test_changed_schedule_keeps_what_was_spent_until_its_next_edge(self) -> None:
        """The change begins an epoch of its own, so that a client with the old schedule is refused."""
        item = moved(created(TERMS, {"spend": 40}), RPM, HOURLY, spend=10)
        later = Client(stored(RPM, HOURLY, stamp=2), item)
        later.look(at(NEXT_HOUR_S * 1000))

        assert (qk(ACTION, 50), 50_000, "h 0000 UTC") == (*numbers(item), item["b_spend_qs"])
        assert [] == later.request({"spend": 100}, at(NEXT_HOUR_S * 1000))

    def test_changed_schedule_without_a_request_moves_the_quota(self) -> None:
        """A request that does not name the limit is never short, even if the quota is in debt."""
        item = {**created(TERMS, {"trial": 4}), "b_spend_qk": qk(TODAY_EPOCH, 120)}
        found = moved(item, RPM, HOURLY, HOURLY_TRIAL)

        assert (qk(ACTION, 120), qk(ACTION, 4)) == (numbers(found)[0], numbers(found, "trial")[0])

    def test_changed_schedule_after_an_edge_of_the_old_one_starts_full(self) -> None:
        """The period had ended. The epoch of the action is later than the edge."""
        item = moved(created(TERMS, {"spend": 40, "trial": 4}), RPM, HOURLY, HOURLY_TRIAL, now_ms=TOMORROW, spend=10)

        assert (qk(TOMORROW_EPOCH + 1, 10), qk(TOMORROW_EPOCH + 1)) == (numbers(item)[0], numbers(item, "trial")[0])

    def test_changed_schedule_at_an_uncertain_time_is_dated_by_the_latest(self) -> None:
        """An edge of the new schedule that may have come already must not refill the quota."""
        item, terms = created(TERMS, {"spend": 40}), stored(HOURLY, stamp=2)
        chosen = step(view(item), terms, {"spend": 10}, (NOON, NOON + 10_000))
        assert isinstance(chosen, Rebase)

        assert [EpochCharge(0, "spend", ACTION + 20, 10_000)] == chosen.rebasing.charges

    @pytest.mark.parametrize(("amount", "takes"), [(5, True), (6, False)])
    def test_changed_amount_near_an_edge_takes_from_the_period_of_the_earliest_time(
        self, amount: int, takes: bool
    ) -> None:
        """The new one may not have begun."""
        seen, now = view(created(TERMS, {"spend": 95})), (TOMORROW - 1_000, TOMORROW + 1_000)
        chosen = step(seen, stored(SPEND, stamp=2), {"spend": amount}, now)

        assert isinstance(chosen, Rebase)
        assert takes == chosen.takes

    def test_changed_schedule_with_too_little_left_rejects(self) -> None:
        """The bucket is moved without a take."""
        item = created(TERMS, {"spend": 95})

        assert is_rejected(item, RPM, HOURLY, spend=6)

    def test_changed_schedule_of_a_soft_quota_charges_the_request(self) -> None:
        """It may go into debt."""
        item = moved(created(TERMS, {"trial": 4}), HOURLY_TRIAL, trial=10)

        assert (qk(ACTION, 14), 14_000) == numbers(item, "trial")

    def test_level_under_other_limits_keeps_what_was_spent(self) -> None:
        """The bucket need not be moved to show it. A limit that it lacks is full."""
        seen = view(created(stored(RPM, SPEND), {"spend": 40}))
        hourly, small = stored(HOURLY, TRIAL, stamp=2), stored(Limit.quota("spend", 30, every="day"), stamp=2)
        levels = limit_levels(seen, hourly, at(NOON))

        assert [60_000, 10_000] == [level.available_milli(at(NOON)) for level in levels]
        assert [60_000] == [
            level.available_milli(at(NOON)) for level in limit_levels(seen, stored(SPEND, stamp=2), at(NOON))
        ]
        assert [-10_000] == [level.available_milli(at(NOON)) for level in limit_levels(seen, small, at(NOON))]
        assert NEXT_HOUR_S == levels[0].resets_s(at(NOON))


class TestKind:
    """A limit that gets another kind."""

    @pytest.mark.parametrize(
        ("before", "after", "reason"),
        [
            (SPEND, Limit("spend", 9, 9, 60), "is a quota in this bucket and would become a rate limit"),
            (Limit("spend", 9, 9, 60), SPEND, "is a rate limit in this bucket and would become a quota"),
            (SPEND, Limit.concurrent("spend", 9), "is a quota in this bucket and would become slots"),
        ],
    )
    def test_changed_kind_is_a_named_error(self, before: Limit, after: Limit, reason: str) -> None:
        """The balances of both mean different things."""
        with pytest.raises(ValidationError, match=reason):
            step(view(created(stored(before))), stored(after, stamp=2), {"spend": 1}, at(NOON))

    def test_level_of_a_limit_with_another_kind_is_that_of_a_new_one(self) -> None:
        """Its balance says nothing about the new limit."""
        (level,) = limit_levels(view(created(stored(Limit("spend", 9, 9, 60)))), stored(SPEND, stamp=2), at(NOON))

        assert 100_000 == level.available_milli(at(NOON))


class TestSoft:
    """Soft rate limits that change, and limits that become soft."""

    WIDE = Limit("soft", 20, 10, 60, enforce=False)

    def rebasing(self, terms: EffectiveLimits, item: dict[str, Any], **consume: int) -> Taken | None:
        """Return what a take in the same write charges."""
        chosen = step(view(item), terms, consume, at(NOON))
        assert isinstance(chosen, Rebase)
        return chosen.rebasing.taken(0)

    def test_changed_soft_limit_is_charged_if_it_has_the_tokens(self) -> None:
        """The level is kept, and is not raised with the capacity."""
        item, terms = created(TERMS, {"soft": 3}), stored(self.WIDE, stamp=2)

        assert (0, 10_000) == tokens(moved(item, self.WIDE, soft=7))
        assert Taken((), (EpochCharge(0, "soft", 0, 7_000),)) == self.rebasing(terms, item, soft=7)

    def test_changed_soft_limit_that_lacks_the_tokens_only_counts(self) -> None:
        """It never rejects."""
        item, terms = created(TERMS, {"soft": 3}), stored(self.WIDE, stamp=2)

        assert (7_000, 11_000) == tokens(moved(item, self.WIDE, soft=8))
        assert Taken((), ()) == self.rebasing(terms, item, soft=8)

    def test_added_limits_are_charged_by_the_request_that_adds_them(self) -> None:
        """An added soft limit that lacks the tokens only counts."""
        item, terms = created(stored(RPM)), stored(RPM, SOFT, SPEND, TRIAL, stamp=2)
        found = moved(item, RPM, SOFT, SPEND, TRIAL, soft=11, spend=7, trial=40)

        assert ((10_000, 11_000), (qk(TODAY_EPOCH, 7), 7_000)) == (tokens(found), numbers(found))
        assert (qk(TODAY_EPOCH, 40), 40_000) == numbers(found, "trial")
        charged = EpochCharge(0, "spend", TODAY_EPOCH, 7_000), EpochCharge(0, "trial", TODAY_EPOCH, 40_000)
        assert Taken((), charged) == self.rebasing(terms, item, soft=11, spend=7, trial=40)

    def test_move_to_enforced_rate_limits_charges_nothing_that_is_remembered(self) -> None:
        """Such a lease needs no memory."""
        assert self.rebasing(stored(RPM, stamp=2), created(TERMS), rpm=1) is None

    def test_move_of_a_quota_is_charged_to_the_epoch_of_the_change(self) -> None:
        """A refund must find it there."""
        item = created(TERMS, {"spend": 40})

        assert Taken((), (EpochCharge(0, "spend", ACTION, 10_000),)) == self.rebasing(
            stored(HOURLY, stamp=2), item, spend=10
        )


class TestRemoved:
    """Quotas that are no longer in force."""

    def test_removed_quota_stays_dormant_while_its_period_lasts(self) -> None:
        """A limit that is removed and added again is no refill."""
        dormant = moved(created(TERMS, {"spend": 40}), RPM)
        client = Client(stored(RPM, SPEND, stamp=3), dormant)
        client.look(at(NOON))

        assert (qk(TODAY_EPOCH, 40), True) == (numbers(dormant)[0], dormant["b_spend_dm"])
        assert client.request({"spend": 61}, at(NOON))
        assert [] == client.request({"spend": 60}, at(NOON))
        assert "b_spend_dm" not in client.item

    def test_removed_quota_whose_period_has_ended_is_dropped(self) -> None:
        """It would be full if it was added again. A soft limit that is full is dropped too."""
        item = moved(created(TERMS, {"spend": 40}), RPM, now_ms=TOMORROW)

        assert not [name for name in item if name.startswith(("b_spend_", "b_soft_", "b_trial_"))]

    def test_dormant_quota_whose_period_has_ended_is_dropped(self) -> None:
        """The next change of the limits does it."""
        dormant = moved(created(TERMS, {"spend": 40}), RPM)
        client = Client(stored(replace(RPM, capacity=101), stamp=3), dormant)
        client.look(at(TOMORROW))

        assert [] == client.request({"rpm": 1}, at(TOMORROW))
        assert "b_spend_qk" not in client.item
