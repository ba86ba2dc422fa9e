"""Stored limits: the four levels, their precedence, and how long the client caches them."""

import pytest

from zae_limiter import Limit, OnUnavailable, RateLimiter, Repository, ResolvedLimits, ValidationError
from zae_limiter.caches.buckets import Bounded

from .clients import SettableClock, another, counted, everything_in, take

SYSTEM = [Limit.per_second("rps", 1)]
RESOURCE = [Limit.per_second("rps", 2)]
ENTITY_DEFAULT = [Limit.per_second("rps", 3)]
ENTITY = [Limit.per_second("rps", 4)]
MANY = [Limit.per_second("rps", 2), Limit.per_minute("tpm", 60), Limit.per_day("daily", 5)]


async def test_stored_limits_are_read_back_at_every_level(repo):
    """Each getter returns what its setter stored."""
    await repo.set_system_defaults(SYSTEM)
    await repo.set_resource_defaults("gpt-4", RESOURCE)
    await repo.set_limits("user-1", ENTITY_DEFAULT)
    await repo.set_limits("user-1", ENTITY, "gpt-4")

    assert [(SYSTEM, None), RESOURCE, ENTITY_DEFAULT, ENTITY] == [
        await repo.get_system_defaults(),
        await repo.get_resource_defaults("gpt-4"),
        await repo.get_limits("user-1"),
        await repo.get_limits("user-1", "gpt-4"),
    ]


async def test_getters_without_stored_limits_return_empty_lists(repo):
    """No limits are not an error."""
    assert [([], None), [], [], []] == [
        await repo.get_system_defaults(),
        await repo.get_resource_defaults("gpt-4"),
        await repo.get_limits("user-1"),
        await repo.get_limits("user-1", "gpt-4"),
    ]


async def test_stored_limits_are_returned_in_the_order_of_their_names(repo):
    """The order in which they were set makes no difference."""
    await repo.set_system_defaults(MANY)

    assert sorted(MANY, key=lambda limit: limit.name) == (await repo.get_system_defaults())[0]


async def test_setting_limits_replaces_all_earlier_limits_of_the_level(repo):
    """Limits that are not named again are removed."""
    await repo.set_system_defaults(MANY)
    await repo.set_system_defaults(SYSTEM)

    assert (SYSTEM, None) == await repo.get_system_defaults()


async def test_resolve_limits_uses_the_most_specific_level(repo):
    """Entity and resource first, then the entity's default, the resource, and the system."""
    found = [await repo.resolve_limits("user-1", "gpt-4")]
    await repo.set_system_defaults(SYSTEM)
    found.append(await repo.resolve_limits("user-1", "gpt-4"))
    await repo.set_resource_defaults("gpt-4", RESOURCE)
    found.append(await repo.resolve_limits("user-1", "gpt-4"))
    await repo.set_limits("user-1", ENTITY_DEFAULT)
    found.append(await repo.resolve_limits("user-1", "gpt-4"))
    await repo.set_limits("user-1", ENTITY, "gpt-4")
    found.append(await repo.resolve_limits("user-1", "gpt-4"))

    assert [
        ResolvedLimits(None, None, None),
        ResolvedLimits(SYSTEM, None, "system"),
        ResolvedLimits(RESOURCE, None, "resource"),
        ResolvedLimits(ENTITY_DEFAULT, None, "entity_default"),
        ResolvedLimits(ENTITY, None, "entity"),
    ] == found


async def test_resolve_limits_does_not_merge_levels(repo):
    """The most specific level applies as a whole."""
    await repo.set_system_defaults(MANY)
    await repo.set_limits("user-1", ENTITY, "gpt-4")

    assert ENTITY == (await repo.resolve_limits("user-1", "gpt-4")).limits


async def test_resolve_limits_ignores_other_entities_and_resources(repo):
    """Only the limits of this entity and this resource apply."""
    await repo.set_system_defaults(SYSTEM)
    await repo.set_limits("user-2", ENTITY, "gpt-4")
    await repo.set_limits("user-1", ENTITY, "other")
    await repo.set_resource_defaults("other", RESOURCE)

    assert "system" == (await repo.resolve_limits("user-1", "gpt-4")).source


