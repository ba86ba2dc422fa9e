"""An operator resets buckets and gives back what was spent, beside takes, on all shards, once."""  # generated from _async by tools/mirror.py; do not edit

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from zae_limiter import (
    ALL_RESOURCES,
    IdempotencyKeyReusedError,
    Limit,
    SyncRateLimiter,
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
def _limits(repo, clock):
    at(clock, 2026, 11, 10)
    repo.set_system_defaults(LIMITS)


def left(limiter, entity_id="user-1", resource="gpt-4"):
    """Return what a client without a cache finds."""
    return SyncRateLimiter(another(limiter.repository)).available(entity_id, resource)


def owe(limiter, consume, **debts):
    """Take tokens, and use more than was taken."""
    with limiter.acquire("user-1", "gpt-4", consume) as lease:
        lease.adjust(**debts)


def records_in(repo):
    """Return the records of credits, by their idempotency keys."""
    found = everything_in(repo).items()
    return {key[1].removeprefix("#CREDIT#"): item for key, item in found if key[1].startswith("#CREDIT#")}


class LosingTable(Wrapped):
    """A table that loses answers of transactions as listed in ``fates``; its tokens are forgotten."""

    def __init__(self, table):
        super().__init__(table)
        self.fates = []

    def transact(self, operations, token, *, until_s=None):
        fate = self.fates.pop(0) if self.fates else None
        if fate == "throttled":
            return Throttled()
        if fate == "lost":
            return LOST
        outcome = self.table.transact(operations, token, until_s=until_s)
        if fate == "applied":
            return LOST
        if fate == "sent again":
            again = self.table.transact(operations, token, until_s=until_s)
            assert isinstance(again, Cancelled)
            return replace(again, in_doubt=True)
        return outcome


@pytest.fixture
def losing(repo):
    return SyncRateLimiter(another(repo, LosingTable))


def losing_table(limiter):
    return limiter.repository.scope.table


class TestReset:
    """Every limit of a bucket becomes full."""

    def test_reset_makes_rates_and_quotas_full_even_in_debt(self, limiter, repo):
        """The request that was rejected is admitted immediately, by the same client too."""
        owe(limiter, {"rpm": 60, "spend": 100}, rpm=30, spend=50)
        with pytest.raises(RateLimitExceeded):
            take(limiter, {"rpm": 1, "spend": 1})
        resources = limiter.reset_buckets("user-1", principal="ops")

        assert ["gpt-4"] == resources
        assert {"rpm": 60, "spend": 100} == left(limiter)
        take(limiter, {"rpm": 60, "spend": 100})
        assert {"rpm": 0, "spend": 0} == left(limiter)

    def test_reset_of_an_idle_bucket_leaves_no_overflow(self, limiter, clock):
        """What was earned before counts up to the capacity, as always."""
        take(limiter, {"rpm": 60, "spend": 100})
        clock.advance(600_000)
        limiter.reset_buckets("user-1")
        take(limiter, {"rpm": 60, "spend": 1})

        assert {"rpm": 0, "spend": 99} == left(limiter)

    def test_reset_keeps_the_usage(self, limiter, repo):
        """What was used was used."""
        take(limiter, {"rpm": 10, "spend": 5})
        limiter.reset_buckets("user-1")

        assert (10, 5) == (used(repo, "rpm"), used(repo, "spend"))

    def test_reset_of_one_resource_leaves_the_others(self, limiter, repo):
        """Limits across resources are a bucket of their own."""
        repo.set_limits("user-1", [RPM], resource=ALL_RESOURCES)
        for resource in ("gpt-4", "claude"):
            with limiter.acquire("user-1", resource, {"rpm": 10}):
                pass
        limiter.reset_buckets("user-1", "gpt-4")
        after = [(left(limiter, resource=one))["rpm"] for one in ("gpt-4", "claude")]
        both = {state.resource: state.tokens for state in repo.get_buckets("user-1") if state.limit_name == "rpm"}
        resources = limiter.reset_buckets("user-1")
        everything = [state.tokens for state in repo.get_buckets("user-1") if state.limit_name == "rpm"]

        assert [40, 40] == after
        assert {"gpt-4": 60, "claude": 50, ALL_RESOURCES: 40} == both
        assert [ALL_RESOURCES, "claude", "gpt-4"] == resources
        assert [60, 60, 60] == everything

    def test_reset_without_a_bucket_changes_nothing(self, limiter, repo):
        """A bucket that does not exist is full already."""
        assert [] == limiter.reset_buckets("user-1")
        assert [] == limiter.reset_buckets("user-1", "gpt-4")
        assert [] == repo.get_audit_events("user-1")

    def test_reset_writes_one_event_per_bucket(self, limiter, repo):
        """It names the operator and what was filled."""
        take(limiter, {"rpm": 1, "spend": 1})
        limiter.reset_buckets("user-1", principal="ops")
        (event,) = repo.get_audit_events("user-1")

        assert ("buckets_reset", "ops", "gpt-4") == (event.action, event.principal, event.resource)
        assert {"limits": ["rpm", "spend"]} == event.details

    def test_reset_leaves_slots_in_use(self, limiter, repo):
        """Their holders still hold them, so no more may be open than before."""
        repo.set_system_defaults([RPM, SLOTS])
        with limiter.acquire("user-1", "gpt-4", {"rpm": 60, "slots": 2}):
            limiter.reset_buckets("user-1")
            open_lease = left(limiter)

        assert {"rpm": 60, "slots": 1} == open_lease
        assert 3 == (left(limiter))["slots"]

    def test_reset_of_slots_alone_does_nothing(self, limiter, repo):
        """There is nothing to fill, so there is no event."""
        repo.set_system_defaults([SLOTS])
        with limiter.acquire("user-1", "gpt-4", {"slots": 2}):
            resources = limiter.reset_buckets("user-1")

        assert [] == resources
        assert [] == repo.get_audit_events("user-1")

    def test_reset_fills_limits_that_were_removed(self, limiter, repo):
        """Added again, they are full too."""
        take(limiter, {"rpm": 60, "spend": 100})
        repo.set_system_defaults([Limit.per_minute("tpm", 10)])
        take(limiter, {"tpm": 10})
        limiter.reset_buckets("user-1")
        repo.set_system_defaults([*LIMITS, Limit.per_minute("tpm", 10)])
        take(limiter, {"rpm": 1})

        assert {"rpm": 59, "spend": 100, "tpm": 10} == left(limiter)

    def test_reset_after_a_limit_was_raised_fills_the_new_one(self, limiter, repo):
        """The bucket is moved to the limits in force first."""
        take(limiter, {"rpm": 60, "spend": 100})
        repo.set_system_defaults([Limit.per_minute("rpm", 600), SPEND])
        limiter.reset_buckets("user-1")

        assert {"rpm": 600, "spend": 100} == left(limiter)

    def test_reset_of_a_bucket_on_limits_of_the_caller_keeps_these(self, limiter, repo):
        """Only that caller knows them."""
        own = [Limit.per_minute("rpm", 10)]
        with limiter.acquire("user-1", "gpt-4", {"rpm": 10}, limits=own):
            pass
        limiter.reset_buckets("user-1")

        assert {"rpm": 10} == limiter.available("user-1", "gpt-4", limits=own)
        assert [10] == [state.tokens for state in repo.get_buckets("user-1")]

    def test_lease_that_is_open_across_a_reset_gives_back_at_most_what_has_room(self, limiter):
        """The take was forgiven by the reset, and is not given back a second time."""
        lease = limiter.acquire("user-1", "gpt-4", {"rpm": 40, "spend": 40})
        with lease as entered:
            limiter.reset_buckets("user-1")
            entered.release(rpm=40, spend=40)
        take(limiter, {"rpm": 1, "spend": 1})

        assert {"rpm": 59, "spend": 99} == left(limiter)

    def test_reset_quota_refills_at_its_next_edge(self, limiter, clock):
        """A reset begins no schedule of its own."""
        take(limiter, {"spend": 100})
        limiter.reset_buckets("user-1")
        take(limiter, {"spend": 100})
        at(clock, 2026, 11, 30, 23, 59, 59)
        before = (left(limiter))["spend"]
        at(clock, 2026, 12, 1)

        assert (0, 100) == (before, (left(limiter))["spend"])

    def test_reset_just_after_an_edge_is_not_refilled_again(self, limiter, clock):
        """It belongs to that edge, by all time zone data."""
        take(limiter, {"spend": 100})
        at(clock, 2026, 12, 1, 0, 0, 1)
        take(limiter, {"spend": 100})
        limiter.reset_buckets("user-1")
        take(limiter, {"spend": 100})
        clock.advance(86_400_000)

        assert 0 == (left(limiter))["spend"]

    @pytest.mark.parametrize("shards", [2, 8])
    def test_reset_fills_all_shards(self, limiter, repo, clock, shards):
        """Each gets its share, and quotas the same epoch."""
        take(limiter, {"rpm": 60, "spend": 100})
        OtherClient(repo).grow(shards)
        limiter.reset_buckets("user-1")

        assert shards == len(counts(repo))
        assert 60_000 == sum(levels(repo, "rpm", clock.time_ms).values())
        assert 1 == len({item["b_spend_qk"] for item in buckets_in(repo)})
        assert {"rpm": 60, "spend": 100} == left(limiter)
        take(limiter, {"rpm": 60, "spend": 100})
        with pytest.raises(RateLimitExceeded):
            take(limiter, {"spend": 1})

    @pytest.mark.parametrize("fate", ["sent again", "throttled"])
    def test_reset_with_a_lost_answer_is_made_once(self, losing, repo, fate):
        """The event of the audit shows that it was made."""
        take(losing, {"rpm": 60, "spend": 100})
        losing_table(losing).fates = [fate]
        resources = losing.reset_buckets("user-1")

        assert ["gpt-4"] == resources
        assert ["buckets_reset"] == [event.action for event in repo.get_audit_events("user-1")]
        assert [2] == [item["gn"] for item in buckets_in(repo)]

    def test_reset_whose_answer_never_comes_raises(self, losing):
        """The caller learns that it may have been made."""
        take(losing, {"rpm": 60})
        losing_table(losing).fates = ["applied"]

        with pytest.raises(RateLimiterUnavailable):
            losing.reset_buckets("user-1")
        assert 60 == (left(losing))["rpm"]

    @pytest.mark.parametrize(
        "arguments", [("a#b",), ("user-1", "a#b"), ("user-1", "_default_"), ("user-1", "gpt-4", "x" * 257)]
    )
    def test_reset_with_invalid_arguments_is_refused(self, limiter, arguments):
        """Nothing is read."""
        with pytest.raises(ValidationError):
            limiter.reset_buckets(*arguments)


class TestCredit:
    """At most what was spent is given back, once with a key."""

    def test_credit_gives_back_what_was_spent_and_reports_it(self, limiter, repo):
        """The usage falls by the same amount."""
        take(limiter, {"rpm": 30, "spend": 50})
        given = limiter.credit("user-1", "gpt-4", {"rpm": 10, "spend": 20}, "ticket-1")

        assert {"rpm": 10, "spend": 20} == given
        assert {"rpm": 40, "spend": 70} == left(limiter)
        assert (20, 30) == (used(repo, "rpm"), used(repo, "spend"))

    def test_credit_gives_at_most_what_was_spent(self, limiter, clock):
        """To grant more is to raise the limit."""
        take(limiter, {"rpm": 30, "spend": 50})
        clock.advance(10_000)
        given = limiter.credit("user-1", "gpt-4", {"rpm": 100, "spend": 100}, "ticket-1")
        full = left(limiter)
        clock.advance(1_000)
        take(limiter, {"rpm": 60})

        assert {"rpm": 20, "spend": 50} == given
        assert {"rpm": 60, "spend": 100} == full
        assert 0 == (left(limiter))["rpm"]

    def test_credit_pays_a_debt(self, limiter):
        """A debt was spent too."""
        owe(limiter, {"rpm": 60, "spend": 100}, rpm=40, spend=40)
        given = limiter.credit("user-1", "gpt-4", {"rpm": 50, "spend": 50}, "ticket-1")

        assert {"rpm": 50, "spend": 50} == given
        assert {"rpm": 10, "spend": 10} == left(limiter)

    def test_credit_of_an_earlier_period_gives_nothing(self, limiter, clock):
        """What was spent then has ended with its period."""
        take(limiter, {"spend": 50})
        at(clock, 2026, 12, 1)

        assert {"spend": 0} == limiter.credit("user-1", "gpt-4", {"spend": 10}, "ticket-1")
        assert 100 == (left(limiter))["spend"]

    def test_credit_without_a_bucket_gives_nothing_and_keeps_its_record(self, limiter, repo):
        """The same call gives the same later, after something was spent."""
        first = limiter.credit("user-1", "gpt-4", {"rpm": 10}, "ticket-1")
        take(limiter, {"rpm": 30})
        again = limiter.credit("user-1", "gpt-4", {"rpm": 10}, "ticket-1")

        assert {"rpm": 0} == first == again
        assert 30 == (left(limiter))["rpm"]

    def test_credit_with_the_same_key_is_given_once(self, limiter, repo):
        """By another client too; another key is another credit."""
        take(limiter, {"rpm": 30})
        other = SyncRateLimiter(another(repo))
        first = limiter.credit("user-1", "gpt-4", {"rpm": 5}, "ticket-1", principal="ops")
        again = other.credit("user-1", "gpt-4", {"rpm": 5}, "ticket-1")
        more = other.credit("user-1", "gpt-4", {"rpm": 5}, "ticket-2")
        (newest, oldest) = repo.get_audit_events("user-1")

        assert {"rpm": 5} == first == again == more
        assert 40 == (left(limiter))["rpm"]
        assert ("credited", "ops", "gpt-4") == (oldest.action, oldest.principal, oldest.resource)
        assert {"amounts": {"rpm": 5}, "given": {"rpm": 5}, "idempotency_key": "ticket-1"} == oldest.details
        assert "ticket-2" == newest.details["idempotency_key"]

    @pytest.mark.parametrize(("resource", "amounts"), [("gpt-4", {"rpm": 6}), ("claude", {"rpm": 5})])
    def test_credit_with_the_key_of_another_credit_is_an_error(self, limiter, resource, amounts):
        """It names the earlier one."""
        take(limiter, {"rpm": 30})
        limiter.credit("user-1", "gpt-4", {"rpm": 5}, "ticket-1")

        with pytest.raises(IdempotencyKeyReusedError, match="of rpm 5 for gpt-4: choose another key"):
            limiter.credit("user-1", resource, amounts, "ticket-1")
        assert 35 == (left(limiter))["rpm"]

    def test_keys_of_two_entities_are_independent(self, limiter):
        """A key belongs to an entity."""
        for entity_id in ("user-1", "user-2"):
            take(limiter, {"rpm": 30}, entity_id)
            limiter.credit(entity_id, "gpt-4", {"rpm": 5}, "ticket-1")

        assert [35, 35] == [(left(limiter, one))["rpm"] for one in ("user-1", "user-2")]

    @pytest.mark.parametrize("shards", [2, 8])
    def test_credit_reaches_all_shards(self, limiter, repo, shards):
        """What was spent on any of them is given back, and no more."""
        OtherClientOf(limiter, repo).grow(shards)
        take(limiter, {"rpm": 60, "spend": 100})
        some = limiter.credit("user-1", "gpt-4", {"rpm": 50, "spend": 70}, "ticket-1")
        between = left(limiter)
        rest = limiter.credit("user-1", "gpt-4", {"rpm": 50, "spend": 70}, "ticket-2")

        assert {"rpm": 50, "spend": 70} == some
        assert {"rpm": 50, "spend": 70} == between
        assert {"rpm": 10, "spend": 30} == rest
        assert {"rpm": 60, "spend": 100} == left(limiter)

    def test_credit_of_slots_or_of_an_unknown_limit_is_refused(self, limiter, repo):
        """Nothing is given of the other limits."""
        repo.set_system_defaults([RPM, SLOTS])
        take(limiter, {"rpm": 30})

        with pytest.raises(ValidationError, match="is a limit of concurrent use"):
            limiter.credit("user-1", "gpt-4", {"rpm": 5, "slots": 1}, "ticket-1")
        with pytest.raises(ValidationError, match="is not a limit in force; these are: rpm, slots"):
            limiter.credit("user-1", "gpt-4", {"rpm": 5, "tpm": 1}, "ticket-1")
        assert 30 == (left(limiter))["rpm"]
        assert {} == records_in(repo)

    def test_credit_of_a_soft_limit_gives_back_what_was_charged(self, limiter, repo):
        """What it has only counted was never charged."""
        repo.set_system_defaults([Limit.per_minute("rpm", 60, enforce=False)])
        for _ in range(3):
            take(limiter, {"rpm": 40})

        assert {"rpm": 40} == limiter.credit("user-1", "gpt-4", {"rpm": 120}, "ticket-1")

    @pytest.mark.parametrize("fate", ["sent again", "throttled", "applied"])
    def test_credit_with_a_lost_answer_is_given_once(self, losing, repo, fate):
        """The record shows what was given."""
        take(losing, {"rpm": 30})
        losing_table(losing).fates = [fate]
        given = {}
        for _ in range(2):
            try:
                given = losing.credit("user-1", "gpt-4", {"rpm": 5}, "ticket-1")
            except RateLimiterUnavailable:
                assert "applied" == fate

        assert {"rpm": 5} == given
        assert 35 == (left(losing))["rpm"]
        assert ["credited"] == [event.action for event in repo.get_audit_events("user-1")]

    def test_record_of_a_credit_expires_with_the_events(self, limiter, repo):
        """It is kept as long as the audit shows the credit."""
        limiter.credit("user-1", "gpt-4", {"rpm": 5}, "ticket #1/ä")
        (record,) = records_in(repo).values()
        (event,) = [item for key, item in everything_in(repo).items() if "AUDIT#user-1" in key[0]]

        assert "#CREDIT#ticket #1/ä" == record["SK"]
        assert event["ttl"] == record["ttl"]

    def test_record_of_a_credit_survives_its_entity_but_not_its_namespace(self, repo):
        """A deleted entity that is created again has the same keys."""
        repo.register_namespace("tenant")
        tenant = repo.namespace("tenant")
        tenant.set_system_defaults(LIMITS)
        tenant.create_entity("user-1")
        tenant.credit("user-1", "gpt-4", {"rpm": 5}, "ticket-1")
        tenant.delete_entity("user-1")
        kept = list(records_in(repo))
        repo.delete_namespace("tenant")
        repo.purge_namespace(tenant.namespace_id)

        assert ["ticket-1"] == kept
        assert {} == records_in(repo)

    def test_record_of_a_credit_is_in_no_list(self, limiter, repo):
        """Lists of entities, usage and events have only their own items."""
        limiter.create_entity("user-1")
        take(limiter, {"rpm": 30})
        limiter.credit("user-1", "gpt-4", {"rpm": 5}, "ticket-1")
        entities, _ = repo.list_entities()
        snapshots, _ = repo.get_usage_snapshots("user-1", window_type="hourly")

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
    def test_credit_with_invalid_arguments_is_refused(self, limiter, amounts, key):
        """Nothing is read."""
        with pytest.raises(ValidationError):
            limiter.credit("user-1", "gpt-4", amounts, key)


class OtherClientOf(OtherClient):
    """Another client, which first creates the bucket."""

    def __init__(self, limiter, repo):
        super().__init__(repo)
        self._limiter = limiter

    def grow(self, shard_count):
        """Create the bucket, and split its shards."""
        take(self._limiter, {"rpm": 0, "spend": 0})
        super().grow(shard_count)
