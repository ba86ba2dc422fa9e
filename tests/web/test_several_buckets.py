"""Requests that take from several buckets, and blocked entities, in every adapter."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.web.every_adapter import ADAPTERS, Answer, Limiters
from tests.web.reported import rate_limits
from zae_limiter import ALL_RESOURCES, Also, Limit, RateLimiter, Repository, SyncRateLimiter, SyncRepository
from zae_limiter.web import Ask

DAY_S = 86_400
RPM, TPM = Limit.custom("rpm", 10, 1, DAY_S), Limit.custom("tpm", 1_000, 1, DAY_S)
SEARCH = Also("tool", "search", {"rpm": 2, "tpm": 20})
ASK = Ask("key", "chat", {"rpm": 1, "tpm": 10}, also=[SEARCH])
IDS = ("secret-project", "secret-company")


@pytest.fixture
async def limiters(tmp_path: Path) -> AsyncIterator[Limiters]:
    """A key under a project under a company, in a file that both kinds of limiters have open."""
    url = f"sqlite:///{tmp_path / 'limits.db'}"
    with SyncRepository.open(url) as repository:
        repository.set_system_defaults([RPM, TPM])
        repository.create_entity("tool")
        repository.create_entity("secret-company")
        repository.create_entity("secret-project", parent_id="secret-company", cascade=True)
        repository.create_entity("key", parent_id="secret-project", cascade=True)
        async with await Repository.open(url) as other:
            yield Limiters(RateLimiter(other), SyncRateLimiter(repository))


@pytest.fixture(params=ADAPTERS, ids=lambda one: one.__name__)
def send(request: pytest.FixtureRequest, limiters: Limiters) -> Any:
    async def sent(ask: Ask) -> Answer:
        return await request.param(limiters, ask)

    return sent


def left(limiters: Limiters, entity: str, resource: str = "chat") -> dict[str, int]:
    """Return what is left of an entity's own bucket; nothing if it has none."""
    found = limiters.blocking.get_buckets(entity, resource)
    return {one.limit_name: one.tokens for one in found}


async def test_request_takes_from_other_entities_too(send: Any, limiters: Limiters):
    """The lease has a part for each of them, which is settled with it."""
    answer = await send(ASK)

    assert (200, [{"rpm": 2, "tpm": 25}]) == (answer.status, answer.json)
    assert {"rpm": 8, "tpm": 975} == left(limiters, "tool", "search")
    assert [{"rpm": 9, "tpm": 990}] * 3 == [left(limiters, entity) for entity in ("key", *IDS)]


async def test_headers_report_the_least_of_all_buckets(send: Any, limiters: Limiters):
    """Each name once, and no limit that only an entity above has."""
    limiters.blocking.set_limits("key", [Limit.custom("rpm", 7, 1, DAY_S)], resource=ALL_RESOURCES)
    limiters.blocking.set_limits("secret-company", [RPM, TPM, Limit.custom("ipm", 3, 1, DAY_S)])
    limiters.blocking.set_limits("tool", [RPM, Limit.custom("tpm", 300, 1, DAY_S)])
    async with limiters.waiting.acquire("secret-project", "chat", {"rpm": 5}):
        pass

    answer = await send(ASK)
    states = rate_limits(answer.headers, "ratelimit")
    policies = rate_limits(answer.headers, "ratelimit-policy")

    assert {"rpm": 4, "tpm": 275} == {name: state["r"] for name, state in states.items()}
    assert {"rpm": 10, "tpm": 300} == {name: policy["q"] for name, policy in policies.items()}


async def test_rejection_by_another_entity_takes_nothing(send: Any, limiters: Limiters):
    """It names every limit of every bucket, and no entity."""
    limiters.blocking.set_limits("tool", [Limit.custom("rpm", 2, 1, DAY_S), TPM])
    async with limiters.waiting.acquire("tool", "search", {"rpm": 1}):
        pass

    answer = await send(ASK)

    assert (429, ["rpm"]) == (answer.status, answer.json["violated-policies"])
    assert 8 == len({(one["limit"], one["pk"]) for one in answer.json["limits"]})
    assert 1 == rate_limits(answer.headers, "ratelimit")["rpm"]["r"]
    assert 1 == left(limiters, "tool", "search")["rpm"]
    assert 10 == (await limiters.waiting.available("key", "chat"))["rpm"]
    assert not any(one.encode() in answer.body for one in (*IDS, "tool"))


async def test_blocked_entity_is_answered_with_403(send: Any, limiters: Limiters):
    """The reason and the end of the block are told, and nothing is taken."""
    until = datetime.now(UTC) + timedelta(hours=1)
    limiters.blocking.block_entity("key", reason="Unpaid invoice.", until=until)

    answer = await send(ASK)
    problem = answer.json

    assert 403 == answer.status == problem["status"]
    assert "application/problem+json" == answer.headers["content-type"]
    assert ("Unpaid invoice.", None, "key") == (problem["reason"], problem["resource"], problem["blocked_entity"])
    assert abs(datetime.fromisoformat(problem["until"]) - until) < timedelta(seconds=1)
    assert 0 < int(answer.headers["retry-after"]) <= 3_601
    assert "ratelimit" not in answer.headers
    assert {} == left(limiters, "key") == left(limiters, "tool", "search")


@pytest.mark.parametrize("blocked", ["secret-project", "tool"])
async def test_blocked_entity_that_is_not_the_own_one_is_not_named(send: Any, limiters: Limiters, blocked: str):
    """The id of a parent may be secret. A block without an end has no wait."""
    limiters.blocking.block_entity(blocked)

    answer = await send(ASK)

    assert (403, "Requests are blocked.") == (answer.status, answer.json["detail"])
    assert "blocked_entity" not in answer.json
    assert blocked.encode() not in answer.body
    assert "retry-after" not in answer.headers


async def test_request_of_too_many_buckets_is_answered_with_503(send: Any, caplog: pytest.LogCaptureFixture):
    """The service is set up wrong. Its log says how, and the client gets no traceback and no names."""
    also = [Also(f"tool-{number}", "search", {"rpm": 1}) for number in range(14)]

    answer = await send(Ask("key", "chat", {"rpm": 1}, also=also))

    assert (503, "The request takes from too many rate limits.") == (answer.status, answer.json["detail"])
    assert "retry-after" not in answer.headers
    assert b"tool" not in answer.body
    assert "17 buckets; at most 16 are possible" in caplog.text


async def test_invalid_name_in_also_is_answered_with_400(send: Any):
    """It may have come with the request."""
    answer = await send(Ask("key", "chat", {"rpm": 1}, also=[Also("#", "search", {"rpm": 1})]))

    assert 400 == answer.status
