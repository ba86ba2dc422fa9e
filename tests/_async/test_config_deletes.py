"""Deleted or changed limits: the next level applies, and live buckets follow when the cache expires."""

import pytest

from zae_limiter import Limit, OnUnavailable, RateLimiter, RateLimiterUnavailable, ResolvedLimits, ValidationError

from .clients import FailingTable, Wrapped, another, balance_of, buckets_in, counted, everything_in, take
from .rivals import RacedTable

OLD = Limit.per_second("rps", 10)
TPM = Limit.per_minute("tpm", 6_000)
LEVELS = ("entity", "entity_default", "resource", "system")
STORED = {level: [Limit.per_second("rps", 4 - number)] for number, level in enumerate(LEVELS)}
TTL_MS = 60_000

every_level = pytest.mark.parametrize("level", LEVELS)


async def store(repo, level, limits):
    """Set the limits of a level of one entity and resource."""
    if level == "system":
        await repo.set_system_defaults(limits)
    elif level == "resource":
        await repo.set_resource_defaults("gpt-4", limits)
    else:
        await repo.set_limits("user-1", limits, "gpt-4" if level == "entity" else "_default_")


async def stored(repo, level):
    """Get the limits of a level."""
    if level == "system":
        return (await repo.get_system_defaults())[0]
    if level == "resource":
        return await repo.get_resource_defaults("gpt-4")
    return await repo.get_limits("user-1", "gpt-4" if level == "entity" else "_default_")


async def delete(repo, level):
    """Delete the limits of a level."""
    if level == "system":
        await repo.delete_system_defaults()
    elif level == "resource":
        await repo.delete_resource_defaults("gpt-4")
    else:
        await repo.delete_limits("user-1", "gpt-4" if level == "entity" else "_default_")


async def resolved(repo):
    return await repo.resolve_limits("user-1", "gpt-4")


async def available(limiter):
    return await limiter.available("user-1", "gpt-4")


def configs_in(repo):
    return [item for key, item in everything_in(repo).items() if key[1].startswith("#CONFIG")]


@every_level
async def test_delete_removes_the_limits_of_one_level_only(repo, level):
    """A delete concerns one record."""
    for each in LEVELS:
        await store(repo, each, STORED[each])
    await delete(repo, level)

    assert {each: [] if each == level else STORED[each] for each in LEVELS} == {
        each: await stored(repo, each) for each in LEVELS
    }


async def test_resolve_limits_falls_back_to_the_next_level_after_a_delete(repo):
    """A client sees its own deletes immediately, until no level is left."""
    for each in LEVELS:
        await store(repo, each, STORED[each])
    found = [await resolved(repo)]
    for level in LEVELS:
        await delete(repo, level)
        found.append(await resolved(repo))

    assert [
        *(ResolvedLimits(STORED[level], None, level) for level in LEVELS),
        ResolvedLimits(None, None, None),
    ] == found


async def test_delete_system_defaults_also_deletes_on_unavailable(repo):
    """It is stored with the system defaults."""
    await repo.set_system_defaults([OLD], on_unavailable="allow")
    await repo.delete_system_defaults()
    deleted = await repo.get_system_defaults()
    await repo.set_system_defaults([OLD])

    assert (([], None), ([OLD], None)) == (deleted, await repo.get_system_defaults())


async def test_stored_on_unavailable_applies_immediately_to_the_client_that_changed_it(repo):
    """The last choice applies even if the store fails before it is read again."""
    other = another(repo, FailingTable)
    limiter, table, found = RateLimiter(other), other.scope.table, []
    for choice in ("block", "allow", None):
        await (other.set_system_defaults([OLD], choice) if choice else other.delete_system_defaults())
        table.unavailable = True
        try:
            async with limiter.acquire("user-1", "gpt-4", {"rps": 1}, [OLD]) as lease:
                found.append(lease.degraded)
        except RateLimiterUnavailable:
            found.append(None)
        table.unavailable = False

    assert [None, True, None] == found


@every_level
async def test_delete_of_limits_that_do_not_exist_writes_nothing(repo, level):
    """No error, record or event, whether they never existed or were deleted before."""
    before = everything_in(repo)
    await delete(repo, level)
    never = everything_in(repo)
    await store(repo, level, [OLD])
    await delete(repo, level)
    once = everything_in(repo)
    await delete(repo, level)

    assert before == never
    assert once == everything_in(repo)


@every_level
async def test_config_version_increases_with_every_set_and_delete(repo, level):
    """Tombstones keep the version; if it decreased, a bucket would mistake old limits for new ones."""
    versions = []
    for change in (lambda: store(repo, level, [OLD]), lambda: delete(repo, level)) * 3:
        await change()
        (item,) = configs_in(repo)
        versions.append((item["config_version"], "deleted" in item, "l_rps_cp" in item, "ttl" in item))

    assert [(number + 1, number % 2 == 1, number % 2 == 0, False) for number in range(6)] == versions


