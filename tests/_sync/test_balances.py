"""What is left of every limit of an entity, on the embedded tables."""  # generated from _async by tools/mirror.py; do not edit

import pytest

from zae_limiter import ALL_RESOURCES, Limit, SyncRateLimiter, ValidationError, usd
from zae_limiter.core.timestamp import ms_from_iso

from .shards import OtherClient

JUNE_MS = ms_from_iso("2024-06-15T10:00:00Z")
JULY_S = ms_from_iso("2024-06-30T22:00:00Z") // 1000
"""The first of July in Berlin."""
SPEND = Limit.quota("spend", usd("500"), tz="Europe/Berlin", unit="USD")
LIMITS = [Limit.per_minute("rpm", 100), SPEND]


@pytest.fixture
def limiter(repo, clock):
    clock.time_ms = JUNE_MS
    repo.scope.table.now()
    made = SyncRateLimiter(repo)
    made.set_system_defaults(LIMITS)
    return made


@pytest.fixture
def other(repo):
    return OtherClient(repo)


def take(limiter, consume, resource="gpt-4", limits=None):
    """Acquire and keep."""
    with limiter.acquire("user-1", resource, consume, limits):
        pass


def left(limiter):
    """Return what is left by resource and limit."""
    return {(one.resource, one.limit_name): one.available for one in limiter.get_balances("user-1")}


