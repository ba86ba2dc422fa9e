"""What services use every day, on real engines: committed leases, inherited limits, and amounts above a capacity."""

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

from tests.dynamodb.engines import Engine
from tests.dynamodb.trees import KINDS, tree
from zae_limiter import AmountExceedsCapacityError, Limit, NoLimitsInForceError, RateLimitExceeded, ValidationError

TEN_YEARS_S = 10 * 365 * 24 * 3600
SLOW = [Limit.custom("rpm", 10, 1, TEN_YEARS_S), Limit.custom("tpm", 1_000, 1, TEN_YEARS_S)]
"""Limits of which nothing comes back while a test runs, whatever the server's clock."""


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> Iterator[Any]:
    with tree(request.param) as entered:
        yield entered


@pytest.fixture
def repo(kind: Any, engine: Engine, table_name: str) -> Iterator[Any]:
    url = f"dynamodb://{table_name}?region=us-east-1&endpoint_url={engine.url}&create=true"
    opened = kind.open(url, deadline_s=60.0)
    yield opened
    opened.close()


@pytest.fixture
def limiter(kind: Any, repo: Any) -> Any:
    return kind.limiter(repo)


def family(repo: Any, limits: list[Limit]) -> None:
    """Create a project with limits, and two keys that cascade to it."""
    repo.create_entity("project")
    for key in ("key-1", "key-2"):
        repo.create_entity(key, parent_id="project", cascade=True)
    if limits:
        repo.set_limits("project", limits)


@pytest.mark.parametrize("on_error", ["give_back", "keep"])
def test_a_kept_lease_that_fails_writes_its_adjustments(limiter: Any, on_error: str) -> None:
    """It was committed, or was acquired with ``keep``. A limit that it did not name is adjusted, too."""
    with suppress(LookupError), limiter.acquire("user-1", "gpt-4", {"rpm": 4}, SLOW, on_error=on_error) as lease:
        lease.adjust(tpm=300)
        if on_error == "give_back":
            lease.commit()
        raise LookupError

    assert {"rpm": 6, "tpm": 700} == limiter.available("user-1", "gpt-4", SLOW)


def test_a_lease_knows_its_limits_and_what_remains(repo: Any, limiter: Any) -> None:
    """The least of all buckets remains."""
    family(repo, [SLOW[0]])
    with limiter.acquire("key-2", "gpt-4", {"rpm": 3}, SLOW):
        pass
    with limiter.acquire("key-1", "gpt-4", {"rpm": 1}, SLOW) as lease:
        lease.adjust(rpm=1, tpm=100)
        found = lease.limits, lease.remaining, [status.entity_id for status in lease.statuses]

    assert (SLOW, {"rpm": 5, "tpm": 900}, ["key-1", "key-1", "project"]) == found


def test_limits_of_a_call_apply_to_a_parent_without_stored_limits(repo: Any, limiter: Any) -> None:
    """Otherwise the parent would limit nothing."""
    family(repo, [])
    with limiter.acquire("key-1", "gpt-4", {"rpm": 6}, SLOW):
        pass

    with pytest.raises(RateLimitExceeded) as caught, limiter.acquire("key-2", "gpt-4", {"rpm": 6}, SLOW):
        pass
    assert ["project"] == [status.entity_id for status in caught.value.violations]


@pytest.mark.parametrize("known", [False, True])
def test_an_amount_above_the_capacity_of_a_parent_is_never_admitted(repo: Any, limiter: Any, known: bool) -> None:
    """The statuses have every limit of both buckets, and nothing is charged."""
    repo.set_system_defaults(SLOW)
    family(repo, [Limit.custom("rpm", 5, 1, TEN_YEARS_S)])
    if known:
        with limiter.acquire("key-1", "gpt-4", {"rpm": 1}):
            pass

    with pytest.raises(AmountExceedsCapacityError, match="for entity 'project'") as caught:
        limiter.acquire("key-1", "gpt-4", {"rpm": 6}).__enter__()
    found = [(status.entity_id, status.limit_name, status.exceeded) for status in caught.value.statuses]
    assert [("key-1", "rpm", False), ("key-1", "tpm", False), ("project", "rpm", True)] == found
    assert (True, True) == (caught.value.never, isinstance(caught.value, ValidationError))
    assert 5 - known == limiter.available("key-1", "gpt-4")["rpm"]


def test_inherited_limits_keep_the_others_in_force(repo: Any, limiter: Any) -> None:
    """Without ``inherit``, a request of the others is an error."""
    repo.set_resource_defaults("gpt-4", SLOW)
    raised = Limit.custom("rpm", 50, 1, TEN_YEARS_S)
    repo.set_limits("user-1", [raised], inherit=True)
    with limiter.acquire("user-1", "gpt-4", {"rpm": 20, "tpm": 500}) as lease:
        consumed = lease.consumed

    resolved = repo.resolve_limits("user-1", "gpt-4")
    assert {"rpm": 20, "tpm": 500} == consumed
    assert [raised, SLOW[1]] == resolved.limits
    assert {"rpm": "entity_default", "tpm": "resource"} == resolved.sources
    assert ["inherit"] == list(repo.get_version_record().kinds)

    repo.set_limits("user-1", [raised])
    with pytest.raises(ValidationError, match="tpm"):
        limiter.acquire("user-1", "gpt-4", {"tpm": 1}).__enter__()


def test_an_acquire_without_limits_in_force_raises_a_named_error(limiter: Any) -> None:
    """It never limits nothing."""
    with pytest.raises(NoLimitsInForceError):
        limiter.acquire("user-1", "gpt-4", {"rpm": 1}).__enter__()


def test_a_repository_is_named_after_its_table(repo: Any, limiter: Any, table_name: str) -> None:
    """So is its limiter; the namespace has a name and an id."""
    assert (table_name, table_name) == (repo.name, limiter.name)
    assert "default" == repo.namespace_name
    assert repo.namespace_id == repo.get_namespace("default").id
