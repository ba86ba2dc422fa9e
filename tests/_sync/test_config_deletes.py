"""Limits that are deleted or changed: the next level counts, live buckets follow within the cache's time, once."""  # generated from _async by tools/mirror.py; do not edit

import pytest

from zae_limiter import Limit, OnUnavailable, SyncRateLimiter, RateLimiterUnavailable, ResolvedLimits, ValidationError

from .clients import FailingTable, Wrapped, another, balance_of, buckets_in, counted, everything_in, take
from .rivals import Overtaken

OLD = Limit.per_second("rps", 10)
TPM = Limit.per_minute("tpm", 6_000)
LEVELS = ("entity", "entity_default", "resource", "system")
STORED = {level: [Limit.per_second("rps", 4 - number)] for number, level in enumerate(LEVELS)}
TTL_MS = 60_000

every_level = pytest.mark.parametrize("level", LEVELS)


def store(repo, level, limits):
    """Set the limits of a level of one entity and resource."""
    if level == "system":
        repo.set_system_defaults(limits)
    elif level == "resource":
        repo.set_resource_defaults("gpt-4", limits)
    else:
        repo.set_limits("user-1", limits, "gpt-4" if level == "entity" else "_default_")


def stored(repo, level):
    """Get the limits of a level."""
    if level == "system":
        return (repo.get_system_defaults())[0]
    if level == "resource":
        return repo.get_resource_defaults("gpt-4")
    return repo.get_limits("user-1", "gpt-4" if level == "entity" else "_default_")


def delete(repo, level):
    """Delete the limits of a level."""
    if level == "system":
        repo.delete_system_defaults()
    elif level == "resource":
        repo.delete_resource_defaults("gpt-4")
    else:
        repo.delete_limits("user-1", "gpt-4" if level == "entity" else "_default_")


def resolved(repo):
    return repo.resolve_limits("user-1", "gpt-4")


def available(limiter):
    return limiter.available("user-1", "gpt-4")


def configs_in(repo):
    return [item for key, item in everything_in(repo).items() if key[1].startswith("#CONFIG")]


@every_level
def test_what_was_deleted_is_gone_and_the_rest_stays(repo, level):
    """A delete is of one record."""
    for each in LEVELS:
        store(repo, each, STORED[each])
    delete(repo, level)

    assert {each: [] if each == level else STORED[each] for each in LEVELS} == {
        each: stored(repo, each) for each in LEVELS
    }


def test_the_next_level_counts_after_a_delete(repo):
    """A client sees its own deletes at once, down to where nothing is left."""
    for each in LEVELS:
        store(repo, each, STORED[each])
    found = [resolved(repo)]
    for level in LEVELS:
        delete(repo, level)
        found.append(resolved(repo))

    assert [
        *(ResolvedLimits(STORED[level], None, level) for level in LEVELS),
        ResolvedLimits(None, None, None),
    ] == found


def test_the_system_forgets_what_to_do_while_the_store_is_away(repo):
    """It was stored with its defaults, and goes with them."""
    repo.set_system_defaults([OLD], on_unavailable="allow")
    repo.delete_system_defaults()
    deleted = repo.get_system_defaults()
    repo.set_system_defaults([OLD])

    assert (([], None), ([OLD], None)) == (deleted, repo.get_system_defaults())


def test_a_client_goes_by_its_own_choice_for_a_store_that_is_away_at_once(repo):
    """What it stored or deleted last, though the store goes away before it is read again."""
    other = another(repo, FailingTable)
    limiter, table, found = SyncRateLimiter(other), other.scope.table, []
    for choice in ("block", "allow", None):
        (other.set_system_defaults([OLD], choice) if choice else other.delete_system_defaults())
        table.away = True
        try:
            with limiter.acquire("user-1", "gpt-4", {"rps": 1}, [OLD]) as lease:
                found.append(lease.degraded)
        except RateLimiterUnavailable:
            found.append(None)
        table.away = False

    assert [None, True, None] == found


@every_level
def test_deleting_what_is_not_there_does_nothing(repo, level):
    """No error, no record, no event: neither for what never was nor for what was deleted before."""
    before = everything_in(repo)
    delete(repo, level)
    never = everything_in(repo)
    store(repo, level, [OLD])
    delete(repo, level)
    once = everything_in(repo)
    delete(repo, level)

    assert before == never
    assert once == everything_in(repo)


