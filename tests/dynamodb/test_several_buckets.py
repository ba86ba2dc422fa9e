"""Several buckets in one acquire, on real engines: levels, limits across resources, other entities, blocks, moves."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.dynamodb.engines import Engine
from tests.dynamodb.trees import KINDS, tree
from zae_limiter import ALL_RESOURCES, Also, EntityBlockedError, Limit, RateLimitExceeded, ValidationError

TEN_YEARS_S = 10 * 365 * 24 * 3600
SLOW = [Limit.custom("rpm", 10, 1, TEN_YEARS_S), Limit.custom("tpm", 1_000, 1, TEN_YEARS_S)]
"""Limits of which nothing comes back while a test runs, whatever the server's clock."""

LEVELS = ("key", "user", "team", "org", "top")


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> Iterator[Any]:
    with tree(request.param) as entered:
        yield entered


@pytest.fixture
def url(engine: Engine, table_name: str) -> str:
    return f"dynamodb://{table_name}?region=us-east-1&endpoint_url={engine.url}&create=true"


@pytest.fixture
def repo(kind: Any, url: str) -> Iterator[Any]:
    opened = kind.open(url, deadline_s=60.0)
    opened.set_system_defaults(SLOW)
    opened.create_entity("top")
    for child, parent in zip(LEVELS[-2::-1], LEVELS[:0:-1], strict=True):
        opened.create_entity(child, parent_id=parent, cascade=True)
    yield opened
    opened.close()


@pytest.fixture
def limiter(kind: Any, repo: Any) -> Any:
    return kind.limiter(repo)


def left(repo: Any, *entities: str, resource: str = "gpt-4") -> list[int]:
    """Return the requests that each entity's own bucket has left."""
    found = {one: repo.get_buckets(one, resource) for one in entities or LEVELS}
    return [next((b.tokens for b in found[one] if b.limit_name == "rpm"), -1) for one in found]


def test_every_level_is_charged_and_credited_together(repo: Any, limiter: Any) -> None:
    """A rejection by one level leaves all as they were."""
    repo.set_limits("org", [Limit.custom("rpm", 4, 1, TEN_YEARS_S)])
    for _ in range(2):
        with limiter.acquire("key", "gpt-4", {"rpm": 1}) as lease:
            lease.adjust(rpm=1)
    with pytest.raises(RateLimitExceeded) as caught, limiter.acquire("key", "gpt-4", {"rpm": 1, "tpm": 5}):
        pass

    assert ["org"] == [status.entity_id for status in caught.value.violations]
    assert list(LEVELS) == [bucket["entity_id"] for bucket in caught.value.as_dict()["buckets"]]
    assert [6, 6, 6, 0, 6] == left(repo)


def test_another_client_finds_the_whole_chain(kind: Any, url: str, repo: Any) -> None:
    """It reads the entity, and then all levels above it."""
    other = kind.open(url, deadline_s=60.0)
    with kind.limiter(other).acquire("key", "gpt-4", {"rpm": 3}) as lease:
        assert sorted(LEVELS) == sorted(entry.entity_id for entry in lease.entries)
    other.close()

    assert [7] * 5 == left(repo)


def test_resources_share_the_limits_across_them(repo: Any, limiter: Any) -> None:
    """Limits of the entity and of an ancestor."""
    repo.set_limits("key", [Limit.custom("rpm", 5, 1, TEN_YEARS_S)], resource=ALL_RESOURCES)
    repo.set_limits("org", [Limit.custom("tpm", 500, 1, TEN_YEARS_S)], resource=ALL_RESOURCES)
    for resource in ("gpt-4", "small"):
        with limiter.acquire("key", resource, {"rpm": 2, "tpm": 100}):
            pass
    with pytest.raises(RateLimitExceeded) as caught, limiter.acquire("key", "other", {"rpm": 2}):
        pass

    assert [("key", ALL_RESOURCES)] == [(status.entity_id, status.resource) for status in caught.value.violations]
    assert [300] == [bucket.tokens for bucket in repo.get_buckets("org", ALL_RESOURCES)]


def test_several_requests_are_one_lease(repo: Any, limiter: Any) -> None:
    """Both cascade to the same levels, whose buckets give the sum."""
    repo.create_entity("key-2", parent_id="user", cascade=True)
    with limiter.acquire("key", "gpt-4", {"rpm": 2}, also=[Also("key-2", "gpt-4", {"rpm": 3})]) as lease:
        lease.also[0].adjust(rpm=1)
    with (
        pytest.raises(LookupError),
        limiter.acquire("key", "gpt-4", {"rpm": 2}, also=[Also("key-2", "gpt-4", {"rpm": 2})]),
    ):
        raise LookupError

    assert [8, 6, 4, 4] == left(repo, "key", "key-2", "user", "top")


def test_blocked_ancestor_refuses_until_it_is_unblocked(repo: Any, limiter: Any) -> None:
    """Nothing is written."""
    repo.block_entity("org", reason="unpaid", until=datetime.now(UTC) + timedelta(days=1))
    with pytest.raises(EntityBlockedError, match="unpaid"), limiter.acquire("key", "gpt-4", {"rpm": 1}):
        pass
    assert {"rpm": 0, "tpm": 0} == limiter.available("key", "gpt-4")
    repo.unblock_entity("org")
    # The limits of the levels were cached with the block.
    repo.invalidate_config_cache()

    with limiter.acquire("key", "gpt-4", {"rpm": 1}):
        pass
    assert [9] * 5 == left(repo)


def test_entity_with_a_bypass_is_never_rejected(repo: Any, limiter: Any) -> None:
    """What is there is charged, and the rest is counted."""
    repo.set_bypass("key", True)
    for amount in (8, 8, 20):
        with limiter.acquire("key", "gpt-4", {"rpm": amount}):
            pass

    assert [2] * 5 == left(repo)
    totals = [b.total_consumed_milli for b in repo.get_buckets("top", "gpt-4") if b.limit_name == "rpm"]
    assert [36_000] == totals


def test_moved_entity_takes_from_its_new_levels(repo: Any, limiter: Any) -> None:
    """A move below itself is refused, and so is a cycle."""
    repo.create_entity("other")
    with limiter.acquire("key", "gpt-4", {"rpm": 1}) as lease:
        repo.set_parent("user", "other")
        repo.invalidate_config_cache()
        lease.adjust(rpm=1)
    with limiter.acquire("key", "gpt-4", {"rpm": 1}):
        pass
    with pytest.raises(ValidationError, match="cycle"):
        repo.set_parent("top", "team", cascade=True)

    assert [7, 7, 8, 8, 8, 9] == left(repo, *LEVELS, "other")
    assert ["user"] == [entity.id for entity in repo.get_children("other")]
