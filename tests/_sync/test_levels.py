"""An acquire takes from the entity and from all entities above it that cascade, as far as each of them does."""  # generated from _async by tools/mirror.py; do not edit

import pytest

from zae_limiter import (
    EntityBlockedError,
    EntityNotFoundError,
    Limit,
    SyncRateLimiter,
    RateLimitExceeded,
    TooManyBucketsError,
    ValidationError,
)

from .clients import CountingTable, another, own_level
from .levels import LEVELS, RPM, TPM, create_tree


@pytest.fixture
def limiter(either_limiter):
    """Every rule holds for both kinds of limiter."""
    return either_limiter


@pytest.fixture
def tree(repo):
    """Five levels: each cascades to the next, and each has 60 requests and 6,000 tokens per minute."""
    create_tree(repo)
    return repo


def left(repo, *entities):
    """Return the requests left of each entity's own bucket."""
    return [(own_level(SyncRateLimiter(repo), entity))["rpm"] for entity in entities or LEVELS]


def test_every_level_is_charged(tree, limiter):
    """The chain ends at the entity without a parent."""
    with limiter.acquire("key", "gpt-4", {"rpm": 2, "tpm": 10}) as lease:
        entries = [entry.entity_id for entry in lease.entries]

    assert sorted(LEVELS) == sorted(entries)
    assert [58] * 5 == left(tree)


def test_chain_ends_where_an_entity_does_not_cascade(tree, limiter):
    """The team has a parent but does not cascade to it."""
    tree.set_parent("team", "org", cascade=False)
    with limiter.acquire("key", "gpt-4", {"rpm": 2}):
        pass

    assert [58, 58, 58, 60, 60] == left(tree)


@pytest.mark.parametrize("exhausted", LEVELS)
def test_rejection_by_any_level_leaves_all_levels_unchanged(tree, limiter, exhausted):
    """The error has the statuses of every level, and names the one that lacks the tokens."""
    tree.set_limits(exhausted, [Limit.per_minute("rpm", 60), Limit.per_minute("tpm", 10)])

    with limiter.acquire("key", "gpt-4", {"rpm": 1, "tpm": 10}):
        pass
    with pytest.raises(RateLimitExceeded) as caught:
        with limiter.acquire("key", "gpt-4", {"rpm": 1, "tpm": 10}):
            pass

    assert list(LEVELS) == list(dict.fromkeys(status.entity_id for status in caught.value.statuses))
    assert exhausted == caught.value.primary_violation.entity_id
    assert list(LEVELS) == [bucket["entity_id"] for bucket in caught.value.as_dict()["buckets"]]
    assert [59] * 5 == left(tree)


def test_exception_gives_back_to_every_level(tree, limiter):
    """As on one level."""
    with pytest.raises(KeyError):
        with limiter.acquire("key", "gpt-4", {"rpm": 2}):
            raise KeyError

    assert [60] * 5 == left(tree)


def test_adjust_consume_and_release_change_every_level(tree, limiter):
    """Each bucket is settled with once."""
    with limiter.acquire("key", "gpt-4", {"rpm": 2}) as lease:
        lease.consume(rpm=3)
        lease.release(rpm=1)
        lease.adjust(rpm=6)
        remaining = lease.remaining["rpm"]

    assert 50 == remaining
    assert [50] * 5 == left(tree)


def test_level_without_limits_is_skipped_and_the_chain_goes_on(repo, limiter):
    """Only the key and the organisation have limits."""
    repo.create_entity("org")
    repo.create_entity("team", parent_id="org", cascade=True)
    repo.create_entity("key", parent_id="team", cascade=True)
    repo.set_limits("key", [RPM])
    repo.set_limits("org", [RPM, TPM])

    with limiter.acquire("key", "gpt-4", {"rpm": 2}) as lease:
        entries = [entry.entity_id for entry in lease.entries]

    assert ["key", "org"] == sorted(entries)
    assert [58, 58] == left(repo, "key", "org")


@pytest.mark.parametrize("change", ["move", "block", "limits"])
def test_change_of_a_level_without_limits_takes_effect_in_its_process_at_once(repo, limiter, change):
    """The level decides about the levels above it, although nothing is taken from it."""
    for entity in ("org", "other"):
        repo.create_entity(entity)
    repo.create_entity("team", parent_id="org", cascade=True)
    repo.create_entity("key", parent_id="team", cascade=True)
    for entity in ("key", "org", "other"):
        repo.set_limits(entity, [RPM])
    for _ in range(2):
        with limiter.acquire("key", "gpt-4", {"rpm": 1}):
            pass
    changed = limiter.repository

    if change == "move":
        changed.set_parent("team", "other", cascade=True)
    elif change == "block":
        changed.block_entity("team")
    else:
        changed.set_limits("team", [RPM])
    try:
        with limiter.acquire("key", "gpt-4", {"rpm": 1}) as lease:
            found = {entry.entity_id for entry in lease.entries}
    except EntityBlockedError:
        found = set()

    expected = {"move": {"key", "other"}, "block": set(), "limits": {"key", "team", "org"}}
    assert expected[change] == found


