"""Stored limits: four levels, which of them counts, and what is remembered of them for how long."""  # generated from _async by tools/mirror.py; do not edit

import pytest

from zae_limiter import Limit, OnUnavailable, SyncRateLimiter, SyncRepository, ResolvedLimits, ValidationError
from zae_limiter.caches.buckets import Bounded

from .clients import SettableClock, another, counted, everything_in, take

SYSTEM = [Limit.per_second("rps", 1)]
RESOURCE = [Limit.per_second("rps", 2)]
ENTITY_DEFAULT = [Limit.per_second("rps", 3)]
ENTITY = [Limit.per_second("rps", 4)]
MANY = [Limit.per_second("rps", 2), Limit.per_minute("tpm", 60), Limit.per_day("daily", 5)]


def test_limits_are_stored_at_every_level(repo):
    """What was set is what is got."""
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


def test_where_nothing_is_stored_nothing_is_got(repo):
    """An empty list, and never an error."""
    assert [([], None), [], [], []] == [
        repo.get_system_defaults(),
        repo.get_resource_defaults("gpt-4"),
        repo.get_limits("user-1"),
        repo.get_limits("user-1", "gpt-4"),
    ]


def test_several_limits_come_back_in_the_order_of_their_names(repo):
    """Whole, whatever order they were set in."""
    repo.set_system_defaults(MANY)

    assert sorted(MANY, key=lambda limit: limit.name) == (repo.get_system_defaults())[0]


def test_setting_replaces_what_was_set(repo):
    """Limits that are not named again are gone."""
    repo.set_system_defaults(MANY)
    repo.set_system_defaults(SYSTEM)

    assert (SYSTEM, None) == repo.get_system_defaults()


def test_the_nearest_level_counts(repo):
    """Entity and resource, then the entity's default, then the resource, then the system."""
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


def test_levels_are_not_merged(repo):
    """The nearest level counts as a whole."""
    repo.set_system_defaults(MANY)
    repo.set_limits("user-1", ENTITY, "gpt-4")

    assert ENTITY == (repo.resolve_limits("user-1", "gpt-4")).limits


def test_limits_of_others_do_not_count(repo):
    """Another entity, another resource."""
    repo.set_system_defaults(SYSTEM)
    repo.set_limits("user-2", ENTITY, "gpt-4")
    repo.set_limits("user-1", ENTITY, "other")
    repo.set_resource_defaults("other", RESOURCE)

    assert "system" == (repo.resolve_limits("user-1", "gpt-4")).source


def test_an_acquire_goes_by_the_nearest_level(limiter):
    """The limits of the entity and not the system's."""
    limiter.set_system_defaults(SYSTEM)
    limiter.set_limits("user-1", ENTITY_DEFAULT)

    take(limiter, {"rps": 3})
    take(limiter, {"rps": 1}, "user-2")

    assert ({"rps": 0}, {"rps": 0}) == (
        limiter.available("user-1", "gpt-4"),
        limiter.available("user-2", "gpt-4"),
    )


def test_the_limiter_hands_every_verb_to_its_repository(limiter, repo):
    """Both know the same limits."""
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


def test_what_to_do_while_the_store_is_away_is_stored_with_the_system(repo):
    """It is told wherever limits are resolved."""
    repo.set_system_defaults(SYSTEM, on_unavailable="allow")
    repo.set_limits("user-1", ENTITY)

    assert (SYSTEM, OnUnavailable.ALLOW) == repo.get_system_defaults()
    assert OnUnavailable.ALLOW is (repo.resolve_limits("user-1", "gpt-4")).on_unavailable


def test_what_to_do_while_the_store_is_away_stays_until_it_is_changed(repo):
    """Setting limits alone leaves it."""
    repo.set_system_defaults(SYSTEM, on_unavailable=OnUnavailable.ALLOW)
    repo.set_system_defaults(RESOURCE)
    kept = repo.get_system_defaults()
    repo.set_system_defaults(RESOURCE, on_unavailable="block")

    assert ((RESOURCE, OnUnavailable.ALLOW), (RESOURCE, OnUnavailable.BLOCK)) == (
        kept,
        repo.get_system_defaults(),
    )


def test_a_change_leaves_an_audit_event(repo):
    """Whoever changed it is written down with the change."""
    repo.set_limits("user-1", ENTITY, "gpt-4", principal="alice")

    events = [item for key, item in everything_in(repo).items() if "AUDIT#user-1" in key[0]]

    assert [("limits_set", "alice", "user-1", "gpt-4")] == [
        (event["action"], event["principal"], event["entity_id"], event["resource"]) for event in events
    ]


