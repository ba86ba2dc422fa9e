"""What a client does that notices a move, or the first limits across resources, only when its cached limits expire."""  # generated from _async by tools/mirror.py; do not edit

import pytest

from zae_limiter import ALL_RESOURCES, Limit, SyncRateLimiter

from .clients import AsynchronousTable, another, buckets_in, own_level

RPM = Limit.per_minute("rpm", 60)


@pytest.fixture(params=["in place", "at the same time"])
def client(request, repo):
    """A client with its own cache that writes in place, or one that sends writes at the same time."""
    return another(repo, AsynchronousTable if request.param == "at the same time" else None)


def left(repo, *entities):
    """Return the requests left of each entity's own bucket."""
    return [(own_level(SyncRateLimiter(repo), entity))["rpm"] for entity in entities]


def test_acquire_with_a_cached_link_from_before_two_moves_is_admitted(repo, client):
    """A chain that was never stored as a whole must not fail a request: its links are read again."""
    repo.set_system_defaults([RPM])
    repo.create_entity("a")
    repo.create_entity("b")
    repo.set_parent("a", "b", cascade=True)
    limiter = SyncRateLimiter(client)
    with limiter.acquire("a", "gpt-4", {"rpm": 1}):
        pass
    repo.set_parent("a", None)
    repo.set_parent("b", "a", cascade=True)
    client.scope.caches.forget_limits_of("b")

    with limiter.acquire("b", "gpt-4", {"rpm": 1}) as lease:
        charged = sorted(entry.entity_id for entry in lease.entries)

    assert ["a", "b"] == charged


def test_lease_that_consumes_after_a_move_settles_with_the_buckets_it_took_from(repo, client):
    """The first parent gave 5 and the second 3; each gets back what it gave."""
    repo.set_system_defaults([RPM])
    for entity in ("key", "old", "new"):
        repo.create_entity(entity)
    repo.set_parent("key", "old", cascade=True)
    limiter = SyncRateLimiter(client)

    def fail():
        with limiter.acquire("key", "gpt-4", {"rpm": 5}) as lease:
            repo.set_parent("key", "new", cascade=True)
            client.scope.caches.forget_limits_of("key")
            lease.consume(rpm=3)
            raise LookupError

    with pytest.raises(LookupError):
        fail()

    assert [60, 60, 60] == left(repo, "key", "old", "new")


def test_debit_of_a_lease_that_consumed_after_a_move_is_charged_to_a_parent(repo, client):
    """A key with a parent never uses tokens that no parent is charged for."""
    repo.set_system_defaults([RPM])
    for entity in ("key", "old", "new"):
        repo.create_entity(entity)
    repo.set_parent("key", "old", cascade=True)
    limiter = SyncRateLimiter(client)
    with limiter.acquire("key", "gpt-4", {"rpm": 5}) as lease:
        repo.set_parent("key", "new", cascade=True)
        client.scope.caches.forget_limits_of("key")
        lease.consume(rpm=3)
        lease.adjust(rpm=20)

    key, old, new = left(repo, "key", "old", "new")
    assert 60 - key <= (60 - old) + (60 - new)


def test_first_limits_across_resources_apply_once_a_client_reads_its_kinds_again(repo, client, clock):
    """Limits that it has read before it knew the kind are not used any more, although they are fresh."""
    repo.set_system_defaults([RPM])
    limiter = SyncRateLimiter(client)
    with limiter.acquire("other", "gpt-4", {"rpm": 1}):
        pass
    clock.advance(1_000)
    repo.set_limits("key", [Limit.per_minute("rpm", 2)], ALL_RESOURCES)
    clock.advance(58_000)
    with limiter.acquire("key", "gpt-4", {"rpm": 1}):
        pass
    clock.advance(5_000)
    with limiter.acquire("other", "gpt-4", {"rpm": 1}):
        pass

    with limiter.acquire("key", "gpt-4", {"rpm": 1}) as lease:
        charged = [entry.resource for entry in lease.entries]

    assert ["gpt-4", ALL_RESOURCES] == charged


def test_bucket_that_lost_a_limit_gets_back_only_what_it_gave(repo, client):
    """The limit still exists across resources, so the lease may take more of it, but only from there."""
    repo.set_system_defaults([RPM])
    repo.set_limits("key", [RPM], ALL_RESOURCES)
    limiter = SyncRateLimiter(client)

    def fail():
        with limiter.acquire("key", "gpt-4", {"rpm": 5}) as lease:
            repo.set_system_defaults([Limit.per_minute("tpm", 60)])
            client.scope.caches.forget_limits()
            lease.consume(rpm=3)
            raise LookupError

    with pytest.raises(LookupError):
        fail()

    used = {item["PK"].split("#")[2]: item["b_rpm_tc"] for item in buckets_in(repo)}
    assert {"gpt-4": 0, ALL_RESOURCES: 0} == used
