"""What an operator does to balances: full at any possible time, and at most what was spent is given back."""

from datetime import UTC, datetime
from itertools import count
from typing import Any

import pytest

from tests.many_shards import Items, after_split, have, offered
from tests.one_bucket import NOON, Client, after, at, created, level, own, stored, view
from zae_limiter.core import quota
from zae_limiter.core.errors import ValidationError
from zae_limiter.core.limit import Limit
from zae_limiter.core.operator_actions import (
    GivenCredit,
    IdempotencyKeyReusedError,
    check_credit,
    check_credited,
    operator_credit,
    repeated,
    reset,
)
from zae_limiter.core.quota import BAND
from zae_limiter.schema import bucket_writes

RPM = Limit.per_minute("rpm", 60)
SPEND = Limit.quota("spend", 100)
SLOTS = Limit.concurrent("slots", 4, hold_seconds=10)
MONTH_MS = int(datetime(2023, 11, 1, tzinfo=UTC).timestamp()) * 1000
NEXT_MONTH_MS = int(datetime(2023, 12, 1, tzinfo=UTC).timestamp()) * 1000

_nonces = count(1)


def seen(items: Items) -> dict[int, Any]:
    return {shard: view(item) for shard, item in items.items()}


def after_reset(items: Items, now: tuple[int, int]) -> Items:
    """Return the shards after a reset that was decided on all of them."""
    views = seen(items)
    writes = {k: bucket_writes.reset(views[k], parts, next(_nonces)) for k, parts in reset(views, now).items()}
    return {shard: after(writes[shard], item) if shard in writes else item for shard, item in items.items()}


def after_credit(items: Items, amounts: dict[str, int], now: tuple[int, int]) -> tuple[dict[str, int], Items]:
    """Return what was given, and the shards after that."""
    views = seen(items)
    found = operator_credit(views, amounts, now)
    written = {
        k: after(bucket_writes.operator_credit(views[k], parts, next(_nonces)), items[k])
        for k, parts in found.parts.items()
    }
    return found.given, {**items, **written}


def spent_of(item: dict[str, Any]) -> int:
    """Return what a quota has spent in its epoch."""
    qk: int = item["b_spend_qk"]
    return -BAND * quota.epoch_of(qk) - qk


class TestReset:
    """All limits but slots become full."""

    @pytest.mark.parametrize("later_ms", [0, 500, 3_000])
    def test_reset_is_full_at_the_latest_time_and_never_above(self, later_ms: int) -> None:
        """A client whose time is uncertain errs on the strict side."""
        item = created(stored(RPM), {"rpm": 60})
        now = NOON + 10_000, NOON + 10_000 + later_ms
        (written,) = after_reset({0: item}, now).values()

        assert 60_000 == offered(written, "rpm", now[1])
        assert 60_000 - later_ms == level(written, "rpm", now[0])

    def test_reset_before_the_baseline_is_full_and_earns_nothing_before_it(self) -> None:
        """The clock of the operator may be behind that of the creator."""
        item = created(stored(RPM), {"rpm": 60})
        (written,) = after_reset({0: item}, at(NOON - 5_000)).values()

        assert 60_000 == offered(written, "rpm", NOON)

    def test_reset_raises_the_generation_so_that_earlier_writes_are_refused(self) -> None:
        """A take that was decided before would otherwise set the level that it saw."""
        client = Client(stored(RPM), created(stored(RPM), {"rpm": 60}))
        client.look(at(NOON))
        (written,) = after_reset({0: client.item}, at(NOON)).values()

        assert client.item["gn"] + 1 == written["gn"]
        assert client.item["bi"] == written["bi"]
        assert not view(client.item).layout.describes(written)

    def test_reset_fills_a_dormant_limit_up_to_the_largest_capacity_it_had(self) -> None:
        """It can then be removed for good."""
        both = own(RPM, Limit.per_minute("tpm", 10))
        moved = Client(own(RPM, stamp=2), created(both, {"tpm": 10}))
        moved.look(at(NOON))
        moved.request({"rpm": 1}, at(NOON))
        (written,) = after_reset({0: moved.item}, at(NOON)).values()

        assert True is written["b_tpm_dm"]
        assert 10_000 == level(written, "tpm", NOON)

    def test_reset_leaves_slots_and_the_expiry(self) -> None:
        """Slots are held by leases. A fuller item may expire when it could before."""
        item = created(stored(RPM, SLOTS, ttl=2), {"rpm": 60, "slots": 3})
        (written,) = after_reset({0: item}, at(NOON)).values()
        changed = {name for name in written if written[name] != item.get(name)}

        assert {"b_rpm_tk", "gn", "op", "b_wcu_tc"} == changed

    def test_reset_of_slots_alone_writes_nothing(self) -> None:
        """There is nothing to fill."""
        assert {} == reset(seen({0: created(stored(SLOTS), {"slots": 3})}), at(NOON))

    def test_reset_of_shards_fills_each_share_and_begins_one_epoch(self) -> None:
        """A take from several shards uses one epoch."""
        items = after_split({0: created(stored(RPM, SPEND), {"rpm": 60, "spend": 100})}, 0, at(NOON))
        items = after_split(items, 1, at(NOON))
        written = after_reset(items, at(NOON))

        assert 60_000 == have(written, "rpm", NOON)
        assert 1 == len({item["b_spend_qk"] for item in written.values()})
        assert [0, 0, 0] == [spent_of(item) for item in written.values()]

    def test_reset_on_an_old_view_of_a_quota_is_refused_after_an_edge(self) -> None:
        """It would move the quota back, and the edge would refill it again."""
        old = created(stored(SPEND), {"spend": 100}, MONTH_MS + 1)
        write = bucket_writes.reset(view(old), reset(seen({0: old}), at(NEXT_MONTH_MS - 1_000))[0], 1)
        client = Client(stored(SPEND), old)
        client.look(at(NEXT_MONTH_MS))
        client.request({"spend": 1}, at(NEXT_MONTH_MS))

        with pytest.raises(AssertionError, match="refused"):
            after(write, client.item)

    def test_reset_of_shards_with_different_schedules_uses_each_of_them(self) -> None:
        """A shard that was not moved to a changed schedule yet still has the old one."""
        items = after_split({0: created(stored(SPEND), {"spend": 100})}, 0, at(NOON))
        moved = Client(stored(Limit.quota("spend", 100, every="day"), stamp=2), items[1])
        moved.look(at(NOON))
        moved.request({"spend": 0}, at(NOON))
        written = after_reset({0: items[0], 1: moved.item}, at(NOON))

        assert [0, 0] == [spent_of(item) for item in written.values()]