def test_stored_limits_survive_closing(tmp_path):
    """A file keeps limits and balances."""
    url, clock = f"sqlite:///{tmp_path / 'kept.db'}", SettableClock()
    with SyncRepository.open(url, clock=clock) as first:
        first.set_system_defaults(MANY)
        take(SyncRateLimiter(first), {"tpm": 20})

    with SyncRepository.open(url, clock=clock) as second:
        assert {"daily": 5, "rps": 2, "tpm": 40} == SyncRateLimiter(second).available("user-1", "gpt-4")


def test_limits_are_read_once_while_they_are_fresh(repo, clock):
    """One batch of reads for all levels, then none up to the last millisecond of the cache's time."""
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


def test_that_there_are_no_limits_is_remembered_too(repo, clock):
    """Asking again for what is not there costs nothing."""
    limiter, table = counted(repo)
    for _ in range(3):
        with pytest.raises(ValidationError):
            take(limiter, {"rps": 1})
    first = table.drain()
    repo.set_system_defaults(SYSTEM)
    clock.advance(60_000)
    take(limiter, {"rps": 1})

    assert 1 == first.count("batch_get")


def test_a_change_by_another_client_is_seen_when_the_cache_has_run_out(repo, clock):
    """Not a millisecond before, where nothing else tells, and not one after."""
    one, two = another(repo), another(repo)
    one.set_system_defaults(SYSTEM)
    two.resolve_limits("user-1", "gpt-4")
    one.set_system_defaults(RESOURCE)

    clock.advance(59_999)
    before = (two.resolve_limits("user-1", "gpt-4")).limits
    clock.advance(1)

    assert (SYSTEM, RESOURCE) == (before, (two.resolve_limits("user-1", "gpt-4")).limits)


def test_a_client_sees_its_own_change_at_once(repo):
    """At every level."""
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


def test_without_a_cache_limits_are_read_every_time(repo):
    """``config_cache_ttl=0``: a change is seen by the next call."""
    repo.set_system_defaults(SYSTEM)
    limiter, table = counted(repo, config_cache_ttl_ms=0)
    take(limiter, {"rps": 1})
    table.drain()
    take(limiter, {"rps": 0})
    cost = table.drain()
    repo.set_system_defaults(RESOURCE)

    assert ["batch_get", "write"] == cost
    assert RESOURCE == (limiter.resolve_limits("user-1", "gpt-4")).limits


def test_the_cache_may_be_emptied(repo):
    """What another client changed is then seen at once."""
    one, two = another(repo), another(repo)
    one.set_system_defaults(SYSTEM)
    two.resolve_limits("user-1", "gpt-4")
    one.set_system_defaults(RESOURCE)

    two.invalidate_config_cache()

    assert RESOURCE == (two.resolve_limits("user-1", "gpt-4")).limits


def test_the_cache_tells_how_it_is_doing(repo):
    """Hits, misses, entries, and how long they last."""
    before = repo.get_cache_stats()
    repo.resolve_limits("user-1", "gpt-4")
    repo.resolve_limits("user-1", "gpt-4")
    repo.resolve_limits("user-2", "gpt-4")
    after = repo.get_cache_stats()
    repo.invalidate_config_cache()

    assert (0, 0, 0, 60) == (before.hits, before.misses, before.size, before.ttl_seconds)
    assert (1, 2, 2) == (after.hits, after.misses, after.size)
    assert 0 == repo.get_cache_stats().size


def test_acquires_count_as_hits_of_the_cache(limiter):
    """The limits of an acquire come from the cache as well."""
    limiter.set_system_defaults([Limit.per_second("rps", 100)])
    for _ in range(10):
        take(limiter, {"rps": 1})

    stats = limiter.get_cache_stats()

    assert (9, 1) == (stats.hits, stats.misses)


class Forgetful(Bounded):
    """A memory that somebody else empties at once."""

    def keep(self, key, value):
        super().keep(key, value)
        self.clear()


def test_limits_that_are_forgotten_while_a_request_is_judged_count_for_it(repo):
    """Another thread may empty the cache at any moment."""
    repo.set_system_defaults(SYSTEM)
    other = another(repo)
    other.scope.caches.buckets = Forgetful()
    limiter = SyncRateLimiter(other)

    take(limiter, {"rps": 1})

    assert {"rps": 0} == SyncRateLimiter(repo).available("user-1", "gpt-4")


def test_a_clock_that_is_set_back_does_not_keep_old_limits_for_longer(repo, clock):
    """Limits that were read in the future are read again."""
    repo.set_system_defaults(SYSTEM)
    other = another(repo)
    other.resolve_limits("user-1", "gpt-4")
    clock.advance(-3_600_000)
    repo.set_system_defaults([Limit.per_second("rps", 50)])

    assert [Limit.per_second("rps", 50)] == (other.resolve_limits("user-1", "gpt-4")).limits