@every_level
def test_a_tombstone_keeps_the_version_and_every_change_raises_it(repo, level):
    """Versions never fall, or a bucket would take old limits for new ones."""
    versions = []
    for change in (lambda: store(repo, level, [OLD]), lambda: delete(repo, level)) * 3:
        change()
        (item,) = configs_in(repo)
        versions.append((item["config_version"], "deleted" in item, "l_rps_cp" in item, "ttl" in item))

    assert [(number + 1, number % 2 == 1, number % 2 == 0, False) for number in range(6)] == versions


def test_a_tombstone_is_found_by_no_list_but_the_purge(repo):
    """It is in the index of its namespace only."""
    repo.set_limits("user-1", [OLD], "gpt-4")
    live = configs_in(repo)[0].keys()
    repo.delete_limits("user-1", "gpt-4")
    dead = configs_in(repo)[0].keys()

    assert {"GSI3PK", "GSI3SK", "GSI4PK", "GSI4SK"} <= live
    assert ["GSI4PK", "GSI4SK"] == sorted(name for name in dead if name.startswith("GSI"))


# The limits before and after, and what is left when the bucket was full and one was taken.
KINDS_OF_CHANGE = {
    "raised": ([OLD], [Limit.per_second("rps", 20)], {"rps": 9}),
    "lowered": ([OLD], [Limit.per_second("rps", 4)], {"rps": 3}),
    "added": ([OLD], [OLD, TPM], {"rps": 9, "tpm": 6_000}),
    "removed": ([OLD, TPM], [OLD], {"rps": 9}),
}


@every_level
@pytest.mark.parametrize("kind", KINDS_OF_CHANGE)
def test_a_change_reaches_a_live_bucket_when_the_cache_has_run_out(repo, clock, level, kind):
    """At every level, of every kind; the client that has the bucket is told by nobody."""
    before, after, left = KINDS_OF_CHANGE[kind]
    limiter = SyncRateLimiter(another(repo))
    store(repo, level, before)
    take(limiter, {"rps": 1})
    store(repo, level, after)
    clock.advance(TTL_MS - 1)
    old = available(limiter)
    clock.advance(1)
    take(limiter, {"rps": 1})

    assert {limit.name: limit.capacity for limit in before} == old
    assert left == available(limiter)
    assert after[0].capacity * 1000 == balance_of(repo, "rps", "cp")


@pytest.mark.parametrize("number", range(3))
def test_a_delete_reaches_a_live_bucket_when_the_cache_has_run_out(repo, clock, number):
    """The bucket is put on the limits of the next level."""
    limiter = SyncRateLimiter(another(repo))
    for each in LEVELS[number:]:
        store(repo, each, STORED[each])
    capacity = 4 - number
    take(limiter, {"rps": 1})
    delete(repo, LEVELS[number])
    clock.advance(TTL_MS - 1)
    old = available(limiter)
    clock.advance(1)
    take(limiter, {"rps": 1})

    assert ({"rps": capacity}, {"rps": capacity - 2}) == (old, available(limiter))


@every_level
def test_where_the_last_limits_are_deleted_nothing_is_admitted(repo, clock, level):
    """A bucket that is still there does not limit by what is gone."""
    limiter = SyncRateLimiter(another(repo))
    store(repo, level, [OLD])
    take(limiter, {"rps": 1})
    delete(repo, level)
    clock.advance(TTL_MS)

    with pytest.raises(ValidationError, match="no limits are in force"):
        take(limiter, {"rps": 1})


def test_deleting_and_setting_again_refills_nothing(repo):
    """The bucket outlives its limits."""
    limiter = SyncRateLimiter(repo)
    repo.set_limits("user-1", [OLD], "gpt-4")
    take(limiter, {"rps": 10})
    repo.delete_limits("user-1", "gpt-4")
    repo.set_limits("user-1", [OLD], "gpt-4")

    assert {"rps": 0} == available(limiter)


def test_falling_back_to_higher_limits_adds_no_tokens(repo):
    """What was used up under the entity's limits stays used up."""
    limiter = SyncRateLimiter(repo)
    repo.set_system_defaults([Limit.per_second("rps", 100)])
    repo.set_limits("user-1", [OLD])
    take(limiter, {"rps": 8})
    repo.delete_limits("user-1")
    take(limiter, {"rps": 1})

    assert {"rps": 1} == available(limiter)


