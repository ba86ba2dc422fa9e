"""The limiter on real engines, with the async and sync APIs: what is taken, credited and rejected."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.dynamodb.engines import Engine
from tests.dynamodb.trees import KINDS, tree
from zae_limiter import Limit, RateLimitExceeded

TEN_YEARS_S = 10 * 365 * 24 * 3600
SLOW = [Limit.custom("rpm", 10, 1, TEN_YEARS_S), Limit.custom("tpm", 1_000, 1, TEN_YEARS_S)]
"""Limits of which nothing comes back while a test runs, whatever the server's clock."""
DEADLINE_S = 60.0


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> Iterator[Any]:
    with tree(request.param) as entered:
        yield entered


@pytest.fixture
def url(engine: Engine, table_name: str) -> str:
    return f"dynamodb://{table_name}?region=us-east-1&endpoint_url={engine.url}&create=true"


@pytest.fixture
def repo(kind: Any, url: str) -> Iterator[Any]:
    opened = kind.open(url, deadline_s=DEADLINE_S)
    opened.set_system_defaults(SLOW)
    yield opened
    opened.close()


@pytest.fixture
def limiter(kind: Any, repo: Any) -> Any:
    return kind.limiter(repo)


def take(limiter: Any, entity_id: str = "user-1", **consume: int) -> None:
    """Take and keep."""
    with limiter.acquire(entity_id, "gpt-4", consume):
        pass


def test_acquire_takes_from_every_stored_limit(limiter: Any) -> None:
    """Each limit has its own balance."""
    with limiter.acquire("user-1", "gpt-4", {"rpm": 1, "tpm": 100}) as lease:
        consumed = lease.consumed

    assert {"rpm": 1, "tpm": 100} == consumed
    assert {"rpm": 9, "tpm": 900} == limiter.available("user-1", "gpt-4")
    assert {"rpm": 10, "tpm": 1_000} == limiter.available("user-2", "gpt-4")


def test_acquire_of_more_than_is_available_is_rejected(limiter: Any) -> None:
    """The exceeded limit is named, and no other limit is charged."""
    take(limiter, rpm=10)

    with pytest.raises(RateLimitExceeded) as caught:
        take(limiter, rpm=1, tpm=1)
    assert ["rpm"] == [status.limit_name for status in caught.value.violations]
    assert {"rpm": 0, "tpm": 1_000} == limiter.available("user-1", "gpt-4")


def test_another_client_sees_what_was_taken(kind: Any, url: str, limiter: Any) -> None:
    """All clients share one bucket."""
    take(limiter, rpm=7)
    with kind.open(url, deadline_s=DEADLINE_S) as other:
        take(kind.limiter(other), rpm=2)

        with pytest.raises(RateLimitExceeded):
            take(kind.limiter(other), rpm=2)
    take(limiter, rpm=1)
    assert {"rpm": 0, "tpm": 1_000} == limiter.available("user-1", "gpt-4")


def test_a_client_with_an_outdated_view_is_rejected(kind: Any, url: str, limiter: Any) -> None:
    """The view showed too many tokens; the bucket decides."""
    take(limiter, rpm=1)
    with kind.open(url, deadline_s=DEADLINE_S) as other:
        take(kind.limiter(other), rpm=8)

    with pytest.raises(RateLimitExceeded):
        take(limiter, rpm=5)
    assert 1 == limiter.available("user-1", "gpt-4")["rpm"]


def test_a_lease_is_adjusted_up_and_down(limiter: Any) -> None:
    """An adjustment up may go into debt; one down is credited."""
    with limiter.acquire("user-1", "gpt-4", {"rpm": 1, "tpm": 500}) as lease:
        lease.adjust(tpm=700)
        lease.consume(rpm=3)
    indebted = limiter.available("user-1", "gpt-4")
    with limiter.acquire("user-2", "gpt-4", {"tpm": 500}) as lease:
        lease.adjust(tpm=-300)

    assert {"rpm": 6, "tpm": -200} == indebted
    assert {"rpm": 10, "tpm": 800} == limiter.available("user-2", "gpt-4")


def test_a_lease_credits_released_tokens_immediately(limiter: Any) -> None:
    """The credit does not wait for the end of the lease."""
    with limiter.acquire("user-1", "gpt-4", {"tpm": 500}) as lease:
        lease.release(tpm=400)
        during = limiter.available("user-1", "gpt-4")["tpm"]

    assert (900, 900) == (during, limiter.available("user-1", "gpt-4")["tpm"])


def test_a_lease_that_ends_with_an_error_is_rolled_back(limiter: Any) -> None:
    """Failed work has used nothing."""
    with pytest.raises(LookupError), limiter.acquire("user-1", "gpt-4", {"rpm": 4, "tpm": 500}):
        raise LookupError

    assert {"rpm": 10, "tpm": 1_000} == limiter.available("user-1", "gpt-4")