async def test_acquire_uses_the_limits_of_the_most_specific_level(limiter):
    """The entity's limits take precedence over the system's."""
    await limiter.set_system_defaults(SYSTEM)
    await limiter.set_limits("user-1", ENTITY_DEFAULT)

    await take(limiter, {"rps": 3})
    await take(limiter, {"rps": 1}, "user-2")

    assert ({"rps": 0}, {"rps": 0}) == (
        await limiter.available("user-1", "gpt-4"),
        await limiter.available("user-2", "gpt-4"),
    )


async def test_limiter_and_repository_return_the_same_limits(limiter, repo):
    """The limiter delegates to its repository."""
    await limiter.set_system_defaults(SYSTEM, "allow")
    await limiter.set_resource_defaults("gpt-4", RESOURCE)
    await limiter.set_limits("user-1", ENTITY, "gpt-4")

    assert [
        await repo.get_system_defaults(),
        await repo.get_resource_defaults("gpt-4"),
        await repo.get_limits("user-1", "gpt-4"),
        await repo.resolve_limits("user-1", "gpt-4"),
    ] == [
        await limiter.get_system_defaults(),
        await limiter.get_resource_defaults("gpt-4"),
        await limiter.get_limits("user-1", "gpt-4"),
        await limiter.resolve_limits("user-1", "gpt-4"),
    ]


async def test_on_unavailable_is_stored_with_the_system_defaults(repo):
    """resolve_limits returns it, whichever level the limits come from."""
    await repo.set_system_defaults(SYSTEM, on_unavailable="allow")
    await repo.set_limits("user-1", ENTITY)

    assert (SYSTEM, OnUnavailable.ALLOW) == await repo.get_system_defaults()
    assert OnUnavailable.ALLOW is (await repo.resolve_limits("user-1", "gpt-4")).on_unavailable


async def test_on_unavailable_is_kept_when_only_the_limits_are_set(repo):
    """It changes only if it is passed."""
    await repo.set_system_defaults(SYSTEM, on_unavailable=OnUnavailable.ALLOW)
    await repo.set_system_defaults(RESOURCE)
    kept = await repo.get_system_defaults()
    await repo.set_system_defaults(RESOURCE, on_unavailable="block")

    assert ((RESOURCE, OnUnavailable.ALLOW), (RESOURCE, OnUnavailable.BLOCK)) == (
        kept,
        await repo.get_system_defaults(),
    )


async def test_set_limits_records_an_audit_event_with_the_principal(repo):
    """The event is stored with the change."""
    await repo.set_limits("user-1", ENTITY, "gpt-4", principal="alice")

    events = [item for key, item in everything_in(repo).items() if "AUDIT#user-1" in key[0]]

    assert [("limits_set", "alice", "user-1", "gpt-4")] == [
        (event["action"], event["principal"], event["entity_id"], event["resource"]) for event in events
    ]


async def test_sqlite_file_keeps_limits_and_balances_after_close(tmp_path):
    """A second repository on the file finds them."""
    url, clock = f"sqlite:///{tmp_path / 'kept.db'}", SettableClock()
    async with await Repository.open(url, clock=clock) as first:
        await first.set_system_defaults(MANY)
        await take(RateLimiter(first), {"tpm": 20})

    async with await Repository.open(url, clock=clock) as second:
        assert {"daily": 5, "rps": 2, "tpm": 40} == await RateLimiter(second).available("user-1", "gpt-4")


async def test_limits_are_read_once_until_the_cache_expires(repo, clock):
    """One batch read covers all levels, and none follows up to the last millisecond of the cache time."""
    await repo.set_system_defaults(SYSTEM)
    limiter, table = counted(repo)

    await limiter.resolve_limits("user-1", "gpt-4")
    first = table.drain()
    clock.advance(59_999)
    await limiter.resolve_limits("user-1", "gpt-4")
    fresh = table.drain()
    clock.advance(1)
    await limiter.resolve_limits("user-1", "gpt-4")

    assert (["batch_get"], [], ["batch_get"]) == (first, fresh, table.drain())


async def test_absence_of_limits_is_cached(repo, clock):
    """A repeated request without limits makes no further batch read."""
    limiter, table = counted(repo)
    for _ in range(3):
        with pytest.raises(ValidationError):
            await take(limiter, {"rps": 1})
    first = table.drain()
    await repo.set_system_defaults(SYSTEM)
    clock.advance(60_000)
    await take(limiter, {"rps": 1})

    assert 1 == first.count("batch_get")