class TestCredit:
    """At most what was spent is given back."""

    @pytest.mark.parametrize("asked", [1, 20, 39, 40, 41, 10**18])
    def test_credit_gives_what_the_limit_lacks_at_most(self, asked: int) -> None:
        """All that is reported as given has reached the bucket."""
        item = created(stored(RPM, SPEND), {"rpm": 40, "spend": 40})
        given, items = after_credit({0: item}, {"rpm": asked, "spend": asked}, at(NOON))

        assert {"rpm": min(asked, 40), "spend": min(asked, 40)} == given
        assert (20 + given["rpm"]) * 1000 == level(items[0], "rpm", NOON)
        assert 40 - given["spend"] == spent_of(items[0])
        assert (40 - given["rpm"]) * 1000 == items[0]["b_rpm_tc"]

    def test_credit_of_an_idle_bucket_gives_nothing(self) -> None:
        """It is full, though its balance counts from long ago."""
        item = created(stored(RPM), {"rpm": 60})

        assert ({"rpm": 0}, {0: item}) == after_credit({0: item}, {"rpm": 5}, at(NOON + 120_000))

    def test_credit_leaves_out_what_may_be_earned_by_the_latest_time(self) -> None:
        """Otherwise more would be reported as given than has room."""
        item = created(stored(RPM), {"rpm": 10})

        assert {"rpm": 7} == operator_credit(seen({0: item}), {"rpm": 10}, (NOON, NOON + 2_500)).given

    def test_credit_is_refused_once_others_have_given_back(self) -> None:
        """Then there is less room than was seen."""
        item = created(stored(RPM), {"rpm": 10})
        decided = operator_credit(seen({0: item}), {"rpm": 10}, at(NOON))
        write = bucket_writes.operator_credit(view(item), decided.parts[0], 1)
        _, others = after_credit({0: item}, {"rpm": 1}, at(NOON))

        with pytest.raises(AssertionError, match="refused"):
            after(write, others[0])

    def test_credit_to_shards_fills_the_emptiest_first(self) -> None:
        """A shard that is full gets nothing."""
        items = after_split({0: created(stored(RPM, SPEND))}, 0, at(NOON))
        for amount, shard in ((10, 0), (30, 1)):
            client = Client(stored(RPM, SPEND), items[shard])
            client.look(at(NOON))
            client.request({"rpm": amount, "spend": amount}, at(NOON))
            items[shard] = client.item
        given, written = after_credit(items, {"rpm": 35, "spend": 35}, at(NOON))

        assert {"rpm": 35, "spend": 35} == given
        assert [25_000, 30_000] == [offered(written[shard], "rpm", NOON) for shard in (0, 1)]
        assert [5, 0] == [spent_of(written[shard]) for shard in (0, 1)]

    def test_credit_to_a_saturated_quota_gives_nothing(self) -> None:
        """It has lost count of what was spent."""
        item = created(stored(SPEND), {"spend": 1}, MONTH_MS + 1)
        full = -BAND * quota.epoch_of(item["b_spend_qk"])
        item = {**item, "b_spend_qk": full - quota.MOST_SPENT}

        assert {"spend": 0} == operator_credit(seen({0: item}), {"spend": 5}, at(MONTH_MS + 2)).given

    def test_credit_to_a_shard_in_an_older_period_gives_nothing_if_another_proves_the_edge(self) -> None:
        """The client's clock may be behind, but the number of one shard shows the time."""
        items = after_split({0: created(stored(SPEND), {"spend": 60}, MONTH_MS + 1)}, 0, at(MONTH_MS + 1))
        ahead = Client(stored(SPEND), items[1])
        ahead.look(at(NEXT_MONTH_MS))
        ahead.request({"spend": 2}, at(NEXT_MONTH_MS))
        given, _ = after_credit({0: items[0], 1: ahead.item}, {"spend": 50}, at(NEXT_MONTH_MS - 500))

        assert {"spend": 2} == given

    def test_credit_leaves_out_shards_that_lack_the_limit(self) -> None:
        """A shard that was not moved to the current limits yet has spent nothing of a new one."""
        items = after_split({0: created(stored(RPM))}, 0, at(NOON))
        moved = Client(stored(RPM, Limit.per_minute("tpm", 10), stamp=2), items[1])
        moved.look(at(NOON))
        assert [] == moved.request({"tpm": 3}, at(NOON))
        given, written = after_credit({0: items[0], 1: moved.item}, {"tpm": 10}, at(NOON))

        assert {"tpm": 3} == given
        assert items[0] == written[0]
        assert 5_000 == offered(written[1], "tpm", NOON)