def test_balances_have_the_amounts_the_unit_and_the_time_at_which_a_limit_is_full(limiter):
    """A rate is full when it has refilled, and a quota at the end of its period."""
    take(limiter, {"rpm": 40, "spend": usd("487.50")})
    rpm, spend = limiter.get_balances("user-1")

    assert ("user-1", "gpt-4", "rpm", "rate") == (rpm.entity_id, rpm.resource, rpm.limit_name, rpm.kind)
    assert (100, 60, 40, 40.0) == (rpm.capacity, rpm.available, rpm.used, rpm.used_pct)
    assert (None, None, JUNE_MS // 1000 + 24) == (rpm.unit, rpm.resets_at, rpm.full_at)
    assert ("quota", "USD", 97.5) == (spend.kind, spend.unit, spend.used_pct)
    assert (usd("500"), usd("12.50"), usd("487.50")) == (spend.capacity, spend.available, spend.used)
    assert (JULY_S, JULY_S, None) == (spend.resets_at, spend.full_at, spend.in_use)
    assert spend.limit == SPEND


def test_balances_as_dict_are_ready_for_json(limiter):
    """Amounts of money are in micro-units, and times in seconds since the epoch."""
    take(limiter, {"spend": usd("487.50")})
    spend = (limiter.get_balances("user-1"))[1]

    assert {
        "entity_id": "user-1",
        "resource": "gpt-4",
        "limit_name": "spend",
        "kind": "quota",
        "capacity": 500_000_000,
        "available": 12_500_000,
        "used": 487_500_000,
        "used_pct": 97.5,
        "unit": "USD",
        "enforce": True,
        "schedule": "m1 0000 Europe/Berlin",
        "resets_at": JULY_S,
        "full_at": JULY_S,
        "in_use": None,
    } == spend.as_dict()


def test_balances_are_those_of_now(limiter, clock):
    """A rate has refilled since the last write, and a quota begins a new period without a write."""
    take(limiter, {"rpm": 100, "spend": usd("500")})
    clock.advance(30_000)
    assert {("gpt-4", "rpm"): 50, ("gpt-4", "spend"): 0} == left(limiter)
    clock.time_ms = JULY_S * 1000 + 5_000
    rpm, spend = limiter.get_balances("user-1")

    assert (100, None) == (rpm.available, rpm.full_at)
    assert (usd("500"), None, JULY_S + 31 * 86_400) == (spend.available, spend.full_at, spend.resets_at)


def test_balances_of_a_sharded_bucket_are_summed(limiter, other):
    """They are what an acquire could take, for rates and for quotas."""
    take(limiter, {"rpm": 7, "spend": usd("100")})
    other.grow(4)
    for _ in range(5):
        take(limiter, {"rpm": 1, "spend": usd("1")})

    found = left(limiter)
    assert {("gpt-4", "rpm"): 88, ("gpt-4", "spend"): usd("395")} == found
    assert {name: amount for (_, name), amount in found.items()} == limiter.available("user-1", "gpt-4")


def test_balances_list_every_resource_and_limits_across_resources(limiter):
    """They are sorted by resource; limits for all entities across resources count too."""
    limiter.set_resource_defaults(ALL_RESOURCES, [Limit.quota("total", 10, "day")])
    for resource in ("search", "gpt-4"):
        take(limiter, {"rpm": 1, "total": 1}, resource)

    assert [
        ("_all_", "total", 8),
        ("gpt-4", "rpm", 99),
        ("gpt-4", "spend", usd("500")),
        ("search", "rpm", 99),
        ("search", "spend", usd("500")),
    ] == [(one.resource, one.limit_name, one.available) for one in limiter.get_balances("user-1")]


def test_balances_list_limits_of_the_entity_that_were_never_used(limiter):
    """They are full. Defaults of resources that the entity has not used are left out."""
    assert [] == limiter.get_balances("user-1")
    limiter.set_resource_defaults("unused", LIMITS)
    limiter.set_limits("user-1", [Limit.per_minute("rpm", 7)], "gpt-4", inherit=True)
    limiter.set_limits("user-1", [Limit.concurrent("slots", 3)], ALL_RESOURCES)
    limiter.set_limits("user-1", [Limit.per_hour("rph", 5)])
    limiter.set_limits("user-1", [Limit.per_minute("rpm", 7)], "deleted")
    limiter.delete_limits("user-1", "deleted")

    assert {("gpt-4", "rpm"): 7, ("gpt-4", "rph"): 5, ("_all_", "slots"): 3} == left(limiter)


def test_limits_for_other_resources_are_listed_until_a_resource_has_them(limiter):
    """Until then, nothing shows that the entity has them."""
    limiter.set_limits("user-1", [Limit.per_hour("rph", 5)])
    assert {("_default_", "rph"): 5} == left(limiter)
    take(limiter, {"rph": 1})

    assert {("gpt-4", "rph"): 4} == left(limiter)


def test_balances_follow_limits_that_have_changed_since_the_last_acquire(limiter):
    """What was spent of a quota stays spent, and a removed limit is not listed."""
    take(limiter, {"rpm": 90, "spend": usd("100")})
    limiter.set_system_defaults([Limit.quota("spend", usd("300"), tz="Europe/Berlin", unit="USD")])

    assert {("gpt-4", "spend"): usd("200")} == left(limiter)


def test_balances_of_a_bucket_with_limits_of_the_caller_have_these(limiter):
    """They are not stored anywhere else."""
    take(limiter, {"own": 3}, limits=[Limit.quota("own", 10, "hour", enforce=False)])
    (own,) = limiter.get_balances("user-1")

    assert ("own", 7, False) == (own.limit_name, own.available, own.limit.enforce)


def test_a_soft_limit_and_a_debt_have_a_negative_balance(limiter):
    """More than all of it is used."""
    limiter.set_system_defaults([Limit.quota("soft", 10, enforce=False), Limit.per_minute("rpm", 100)])
    with limiter.acquire("user-1", "gpt-4", {"soft": 15, "rpm": 100}) as lease:
        lease.adjust(rpm=20)
    rpm, soft = limiter.get_balances("user-1")

    assert (-20, 120.0, JUNE_MS // 1000 + 72) == (rpm.available, rpm.used_pct, rpm.full_at)
    assert (-5, 150.0) == (soft.available, soft.used_pct)


def test_balances_have_the_slots_in_use(limiter):
    """They are free at the latest when their hold has ended."""
    limiter.set_system_defaults([Limit.concurrent("slots", 20, 30)])
    with limiter.acquire("user-1", "gpt-4", {"slots": 12}):
        (slots,) = limiter.get_balances("user-1")

    assert ("slots", 8, 12, 60.0) == (slots.kind, slots.available, slots.in_use, slots.used_pct)
    assert 30 <= slots.full_at - JUNE_MS // 1000 <= 45
    assert [(20, 0, None)] == [(one.available, one.in_use, one.full_at) for one in limiter.get_balances("user-1")]


def test_balances_of_an_invalid_id_raise_an_error(limiter):
    """Nothing is read."""
    with pytest.raises(ValidationError, match="an entity id starts with"):
        limiter.get_balances("a b")
