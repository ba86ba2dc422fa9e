"""Resets and credits by an operator on real engines: beside takes, by several operators, and with lost answers."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import pytest

from tests.dynamodb.engines import Engine
from tests.dynamodb.faults import Fault, Stall, conflict
from tests.dynamodb.faulty_table import FAULTS, LONG_DEADLINE_S, FaultyTable
from tests.dynamodb.ledgers import RESOURCE
from tests.dynamodb.test_shard_throttles import split_by_another
from tests.dynamodb.trees import KINDS, tree
from zae_limiter import ALL_RESOURCES, IdempotencyKeyReusedError, Limit, RateLimitExceeded

TEN_YEARS_S = 10 * 365 * 24 * 3600
CAPACITY = 1_000
RPM = Limit.custom("rpm", CAPACITY, 1, TEN_YEARS_S)
"""A limit of which nothing comes back while a test runs."""
LARGEST = 10**15
SPEND = Limit.quota("spend", LARGEST)
TASKS, TAKES, RESETS = 4, 30, 3
ANSWERED = {name: fault for name, fault in {**FAULTS, "conflict": conflict()}.items() if not isinstance(fault, Stall)}


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
    opened.set_system_defaults([RPM, SPEND])
    yield opened
    opened.close()


@pytest.fixture
def limiter(kind: Any, repo: Any) -> Any:
    return kind.limiter(repo)


@pytest.fixture(scope="module", params=KINDS)
def faulty(request: pytest.FixtureRequest) -> Iterator[FaultyTable]:
    with ExitStack() as stack:
        yield FaultyTable(request.param, stack)


def take(limiter: Any, consume: dict[str, int], resource: str = "gpt-4") -> None:
    """Acquire tokens and keep them."""
    with limiter.acquire("user-1", resource, consume):
        pass


def test_reset_fills_every_bucket_of_an_entity(limiter: Any, repo: Any) -> None:
    """The largest quota and a debt too, and the limits across resources."""
    repo.set_limits("user-1", [RPM], resource=ALL_RESOURCES)
    take(limiter, {"rpm": 300, "spend": LARGEST}, "claude")
    with limiter.acquire("user-1", "gpt-4", {"rpm": 300, "spend": LARGEST}) as lease:
        lease.adjust(rpm=900, spend=LARGEST)
    resources = repo.reset_buckets("user-1", principal="ops")
    take(limiter, {"rpm": 1, "spend": LARGEST})

    assert [ALL_RESOURCES, "claude", "gpt-4"] == resources
    assert {"rpm": CAPACITY - 1, "spend": 0} == limiter.available("user-1", "gpt-4")
    assert {"rpm": CAPACITY - 1, "spend": LARGEST} == limiter.available("user-1", "claude")
    assert ["buckets_reset"] * 3 == [event.action for event in repo.get_audit_events("user-1", limit=3)]


def test_credit_is_given_once_with_its_key(limiter: Any, repo: Any) -> None:
    """Also by several operators at the same time, and at the largest amounts."""
    take(limiter, {"rpm": 300, "spend": LARGEST})
    asked = {"rpm": 1_000, "spend": LARGEST - 1}
    with ThreadPoolExecutor(8) as pool:
        given = list(pool.map(lambda _: repo.credit("user-1", "gpt-4", asked, "ticket-1"), range(8)))

    assert [{"rpm": 300, "spend": LARGEST - 1}] * 8 == given
    assert {"rpm": CAPACITY, "spend": LARGEST - 1} == limiter.available("user-1", "gpt-4")
    with pytest.raises(IdempotencyKeyReusedError):
        repo.credit("user-1", "gpt-4", {"rpm": 1}, "ticket-1")


def test_takes_beside_resets_use_at_most_one_capacity_more_per_reset(kind: Any, limiter: Any, repo: Any) -> None:
    """Several clients take while an operator resets. All that was taken is counted."""
    amount = CAPACITY // (TASKS * TAKES) * 2

    def work(_: int) -> int:
        mine, admitted = kind.limiter(repo), 0
        for _ in range(TAKES):
            try:
                take(mine, {"rpm": amount})
            except RateLimitExceeded:
                continue
            admitted += amount
        return admitted

    with ThreadPoolExecutor(TASKS + 1) as pool:
        resets = pool.submit(lambda: [repo.reset_buckets("user-1", "gpt-4") for _ in range(RESETS)])
        admitted = sum(pool.map(work, range(TASKS)))
        made = sum(1 for one in resets.result() if one)
    [rpm, _] = repo.get_buckets("user-1", "gpt-4")

    assert admitted <= CAPACITY * (1 + made)
    assert admitted * 1000 == rpm.total_consumed_milli
    assert made == [event.action for event in repo.get_audit_events("user-1")].count("buckets_reset")


@pytest.mark.parametrize("fault", ANSWERED.values(), ids=ANSWERED)
def test_reset_of_several_shards_with_a_fault_is_made_once(faulty: FaultyTable, fault: Fault) -> None:
    """The fate of the first answer makes no difference."""
    actor = faulty.actor()
    actor.take()
    split_by_another(faulty.new_limiter(LONG_DEADLINE_S), actor)
    before = [one["gn"] for one in faulty.ledger.shards(actor.entity_id)]
    faulty.proxy.next(fault, 1, "TransactWriteItems")
    resources = actor.limiter.reset_buckets(actor.entity_id, RESOURCE)
    after = [one["gn"] for one in faulty.ledger.shards(actor.entity_id)]

    assert [RESOURCE] == resources
    assert [generation + 1 for generation in before] == after
    assert ["buckets_reset"] == [one.action for one in actor.limiter.get_audit_events(actor.entity_id)]


@pytest.mark.parametrize("fault", ANSWERED.values(), ids=ANSWERED)
def test_credit_with_a_fault_is_given_once(faulty: FaultyTable, fault: Fault) -> None:
    """The fate of the first answer makes no difference."""
    actor = faulty.actor()
    with actor.limiter.acquire(actor.entity_id, RESOURCE, {"rpm": 500}):
        pass
    faulty.proxy.next(fault, 1, "TransactWriteItems")
    given = actor.limiter.credit(actor.entity_id, RESOURCE, {"rpm": 100}, "ticket-1")

    assert {"rpm": 100} == given
    assert 400 == actor.used["rpm"]
    assert ["credited"] == [one.action for one in actor.limiter.get_audit_events(actor.entity_id)]
