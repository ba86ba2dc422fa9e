"""No bucket rejects an entity with a bypass: what is there is charged, and the rest is only counted."""

from contextlib import suppress

import pytest

from zae_limiter import Also, EntityBlockedError, EntityNotFoundError, Limit, RateLimiter, ValidationError

from .clients import another, own_level

RPM, TPM = Limit.per_minute("rpm", 10), Limit.per_minute("tpm", 1_000)


@pytest.fixture
def limiter(either_limiter):
    """Every rule holds for both kinds of limiter."""
    return either_limiter


@pytest.fixture
async def project(repo):
    """A monitor with a bypass and a usual key, under one project."""
    await repo.set_system_defaults([RPM, TPM])
    await repo.create_entity("project")
    for key in ("monitor", "key"):
        await repo.create_entity(key, parent_id="project", cascade=True)
    await repo.set_bypass("monitor", True)
    return repo


async def used(repo, entity):
    """Return what an entity has used of each limit, charged or counted."""
    return {one.limit_name: one.total_consumed_milli // 1000 for one in await repo.get_buckets(entity, "gpt-4")}


async def left(repo, entity):
    """Return what is left of an entity's own bucket."""
    return await own_level(RateLimiter(repo), entity)


async def test_request_within_the_limits_is_charged(project, limiter):
    """As for every other entity."""
    async with limiter.acquire("monitor", "gpt-4", {"rpm": 2, "tpm": 100}) as lease:
        await lease.adjust(tpm=50)

    assert {"rpm": 8, "tpm": 850} == await left(project, "monitor") == await left(project, "project")
    assert {"rpm": 2, "tpm": 150} == await used(project, "project")


async def test_request_beyond_a_limit_is_admitted_and_counted(project, limiter):
    """The limit that has the tokens is charged; the other keeps its balance."""
    async with limiter.acquire("monitor", "gpt-4", {"rpm": 9}):
        pass
    async with limiter.acquire("monitor", "gpt-4", {"rpm": 5, "tpm": 100}) as lease:
        exceeded = {(one.entity_id, one.limit_name) for one in lease.statuses if one.exceeded}

    assert {("monitor", "rpm"), ("project", "rpm")} == exceeded
    assert {"rpm": 1, "tpm": 900} == await left(project, "monitor") == await left(project, "project")
    assert {"rpm": 14, "tpm": 100} == await used(project, "monitor") == await used(project, "project")


async def test_amount_above_a_capacity_is_counted_only(project, limiter):
    """Even if the buckets do not exist yet."""
    async with limiter.acquire("monitor", "gpt-4", {"rpm": 11}):
        pass

    assert {"rpm": 10, "tpm": 1_000} == await left(project, "monitor") == await left(project, "project")
    assert {"rpm": 11, "tpm": 0} == await used(project, "monitor") == await used(project, "project")


async def test_exception_gives_back_what_was_charged_only(project, limiter):
    """What was only counted is taken off the count."""
    async with limiter.acquire("monitor", "gpt-4", {"rpm": 9}):
        pass
    with pytest.raises(KeyError):
        async with limiter.acquire("monitor", "gpt-4", {"rpm": 5, "tpm": 100}):
            raise KeyError

    assert {"rpm": 1, "tpm": 1_000} == await left(project, "monitor") == await left(project, "project")
    assert {"rpm": 9, "tpm": 0} == await used(project, "monitor") == await used(project, "project")


async def test_adjustment_beyond_one_capacity_of_debt_is_counted(project, limiter):
    """Others under the same parent wait for one fill time at most."""
    async with limiter.acquire("monitor", "gpt-4", {"tpm": 100}) as lease:
        await lease.adjust(tpm=5_000)

    assert 900 == (await left(project, "project"))["tpm"]
    assert 5_100 == (await used(project, "project"))["tpm"]


async def test_other_entities_are_limited_as_before(project, limiter):
    """A bypass is that of one entity."""
    async with limiter.acquire("monitor", "gpt-4", {"rpm": 10}):
        pass

    assert {"rpm": 0, "tpm": 1_000} == await limiter.available("key", "gpt-4")


async def test_consume_and_release_follow_the_same_rule(project, limiter):
    """A limit that was counted once in a lease is never credited."""
    async with limiter.acquire("monitor", "gpt-4", {"rpm": 9}) as lease:
        await lease.consume(rpm=5)
        await lease.release(rpm=2)

    assert 1 == (await left(project, "monitor"))["rpm"]
    assert 12 == (await used(project, "monitor"))["rpm"]


async def test_ended_bypass_limits_again(project, limiter):
    """It is an event of the audit, like its start."""
    await project.set_bypass("monitor", False, principal="ops")
    await limiter.invalidate_config_cache()
    async with limiter.acquire("monitor", "gpt-4", {"rpm": 10}):
        pass

    assert 0 == (await limiter.available("monitor", "gpt-4"))["rpm"]
    assert ["bypass_set", "bypass_set"] == [event.action for event in (await project.get_audit_events("monitor"))[:2]]
    assert not (await project.get_entity("monitor")).bypass


async def test_block_outranks_a_bypass(project, limiter):
    """A bypass is about limits only."""
    await project.block_entity("project")

    with pytest.raises(EntityBlockedError):
        async with limiter.acquire("monitor", "gpt-4", {"rpm": 1}):
            pass


async def test_bypass_of_one_request_does_not_help_another(project, limiter):
    """The other request of the call is all or none; the one with the bypass is admitted with it."""
    async with limiter.acquire("key", "gpt-4", {"rpm": 2}, also=[Also("monitor", "gpt-4", {"rpm": 20})]) as lease:
        await lease.also[0].adjust(rpm=1)

    assert {"key": 8, "project": 8, "monitor": 10} == {
        one: (await left(project, one))["rpm"] for one in ("key", "project", "monitor")
    }
    assert 23 == (await used(project, "project"))["rpm"]


async def test_bypass_needs_an_entity_and_a_bool(project):
    """Nothing is written."""
    with pytest.raises(EntityNotFoundError):
        await project.set_bypass("nobody", True)
    with pytest.raises(ValidationError):
        await project.set_bypass("key", 1)
    assert "bypass" in (await project.get_version_record()).kinds


async def test_bypass_set_during_a_lease_is_never_credited_for_what_was_only_counted(project, limiter):
    """Of such a limit nothing is given back. Of every other one exactly what was charged is."""
    await project.set_bypass("monitor", False)
    used_before = {"rpm": 2, "tpm": 200}
    limiter.repository.scope.caches.forget_limits()
    with suppress(KeyError):
        async with limiter.acquire("monitor", "gpt-4", {"rpm": 8}) as lease:
            async with limiter.acquire("monitor", "gpt-4", used_before):
                pass
            await limiter.repository.set_bypass("monitor", True)
            await lease.consume(rpm=5, tpm=100)
            assert {"rpm": 13, "tpm": 100} == lease.consumed
            assert 2 == len(lease.entries)
            raise KeyError

    assert {"rpm": 0, "tpm": 800} == await left(project, "monitor") == await left(project, "project")


async def test_bypass_that_ends_during_a_lease_leaves_what_was_taken_to_give_back(project, limiter):
    """Every bucket gets back what it gave before and after."""
    with suppress(KeyError):
        async with limiter.acquire("monitor", "gpt-4", {"rpm": 2}) as lease:
            await limiter.repository.set_bypass("monitor", False)
            await lease.consume(rpm=3, tpm=100)
            assert {"rpm": 5, "tpm": 900} == await left(project, "monitor")
            raise KeyError

    assert {"rpm": 10, "tpm": 1_000} == await left(project, "monitor") == await left(project, "project")


async def test_capacity_that_another_client_has_lowered_rejects_nothing(project, limiter):
    """The amount exceeds the new capacity, so it is only counted."""
    async with limiter.acquire("monitor", "gpt-4", {"rpm": 1}):
        pass
    other = another(project)
    await other.set_limits("monitor", [Limit.per_minute("rpm", 5), TPM])
    async with RateLimiter(other).acquire("monitor", "gpt-4", {"rpm": 1}):
        pass

    async with limiter.acquire("monitor", "gpt-4", {"rpm": 8}) as lease:
        assert {"rpm": 8} == lease.consumed

    assert 10 == (await used(project, "monitor"))["rpm"]
    assert 4 == (await left(project, "monitor"))["rpm"]
