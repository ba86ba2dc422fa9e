"""A limiter of an older installation is upgraded to this one."""

import io
import zipfile
from importlib import metadata

import pytest

from tests.dynamodb.trees import session
from tests.e2e.deployment import DEADLINE_S, REGION, Deployment, comes_to, counted, take
from zae_limiter import Limit, SyncRepository, VersionMismatchError
from zae_limiter._sync.upgrade import record_deployed

OLD = "0.0.0"
OLD_HANDLER = "def handler(event, context):\n    return {'batchItemFailures': []}\n"


@pytest.fixture
def old(deployment: Deployment) -> Deployment:
    """Return a limiter whose function is of an old version, and counts nothing."""
    package = io.BytesIO()
    with zipfile.ZipFile(package, "w") as written:
        written.writestr("zae_limiter_aggregator/__init__.py", "")
        written.writestr("zae_limiter_aggregator/handler.py", OLD_HANDLER)
    client = deployment.clients.of("lambda")
    client.update_function_code(FunctionName=f"{deployment.name}-aggregator", ZipFile=package.getvalue())
    client.get_waiter("function_updated_v2").wait(FunctionName=f"{deployment.name}-aggregator")
    record_deployed(deployment.url, OLD, session=session())
    return deployment


def test_old_function_is_reported_and_upgraded_by_the_command(old: Deployment) -> None:
    """Then it counts; the options of the stack are as before."""
    before = old.command("check")
    with pytest.raises(VersionMismatchError):
        SyncRepository.connect(
            old.name, REGION, endpoint_url=old.aws_url, session=session(), auto_update=False, deadline_s=DEADLINE_S
        )
    planned, done, again = old.printed("upgrade", "--dry-run"), old.printed("upgrade"), old.printed("upgrade")
    after, versions = old.command("check"), old.printed("version")
    with old.opened() as repo:
        repo.set_system_defaults([Limit.per_day("rpd", 100)])
        take(repo, 5, times=2)
        usage = comes_to({"hourly": 10, "daily": 10}, lambda: counted(repo))

    assert (1, 0) == (before.returncode, after.returncode)
    assert f"zae-limiter upgrade --name {old.name} --region {REGION}" in before.stderr
    assert [True, True, False] == [one["code_changed"] for one in (planned, done, again)]
    assert metadata.version("zae-limiter") == versions["limiter"]["lambda_version"]
    assert {"hourly": 10, "daily": 10} == usage


def test_old_function_is_upgraded_by_a_client_with_auto_upgrade(old: Deployment) -> None:
    """No command is needed."""
    with SyncRepository.connect(
        old.name, REGION, endpoint_url=old.aws_url, session=session(), auto_update=True, deadline_s=DEADLINE_S
    ) as repo:
        record = repo.get_version_record()

    assert record is not None
    assert metadata.version("zae-limiter") == record.lambda_version
    assert not old.printed("upgrade")["code_changed"]
