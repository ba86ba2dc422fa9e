"""A limiter from its deployment to its deletion, as an operator and the processes of an application see it."""

import pytest

from tests.e2e.deployment import Deployment, new_deployment
from zae_limiter import Limit

# Connects as applications do, takes twice what fits, and prints the results.
APPLICATION = """
import asyncio, json, sys
from zae_limiter import RateLimiter, RateLimitExceeded, Repository

async def main(name, region, endpoint_url):
    repo = await Repository.connect(name, region, endpoint_url=endpoint_url, deadline_s=30)
    limiter, answers = RateLimiter(repo), []
    for _ in range(4):
        try:
            async with limiter.acquire("user-1", "gpt-4", {"rpd": 4}) as lease:
                answers.append(lease.consumed)
        except RateLimitExceeded as error:
            answers.append(error.primary_violation.limit_name)
    await repo.close()
    print(json.dumps(answers))

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.fixture(scope="module")
def deployment(aws_url: str) -> Deployment:
    """Return a limiter that is not deployed."""
    return new_deployment(aws_url)


def test_limiter_is_deployed_used_changed_and_deleted(deployment: Deployment) -> None:
    """It is found, set up, and used by two other processes; afterwards nothing is left."""
    before = deployment.command("status")
    deployed = deployment.printed("deploy", "--no-alarms", "--create-iam-roles")
    status, health = deployment.printed("status"), deployment.command("check")
    with deployment.opened() as repo:
        repo.set_system_defaults([Limit.per_day("rpd", 10)], principal="ops")
    answers = [deployment.program(APPLICATION) for _ in range(2)]
    changed = deployment.printed("deploy", "--no-alarms", "--lambda-memory", "512", "--usage-retention-days", "7")
    function = deployment.clients.of("lambda").get_function_configuration(FunctionName=f"{deployment.name}-aggregator")
    listed = deployment.clients.of("cloudformation")
    refused = deployment.command("delete")
    deleted, again = deployment.printed("delete", "--yes", "--delete-archive"), deployment.printed("delete", "--yes")

    assert (69, 2) == (before.returncode, refused.returncode)
    assert ("CREATE_COMPLETE", "UPDATE_COMPLETE") == (deployed["stack_status"], changed["stack_status"])
    assert ("healthy", 0) == (status["health"], health.returncode)
    assert deployed["outputs"]["AppRoleArn"].endswith(f"role/{deployment.name}-app")
    assert [[{"rpd": 4}, {"rpd": 4}, "rpd", "rpd"], ["rpd"] * 4] == answers
    assert (512, "7") == (function["MemorySize"], function["Environment"]["Variables"]["USAGE_RETENTION_DAYS"])
    assert deployed["outputs"]["AppRoleArn"] == changed["outputs"]["AppRoleArn"]
    assert ({"deleted": True, "archive_kept": None, "is_complete": True}, False) == (deleted, again["deleted"])
    assert [] == [one for one in listed.describe_stacks()["Stacks"] if one["StackName"] == deployment.name]
    assert deployment.name not in deployment.clients.of("dynamodb").list_tables()["TableNames"]
