"""Stored limits: the four levels, their precedence, and how long the client caches them."""  # generated from _async by tools/mirror.py; do not edit

import pytest

from zae_limiter import Limit, OnUnavailable, SyncRateLimiter, SyncRepository, ResolvedLimits, ValidationError
from zae_limiter.caches.buckets import Bounded

from .clients import SettableClock, another, counted, everything_in, take

SYSTEM = [Limit.per_second("rps", 1)]
RESOURCE = [Limit.per_second("rps", 2)]
ENTITY_DEFAULT = [Limit.per_second("rps", 3)]
ENTITY = [Limit.per_second("rps", 4)]
MANY = [Limit.per_second("rps", 2), Limit.per_minute("tpm", 60), Limit.per_day("daily", 5)]


def test_stored_limits_are_read_back_at_every_level(repo):
    """Each getter returns what its setter stored."""
    repo.set_system_defaults(SYSTEM)
    repo.set_resource_defaults("gpt-4", RESOURCE)
    repo.set_limits("user-1", ENTITY_DEFAULT)
    repo.set_limits("user-1", ENTITY, "gpt-4")

    assert [(SYSTEM, None), RESOURCE, ENTITY_DEFAULT, ENTITY] == [
        repo.get_system_defaults(),
        repo.get_resource_defaults("gpt-4"),
        repo.get_limits("user-1"),
        repo.get_limits("user-1", "gpt-4"),
    ]


def test_getters_without_stored_limits_return_empty_lists(repo):
    """No limits are not an error."""
    assert [([], None), [], [], []] == [
        repo.get_system_defaults(),
        repo.get_resource_defaults("gpt-4"),
        repo.get_limits("user-1"),
        repo.get_limits("user-1", "gpt-4"),
    ]


def test_stored_limits_are_returned_in_the_order_of_their_names(repo):
    """The order in which they were set makes no difference."""
    repo.set_system_defaults(MANY)

    assert sorted(MANY, key=lambda limit: limit.name) == (repo.get_system_defaults())[0]


def test_setting_limits_replaces_all_earlier_limits_of_the_level(repo):
    """Limits that are not named again are removed."""
    repo.set_system_defaults(MANY)
    repo.set_system_defaults(SYSTEM)

    assert (SYSTEM, None) == repo.get_system_defaults()


def test_resolve_limits_uses_the_most_specific_level(repo):
    """Entity and resource first, then the entity's default, the resource, and the system."""
    found = [repo.resolve_limits("user-1", "gpt-4")]
    repo.set_system_defaults(SYSTEM)
    found.append(repo.resolve_limits("user-1", "gpt-4"))
    repo.set_resource_defaults("gpt-4", RESOURCE)
    found.append(repo.resolve_limits("user-1", "gpt-4"))
    repo.set_limits("user-1", ENTITY_DEFAULT)
    found.append(repo.resolve_limits("user-1", "gpt-4"))
    repo.set_limits("user-1", ENTITY, "gpt-4")
    found.append(repo.resolve_limits("user-1", "gpt-4"))

    assert [
        ResolvedLimits(None, None, None),
        ResolvedLimits(SYSTEM, None, "system"),
        ResolvedLimits(RESOURCE, None, "resource"),
        ResolvedLimits(ENTITY_DEFAULT, None, "entity_default"),
        ResolvedLimits(ENTITY, None, "entity"),
    ] == found


def test_resolve_limits_does_not_merge_levels(repo):
    """The most specific level applies as a whole."""
    repo.set_system_defaults(MANY)
    repo.set_limits("user-1", ENTITY, "gpt-4")

    assert ENTITY == (repo.resolve_limits("user-1", "gpt-4")).limits


def test_resolve_limits_ignores_other_entities_and_resources(repo):
    """Only the limits of this entity and this resource apply."""
    repo.set_system_defaults(SYSTEM)
    repo.set_limits("user-2", ENTITY, "gpt-4")
    repo.set_limits("user-1", ENTITY, "other")
    repo.set_resource_defaults("other", RESOURCE)

    assert "system" == (repo.resolve_limits("user-1", "gpt-4")).source