def test_change_of_a_level_without_limits_is_noticed_within_the_cache_ttl(repo, limiter, clock):
    """Its record is read again when it is too old, even if the limits of the other levels are newer."""
    for entity in ("org", "other"):
        repo.create_entity(entity)
    repo.create_entity("team", parent_id="org", cascade=True)
    for key in ("key-1", "key-2"):
        repo.create_entity(key, parent_id="team", cascade=True)
    for entity in ("key-1", "key-2", "org", "other"):
        repo.set_limits(entity, [RPM])
    with limiter.acquire("key-1", "gpt-4", {"rpm": 1}):
        pass
    clock.advance(50_000)
    for _ in range(2):
        with limiter.acquire("key-2", "gpt-4", {"rpm": 1}):
            pass
    limiter.repository.scope.caches.forget_limits_of("org")
    with limiter.acquire("key-2", "gpt-4", {"rpm": 1}):
        pass
    another(repo).set_parent("team", "other", cascade=True)
    clock.advance(10_001)

    with limiter.acquire("key-2", "gpt-4", {"rpm": 1}) as lease:
        assert {"key-2", "other"} == {entry.entity_id for entry in lease.entries}


def test_raised_capacity_applies_as_soon_as_it_was_read(repo, limiter, clock):
    """An amount that exceeds only the capacity before is admitted, although the chain was remembered with that."""
    repo.create_entity("user")
    repo.create_entity("key", parent_id="user", cascade=True)
    repo.set_limits("user", [Limit.per_minute("rpm", 6_000)])
    repo.set_limits("key", [RPM])
    for _ in range(2):
        with limiter.acquire("key", "gpt-4", {"rpm": 1}):
            pass
    other = another(repo)
    other.set_limits("key", [Limit.per_minute("rpm", 600)])
    for each in (SyncRateLimiter(other), limiter):
        with each.acquire("key", "gpt-4", {"rpm": 1}):
            pass
    clock.advance(40_000)

    with limiter.acquire("key", "gpt-4", {"rpm": 100}) as lease:
        assert {"rpm": 100} == lease.consumed


def test_limits_of_a_call_apply_to_every_level_without_stored_limits(repo, limiter):
    """The team has limits of its own, so those apply to it."""
    repo.create_entity("org")
    repo.create_entity("team", parent_id="org", cascade=True)
    repo.create_entity("key", parent_id="team", cascade=True)
    repo.set_limits("team", [Limit.per_minute("rpm", 100)])

    with limiter.acquire("key", "gpt-4", {"rpm": 2}, [Limit.per_minute("rpm", 10)]) as lease:
        left_by_entity = {status.entity_id: status.available for status in lease.statuses}

    assert {"key": 8, "team": 98, "org": 8} == left_by_entity


def test_eight_levels_are_possible_and_nine_are_refused_at_creation(repo, limiter):
    """The error says what to do."""
    repo.set_system_defaults([RPM])
    repo.create_entity("level-1")
    for number in range(2, 9):
        repo.create_entity(f"level-{number}", parent_id=f"level-{number - 1}", cascade=True)

    with limiter.acquire("level-8", "gpt-4", {"rpm": 1}) as lease:
        assert 8 == len(lease.entries)
    with pytest.raises(TooManyBucketsError, match="more than 7 entities above"):
        repo.create_entity("level-9", parent_id="level-8", cascade=True)
    repo.create_entity("level-9", parent_id="level-8")


def test_chain_that_became_too_long_by_a_move_is_refused_by_the_acquire(repo, limiter):
    """A move does not visit the entities below."""
    repo.set_system_defaults([RPM])
    for group, count in (("a", 5), ("b", 5)):
        repo.create_entity(f"{group}-1")
        for number in range(2, count + 1):
            repo.create_entity(f"{group}-{number}", parent_id=f"{group}-{number - 1}", cascade=True)
    repo.set_parent("b-1", "a-5", cascade=True)

    with pytest.raises(TooManyBucketsError):
        with limiter.acquire("b-5", "gpt-4", {"rpm": 1}):
            pass


def test_move_applies_to_later_acquires_and_open_leases_keep_their_buckets(tree, limiter):
    """A lease settles with the buckets that it took from."""
    tree.create_entity("other")
    with limiter.acquire("key", "gpt-4", {"rpm": 2}) as lease:
        moved = tree.set_parent("user", "other")
        limiter.invalidate_config_cache()
        lease.adjust(rpm=3)
    with limiter.acquire("key", "gpt-4", {"rpm": 1}):
        pass

    assert ("other", True) == (moved.parent_id, moved.cascade)
    assert [54, 54, 55, 55, 55, 59] == left(tree, *LEVELS, "other")