class TestArguments:
    """Amounts, keys, and the record of an earlier credit."""

    def test_amounts_are_copied(self) -> None:
        """The caller may change its dictionary later."""
        amounts = {"rpm": 1}
        checked = check_credit(amounts, "key")
        amounts["rpm"] = 2

        assert {"rpm": 1} == checked

    @pytest.mark.parametrize("amounts", [{}, None, ["rpm"], 5], ids=str)
    def test_amounts_that_are_no_dict_with_a_limit_are_refused(self, amounts: Any) -> None:
        """A credit of nothing is a mistake."""
        with pytest.raises(ValidationError, match="must be a dict with at least one limit and its amount"):
            check_credit(amounts, "key")

    @pytest.mark.parametrize("amount", [0, -1, 1.5, True, 10**18 + 1])
    def test_amount_that_is_not_from_1_is_refused(self, amount: Any) -> None:
        """An operator gives back a whole number of tokens."""
        with pytest.raises(ValidationError, match=r"amounts\[rpm\]"):
            check_credit({"rpm": amount}, "key")

    @pytest.mark.parametrize("key", ["", 129 * "k", None], ids=["empty", "long", "none"])
    def test_key_that_is_empty_or_too_long_is_refused(self, key: Any) -> None:
        """The record of the credit is found by the key."""
        assert {"rpm": 1} == check_credit({"rpm": 1}, 128 * "k")
        with pytest.raises(ValidationError, match="idempotency_key"):
            check_credit({"rpm": 1}, key)

    def test_credit_of_rate_limits_and_quotas_in_force_is_accepted(self) -> None:
        """Both have an amount that was spent."""
        check_credited({"rpm": RPM, "spend": SPEND}, {"spend": 1, "rpm": 2})

    def test_credit_of_a_limit_that_is_not_in_force_is_refused(self) -> None:
        """The message names those that are."""
        with pytest.raises(ValidationError, match="these are: rpm, spend"):
            check_credited({"spend": SPEND, "rpm": RPM}, {"tpm": 1})

    def test_credit_of_slots_is_refused(self) -> None:
        """Leases return them."""
        with pytest.raises(ValidationError, match="is a limit of concurrent use"):
            check_credited({"rpm": RPM, "slots": SLOTS}, {"rpm": 1, "slots": 1})

    def test_limit_without_any_in_force_is_refused(self) -> None:
        """The message says that there are none."""
        with pytest.raises(ValidationError, match="these are: none"):
            check_credited({}, {"rpm": 1})

    def test_repeated_credit_returns_what_was_given(self) -> None:
        """Another credit with the same key is an error that can be pickled like all others."""
        record = GivenCredit("gpt-4", {"rpm": 5}, {"rpm": 3})

        assert {"rpm": 3} == repeated(record, "gpt-4", {"rpm": 5}, "key")
        for other in (record._replace(resource="claude"), record._replace(amounts={"rpm": 4})):
            with pytest.raises(IdempotencyKeyReusedError):
                repeated(other, "gpt-4", {"rpm": 5}, "key")
