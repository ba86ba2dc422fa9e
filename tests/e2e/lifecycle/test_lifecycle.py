"""A limiter from its deployment to its deletion, as an operator and the processes of an application see it."""

import pytest

from tests.e2e.stage import Stage, fresh_stage
from zae_limiter import Limit

# Connects as applications do, takes twice what fits, and tells what came of it.
APPLICATION = """
import asyncio, json, sys
from zae_limiter import RateLimiter, RateLimitExceeded, Repository

async def main(name, region, endpoint_url):
    repo = await Repository.connect(name, region, endpoint_url=endpoint_url, deadline_s=30)
    limiter, told = RateLimiter(repo), []
    for _ in range(4):
        try:
            async with limiter.acquire("user-1", "gpt-4", {"rpd": 4}) as lease:
                told.append(lease.consumed)
        except RateLimitExceeded as error:
            told.append(error.primary_violation.limit_name)
    await repo.close()
    print(json.dumps(told))

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.fixture(scope="module")
def stage(aws_url: str) -> Stage:
    """A limiter that nobody has deployed."""
    return fresh_stage(aws_url)


def test_a_limiter_lives_and_is_gone(stage: Stage) -> None:
    """Deployed, found, set up, used by two other processes, changed, deleted."""
    before = stage.command("status")
    deployed = stage.told("deploy", "--no-alarms", "--create-iam-roles")
    status, health = stage.told("status"), stage.command("check")
    with stage.opened() as repo:
        repo.set_system_defaults([Limit.per_day("rpd", 10)], principal="ops")
    told = [stage.program(APPLICATION) for _ in range(2)]
    changed = stage.told("deploy", "--no-alarms", "--lambda-memory", "512", "--usage-retention-days", "7")
    function = stage.clients.of("lambda").get_function_configuration(FunctionName=f"{stage.name}-aggregator")
    listed = stage.clients.of("cloudformation")
    refused = stage.command("delete")
    deleted, again = stage.told("delete", "--yes", "--delete-archive"), stage.told("delete", "--yes")

    assert (69, 2) == (before.returncode, refused.returncode)
    assert ("CREATE_COMPLETE", "UPDATE_COMPLETE") == (deployed["stack_status"], changed["stack_status"])
    assert ("healthy", 0) == (status["health"], health.returncode)
    assert deployed["outputs"]["AppRoleArn"].endswith(f"role/{stage.name}-app")
    assert [[{"rpd": 4}, {"rpd": 4}, "rpd", "rpd"], ["rpd"] * 4] == told
    assert (512, "7") == (function["MemorySize"], function["Environment"]["Variables"]["USAGE_RETENTION_DAYS"])
    assert "AppRoleArn" not in changed["outputs"]
    assert ({"deleted": True, "archive_kept": None}, False) == (deleted, again["deleted"])
    assert [] == [one for one in listed.describe_stacks()["Stacks"] if one["StackName"] == stage.name]
    assert stage.name not in stage.clients.of("dynamodb").list_tables()["TableNames"]
