"""Limits across resources: a bucket of their own, which every acquire of the entity takes from as well."""  # generated from _async by tools/mirror.py; do not edit

from contextlib import suppress

import pytest

from zae_limiter import (
    ALL_RESOURCES,
    InvalidNameError,
    Limit,
    NoLimitsInForceError,
    SyncRateLimiter,
    RateLimitExceeded,
    ValidationError,
)

from .clients import AsynchronousTable, CountingTable, another, own_level

RPM, TPM = Limit.per_minute("rpm", 60), Limit.per_minute("tpm", 6_000)


@pytest.fixture
def limiter(either_limiter):
    """Every rule holds for both kinds of limiter."""
    return either_limiter


def remote(repo):
    """Return a limiter with its own cache, and the table that counts its calls."""
    other = another(repo, AsynchronousTable)
    return SyncRateLimiter(other), other.scope.table


def shared(repo, entity_id):
    """Return what is left of the limits that the resources of an entity share."""
    return {one.limit_name: one.tokens for one in repo.get_buckets(entity_id, ALL_RESOURCES)}


def test_resources_share_the_limits_across_them(repo, limiter):
    """An invented model name gives no further tokens."""
    repo.set_resource_defaults("gpt-4", [RPM])
    repo.set_system_defaults([Limit.per_minute("rpm", 100)])
    repo.set_limits("key", [Limit.per_minute("rpm", 70)], resource=ALL_RESOURCES)

    for resource in ("gpt-4", "model-b", "model-c"):
        with limiter.acquire("key", resource, {"rpm": 20}):
            pass
    with pytest.raises(RateLimitExceeded) as caught:
        with limiter.acquire("key", "model-d", {"rpm": 20}):
            pass

    assert ("key", ALL_RESOURCES, "rpm", 10) == (
        caught.value.primary_violation.entity_id,
        caught.value.primary_violation.resource,
        caught.value.primary_violation.limit_name,
        caught.value.primary_violation.available,
    )
    assert {"rpm": 10} == shared(repo, "key")


def test_limit_that_is_only_across_resources_is_in_force(repo, limiter):
    """A limit is in force if any bucket of the entity has it."""
    repo.set_system_defaults([RPM])
    repo.set_limits("key", [TPM], resource=ALL_RESOURCES)

    with limiter.acquire("key", "gpt-4", {"rpm": 1, "tpm": 100}) as lease:
        lease.adjust(tpm=50)
        assert {"rpm": 59, "tpm": 5_850} == lease.remaining
        assert [("key", "gpt-4"), ("key", ALL_RESOURCES)] == [(one.entity_id, one.resource) for one in lease.entries]
        assert ["rpm", "tpm"] == [limit.name for limit in lease.limits]

    assert {"tpm": 5_850} == shared(repo, "key")
    assert {"rpm": 59, "tpm": 5_850} == limiter.available("key", "gpt-4")


def test_limits_across_resources_alone_are_enough(repo, limiter):
    """The entity has no other limits."""
    repo.set_limits("key", [TPM], resource=ALL_RESOURCES)

    with limiter.acquire("key", "gpt-4", {"tpm": 100}) as lease:
        assert {"tpm": 100} == lease.consumed
        assert not lease.degraded
        lease.release(tpm=40)
    with pytest.raises(KeyError):
        with limiter.acquire("key", "gpt-4", {"tpm": 100}):
            raise KeyError

    assert {"tpm": 5_940} == shared(repo, "key")


def test_limit_that_no_bucket_of_the_entity_has_is_an_error(repo, limiter):
    """The error names the limits of both buckets."""
    repo.set_system_defaults([RPM])
    repo.set_limits("key", [TPM], resource=ALL_RESOURCES)

    with pytest.raises(ValidationError, match="the limits in force are: rpm, tpm"):
        with limiter.acquire("key", "gpt-4", {"rpm": 1, "slots": 1}):
            pass


def test_defaults_across_resources_apply_to_each_entity(repo, limiter):
    """Every entity has a bucket of its own."""
    repo.set_system_defaults([RPM])
    repo.set_resource_defaults(ALL_RESOURCES, [Limit.per_minute("rpm", 30)])
    repo.set_limits("big", [Limit.per_minute("rpm", 50)], resource=ALL_RESOURCES)

    for entity in ("small", "big"):
        with limiter.acquire(entity, "gpt-4", {"rpm": 10}):
            pass

    assert ({"rpm": 20}, {"rpm": 40}) == (shared(repo, "small"), shared(repo, "big"))


