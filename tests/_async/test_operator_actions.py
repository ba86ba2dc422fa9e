"""An operator resets buckets and gives back what was spent, beside takes, on all shards, once."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from zae_limiter import (
    ALL_RESOURCES,
    IdempotencyKeyReusedError,
    Limit,
    RateLimiter,
    RateLimiterUnavailable,
    RateLimitExceeded,
    ValidationError,
)
from zae_limiter.core.outcome import Cancelled, Throttled, Unavailable

from .clients import Wrapped, another, buckets_in, everything_in, take
from .shards import OtherClient, counts, levels, used

RPM = Limit.per_minute("rpm", 60)
SPEND = Limit.quota("spend", 100, every="month")
SLOTS = Limit.concurrent("slots", 3, hold_seconds=60)
LIMITS = [RPM, SPEND]
LOST = Unavailable(TimeoutError("no answer"), ambiguous=True)


def at(clock, *date):
    """Move the clock to a date in UTC."""
    clock.time_ms = int(datetime(*date, tzinfo=UTC).timestamp() * 1000)


@pytest.fixture(autouse=True)
async def _limits(repo, clock):
    at(clock, 2026, 11, 10)
    await repo.set_system_defaults(LIMITS)


async def left(limiter, entity_id="user-1", resource="gpt-4"):
    """Return what a client without a cache finds."""
    return await RateLimiter(another(limiter.repository)).available(entity_id, resource)


async def owe(limiter, consume, **debts):
    """Take tokens, and use more than was taken."""
    async with limiter.acquire("user-1", "gpt-4", consume) as lease:
        await lease.adjust(**debts)


def records_in(repo):
    """Return the records of credits, by their idempotency keys."""
    found = everything_in(repo).items()
    return {key[1].removeprefix("#CREDIT#"): item for key, item in found if key[1].startswith("#CREDIT#")}


class LosingTable(Wrapped):
    """A table that loses answers of transactions as listed in ``fates``; its tokens are forgotten."""

    def __init__(self, table):
        super().__init__(table)
        self.fates = []

    async def transact(self, operations, token, *, until_s=None):
        fate = self.fates.pop(0) if self.fates else None
        if fate == "throttled":
            return Throttled()
        if fate == "lost":
            return LOST
        outcome = await self.table.transact(operations, token, until_s=until_s)
        if fate == "applied":
            return LOST
        if fate == "sent again":
            again = await self.table.transact(operations, token, until_s=until_s)
            assert isinstance(again, Cancelled)
            return replace(again, in_doubt=True)
        return outcome


@pytest.fixture
def losing(repo):
    return RateLimiter(another(repo, LosingTable))


def losing_table(limiter):
    return limiter.repository.scope.table


class TestReset:
    """Every limit of a bucket becomes full."""

    async def test_reset_makes_rates_and_quotas_full_even_in_debt(self, limiter, repo):
        """The request that was rejected is admitted immediately, by the same client too."""
        await owe(limiter, {"rpm": 60, "spend": 100}, rpm=30, spend=50)
        with pytest.raises(RateLimitExceeded):
            await take(limiter, {"rpm": 1, "spend": 1})
        resources = await limiter.reset_buckets("user-1", principal="ops")

        assert ["gpt-4"] == resources
        assert {"rpm": 60, "spend": 100} == await left(limiter)
        await take(limiter, {"rpm": 60, "spend": 100})
        assert {"rpm": 0, "spend": 0} == await left(limiter)

    async def test_reset_of_an_idle_bucket_leaves_no_overflow(self, limiter, clock):
        """What was earned before counts up to the capacity, as always."""
        await take(limiter, {"rpm": 60, "spend": 100})
        clock.advance(600_000)
        await limiter.reset_buckets("user-1")
        await take(limiter, {"rpm": 60, "spend": 1})

        assert {"rpm": 0, "spend": 99} == await left(limiter)

    async def test_reset_keeps_the_usage(self, limiter, repo):
        """What was used was used."""
        await take(limiter, {"rpm": 10, "spend": 5})
        await limiter.reset_buckets("user-1")

        assert (10, 5) == (used(repo, "rpm"), used(repo, "spend"))

    async def test_reset_of_one_resource_leaves_the_others(self, limiter, repo):
        """Limits across resources are a bucket of their own."""
        await repo.set_limits("user-1", [RPM], resource=ALL_RESOURCES)
        for resource in ("gpt-4", "claude"):
            async with limiter.acquire("user-1", resource, {"rpm": 10}):
                pass
        await limiter.reset_buckets("user-1", "gpt-4")
        after = [(await left(limiter, resource=one))["rpm"] for one in ("gpt-4", "claude")]
        both = {state.resource: state.tokens for state in await repo.get_buckets("user-1") if state.limit_name == "rpm"}
        resources = await limiter.reset_buckets("user-1")
        everything = [state.tokens for state in await repo.get_buckets("user-1") if state.limit_name == "rpm"]

        assert [40, 40] == after
        assert {"gpt-4": 60, "claude": 50, ALL_RESOURCES: 40} == both
        assert [ALL_RESOURCES, "claude", "gpt-4"] == resources
        assert [60, 60, 60] == everything

    async def test_reset_without_a_bucket_changes_nothing(self, limiter, repo):
        """A bucket that does not exist is full already."""
        assert [] == await limiter.reset_buckets("user-1")
        assert [] == await limiter.reset_buckets("user-1", "gpt-4")
        assert [] == await repo.get_audit_events("user-1")

    async def test_reset_writes_one_event_per_bucket(self, limiter, repo):
        """It names the operator and what was filled."""
        await take(limiter, {"rpm": 1, "spend": 1})
        await limiter.reset_buckets("user-1", principal="ops")
        (event,) = await repo.get_audit_events("user-1")

        assert ("buckets_reset", "ops", "gpt-4") == (event.action, event.principal, event.resource)
        assert {"limits": ["rpm", "spend"]} == event.details

    async def test_reset_leaves_slots_in_use(self, limiter, repo):
        """Their holders still hold them, so no more may be open than before."""
        await repo.set_system_defaults([RPM, SLOTS])
        async with limiter.acquire("user-1", "gpt-4", {"rpm": 60, "slots": 2}):
            await limiter.reset_buckets("user-1")
            open_lease = await left(limiter)

        assert {"rpm": 60, "slots": 1} == open_lease
        assert 3 == (await left(limiter))["slots"]

    async def test_reset_of_slots_alone_does_nothing(self, limiter, repo):
        """There is nothing to fill, so there is no event."""
        await repo.set_system_defaults([SLOTS])
        async with limiter.acquire("user-1", "gpt-4", {"slots": 2}):
            resources = await limiter.reset_buckets("user-1")

        assert [] == resources
        assert [] == await repo.get_audit_events("user-1")

    async def test_reset_fills_limits_that_were_removed(self, limiter, repo):
        """Added again, they are full too."""
        await take(limiter, {"rpm": 60, "spend": 100})
        await repo.set_system_defaults([Limit.per_minute("tpm", 10)])
        await take(limiter, {"tpm": 10})
        await limiter.reset_buckets("user-1")
        await repo.set_system_defaults([*LIMITS, Limit.per_minute("tpm", 10)])
        await take(limiter, {"rpm": 1})

        assert {"rpm": 59, "spend": 100, "tpm": 10} == await left(limiter)

    async def test_reset_after_a_limit_was_raised_fills_the_new_one(self, limiter, repo):
        """The bucket is moved to the limits in force first."""
        await take(limiter, {"rpm": 60, "spend": 100})
        await repo.set_system_defaults([Limit.per_minute("rpm", 600), SPEND])
        await limiter.reset_buckets("user-1")

        assert {"rpm": 600, "spend": 100} == await left(limiter)

    async def test_reset_of_a_bucket_on_limits_of_the_caller_keeps_these(self, limiter, repo):
        """Only that caller knows them."""
        own = [Limit.per_minute("rpm", 10)]
        async with limiter.acquire("user-1", "gpt-4", {"rpm": 10}, limits=own):
            pass
        await limiter.reset_buckets("user-1")

        assert {"rpm": 10} == await limiter.available("user-1", "gpt-4", limits=own)
        assert [10] == [state.tokens for state in await repo.get_buckets("user-1")]

    async def test_lease_that_is_open_across_a_reset_gives_back_at_most_what_has_room(self, limiter):
        """The take was forgiven by the reset, and is not given back a second time."""
        lease = limiter.acquire("user-1", "gpt-4", {"rpm": 40, "spend": 40})
        async with lease as entered:
            await limiter.reset_buckets("user-1")
            await entered.release(rpm=40, spend=40)
        await take(limiter, {"rpm": 1, "spend": 1})

        assert {"rpm": 59, "spend": 99} == await left(limiter)

    async def test_reset_quota_refills_at_its_next_edge(self, limiter, clock):
        """A reset begins no schedule of its own."""
        await take(limiter, {"spend": 100})
        await limiter.reset_buckets("user-1")
        await take(limiter, {"spend": 100})
        at(clock, 2026, 11, 30, 23, 59, 59)
        before = (await left(limiter))["spend"]
        at(clock, 2026, 12, 1)

        assert (0, 100) == (before, (await left(limiter))["spend"])

    async def test_reset_just_after_an_edge_is_not_refilled_again(self, limiter, clock):
        """It belongs to that edge, by all time zone data."""
        await take(limiter, {"spend": 100})
        at(clock, 2026, 12, 1, 0, 0, 1)
        await take(limiter, {"spend": 100})
        await limiter.reset_buckets("user-1")
        await take(limiter, {"spend": 100})
        clock.advance(86_400_000)

        assert 0 == (await left(limiter))["spend"]

    @pytest.mark.parametrize("shards", [2, 8])
    async def test_reset_fills_all_shards(self, limiter, repo, clock, shards):
        """Each gets its share, and quotas the same epoch."""
        await take(limiter, {"rpm": 60, "spend": 100})
        await OtherClient(repo).grow(shards)
        await limiter.reset_buckets("user-1")

        assert shards == len(counts(repo))
        assert 60_000 == sum(levels(repo, "rpm", clock.time_ms).values())
        assert 1 == len({item["b_spend_qk"] for item in buckets_in(repo)})
        assert {"rpm": 60, "spend": 100} == await left(limiter)
        await take(limiter, {"rpm": 60, "spend": 100})
        with pytest.raises(RateLimitExceeded):
            await take(limiter, {"spend": 1})

    @pytest.mark.parametrize("fate", ["sent again", "throttled"])
    async def test_reset_with_a_lost_answer_is_made_once(self, losing, repo, fate):
        """The event of the audit shows that it was made."""
        await take(losing, {"rpm": 60, "spend": 100})
        losing_table(losing).fates = [fate]
        resources = await losing.reset_buckets("user-1")

        assert ["gpt-4"] == resources
        assert ["buckets_reset"] == [event.action for event in await repo.get_audit_events("user-1")]
        assert [2] == [item["gn"] for item in buckets_in(repo)]

    async def test_reset_whose_answer_never_comes_raises(self, losing):
        """The caller learns that it may have been made."""
        await take(losing, {"rpm": 60})
        losing_table(losing).fates = ["applied"]

        with pytest.raises(RateLimiterUnavailable):
            await losing.reset_buckets("user-1")
        assert 60 == (await left(losing))["rpm"]

    @pytest.mark.parametrize(
        "arguments", [("a#b",), ("user-1", "a#b"), ("user-1", "_default_"), ("user-1", "gpt-4", "x" * 257)]
    )
    async def test_reset_with_invalid_arguments_is_refused(self, limiter, arguments):
        """Nothing is read."""
        with pytest.raises(ValidationError):
            await limiter.reset_buckets(*arguments)


class TestCredit:
    """At most what was spent is given back, once with a key."""

    async def test_credit_gives_back_what_was_spent_and_reports_it(self, limiter, repo):
        """The usage falls by the same amount."""
        await take(limiter, {"rpm": 30, "spend": 50})
        given = await limiter.credit("user-1", "gpt-4", {"rpm": 10, "spend": 20}, "ticket-1")

        assert {"rpm": 10, "spend": 20} == given
        assert {"rpm": 40, "spend": 70} == await left(limiter)
        assert (20, 30) == (used(repo, "rpm"), used(repo, "spend"))

    async def test_credit_gives_at_most_what_was_spent(self, limiter, clock):
        """To grant more is to raise the limit."""
        await take(limiter, {"rpm": 30, "spend": 50})
        clock.advance(10_000)
        given = await limiter.credit("user-1", "gpt-4", {"rpm": 100, "spend": 100}, "ticket-1")
        full = await left(limiter)
        clock.advance(1_000)
        await take(limiter, {"rpm": 60})

        assert {"rpm": 20, "spend": 50} == given
        assert {"rpm": 60, "spend": 100} == full
        assert 0 == (await left(limiter))["rpm"]

    async def test_credit_pays_a_debt(self, limiter):
        """A debt was spent too."""
        await owe(limiter, {"rpm": 60, "spend": 100}, rpm=40, spend=40)
        given = await limiter.credit("user-1", "gpt-4", {"rpm": 50, "spend": 50}, "ticket-1")

        assert {"rpm": 50, "spend": 50} == given
        assert {"rpm": 10, "spend": 10} == await left(limiter)

    async def test_credit_of_an_earlier_period_gives_nothing(self, limiter, clock):
        """What was spent then has ended with its period."""
        await take(limiter, {"spend": 50})
        at(clock, 2026, 12, 1)

        assert {"spend": 0} == await limiter.credit("user-1", "gpt-4", {"spend": 10}, "ticket-1")
        assert 100 == (await left(limiter))["spend"]

    async def test_credit_without_a_bucket_gives_nothing_and_keeps_its_record(self, limiter, repo):
        """The same call gives the same later, after something was spent."""
        first = await limiter.credit("user-1", "gpt-4", {"rpm": 10}, "ticket-1")
        await take(limiter, {"rpm": 30})
        again = await limiter.credit("user-1", "gpt-4", {"rpm": 10}, "ticket-1")

        assert {"rpm": 0} == first == again
        assert 30 == (await left(limiter))["rpm"]

    async def test_credit_with_the_same_key_is_given_once(self, limiter, repo):
        """By another client too; another key is another credit."""
        await take(limiter, {"rpm": 30})
        other = RateLimiter(another(repo))
        first = await limiter.credit("user-1", "gpt-4", {"rpm": 5}, "ticket-1", principal="ops")
        again = await other.credit("user-1", "gpt-4", {"rpm": 5}, "ticket-1")
        more = await other.credit("user-1", "gpt-4", {"rpm": 5}, "ticket-2")
        (newest, oldest) = await repo.get_audit_events("user-1")

        assert {"rpm": 5} == first == again == more
        assert 40 == (await left(limiter))["rpm"]
        assert ("credited", "ops", "gpt-4") == (oldest.action, oldest.principal, oldest.resource)
        assert {"amounts": {"rpm": 5}, "given": {"rpm": 5}, "idempotency_key": "ticket-1"} == oldest.details
        assert "ticket-2" == newest.details["idempotency_key"]

    @pytest.mark.parametrize(("resource", "amounts"), [("gpt-4", {"rpm": 6}), ("claude", {"rpm": 5})])
    async def test_credit_with_the_key_of_another_credit_is_an_error(self, limiter, resource, amounts):
        """It names the earlier one."""
        await take(limiter, {"rpm": 30})
        await limiter.credit("user-1", "gpt-4", {"rpm": 5}, "ticket-1")

        with pytest.raises(IdempotencyKeyReusedError, match="of rpm 5 for gpt-4: choose another key"):
            await limiter.credit("user-1", resource, amounts, "ticket-1")
        assert 35 == (await left(limiter))["rpm"]

    async def test_keys_of_two_entities_are_independent(self, limiter):
        """A key belongs to an entity."""
        for entity_id in ("user-1", "user-2"):
            await take(limiter, {"rpm": 30}, entity_id)
            await limiter.credit(entity_id, "gpt-4", {"rpm": 5}, "ticket-1")

        assert [35, 35] == [(await left(limiter, one))["rpm"] for one in ("user-1", "user-2")]

    @pytest.mark.parametrize("shards", [2, 8])
    async def test_credit_reaches_all_shards(self, limiter, repo, shards):
        """What was spent on any of them is given back, and no more."""
        await OtherClientOf(limiter, repo).grow(shards)
        await take(limiter, {"rpm": 60, "spend": 100})
        some = await limiter.credit("user-1", "gpt-4", {"rpm": 50, "spend": 70}, "ticket-1")
        between = await left(limiter)
        rest = await limiter.credit("user-1", "gpt-4", {"rpm": 50, "spend": 70}, "ticket-2")

        assert {"rpm": 50, "spend": 70} == some
        assert {"rpm": 50, "spend": 70} == between
        assert {"rpm": 10, "spend": 30} == rest
        assert {"rpm": 60, "spend": 100} == await left(limiter)

    async def test_credit_of_slots_or_of_an_unknown_limit_is_refused(self, limiter, repo):
        """Nothing is given of the other limits."""
        await repo.set_system_defaults([RPM, SLOTS])
        await take(limiter, {"rpm": 30})

        with pytest.raises(ValidationError, match="is a limit of concurrent use"):
            await limiter.credit("user-1", "gpt-4", {"rpm": 5, "slots": 1}, "ticket-1")
        with pytest.raises(ValidationError, match="is not a limit in force; these are: rpm, slots"):
            await limiter.credit("user-1", "gpt-4", {"rpm": 5, "tpm": 1}, "ticket-1")
        assert 30 == (await left(limiter))["rpm"]
        assert {} == records_in(repo)

    async def test_credit_of_a_soft_limit_gives_back_what_was_charged(self, limiter, repo):
        """What it has only counted was never charged."""
        await repo.set_system_defaults([Limit.per_minute("rpm", 60, enforce=False)])
        for _ in range(3):
            await take(limiter, {"rpm": 40})

        assert {"rpm": 40} == await limiter.credit("user-1", "gpt-4", {"rpm": 120}, "ticket-1")

    @pytest.mark.parametrize("fate", ["sent again", "throttled", "applied"])
    async def test_credit_with_a_lost_answer_is_given_once(self, losing, repo, fate):
        """The record shows what was given."""
        await take(losing, {"rpm": 30})
        losing_table(losing).fates = [fate]
        given = {}
        for _ in range(2):
            try:
                given = await losing.credit("user-1", "gpt-4", {"rpm": 5}, "ticket-1")
            except RateLimiterUnavailable:
                assert "applied" == fate

        assert {"rpm": 5} == given
        assert 35 == (await left(losing))["rpm"]
        assert ["credited"] == [event.action for event in await repo.get_audit_events("user-1")]

    async def test_record_of_a_credit_expires_with_the_events(self, limiter, repo):
        """It is kept as long as the audit shows the credit."""
        await limiter.credit("user-1", "gpt-4", {"rpm": 5}, "ticket #1/ä")
        (record,) = records_in(repo).values()
        (event,) = [item for key, item in everything_in(repo).items() if "AUDIT#user-1" in key[0]]

        assert "#CREDIT#ticket #1/ä" == record["SK"]
        assert event["ttl"] == record["ttl"]

    async def test_record_of_a_credit_survives_its_entity_but_not_its_namespace(self, repo):
        """A deleted entity that is created again has the same keys."""
        await repo.register_namespace("tenant")
        tenant = await repo.namespace("tenant")
        await tenant.set_system_defaults(LIMITS)
        await tenant.create_entity("user-1")
        await tenant.credit("user-1", "gpt-4", {"rpm": 5}, "ticket-1")
        await tenant.delete_entity("user-1")
        kept = list(records_in(repo))
        await repo.delete_namespace("tenant")
        await repo.purge_namespace(tenant.namespace_id)

        assert ["ticket-1"] == kept
        assert {} == records_in(repo)

    async def test_record_of_a_credit_is_in_no_list(self, limiter, repo):
        """Lists of entities, usage and events have only their own items."""
        await limiter.create_entity("user-1")
        await take(limiter, {"rpm": 30})
        await limiter.credit("user-1", "gpt-4", {"rpm": 5}, "ticket-1")
        entities, _ = await repo.list_entities()
        snapshots, _ = await repo.get_usage_snapshots("user-1", window_type="hourly")

        assert ["user-1"] == [one.id for one in entities]
        assert [25] == [one.counters["rpm"] for one in snapshots]

    @pytest.mark.parametrize(
        ("amounts", "key"),
        [
            ({}, "k"),
            (None, "k"),
            ([("rpm", 1)], "k"),
            ({"rpm": 0}, "k"),
            ({"rpm": -1}, "k"),
            ({"rpm": 1.5}, "k"),
            ({"rpm": True}, "k"),
            ({"a#b": 1}, "k"),
            ({7: 1}, "k"),
            ({"rpm": 1}, ""),
            ({"rpm": 1}, None),
            ({"rpm": 1}, "x" * 129),
            ({"rpm": 1}, "\ud800"),
        ],
    )
    async def test_credit_with_invalid_arguments_is_refused(self, limiter, amounts, key):
        """Nothing is read."""
        with pytest.raises(ValidationError):
            await limiter.credit("user-1", "gpt-4", amounts, key)


class OtherClientOf(OtherClient):
    """Another client, which first creates the bucket."""

    def __init__(self, limiter, repo):
        super().__init__(repo)
        self._limiter = limiter

    async def grow(self, shard_count):
        """Create the bucket, and split its shards."""
        await take(self._limiter, {"rpm": 0, "spend": 0})
        await super().grow(shard_count)
