"""Inherited limits: a level that adds to the next one instead of replacing it."""  # generated from _async by tools/mirror.py; do not edit

import pytest

from zae_limiter import Limit, ValidationError

from .clients import buckets_in, take

RPM, TPM = Limit.per_minute("rpm", 60), Limit.per_minute("tpm", 6_000)
MORE = Limit.per_minute("rpm", 600)


@pytest.fixture(autouse=True)
def _defaults(repo):
    repo.set_system_defaults([RPM, TPM])


def test_raising_one_limit_with_inherit_keeps_the_others(repo, limiter):
    """Without it, every call that names the other limit would be an error."""
    repo.set_limits("user-1", [MORE], inherit=True)

    with limiter.acquire("user-1", "gpt-4", {"rpm": 100, "tpm": 10}) as lease:
        limits = lease.limits

    assert [MORE, TPM] == limits


def test_raising_one_limit_without_inherit_drops_the_others(repo, limiter):
    """A level replaces the next one, unless it says otherwise."""
    repo.set_limits("user-1", [MORE])

    with pytest.raises(ValidationError, match="the limits in force are: rpm"):
        take(limiter, {"rpm": 1, "tpm": 10})


def test_resolved_limits_name_the_level_of_each_limit(repo):
    """The source is the nearest level; it still unpacks to three."""
    repo.set_resource_defaults("gpt-4", [Limit.per_minute("tpm", 9_000)], inherit=True)
    repo.set_limits("user-1", [MORE], "gpt-4", inherit=True)

    resolved = repo.resolve_limits("user-1", "gpt-4")
    limits, _, source = resolved

    assert [MORE, Limit.per_minute("tpm", 9_000)] == limits
    assert ("entity", {"rpm": "entity", "tpm": "resource"}) == (source, resolved.sources)


def test_inherited_limit_follows_a_change_of_the_next_level(repo, limiter):
    """The bucket is moved to the new limits by its next take, and keeps its balance up to the capacity."""
    repo.set_limits("user-1", [MORE], inherit=True)
    take(limiter, {"rpm": 100, "tpm": 1_000})
    repo.set_system_defaults([RPM, Limit.per_minute("tpm", 2_000)])
    take(limiter, {"rpm": 1, "tpm": 500})

    assert {"rpm": 499, "tpm": 1_500} == limiter.available("user-1", "gpt-4")


def test_setting_limits_again_without_inherit_ends_the_inheritance(repo):
    """The record is replaced as a whole."""
    repo.set_limits("user-1", [MORE], inherit=True)
    repo.set_limits("user-1", [MORE])

    assert [MORE] == (repo.resolve_limits("user-1", "gpt-4")).limits


def test_audit_event_of_inherited_limits_says_so(repo):
    """The flag is part of the change."""
    repo.set_limits("user-1", [MORE], inherit=True)
    repo.set_limits("user-1", [MORE])

    assert [None, True] == [event.details.get("inherit") for event in repo.get_audit_events("user-1")]


def test_bucket_of_inherited_entity_limits_never_expires(repo, limiter):
    """The nearest level is the entity, as for limits that are not inherited."""
    repo.set_limits("user-1", [MORE], inherit=True)
    take(limiter, {"rpm": 1})

    (bucket,) = buckets_in(repo)

    assert "ttl" not in bucket


@pytest.mark.parametrize("value", ["no", 1, None])
def test_inherit_that_is_no_boolean_is_refused(repo, value):
    """A text such as "no" would inherit."""
    for call in (
        lambda: repo.set_limits("user-1", [MORE], inherit=value),
        lambda: repo.set_resource_defaults("gpt-4", [MORE], inherit=value),
    ):
        with pytest.raises(ValidationError) as caught:
            call()
        assert ("inherit", value) == (caught.value.field, caught.value.value)


def test_more_inherited_limits_than_a_bucket_can_have_are_refused_before_it_exists(repo, limiter):
    """A write of so many limits would exceed what DynamoDB accepts."""
    repo.set_system_defaults([Limit.per_minute(f"s{number}", 10) for number in range(32)])
    repo.set_limits("user-1", [MORE], inherit=True)

    with pytest.raises(ValidationError, match="at most 32 limits: set fewer, or without inherit"):
        take(limiter, {"rpm": 1})
    assert [] == buckets_in(repo)