def test_defaults_of_an_entity_and_of_the_system_are_not_shared(repo, limiter):
    """They are meant for one resource each."""
    repo.set_system_defaults([RPM])
    repo.set_limits("key", [Limit.per_minute("rpm", 5)])
    repo.set_limits("other", [TPM], resource=ALL_RESOURCES)

    for resource in ("gpt-4", "gpt-5"):
        with limiter.acquire("key", resource, {"rpm": 5}):
            pass

    assert {} == shared(repo, "key")


def test_every_level_has_its_limits_across_resources(repo, limiter):
    """The project shares 100 requests among all its keys and models."""
    repo.set_system_defaults([RPM])
    repo.create_entity("project")
    repo.set_limits("project", [Limit.per_minute("rpm", 100)], resource=ALL_RESOURCES)
    for key in ("key-1", "key-2"):
        repo.create_entity(key, parent_id="project", cascade=True)

    for key, resource in (("key-1", "gpt-4"), ("key-2", "gpt-4"), ("key-2", "gpt-5")):
        with limiter.acquire(key, resource, {"rpm": 10}):
            pass

    assert {"rpm": 70} == shared(repo, "project")
    assert {"rpm": 40} == own_level(limiter, "project")


def test_limits_of_a_call_replace_those_of_the_resource_only(repo, limiter):
    """Limits across resources are an addition of the operator, which a caller does not lift."""
    repo.set_limits("key", [Limit.per_minute("rpm", 10)], resource=ALL_RESOURCES)

    with limiter.acquire("key", "gpt-4", {"rpm": 5}, [Limit.per_minute("rpm", 100)]):
        pass

    assert {"rpm": 5} == shared(repo, "key")
    assert {"rpm": 5} == limiter.available("key", "gpt-4", [Limit.per_minute("rpm", 100)])


def test_deleted_limits_across_resources_no_longer_apply(repo, limiter):
    """The acquire then takes from one bucket again."""
    repo.set_system_defaults([RPM])
    repo.set_limits("key", [Limit.per_minute("rpm", 10)], resource=ALL_RESOURCES)
    repo.delete_limits("key", resource=ALL_RESOURCES)
    limiter.invalidate_config_cache()

    with limiter.acquire("key", "gpt-4", {"rpm": 30}) as lease:
        assert 1 == len(lease.entries)


def test_limits_across_resources_are_stored_and_listed_like_others(repo):
    """They are read, resolved, listed and audited under their own name."""
    repo.set_limits("key", [RPM], resource=ALL_RESOURCES, principal="ops")

    assert [RPM] == repo.get_limits("key", resource=ALL_RESOURCES)
    assert ["key"] == (repo.list_entities_with_custom_limits(ALL_RESOURCES))[0]
    assert ([RPM], "entity") == (repo.resolve_limits("key", ALL_RESOURCES))[::2]
    assert (None, None) == (repo.resolve_limits("key", "gpt-4"))[::2]
    assert [("limits_set", ALL_RESOURCES, "ops")] == [
        (event.action, event.resource, event.principal) for event in repo.get_audit_events("key")
    ]
    assert ["all_resources"] == list((repo.get_version_record()).kinds)


def test_all_resources_is_not_a_resource_of_an_acquire(repo, limiter):
    """Not even while its bucket is cached."""
    repo.set_limits("key", [RPM], resource=ALL_RESOURCES)
    with limiter.acquire("key", "gpt-4", {"rpm": 1}):
        pass

    for call in (limiter.available, limiter.acquire("key", ALL_RESOURCES, {"rpm": 1}).__enter__):
        with pytest.raises(InvalidNameError):
            (call("key", ALL_RESOURCES) if call == limiter.available else call())


def test_entity_without_any_limits_is_an_error(repo, limiter):
    """Other entities have limits across resources."""
    repo.set_limits("key", [RPM], resource=ALL_RESOURCES)

    with pytest.raises(NoLimitsInForceError):
        with limiter.acquire("other", "gpt-4", {"rpm": 1}):
            pass


def test_they_cost_no_call_and_no_key_while_there_are_none(repo):
    """The reads of a table without them are as before."""
    repo.set_system_defaults([RPM])
    limiter, table = remote(repo)
    read = []

    def counted(keys, *, consistent=False, until_s=None):
        read.append(len(keys))
        return CountingTable.batch_get(table, keys, consistent=consistent, until_s=until_s)

    table.batch_get = counted
    with limiter.acquire("key", "gpt-4", {"rpm": 1}):
        pass
    with limiter.acquire("key-2", "gpt-4", {"rpm": 1}):
        pass

    # Four levels and the entity, and its bucket; in the first read also the namespace and the version record.
    assert [8, 6] == read