async def test_change_by_another_client_is_seen_when_the_cache_expires(repo, clock):
    """It is seen exactly then, not a millisecond earlier or later."""
    one, two = another(repo), another(repo)
    await one.set_system_defaults(SYSTEM)
    await two.resolve_limits("user-1", "gpt-4")
    await one.set_system_defaults(RESOURCE)

    clock.advance(59_999)
    before = (await two.resolve_limits("user-1", "gpt-4")).limits
    clock.advance(1)

    assert (SYSTEM, RESOURCE) == (before, (await two.resolve_limits("user-1", "gpt-4")).limits)


async def test_client_sees_its_own_changes_immediately_at_every_level(repo):
    """A change invalidates the client's own cache."""
    found = []
    await repo.set_system_defaults(SYSTEM)
    found.append((await repo.resolve_limits("user-1", "gpt-4")).limits)
    await repo.set_system_defaults(RESOURCE)
    found.append((await repo.resolve_limits("user-1", "gpt-4")).limits)
    await repo.set_resource_defaults("gpt-4", SYSTEM)
    found.append((await repo.resolve_limits("user-1", "gpt-4")).limits)
    await repo.set_limits("user-1", ENTITY)
    found.append((await repo.resolve_limits("user-1", "gpt-4")).limits)

    assert [SYSTEM, RESOURCE, SYSTEM, ENTITY] == found


async def test_config_cache_ttl_of_zero_reads_limits_for_every_request(repo):
    """A change applies to the next call."""
    await repo.set_system_defaults(SYSTEM)
    limiter, table = counted(repo, config_cache_ttl_ms=0)
    await take(limiter, {"rps": 1})
    table.drain()
    await take(limiter, {"rps": 0})
    cost = table.drain()
    await repo.set_system_defaults(RESOURCE)

    assert ["batch_get", "write"] == cost
    assert RESOURCE == (await limiter.resolve_limits("user-1", "gpt-4")).limits


async def test_invalidate_config_cache_makes_changes_of_other_clients_visible(repo):
    """The next call reads the limits again."""
    one, two = another(repo), another(repo)
    await one.set_system_defaults(SYSTEM)
    await two.resolve_limits("user-1", "gpt-4")
    await one.set_system_defaults(RESOURCE)

    await two.invalidate_config_cache()

    assert RESOURCE == (await two.resolve_limits("user-1", "gpt-4")).limits


async def test_cache_stats_count_hits_misses_and_entries(repo):
    """They also contain the time to live in seconds."""
    before = repo.get_cache_stats()
    await repo.resolve_limits("user-1", "gpt-4")
    await repo.resolve_limits("user-1", "gpt-4")
    await repo.resolve_limits("user-2", "gpt-4")
    after = repo.get_cache_stats()
    await repo.invalidate_config_cache()

    assert (0, 0, 0, 60) == (before.hits, before.misses, before.size, before.ttl_seconds)
    assert (1, 2, 2) == (after.hits, after.misses, after.size)
    assert 0 == repo.get_cache_stats().size


async def test_acquire_counts_as_a_cache_hit(limiter):
    """The limits of an acquire come from the cache as well."""
    await limiter.set_system_defaults([Limit.per_second("rps", 100)])
    for _ in range(10):
        await take(limiter, {"rps": 1})

    stats = limiter.get_cache_stats()

    assert (9, 1) == (stats.hits, stats.misses)


class SelfClearingCache(Bounded):
    """A cache that another thread clears after every entry."""

    def keep(self, key, value):
        super().keep(key, value)
        self.clear()


async def test_limits_evicted_during_a_request_still_apply_to_it(repo):
    """Another thread may clear the cache at any moment."""
    await repo.set_system_defaults(SYSTEM)
    other = another(repo)
    other.scope.caches.buckets = SelfClearingCache()
    limiter = RateLimiter(other)

    await take(limiter, {"rps": 1})

    assert {"rps": 0} == await RateLimiter(repo).available("user-1", "gpt-4")


async def test_clock_set_back_does_not_extend_the_life_of_cached_limits(repo, clock):
    """Limits with a read time in the future are read again."""
    await repo.set_system_defaults(SYSTEM)
    other = another(repo)
    await other.resolve_limits("user-1", "gpt-4")
    clock.advance(-3_600_000)
    await repo.set_system_defaults([Limit.per_second("rps", 50)])

    assert [Limit.per_second("rps", 50)] == (await other.resolve_limits("user-1", "gpt-4")).limits