def test_acquire_uses_the_limits_of_the_most_specific_level(limiter):
    """The entity's limits take precedence over the system's."""
    limiter.set_system_defaults(SYSTEM)
    limiter.set_limits("user-1", ENTITY_DEFAULT)

    take(limiter, {"rps": 3})
    take(limiter, {"rps": 1}, "user-2")

    assert ({"rps": 0}, {"rps": 0}) == (
        limiter.available("user-1", "gpt-4"),
        limiter.available("user-2", "gpt-4"),
    )


def test_limiter_and_repository_return_the_same_limits(limiter, repo):
    """The limiter delegates to its repository."""
    limiter.set_system_defaults(SYSTEM, "allow")
    limiter.set_resource_defaults("gpt-4", RESOURCE)
    limiter.set_limits("user-1", ENTITY, "gpt-4")

    assert [
        repo.get_system_defaults(),
        repo.get_resource_defaults("gpt-4"),
        repo.get_limits("user-1", "gpt-4"),
        repo.resolve_limits("user-1", "gpt-4"),
    ] == [
        limiter.get_system_defaults(),
        limiter.get_resource_defaults("gpt-4"),
        limiter.get_limits("user-1", "gpt-4"),
        limiter.resolve_limits("user-1", "gpt-4"),
    ]


def test_on_unavailable_is_stored_with_the_system_defaults(repo):
    """resolve_limits returns it, whichever level the limits come from."""
    repo.set_system_defaults(SYSTEM, on_unavailable="allow")
    repo.set_limits("user-1", ENTITY)

    assert (SYSTEM, OnUnavailable.ALLOW) == repo.get_system_defaults()
    assert OnUnavailable.ALLOW is (repo.resolve_limits("user-1", "gpt-4")).on_unavailable


def test_on_unavailable_is_kept_when_only_the_limits_are_set(repo):
    """It changes only if it is passed."""
    repo.set_system_defaults(SYSTEM, on_unavailable=OnUnavailable.ALLOW)
    repo.set_system_defaults(RESOURCE)
    kept = repo.get_system_defaults()
    repo.set_system_defaults(RESOURCE, on_unavailable="block")

    assert ((RESOURCE, OnUnavailable.ALLOW), (RESOURCE, OnUnavailable.BLOCK)) == (
        kept,
        repo.get_system_defaults(),
    )


def test_set_limits_records_an_audit_event_with_the_principal(repo):
    """The event is stored with the change."""
    repo.set_limits("user-1", ENTITY, "gpt-4", principal="alice")

    events = [item for key, item in everything_in(repo).items() if "AUDIT#user-1" in key[0]]

    assert [("limits_set", "alice", "user-1", "gpt-4")] == [
        (event["action"], event["principal"], event["entity_id"], event["resource"]) for event in events
    ]


def test_sqlite_file_keeps_limits_and_balances_after_close(tmp_path):
    """A second repository on the file finds them."""
    url, clock = f"sqlite:///{tmp_path / 'kept.db'}", SettableClock()
    with SyncRepository.open(url, clock=clock) as first:
        first.set_system_defaults(MANY)
        take(SyncRateLimiter(first), {"tpm": 20})

    with SyncRepository.open(url, clock=clock) as second:
        assert {"daily": 5, "rps": 2, "tpm": 40} == SyncRateLimiter(second).available("user-1", "gpt-4")


def test_limits_are_read_once_until_the_cache_expires(repo, clock):
    """One batch read covers all levels, and none follows up to the last millisecond of the cache time."""
    repo.set_system_defaults(SYSTEM)
    limiter, table = counted(repo)

    limiter.resolve_limits("user-1", "gpt-4")
    first = table.drain()
    clock.advance(59_999)
    limiter.resolve_limits("user-1", "gpt-4")
    fresh = table.drain()
    clock.advance(1)
    limiter.resolve_limits("user-1", "gpt-4")

    assert (["batch_get"], [], ["batch_get"]) == (first, fresh, table.drain())


def test_absence_of_limits_is_cached(repo, clock):
    """A repeated request without limits makes no further batch read."""
    limiter, table = counted(repo)
    for _ in range(3):
        with pytest.raises(ValidationError):
            take(limiter, {"rps": 1})
    first = table.drain()
    repo.set_system_defaults(SYSTEM)
    clock.advance(60_000)
    take(limiter, {"rps": 1})

    assert 1 == first.count("batch_get")