def test_a_bucket_that_falls_back_to_defaults_expires_again(repo):
    """And one that gets limits of its own does so no more."""
    limiter, expires = SyncRateLimiter(repo), []
    repo.set_system_defaults([OLD])
    repo.set_limits("user-1", [OLD])
    for change in (lambda: repo.delete_limits("user-1"), lambda: repo.set_limits("user-1", [OLD])):
        take(limiter, {"rps": 1})
        expires.append("ttl" in buckets_in(repo)[0])
        change()
    take(limiter, {"rps": 1})
    expires.append("ttl" in buckets_in(repo)[0])

    assert [False, True, False] == expires


def test_a_client_forgets_what_it_knows_of_the_entity_it_changed(repo):
    """A change of an entity leaves what is known of others, a change of defaults nothing."""
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
            repo.resolve_limits(*bucket)
        change()
        sizes.append(repo.get_cache_stats().size)

    assert [1, 1, 0, 0, 0, 0] == sizes


class LosingTable(Wrapped):
    """A table that makes the change and loses the answer."""

    def transact(self, operations, token, *, until_s=None):
        self.table.transact(operations, token, until_s=until_s)
        raise ConnectionError("the answer was lost")


def test_a_change_whose_answer_was_lost_is_not_hidden_by_the_cache(repo):
    """It may have been made, so what was known is read again."""
    repo.set_system_defaults([OLD])
    other = another(repo, LosingTable)
    before = resolved(other)
    with pytest.raises(ConnectionError):
        other.delete_system_defaults()

    assert ([OLD], None) == (before.limits, (resolved(other)).limits)


def test_without_a_cache_every_change_counts_for_the_next_request(repo):
    """``config_cache_ttl=0``: one batch of reads and one write for each."""
    limiter, table = counted(repo, config_cache_ttl_ms=0)
    store(repo, "system", [OLD])
    take(limiter, {"rps": 1})
    found = []
    for level in reversed(LEVELS):
        store(repo, level, STORED[level])
        table.drain()
        take(limiter, {"rps": 0})
        found.append((balance_of(repo, "rps", "cp") // 1000, table.drain()))
    for level in LEVELS[:-1]:
        delete(repo, level)
        table.drain()
        take(limiter, {"rps": 0})
        found.append((balance_of(repo, "rps", "cp") // 1000, table.drain()))

    assert [(capacity, ["batch_get", "write"]) for capacity in (1, 2, 3, 4, 3, 2, 1)] == found


def test_clients_with_different_limits_in_their_caches_rebase_a_bucket_once_per_change(repo, clock):
    """Whoever comes first after a change rebases; the other reads again, and nobody writes old limits back."""
    (one, first), (two, second) = counted(repo), counted(repo)
    store(repo, "system", [OLD])
    take(one, {"rps": 0})
    clock.advance(TTL_MS // 2)
    take(two, {"rps": 0})
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
        change()
        for _ in range(130):
            clock.advance(500)
            take(one, {"rps": 1})
            take(two, {"rps": 1})
        rebases.append(buckets_in(repo)[0]["gn"] - before)
        writes.append(first.drain().count("write") + second.drain().count("write"))

    assert [1] * len(changes) == rebases
    # One more is the write by which the client with the older limits learns of the newer ones, one a wrong guess.
    assert max(writes) <= 2 * 130 + 2


def test_a_delete_that_another_client_was_faster_with_is_made_once(repo):
    """The slower one finds nothing left to delete."""
    one, two = another(repo), another(repo, Overtaken)
    one.set_limits("user-1", [OLD], "gpt-4")
    two.scope.table.overtakers = [lambda: one.delete_limits("user-1", "gpt-4", principal="faster")]
    two.delete_limits("user-1", "gpt-4", principal="slower")

    assert ["faster", None] == [event.principal for event in repo.get_audit_events("user-1")]
    assert 2 == configs_in(repo)[0]["config_version"]


def test_a_set_that_another_client_deletes_under_comes_after_the_delete(repo):
    """It is tried again on what is there then."""
    one, two = another(repo), another(repo, Overtaken)
    one.set_system_defaults([OLD], OnUnavailable.ALLOW)
    two.scope.table.overtakers = [one.delete_system_defaults]
    two.set_system_defaults([TPM])

    assert ([TPM], None) == repo.get_system_defaults()
    assert 3 == configs_in(repo)[0]["config_version"]