def test_move_is_audited_and_shown_by_the_lists_of_children(tree):
    """The event has the old parent and the new one."""
    tree.set_parent("user", "org", principal="ops")
    events = tree.get_audit_events("user")

    assert ("entity_moved", "ops", "team", "org") == (
        events[0].action,
        events[0].principal,
        events[0].details["before"],
        events[0].details["parent_id"],
    )
    assert [] == tree.get_children("team")
    assert ["team", "user"] == [entity.id for entity in tree.get_children("org")]


def test_entity_may_leave_its_parent_and_the_parent_be_deleted(tree):
    """The counters of children follow the move."""
    tree.set_parent("key", None)
    tree.delete_entity("user")

    key = tree.get_entity("key")
    assert (None, False) == (key.parent_id, key.cascade)


@pytest.mark.parametrize("parent_id", ["key", "user", "team"])
def test_move_below_itself_is_refused(tree, parent_id):
    """A cycle would have no top."""
    with pytest.raises(ValidationError, match=r"cycle|own parent"):
        tree.set_parent("team", parent_id, cascade=True)


def test_two_moves_at_the_same_time_cannot_form_a_cycle(repo):
    """Each is valid by itself; the second one sees the first and is refused."""
    for entity in ("a", "b"):
        repo.create_entity(entity)

    class RacedTable(CountingTable):
        def transact(self, operations, token, *, until_s=None):
            if not self.calls.count("transact"):
                self.calls.append("transact")
                repo.set_parent("b", "a", cascade=True)
            return super().transact(operations, token, until_s=until_s)

    with pytest.raises(ValidationError, match="cycle"):
        another(repo, RacedTable).set_parent("a", "b", cascade=True)

    assert (None, "a") == ((repo.get_entity("a")).parent_id, (repo.get_entity("b")).parent_id)


@pytest.mark.parametrize("first", ["move", "create"])
def test_move_and_first_child_at_the_same_time_allow_the_kind_of_levels(repo, first):
    """Neither adds a third level by itself; the second one sees the first."""
    for entity in ("user", "org"):
        repo.create_entity(entity)

    def change(on, kind):
        if kind == "move":
            on.set_parent("user", "org", cascade=True)
        else:
            on.create_entity("key", parent_id="user", cascade=True)

    class RacedTable(CountingTable):
        def transact(self, operations, token, *, until_s=None):
            if not self.calls.count("transact"):
                self.calls.append("transact")
                change(repo, first)
            return super().transact(operations, token, until_s=until_s)

    change(another(repo, RacedTable), "create" if first == "move" else "move")

    assert "levels" in (repo.get_version_record()).kinds


def test_move_to_or_of_an_unknown_entity_raises(tree):
    """Nothing is written."""
    with pytest.raises(EntityNotFoundError, match="nowhere"):
        tree.set_parent("key", "nowhere")
    with pytest.raises(EntityNotFoundError, match="nobody"):
        tree.set_parent("nobody", "top")


def test_first_chain_of_three_levels_allows_its_kind(repo):
    """Clients that only know two levels would charge too few of them, so they refuse the table from then on."""
    repo.create_entity("org")
    repo.create_entity("team", parent_id="org", cascade=True)
    before = (repo.get_version_record()).kinds
    repo.create_entity("key", parent_id="team", cascade=True)

    assert ({}, ["levels"]) == (before, list((repo.get_version_record()).kinds))


def test_resources_that_cascade_charge_the_parent_for_these_only(repo, limiter):
    """Other resources are limited by the entity alone."""
    repo.set_system_defaults([RPM])
    repo.create_entity("org")
    created = repo.create_entity("key", parent_id="org", cascade=True, cascade_resources=["gpt-4"])

    for resource in ("gpt-4", "small"):
        with limiter.acquire("key", resource, {"rpm": 1}):
            pass

    assert (("gpt-4",), ["cascade_resources"]) == (
        created.cascade_resources,
        list((repo.get_version_record()).kinds),
    )
    assert created == repo.get_entity("key")
    assert 59 == (own_level(limiter, "org"))["rpm"]
    assert 60 == (own_level(limiter, "org", "small"))["rpm"]


def test_available_is_the_least_of_all_levels(tree, limiter):
    """And the time until an amount is available is the longest of all levels."""
    tree.set_limits("org", [Limit.per_minute("rpm", 10)])
    with limiter.acquire("key", "gpt-4", {"rpm": 6}):
        pass

    assert {"rpm": 4, "tpm": 6_000} == limiter.available("key", "gpt-4")
    assert 6.0 == pytest.approx(limiter.time_until_available("key", "gpt-4", {"rpm": 5}), abs=0.01)