async def test_tombstone_is_only_in_the_index_of_its_namespace(repo):
    """The purge finds it, and no list of limits does."""
    await repo.set_limits("user-1", [OLD], "gpt-4")
    live = configs_in(repo)[0].keys()
    await repo.delete_limits("user-1", "gpt-4")
    dead = configs_in(repo)[0].keys()

    assert {"GSI3PK", "GSI3SK", "GSI4PK", "GSI4SK"} <= live
    assert ["GSI4PK", "GSI4SK"] == sorted(name for name in dead if name.startswith("GSI"))


# The limits before and after, and the rest of a full bucket from which one token was taken.
KINDS_OF_CHANGE = {
    "raised": ([OLD], [Limit.per_second("rps", 20)], {"rps": 9}),
    "lowered": ([OLD], [Limit.per_second("rps", 4)], {"rps": 3}),
    "added": ([OLD], [OLD, TPM], {"rps": 9, "tpm": 6_000}),
    "removed": ([OLD, TPM], [OLD], {"rps": 9}),
}


@every_level
@pytest.mark.parametrize("kind", KINDS_OF_CHANGE)
async def test_changed_limits_apply_to_a_live_bucket_when_the_cache_expires(repo, clock, level, kind):
    """At every level and for every kind of change, without any notification of the client."""
    before, after, left = KINDS_OF_CHANGE[kind]
    limiter = RateLimiter(another(repo))
    await store(repo, level, before)
    await take(limiter, {"rps": 1})
    await store(repo, level, after)
    clock.advance(TTL_MS - 1)
    old = await available(limiter)
    clock.advance(1)
    await take(limiter, {"rps": 1})

    assert {limit.name: limit.capacity for limit in before} == old
    assert left == await available(limiter)
    assert after[0].capacity * 1000 == balance_of(repo, "rps", "cp")


@pytest.mark.parametrize("number", range(3))
async def test_deleted_limits_stop_applying_to_a_live_bucket_when_the_cache_expires(repo, clock, number):
    """The bucket is rebased to the limits of the next level."""
    limiter = RateLimiter(another(repo))
    for each in LEVELS[number:]:
        await store(repo, each, STORED[each])
    capacity = 4 - number
    await take(limiter, {"rps": 1})
    await delete(repo, LEVELS[number])
    clock.advance(TTL_MS - 1)
    old = await available(limiter)
    clock.advance(1)
    await take(limiter, {"rps": 1})

    assert ({"rps": capacity}, {"rps": capacity - 2}) == (old, await available(limiter))


@every_level
async def test_acquire_after_the_last_limits_were_deleted_raises(repo, clock, level):
    """An existing bucket does not keep deleted limits in force."""
    limiter = RateLimiter(another(repo))
    await store(repo, level, [OLD])
    await take(limiter, {"rps": 1})
    await delete(repo, level)
    clock.advance(TTL_MS)

    with pytest.raises(ValidationError, match="no limits are in force"):
        await take(limiter, {"rps": 1})


async def test_deleting_and_setting_the_same_limits_does_not_refill_the_bucket(repo):
    """The bucket outlives its limits."""
    limiter = RateLimiter(repo)
    await repo.set_limits("user-1", [OLD], "gpt-4")
    await take(limiter, {"rps": 10})
    await repo.delete_limits("user-1", "gpt-4")
    await repo.set_limits("user-1", [OLD], "gpt-4")

    assert {"rps": 0} == await available(limiter)


async def test_fallback_to_higher_limits_adds_no_tokens(repo):
    """Tokens consumed under the entity's limits stay consumed."""
    limiter = RateLimiter(repo)
    await repo.set_system_defaults([Limit.per_second("rps", 100)])
    await repo.set_limits("user-1", [OLD])
    await take(limiter, {"rps": 8})
    await repo.delete_limits("user-1")
    await take(limiter, {"rps": 1})

    assert {"rps": 1} == await available(limiter)


async def test_bucket_has_a_ttl_only_while_it_uses_default_limits(repo):
    """A bucket with limits of its own never expires."""
    limiter, expires = RateLimiter(repo), []
    await repo.set_system_defaults([OLD])
    await repo.set_limits("user-1", [OLD])
    for change in (lambda: repo.delete_limits("user-1"), lambda: repo.set_limits("user-1", [OLD])):
        await take(limiter, {"rps": 1})
        expires.append("ttl" in buckets_in(repo)[0])
        await change()
    await take(limiter, {"rps": 1})
    expires.append("ttl" in buckets_in(repo)[0])

    assert [False, True, False] == expires