def test_change_by_another_client_is_seen_when_the_cache_expires(repo, clock):
    """It is seen exactly then, not a millisecond earlier or later."""
    one, two = another(repo), another(repo)
    one.set_system_defaults(SYSTEM)
    two.resolve_limits("user-1", "gpt-4")
    one.set_system_defaults(RESOURCE)

    clock.advance(59_999)
    before = (two.resolve_limits("user-1", "gpt-4")).limits
    clock.advance(1)

    assert (SYSTEM, RESOURCE) == (before, (two.resolve_limits("user-1", "gpt-4")).limits)


def test_client_sees_its_own_changes_immediately_at_every_level(repo):
    """A change invalidates the client's own cache."""
    found = []
    repo.set_system_defaults(SYSTEM)
    found.append((repo.resolve_limits("user-1", "gpt-4")).limits)
    repo.set_system_defaults(RESOURCE)
    found.append((repo.resolve_limits("user-1", "gpt-4")).limits)
    repo.set_resource_defaults("gpt-4", SYSTEM)
    found.append((repo.resolve_limits("user-1", "gpt-4")).limits)
    repo.set_limits("user-1", ENTITY)
    found.append((repo.resolve_limits("user-1", "gpt-4")).limits)

    assert [SYSTEM, RESOURCE, SYSTEM, ENTITY] == found


def test_config_cache_ttl_of_zero_reads_limits_for_every_request(repo):
    """A change applies to the next call."""
    repo.set_system_defaults(SYSTEM)
    limiter, table = counted(repo, config_cache_ttl_ms=0)
    take(limiter, {"rps": 1})
    table.drain()
    take(limiter, {"rps": 0})
    cost = table.drain()
    repo.set_system_defaults(RESOURCE)

    assert ["batch_get", "write"] == cost
    assert RESOURCE == (limiter.resolve_limits("user-1", "gpt-4")).limits


def test_invalidate_config_cache_makes_changes_of_other_clients_visible(repo):
    """The next call reads the limits again."""
    one, two = another(repo), another(repo)
    one.set_system_defaults(SYSTEM)
    two.resolve_limits("user-1", "gpt-4")
    one.set_system_defaults(RESOURCE)

    two.invalidate_config_cache()

    assert RESOURCE == (two.resolve_limits("user-1", "gpt-4")).limits


def test_cache_stats_count_hits_misses_and_entries(repo):
    """They also contain the time to live in seconds."""
    before = repo.get_cache_stats()
    repo.resolve_limits("user-1", "gpt-4")
    repo.resolve_limits("user-1", "gpt-4")
    repo.resolve_limits("user-2", "gpt-4")
    after = repo.get_cache_stats()
    repo.invalidate_config_cache()

    assert (0, 0, 0, 60) == (before.hits, before.misses, before.size, before.ttl_seconds)
    assert (1, 2, 2) == (after.hits, after.misses, after.size)
    assert 0 == repo.get_cache_stats().size


def test_acquire_counts_as_a_cache_hit(limiter):
    """The limits of an acquire come from the cache as well."""
    limiter.set_system_defaults([Limit.per_second("rps", 100)])
    for _ in range(10):
        take(limiter, {"rps": 1})

    stats = limiter.get_cache_stats()

    assert (9, 1) == (stats.hits, stats.misses)


class SelfClearingCache(Bounded):
    """A cache that another thread clears after every entry."""

    def keep(self, key, value):
        super().keep(key, value)
        self.clear()


def test_limits_evicted_during_a_request_still_apply_to_it(repo):
    """Another thread may clear the cache at any moment."""
    repo.set_system_defaults(SYSTEM)
    other = another(repo)
    other.scope.caches.buckets = SelfClearingCache()
    limiter = SyncRateLimiter(other)

    take(limiter, {"rps": 1})

    assert {"rps": 0} == SyncRateLimiter(repo).available("user-1", "gpt-4")


def test_clock_set_back_does_not_extend_the_life_of_cached_limits(repo, clock):
    """Limits with a read time in the future are read again."""
    repo.set_system_defaults(SYSTEM)
    other = another(repo)
    other.resolve_limits("user-1", "gpt-4")
    clock.advance(-3_600_000)
    repo.set_system_defaults([Limit.per_second("rps", 50)])

    assert [Limit.per_second("rps", 50)] == (other.resolve_limits("user-1", "gpt-4")).limits