def test_a_cascade_takes_from_child_and_parent(repo: Any, limiter: Any) -> None:
    """If the parent lacks tokens, the child is not charged."""
    repo.create_entity("project")
    repo.create_entity("key-1", parent_id="project", cascade=True)
    repo.create_entity("key-2", parent_id="project", cascade=True)
    take(limiter, "key-1", rpm=6)

    with pytest.raises(RateLimitExceeded) as caught:
        take(limiter, "key-2", rpm=6)
    assert ["project"] == [status.entity_id for status in caught.value.violations]
    used = [repo.get_buckets(entity_id)[0].total_consumed_milli for entity_id in ("project", "key-1")]
    assert [6_000, 6_000] == used
    assert {0} >= {bucket.total_consumed_milli for bucket in repo.get_buckets("key-2") if bucket.limit_name == "rpm"}
    assert [4, 4] == [limiter.available(entity_id, "gpt-4")["rpm"] for entity_id in ("project", "key-2")]


@pytest.mark.parametrize("consume", [{"rpm": 0}, {"rpm": 0, "tpm": 5}])
def test_a_limit_in_debt_admits_nothing(limiter: Any, consume: dict[str, int]) -> None:
    """In that case the write has no condition on the balance of that limit."""
    with limiter.acquire("user-1", "gpt-4", {"rpm": 10}) as lease:
        lease.adjust(rpm=5)
    take(limiter, "user-1", **consume)

    assert {"rpm": -5, "tpm": 1_000 - consume.get("tpm", 0)} == limiter.available("user-1", "gpt-4")


def test_a_failed_cascading_lease_credits_child_and_parent(repo: Any, limiter: Any) -> None:
    """Both get all their tokens back."""
    repo.create_entity("project")
    repo.create_entity("key-1", parent_id="project", cascade=True)
    take(limiter, "key-1", rpm=1)

    with pytest.raises(LookupError), limiter.acquire("key-1", "gpt-4", {"rpm": 5}):
        raise LookupError
    assert [9, 9] == [limiter.available(entity_id, "gpt-4")["rpm"] for entity_id in ("project", "key-1")]


def test_stored_limits_are_resolved_by_level(repo: Any, limiter: Any) -> None:
    """Entity and resource, then entity, then resource, then system."""
    found = []
    steps = [
        lambda limit: repo.set_resource_defaults("gpt-4", [limit]),
        lambda limit: repo.set_limits("user-1", [limit]),
        lambda limit: repo.set_limits("user-1", [limit], "gpt-4"),
    ]
    for capacity, step in enumerate(steps, start=20):
        step(Limit.custom("rpm", capacity, 1, TEN_YEARS_S))
        found.append((limiter.available("user-1", "gpt-4"), limiter.available("user-2", "other")["rpm"]))

    assert [({"rpm": 20}, 10), ({"rpm": 21}, 10), ({"rpm": 22}, 10)] == found


def test_a_bucket_adopts_changed_limits(kind: Any, url: str, repo: Any, limiter: Any) -> None:
    """A client that knows the change updates the bucket; taken tokens stay taken."""
    take(limiter, rpm=4)
    repo.set_limits("user-1", [Limit.custom("rpm", 5, 1, TEN_YEARS_S), Limit.custom("rpd", 3, 1, TEN_YEARS_S)], "gpt-4")
    take(limiter, rpm=1, rpd=1)

    with kind.open(url, deadline_s=DEADLINE_S) as other:
        assert {"rpm": 4, "rpd": 2} == kind.limiter(other).available("user-1", "gpt-4")


def test_tokens_refill_by_the_servers_clock(limiter: Any) -> None:
    """An exhausted limit is waited for until it has refilled."""
    limits = [Limit.per_minute("rpm", 50)]
    with limiter.acquire("user-1", "gpt-4", {"rpm": 50}, limits=limits):
        pass
    wait_s = limiter.time_until_available("user-1", "gpt-4", {"rpm": 50}, limits=limits)

    # The server's clock is first known to a second, and is interpreted strictly.
    assert 0 < wait_s <= 61.5


def test_acquire_of_large_amounts_is_exact(limiter: Any) -> None:
    """10^18 tokens are counted to the last one."""
    most = [Limit.custom("tokens", 10**18, 1, TEN_YEARS_S)]
    for amount in (10**18 - 7, 6):
        with limiter.acquire("user-1", "gpt-4", {"tokens": amount}, limits=most):
            pass

    assert {"tokens": 1} == limiter.available("user-1", "gpt-4", limits=most)