async def test_config_change_invalidates_only_the_affected_cache_entries(repo):
    """A change of an entity drops its entries; a change of defaults drops all."""
    sizes = []
    for change in (
        lambda: repo.set_limits("user-1", [OLD], "gpt-4"),
        lambda: repo.delete_limits("user-1", "gpt-4"),
        lambda: repo.set_resource_defaults("gpt-4", [OLD]),
        lambda: repo.delete_resource_defaults("gpt-4"),
        lambda: repo.set_system_defaults([OLD]),
        lambda: repo.delete_system_defaults(),
    ):
        for bucket in (("user-1", "gpt-4"), ("user-1", "other"), ("user-2", "gpt-4")):
            await repo.resolve_limits(*bucket)
        await change()
        sizes.append(repo.get_cache_stats().size)

    assert [1, 1, 0, 0, 0, 0] == sizes


class LosingTable(Wrapped):
    """A table that makes the change and loses the response."""

    async def transact(self, operations, token, *, until_s=None):
        await self.table.transact(operations, token, until_s=until_s)
        raise ConnectionError("the answer was lost")


async def test_change_with_a_lost_response_invalidates_the_cache(repo):
    """The change may have been made, so the limits are read again."""
    await repo.set_system_defaults([OLD])
    other = another(repo, LosingTable)
    before = await resolved(other)
    with pytest.raises(ConnectionError):
        await other.delete_system_defaults()

    assert ([OLD], None) == (before.limits, (await resolved(other)).limits)


async def test_config_cache_ttl_of_zero_applies_every_change_to_the_next_request(repo):
    """Each request makes one batch read and one write."""
    limiter, table = counted(repo, config_cache_ttl_ms=0)
    await store(repo, "system", [OLD])
    await take(limiter, {"rps": 1})
    found = []
    for level in reversed(LEVELS):
        await store(repo, level, STORED[level])
        table.drain()
        await take(limiter, {"rps": 0})
        found.append((balance_of(repo, "rps", "cp") // 1000, table.drain()))
    for level in LEVELS[:-1]:
        await delete(repo, level)
        table.drain()
        await take(limiter, {"rps": 0})
        found.append((balance_of(repo, "rps", "cp") // 1000, table.drain()))

    assert [(capacity, ["batch_get", "write"]) for capacity in (1, 2, 3, 4, 3, 2, 1)] == found


async def test_clients_with_different_cached_limits_rebase_a_bucket_once_per_change(repo, clock):
    """The first client after a change rebases; the other reads the limits again and never writes old ones."""
    (one, first), (two, second) = counted(repo), counted(repo)
    await store(repo, "system", [OLD])
    await take(one, {"rps": 0})
    clock.advance(TTL_MS // 2)
    await take(two, {"rps": 0})
    changes = [
        lambda: store(repo, "entity", [Limit.per_second("rps", 50)]),
        lambda: store(repo, "resource", [Limit.per_second("rps", 5)]),
        lambda: delete(repo, "entity"),
        lambda: store(repo, "entity_default", [OLD, TPM]),
        lambda: delete(repo, "entity_default"),
        lambda: delete(repo, "resource"),
    ]
    rebases, writes = [], []
    for change in changes:
        before = buckets_in(repo)[0]["gn"]
        first.drain()
        second.drain()
        await change()
        for _ in range(130):
            clock.advance(500)
            await take(one, {"rps": 1})
            await take(two, {"rps": 1})
        rebases.append(buckets_in(repo)[0]["gn"] - before)
        writes.append(first.drain().count("write") + second.drain().count("write"))

    assert [1] * len(changes) == rebases
    # One extra write shows the client with older limits the newer ones; another is a wrong full-or-not prediction.
    assert max(writes) <= 2 * 130 + 2


async def test_delete_that_loses_a_race_to_another_delete_is_recorded_once(repo):
    """The slower client finds nothing left to delete."""
    one, two = another(repo), another(repo, RacedTable)
    await one.set_limits("user-1", [OLD], "gpt-4")
    two.scope.table.rivals = [lambda: one.delete_limits("user-1", "gpt-4", principal="faster")]
    await two.delete_limits("user-1", "gpt-4", principal="slower")

    assert ["faster", None] == [event.principal for event in await repo.get_audit_events("user-1")]
    assert 2 == configs_in(repo)[0]["config_version"]


async def test_set_that_loses_a_race_to_a_delete_is_applied_after_it(repo):
    """The set is retried on the current record."""
    one, two = another(repo), another(repo, RacedTable)
    await one.set_system_defaults([OLD], OnUnavailable.ALLOW)
    two.scope.table.rivals = [one.delete_system_defaults]
    await two.set_system_defaults([TPM])

    assert ([TPM], None) == await repo.get_system_defaults()
    assert 3 == configs_in(repo)[0]["config_version"]
