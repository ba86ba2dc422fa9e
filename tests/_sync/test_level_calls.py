"""How many calls an acquire of several levels makes: warm, cold, and when a level is or may be exhausted."""  # generated from _async by tools/mirror.py; do not edit

from itertools import pairwise

import pytest

from zae_limiter import Limit, SyncRateLimiter, RateLimitExceeded

from .clients import AsynchronousTable, another
from .levels import LEVELS, create_tree, remote
from .shards import OtherClient


@pytest.fixture
def tree(repo):
    """Five levels: each cascades to the next, and each has 60 requests and 6,000 tokens per minute."""
    create_tree(repo)
    return repo


def test_five_warm_levels_are_written_at_the_same_time_without_a_read(tree):
    """One write for each level."""
    limiter, table = remote(tree)
    with limiter.acquire("key", "gpt-4", {"rpm": 1}):
        pass
    table.drain()

    with limiter.acquire("key", "gpt-4", {"rpm": 1}):
        pass

    assert ["write"] * 5 == table.drain()


def test_a_level_known_to_be_exhausted_rejects_without_a_call(tree):
    """Its view is fresh."""
    tree.set_limits("org", [Limit.per_minute("rpm", 1)])
    limiter, table = remote(tree)
    with limiter.acquire("key", "gpt-4", {"rpm": 1}):
        pass
    table.drain()

    with pytest.raises(RateLimitExceeded):
        with limiter.acquire("key", "gpt-4", {"rpm": 1}):
            pass

    assert [] == table.drain()


def test_five_cold_levels_take_two_reads(tree):
    """The record of the entity names all levels above it."""
    limiter, table = remote(tree)

    with limiter.acquire("key", "gpt-4", {"rpm": 1}):
        pass

    assert ["batch_get", "batch_get", *["write"] * 5] == table.drain()


def test_five_cold_levels_with_wrong_hints_are_read_one_by_one(tree):
    """Each level above has moved since the entity below it was changed; they are found by their own records."""
    others = ("key", "user-2", "team-2", "org-2", "top-2")
    for entity in others[1:]:
        tree.create_entity(entity)
    for child, parent in pairwise(others):
        tree.set_parent(child, parent, cascade=True)
    limiter, table = remote(tree)

    with limiter.acquire("key", "gpt-4", {"rpm": 1}) as lease:
        levels = [entry.entity_id for entry in lease.entries]

    assert sorted(others) == sorted(levels)
    assert [*["batch_get"] * 5, *["write"] * 5] == table.drain()


def test_hint_that_became_wrong_costs_one_more_read(tree):
    """The user was moved; what is above its new parent is named by its own record."""
    tree.create_entity("top-2")
    tree.create_entity("org-2", parent_id="top-2", cascade=True)
    tree.set_parent("user", "org-2", cascade=True)
    limiter, table = remote(tree)

    with limiter.acquire("key", "gpt-4", {"rpm": 1}) as lease:
        levels = [entry.entity_id for entry in lease.entries]

    assert ["key", "org-2", "top-2", "user"] == sorted(levels)
    assert [*["batch_get"] * 3, *["write"] * 4] == table.drain()


def test_limits_that_expired_on_every_level_are_read_in_one_call(tree, clock):
    """The chain that was known is read again as a whole."""
    limiter, table = remote(tree)
    with limiter.acquire("key", "gpt-4", {"rpm": 1}):
        pass
    clock.advance(61_000)
    table.drain()

    with limiter.acquire("key", "gpt-4", {"rpm": 1}):
        pass

    assert ["batch_get", *["write"] * 5] == table.drain()


def test_chain_without_a_cache_is_read_for_every_acquire(tree):
    """A lifetime of 0 disables the cache of limits."""
    other = another(tree, AsynchronousTable, config_cache_ttl_ms=0)
    limiter, table = SyncRateLimiter(other), other.scope.table
    for _ in range(2):
        table.drain()
        with limiter.acquire("key", "gpt-4", {"rpm": 1}):
            pass

    assert ["batch_get", *["write"] * 5] == table.drain()


def test_nearly_exhausted_level_is_written_first_and_alone(tree):
    """Another client uses the organisation; its refusal costs one write, and no other level is charged."""
    tree.set_limits("org", [Limit.per_minute("rpm", 20)])
    limiter, table = remote(tree)
    rival = SyncRateLimiter(another(tree))
    for _ in range(4):
        with limiter.acquire("key", "gpt-4", {"rpm": 1}):
            pass
        with rival.acquire("org", "gpt-4", {"rpm": 3}):
            pass
    table.drain()
    with rival.acquire("org", "gpt-4", {"rpm": 3}):
        pass

    with pytest.raises(RateLimitExceeded) as caught:
        with limiter.acquire("key", "gpt-4", {"rpm": 2}):
            pass

    assert "org" == caught.value.primary_violation.entity_id
    assert ["write"] == table.drain()


@pytest.mark.parametrize("rivals", [0, 3])
def test_rejection_by_a_level_that_was_exhausted_a_while_ago_takes_two_reads_and_no_write(tree, clock, rivals):
    """All views are too old to reject. The exhausted level is read first, and then all others in one call."""
    tree.set_limits("org", [Limit.per_day("rpm", 4 + 5 * rivals)])
    limiter, table = remote(tree)
    rival = SyncRateLimiter(another(tree))
    for _ in range(4):
        with limiter.acquire("key", "gpt-4", {"rpm": 1}):
            pass
        with rival.acquire("org", "gpt-4", {"rpm": rivals}):
            pass
    clock.advance(5_000)
    table.drain()

    with pytest.raises(RateLimitExceeded) as caught:
        with limiter.acquire("key", "gpt-4", {"rpm": 5 * rivals + 1}):
            pass

    assert ["get", "batch_get"] == table.drain()
    assert list(LEVELS) == [bucket["entity_id"] for bucket in caught.value.as_dict()["buckets"]]


def test_rejection_by_a_sharded_level_that_was_exhausted_a_while_ago_makes_no_write(tree, clock):
    """Its views are too old to reject. It is read before any other level is written."""
    tree.set_limits("org", [Limit.per_day("rpm", 20)])
    limiter, table = remote(tree)
    with limiter.acquire("key", "gpt-4", {"rpm": 1}):
        pass
    other = OtherClient(tree)._client
    place = (("org", "gpt-4"), 0)
    other.shards.split(place, other.buckets.look(place, None, other.until_s()), other.until_s())
    for _ in range(2):
        with limiter.acquire("key", "gpt-4", {"rpm": 9}):
            pass
    clock.advance(5_000)
    table.drain()

    with pytest.raises(RateLimitExceeded):
        with limiter.acquire("key", "gpt-4", {"rpm": 5}):
            pass

    assert {"get", "batch_get"} == set(table.drain())


def test_available_reads_all_levels_in_one_call(tree):
    """Their limits are cached."""
    limiter, table = remote(tree)
    with limiter.acquire("key", "gpt-4", {"rpm": 1}):
        pass
    table.drain()

    limiter.available("key", "gpt-4")

    assert ["batch_get"] == table.drain()
