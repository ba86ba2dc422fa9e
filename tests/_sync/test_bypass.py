"""No bucket rejects an entity with a bypass: what is there is charged, and the rest is only counted."""  # generated from _async by tools/mirror.py; do not edit

from contextlib import suppress

import pytest

from zae_limiter import Also, EntityBlockedError, EntityNotFoundError, Limit, SyncRateLimiter, ValidationError

from .clients import another, own_level

RPM, TPM = Limit.per_minute("rpm", 10), Limit.per_minute("tpm", 1_000)


@pytest.fixture
def limiter(either_limiter):
    """Every rule holds for both kinds of limiter."""
    return either_limiter


@pytest.fixture
def project(repo):
    """A monitor with a bypass and a usual key, under one project."""
    repo.set_system_defaults([RPM, TPM])
    repo.create_entity("project")
    for key in ("monitor", "key"):
        repo.create_entity(key, parent_id="project", cascade=True)
    repo.set_bypass("monitor", True)
    return repo


def used(repo, entity):
    """Return what an entity has used of each limit, charged or counted."""
    return {one.limit_name: one.total_consumed_milli // 1000 for one in repo.get_buckets(entity, "gpt-4")}


def left(repo, entity):
    """Return what is left of an entity's own bucket."""
    return own_level(SyncRateLimiter(repo), entity)


def test_request_within_the_limits_is_charged(project, limiter):
    """As for every other entity."""
    with limiter.acquire("monitor", "gpt-4", {"rpm": 2, "tpm": 100}) as lease:
        lease.adjust(tpm=50)

    assert {"rpm": 8, "tpm": 850} == left(project, "monitor") == left(project, "project")
    assert {"rpm": 2, "tpm": 150} == used(project, "project")


def test_request_beyond_a_limit_is_admitted_and_counted(project, limiter):
    """The limit that has the tokens is charged; the other keeps its balance."""
    with limiter.acquire("monitor", "gpt-4", {"rpm": 9}):
        pass
    with limiter.acquire("monitor", "gpt-4", {"rpm": 5, "tpm": 100}) as lease:
        exceeded = {(one.entity_id, one.limit_name) for one in lease.statuses if one.exceeded}

    assert {("monitor", "rpm"), ("project", "rpm")} == exceeded
    assert {"rpm": 1, "tpm": 900} == left(project, "monitor") == left(project, "project")
    assert {"rpm": 14, "tpm": 100} == used(project, "monitor") == used(project, "project")


def test_amount_above_a_capacity_is_counted_only(project, limiter):
    """Even if the buckets do not exist yet."""
    with limiter.acquire("monitor", "gpt-4", {"rpm": 11}):
        pass

    assert {"rpm": 10, "tpm": 1_000} == left(project, "monitor") == left(project, "project")
    assert {"rpm": 11, "tpm": 0} == used(project, "monitor") == used(project, "project")


def test_exception_gives_back_what_was_charged_only(project, limiter):
    """What was only counted is taken off the count."""
    with limiter.acquire("monitor", "gpt-4", {"rpm": 9}):
        pass
    with pytest.raises(KeyError):
        with limiter.acquire("monitor", "gpt-4", {"rpm": 5, "tpm": 100}):
            raise KeyError

    assert {"rpm": 1, "tpm": 1_000} == left(project, "monitor") == left(project, "project")
    assert {"rpm": 9, "tpm": 0} == used(project, "monitor") == used(project, "project")


def test_adjustment_beyond_one_capacity_of_debt_is_counted(project, limiter):
    """Others under the same parent wait for one fill time at most."""
    with limiter.acquire("monitor", "gpt-4", {"tpm": 100}) as lease:
        lease.adjust(tpm=5_000)

    assert 900 == (left(project, "project"))["tpm"]
    assert 5_100 == (used(project, "project"))["tpm"]


def test_other_entities_are_limited_as_before(project, limiter):
    """A bypass is that of one entity."""
    with limiter.acquire("monitor", "gpt-4", {"rpm": 10}):
        pass

    assert {"rpm": 0, "tpm": 1_000} == limiter.available("key", "gpt-4")


def test_consume_and_release_follow_the_same_rule(project, limiter):
    """A limit that was counted once in a lease is never credited."""
    with limiter.acquire("monitor", "gpt-4", {"rpm": 9}) as lease:
        lease.consume(rpm=5)
        lease.release(rpm=2)

    assert 1 == (left(project, "monitor"))["rpm"]
    assert 12 == (used(project, "monitor"))["rpm"]


def test_ended_bypass_limits_again(project, limiter):
    """It is an event of the audit, like its start."""
    project.set_bypass("monitor", False, principal="ops")
    limiter.invalidate_config_cache()
    with limiter.acquire("monitor", "gpt-4", {"rpm": 10}):
        pass

    assert 0 == (limiter.available("monitor", "gpt-4"))["rpm"]
    assert ["bypass_set", "bypass_set"] == [event.action for event in (project.get_audit_events("monitor"))[:2]]
    assert not (project.get_entity("monitor")).bypass


def test_block_outranks_a_bypass(project, limiter):
    """A bypass is about limits only."""
    project.block_entity("project")

    with pytest.raises(EntityBlockedError):
        with limiter.acquire("monitor", "gpt-4", {"rpm": 1}):
            pass


def test_bypass_of_one_request_does_not_help_another(project, limiter):
    """The other request of the call is all or none; the one with the bypass is admitted with it."""
    with limiter.acquire("key", "gpt-4", {"rpm": 2}, also=[Also("monitor", "gpt-4", {"rpm": 20})]) as lease:
        lease.also[0].adjust(rpm=1)

    assert {"key": 8, "project": 8, "monitor": 10} == {
        one: (left(project, one))["rpm"] for one in ("key", "project", "monitor")
    }
    assert 23 == (used(project, "project"))["rpm"]


def test_bypass_needs_an_entity_and_a_bool(project):
    """Nothing is written."""
    with pytest.raises(EntityNotFoundError):
        project.set_bypass("nobody", True)
    with pytest.raises(ValidationError):
        project.set_bypass("key", 1)
    assert "bypass" in (project.get_version_record()).kinds


def test_bypass_set_during_a_lease_is_never_credited_for_what_was_only_counted(project, limiter):
    """Of such a limit nothing is given back. Of every other one exactly what was charged is."""
    project.set_bypass("monitor", False)
    used_before = {"rpm": 2, "tpm": 200}
    limiter.repository.scope.caches.forget_limits()
    with suppress(KeyError):
        with limiter.acquire("monitor", "gpt-4", {"rpm": 8}) as lease:
            with limiter.acquire("monitor", "gpt-4", used_before):
                pass
            limiter.repository.set_bypass("monitor", True)
            lease.consume(rpm=5, tpm=100)
            assert {"rpm": 13, "tpm": 100} == lease.consumed
            assert 2 == len(lease.entries)
            raise KeyError

    assert {"rpm": 0, "tpm": 800} == left(project, "monitor") == left(project, "project")


def test_bypass_that_ends_during_a_lease_leaves_what_was_taken_to_give_back(project, limiter):
    """Every bucket gets back what it gave before and after."""
    with suppress(KeyError):
        with limiter.acquire("monitor", "gpt-4", {"rpm": 2}) as lease:
            limiter.repository.set_bypass("monitor", False)
            lease.consume(rpm=3, tpm=100)
            assert {"rpm": 5, "tpm": 900} == left(project, "monitor")
            raise KeyError

    assert {"rpm": 10, "tpm": 1_000} == left(project, "monitor") == left(project, "project")


def test_capacity_that_another_client_has_lowered_rejects_nothing(project, limiter):
    """The amount exceeds the new capacity, so it is only counted."""
    with limiter.acquire("monitor", "gpt-4", {"rpm": 1}):
        pass
    other = another(project)
    other.set_limits("monitor", [Limit.per_minute("rpm", 5), TPM])
    with SyncRateLimiter(other).acquire("monitor", "gpt-4", {"rpm": 1}):
        pass

    with limiter.acquire("monitor", "gpt-4", {"rpm": 8}) as lease:
        assert {"rpm": 8} == lease.consumed

    assert 10 == (used(project, "monitor"))["rpm"]
    assert 4 == (left(project, "monitor"))["rpm"]