def test_first_client_that_finds_them_reads_once_more(repo):
    """The version record says that there are such limits; they are found by the same read from then on."""
    repo.set_system_defaults([RPM])
    repo.set_limits("key", [Limit.per_minute("rpm", 10)], resource=ALL_RESOURCES)
    limiter, table = remote(repo)

    for entity in ("key", "key-2"):
        with limiter.acquire(entity, "gpt-4", {"rpm": 1}):
            pass

    assert ["batch_get", "batch_get", "write", "write", "batch_get", "write"] == [
        call for call in table.drain() if call != "get"
    ]


def test_change_across_resources_reaches_a_client_by_the_stamp_of_its_bucket(repo):
    """Another client has moved the bucket of the resource to the newer configuration."""
    repo.set_system_defaults([RPM])
    repo.set_limits("key", [Limit.per_minute("rpm", 50)], resource=ALL_RESOURCES)
    limiter, _ = remote(repo)
    with limiter.acquire("key", "gpt-4", {"rpm": 1}):
        pass
    repo.set_limits("key", [Limit.per_minute("rpm", 5)], resource=ALL_RESOURCES)
    with SyncRateLimiter(repo).acquire("key", "gpt-4", {"rpm": 1}):
        pass

    with pytest.raises(RateLimitExceeded):
        with limiter.acquire("key", "gpt-4", {"rpm": 5}):
            pass


def test_limits_of_the_resource_that_end_during_a_lease_give_nothing_back_for_what_was_taken_since(repo, limiter):
    """What was taken since came from the bucket across resources alone."""
    repo.set_limits("key", [Limit.per_day("rpm", 10)])
    repo.set_limits("key", [Limit.per_day("rpm", 100)], resource=ALL_RESOURCES)
    with limiter.acquire("key", "gpt-4", {"rpm": 5}):
        pass
    with suppress(KeyError):
        with limiter.acquire("key", "gpt-4", {"rpm": 1}) as lease:
            limiter.repository.delete_limits("key")
            lease.consume(rpm=4)
            assert {"gpt-4": {"rpm": 1}, ALL_RESOURCES: {"rpm": 5}} == {
                one.resource: one.consumed for one in lease.entries
            }
            raise KeyError
    limiter.repository.set_limits("key", [Limit.per_day("rpm", 10)])

    assert {"rpm": 5} == own_level(limiter, "key")
    assert {"rpm": 95} == shared(repo, "key")


def test_full_cache_charges_the_limits_across_resources(repo, limiter, clock):
    """The entry of the shared limits may be the oldest one, which is dropped for that of the resource."""
    repo.set_system_defaults([RPM])
    repo.set_limits("key", [Limit.per_day("rpm", 100)], resource=ALL_RESOURCES)
    for number in range(12):
        caches = limiter.repository.scope.caches
        caches.buckets._most = len(caches.buckets)
        clock.advance(60_001)
        with limiter.acquire("key", f"model-{number}", {"rpm": 1}) as lease:
            assert {f"model-{number}", ALL_RESOURCES} == {entry.resource for entry in lease.entries}

    assert {"rpm": 88} == shared(repo, "key")


def test_first_read_of_them_is_not_cached_before_they_were_read_too(repo):
    """A caller that comes between the two reads of another one is limited by them as well."""
    repo.set_system_defaults([RPM])
    repo.set_limits("key", [Limit.per_minute("rpm", 10)], resource=ALL_RESOURCES)
    entries = []

    class InterleavedTable(AsynchronousTable):
        def batch_get(self, keys, *, consistent=False, until_s=None):
            if self.calls == ["batch_get"]:
                self.calls.append("interleaved")
                with limiter.acquire("key", "gpt-4", {"rpm": 1}) as lease:
                    entries.extend(entry.resource for entry in lease.entries)
            return super().batch_get(keys, consistent=consistent, until_s=until_s)

    limiter = SyncRateLimiter(another(repo, InterleavedTable), group_commit=False)
    with limiter.acquire("key", "gpt-4", {"rpm": 1}):
        pass

    assert ["gpt-4", ALL_RESOURCES] == entries
