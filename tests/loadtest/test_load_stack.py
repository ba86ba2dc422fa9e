"""The stack of load tests on a local AWS: created, updated, listed and deleted, and the errors if that fails."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.loadtest.load_stacks import SMALL, deployed_limiter, load_options, local_clients, new_load_stack
from zae_limiter.core.errors import InfrastructureNotFoundError, StackOperationError
from zae_limiter.infra import tags
from zae_limiter.infra.clients import Clients
from zae_limiter.infra.options import StackOptions
from zae_limiter.infra.stack import Stack
from zae_limiter.loadtest.code_bucket import CodeBucket
from zae_limiter.loadtest.load_stack import LoadStack, LoadTestNotFoundError, list_load_tests


@pytest.fixture(scope="module")
def clients() -> Clients:
    return local_clients()


@pytest.fixture(scope="module")
def deployed(clients: Clients) -> Iterator[LoadStack]:
    """A load test that no test changes."""
    stack = new_load_stack(clients, StackOptions(enable_aggregator=False, enable_alarms=False, tags={"team": "a"}))
    stack.deploy(load_options())
    yield stack
    stack.delete()


def test_load_stack_runs_nothing_after_its_deployment(deployed: LoadStack, clients: Clients) -> None:
    """Its service has no tasks, and its function fails until code is uploaded."""
    outputs = deployed.outputs()
    told = clients.of("ecs").describe_services(cluster=outputs.cluster_name, services=[outputs.service_name])
    (service,) = told["services"]
    function = clients.of("lambda").get_function_configuration(FunctionName=outputs.function_name)

    assert (0, 0) == (service["desiredCount"], service["runningCount"])
    assert ("zae_limiter.loadtest.worker.handler", 300) == (function["Handler"], function["Timeout"])


def test_workers_and_master_have_the_policy_of_their_limiter(deployed: LoadStack, clients: Clients) -> None:
    policy = deployed.limiter.require().outputs["FullAccessPolicyArn"]
    attached = [
        clients.of("iam").list_attached_role_policies(RoleName=f"{deployed.name}-{role}")["AttachedPolicies"]
        for role in ("worker", "task")
    ]

    assert [[policy], [policy]] == [[one["PolicyArn"] for one in policies] for policies in attached]


def test_load_stack_has_its_own_type_and_the_tags_of_its_limiter(deployed: LoadStack) -> None:
    """Costs are attributed as those of the limiter are."""
    said = deployed.require().tags

    assert ("load-test", deployed.limiter.name, "a") == (said[tags.TYPE], said[tags.NAME], said["team"])


def test_load_stack_is_never_taken_for_a_limiter(deployed: LoadStack, clients: Clients) -> None:
    with pytest.raises(StackOperationError, match="not a limiter"):
        Stack(deployed.name, clients).deploy(SMALL)


def test_repeated_deployment_changes_nothing(deployed: LoadStack) -> None:
    """The endpoints that the stack created do not count as those of the VPC, which would delete them."""
    before = deployed.require().outputs

    assert {"DynamoDbEndpointId", "S3EndpointId"} < set(before)
    assert not deployed.deploy(load_options()).changed
    assert before == deployed.require().outputs


def test_load_tests_are_listed_apart_from_limiters(deployed: LoadStack, clients: Clients) -> None:
    found = {one.stack.stack_name: one for one in list_load_tests(clients)}

    assert (deployed.limiter.name, 0) == (found[deployed.name].stack.user_name, found[deployed.name].running_masters)
    assert deployed.limiter.name not in found


def test_code_bucket_keeps_json_and_files_by_key(deployed: LoadStack, clients: Clients) -> None:
    """What does not exist is None."""
    bucket = CodeBucket(clients, deployed.outputs().bucket_name)
    bucket.put_json("runs/a/run.json", {"users": 5})
    first, again = (bucket.replace_file("code/x", b"1") for _ in range(2))

    assert ({"users": 5}, None, False) == (
        bucket.get_json("runs/a/run.json"),
        bucket.get_json("runs/b/run.json"),
        bucket.exists("runs/b/run.json"),
    )
    assert (True, False, True, b"1") == (first, again, bucket.replace_file("code/y", b"2"), bucket.get_file("code/x"))
    assert ["runs/a/run.json"] == bucket.list("runs/")

    bucket.delete("runs/a/run.json")
    assert [] == bucket.list("runs/")


def test_changed_options_update_the_stack_and_are_kept(clients: Clients) -> None:
    stack = new_load_stack(clients)
    stack.deploy(load_options())
    changed = stack.deploy(load_options(max_workers=5, lambda_timeout_minutes=10, dynamodb_endpoint=False)).changed
    outputs, stored = stack.outputs(), stack.stored_options()

    assert (True, 5, 600) == (changed, outputs.max_workers, outputs.lambda_timeout_s)
    assert (5, 10, False) == (stored["max_workers"], stored["lambda_timeout_minutes"], stored["dynamodb_endpoint"])
    assert "DynamoDbEndpointId" not in stack.require().outputs

    stack.delete()


def everything_named(clients: Clients, name: str) -> list[str]:
    """Return what AWS has with this name: buckets, functions, clusters, roles, log groups, endpoints."""
    listed: list[tuple[str, str, str, str]] = [
        ("s3", "list_buckets", "Buckets", "Name"),
        ("lambda", "list_functions", "Functions", "FunctionName"),
        ("iam", "list_roles", "Roles", "RoleName"),
        ("logs", "describe_log_groups", "logGroups", "logGroupName"),
        ("ec2", "describe_security_groups", "SecurityGroups", "Description"),
        ("ecr", "describe_repositories", "repositories", "repositoryName"),
    ]
    found = [one[field] for service, action, key, field in listed for one in _all(clients, service, action)[key]]
    found += clients.of("ecs").list_clusters()["clusterArns"]
    return [one for one in found if name in one]


def _all(clients: Clients, service: str, action: str) -> Any:
    client = clients.of(service)
    if not client.can_paginate(action):
        return getattr(client, action)()
    return client.get_paginator(action).paginate().build_full_result()


def test_deleted_load_stack_leaves_nothing_behind(clients: Clients) -> None:
    """The bucket is emptied, and the limiter stays."""
    stack = new_load_stack(clients)
    stack.deploy(load_options(build_image=True))
    existing = everything_named(clients, stack.name)
    CodeBucket(clients, stack.outputs().bucket_name).put_json("runs/a/run.json", {})
    deleted = stack.delete()

    assert len(existing) > 8
    assert (True, False, []) == (deleted, stack.delete(), everything_named(clients, stack.name))
    assert stack.limiter.describe() is not None


def test_deletion_empties_the_bucket_again_if_a_worker_wrote_meanwhile(
    clients: Clients, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker that is still running writes its last progress."""
    stack = new_load_stack(clients)
    stack.deploy(load_options())
    bucket = CodeBucket(clients, stack.outputs().bucket_name)
    emptied = LoadStack._empty
    writes = iter([True, False])

    def empty_then_write(self: LoadStack, name: str | None) -> None:
        emptied(self, name)
        if next(writes):
            bucket.put_json("runs/a/progress-1.json", {})

    def refuse_full_bucket(ask: Callable[..., None]) -> Callable[..., None]:
        # The local AWS deletes a bucket with objects; CloudFormation does not.
        def delete(self: LoadStack, *arguments: Any) -> None:
            if bucket.list(""):
                raise StackOperationError(self.name, "CodeBucket: The bucket you tried to delete is not empty")
            ask(self, *arguments)

        return delete

    monkeypatch.setattr(LoadStack, "_empty", empty_then_write)
    monkeypatch.setattr(LoadStack, "_delete", refuse_full_bucket(LoadStack._delete))

    assert stack.delete()
    assert stack.describe() is None


def test_missing_load_stack_says_how_to_deploy_it(clients: Clients) -> None:
    stack = new_load_stack(clients)

    with pytest.raises(LoadTestNotFoundError, match=f"zae-limiter loadtest deploy --name {stack.limiter.name} -C DIR"):
        stack.outputs()


def test_load_stack_without_a_limiter_is_not_created(clients: Clients) -> None:
    stack = LoadStack("no-such-limiter", clients)

    with pytest.raises(InfrastructureNotFoundError, match="zae-limiter deploy --name no-such-limiter"):
        stack.deploy(load_options())
    assert stack.describe() is None


def test_load_stack_of_a_limiter_without_policies_is_not_created(clients: Clients) -> None:
    """Workers use the limiter's own policies."""
    name = deployed_limiter(clients, StackOptions(enable_aggregator=False, enable_alarms=False, create_iam=False))

    with pytest.raises(StackOperationError, match="no policies for the workers"):
        LoadStack(name, clients).deploy(load_options())
