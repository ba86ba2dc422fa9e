"""The resources of the template of load tests; other tests deploy it to a local AWS."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.infra.resolved import Resolved, parsed
from tests.infra.test_template import REGIONS
from tests.loadtest.load_stacks import load_options
from zae_limiter.infra import tags
from zae_limiter.infra.template import MOST_BYTES, load_template
from zae_limiter.loadtest.load_options import LOAD_ROLES, LimiterUnderTest, NetworkPlan, load_parameters
from zae_limiter.loadtest.master import MasterSettings, settings_of
from zae_limiter.loadtest.master_image import BASE_IMAGE
from zae_limiter.loadtest.wheels import LAMBDA

PUBLIC = NetworkPlan(True, True, True, False, ("rtb-1",))
NO_FORMAT = {"RoleNamePrefix": "", "RoleNameSuffix": "", "PermissionBoundaryArn": "", "PermissionBoundaryName": ""}
POLICY = "arn:aws-cn:iam::123456789012:policy/my-app-full"


def resolved(network: NetworkPlan = PUBLIC, iam: dict[str, str] | None = None, **chosen: Any) -> Resolved:
    limiter = LimiterUnderTest("my-app", POLICY, NO_FORMAT | (iam or {}))
    defaults = {
        name: str(body["Default"]) for name, body in parsed(load_template())["Parameters"].items() if "Default" in body
    }
    parameters = defaults | load_parameters(limiter, load_options(**chosen), network)
    return Resolved("my-app-load", parameters, parsed(load_template()))


def statements(stack: Resolved, role: str) -> list[dict[str, Any]]:
    policies = stack.properties(role)["Policies"]
    return [said for policy in policies for said in policy["PolicyDocument"]["Statement"]]


class TestAsWritten:
    def test_load_template_passes_cfn_lint_in_every_partition(self, tmp_path: Path) -> None:
        """Regions of five partitions are checked."""
        path = tmp_path / "load.yaml"
        path.write_text(load_template(), encoding="utf-8")
        linter = Path(sys.executable).with_name("cfn-lint")
        done = subprocess.run([linter, "--regions", *REGIONS, "--", path], capture_output=True, text=True, check=False)

        assert ("", "", 0) == (done.stdout, done.stderr, done.returncode)

    def test_load_template_names_no_partition_and_is_sent_inline(self) -> None:
        """ARNs use the partition of the stack, and no bucket is needed for the template."""
        text = load_template()

        assert "arn:aws" not in text
        assert len(text.encode()) < MOST_BYTES

    def test_load_template_without_tags_is_not_taken_for_a_limiter(self) -> None:
        """Its description does not start as that of a limiter does."""
        assert tags.stack_type("my-app-load", {}, parsed(load_template())["Description"]) is None

    def test_load_template_defaults_equal_the_default_options(self) -> None:
        """The template alone makes the same stack as the default options."""
        parameters = parsed(load_template())["Parameters"]
        limiter = LimiterUnderTest("my-app", POLICY, NO_FORMAT)
        defaults = load_parameters(limiter, load_options(), NetworkPlan(True, True, True))

        assert {} == {
            name: (str(body["Default"]), defaults[name])
            for name, body in parameters.items()
            if "Default" in body and name in defaults and str(body["Default"]) != defaults[name]
        }
        assert set(defaults) <= set(parameters)


class TestMaster:
    def test_service_has_no_tasks_and_allows_the_tunnel(self) -> None:
        """Nothing runs until a test starts."""
        service = resolved().properties("MasterService")

        assert (0, True) == (service["DesiredCount"], service["EnableExecuteCommand"])
        assert {"MaximumPercent": 100, "MinimumHealthyPercent": 0} == service["DeploymentConfiguration"]

    @pytest.mark.parametrize("provider", ["FARGATE_SPOT", "FARGATE"])
    def test_service_uses_the_chosen_capacity_provider(self, provider: str) -> None:
        strategy = resolved(capacity_provider=provider).properties("MasterService")["CapacityProviderStrategy"]

        assert [{"CapacityProvider": provider, "Weight": 1}] == strategy

    @pytest.mark.parametrize(("is_public", "expected"), [(True, "ENABLED"), (False, "DISABLED")])
    def test_master_has_a_public_address_in_public_subnets(self, is_public: bool, expected: str) -> None:
        """Without it, the master could not pull its image there."""
        network = resolved(NetworkPlan(is_public)).properties("MasterService")["NetworkConfiguration"]

        assert expected == network["AwsvpcConfiguration"]["AssignPublicIp"]
        assert list(load_options().subnet_ids) == network["AwsvpcConfiguration"]["Subnets"]

    def test_master_uses_the_public_image_of_the_packaged_python(self) -> None:
        """The wheels are for the same version."""
        (container,) = resolved().properties("MasterTask")["ContainerDefinitions"]

        assert BASE_IMAGE == container["Image"]
        assert f":{LAMBDA.python}-" in BASE_IMAGE

    def test_master_finds_its_settings_in_the_environment_of_its_task(self) -> None:
        """No local AWS starts this task, so no other test would notice a variable that is missing."""
        stack = resolved()
        (container,) = stack.properties("MasterTask")["ContainerDefinitions"]
        found = settings_of({one["Name"]: one["Value"] for one in container["Environment"]})

        assert MasterSettings("CodeBucket", "my-app-load", "my-app-load-master", None, 5557, 8089) == found
        assert found.cluster == stack.properties("Cluster")["ClusterName"]
        assert found.service == stack.properties("MasterService")["ServiceName"]

    def test_master_with_an_own_image_pulls_it_from_the_stack(self) -> None:
        """The repository is emptied when the stack is deleted."""
        stack = resolved(build_image=True)
        (container,) = stack.properties("MasterTask")["ContainerDefinitions"]

        assert "ImageRepository.RepositoryUri:3.13" == container["Image"] == stack.outputs["ImageUri"]
        assert stack.properties("ImageRepository")["EmptyOnDelete"] is True
        assert any("ecr:BatchGetImage" in said["Action"] for said in statements(stack, "ExecutionRole"))

    def test_master_without_an_own_image_has_no_repository(self) -> None:
        stack = resolved()

        assert {} == stack.of_type("AWS::ECR::Repository")
        assert not any(
            action.startswith("ecr:") for said in statements(stack, "ExecutionRole") for action in said["Action"]
        )


class TestWorkers:
    def test_worker_function_has_the_options_and_the_runtime_of_its_package(self) -> None:
        function = resolved(lambda_timeout_minutes=15, lambda_memory_mb=512).properties("WorkerFunction")

        assert ("900", "512") == (function["Timeout"], function["MemorySize"])
        assert (f"python{LAMBDA.python}", [LAMBDA.machine]) == (function["Runtime"], function["Architectures"])
        assert "my-app-load-worker" == function["FunctionName"]

    def test_failed_invocation_of_a_worker_is_not_repeated(self) -> None:
        """The orchestrator replaces it, and a test that has ended does not start again."""
        assert 0 == resolved().properties("WorkerInvocations")["MaximumRetryAttempts"]

    def test_logs_and_runs_expire(self) -> None:
        """A forgotten load test does not grow."""
        stack = resolved()
        rules = stack.properties("CodeBucket")["LifecycleConfiguration"]["Rules"]

        assert all("RetentionInDays" in group for group in stack.of_type("AWS::Logs::LogGroup").values())
        assert [("runs/", 30)] == [(rule["Prefix"], rule["ExpirationInDays"]) for rule in rules if "Prefix" in rule]


class TestNetwork:
    def test_master_accepts_workers_only(self) -> None:
        """The web page is reached through the tunnel, which needs no inbound rule."""
        stack = resolved()
        (rule,) = stack.properties("MasterSecurityGroup")["SecurityGroupIngress"]

        assert (5557, 5557, "WorkerSecurityGroup.GroupId") == (
            rule["FromPort"],
            rule["ToPort"],
            rule["SourceSecurityGroupId"],
        )
        assert "SecurityGroupIngress" not in stack.properties("WorkerSecurityGroup")

    def test_endpoints_are_created_as_planned(self) -> None:
        created = resolved(NetworkPlan(True, True, True, True, ("rtb-1", "rtb-2"))).of_type("AWS::EC2::VPCEndpoint")
        services = {one["ServiceName"].rpartition(".")[2]: one["VpcEndpointType"] for one in created.values()}

        assert {"dynamodb": "Gateway", "s3": "Gateway", "ssmmessages": "Interface"} == services
        assert ["rtb-1", "rtb-2"] == created["DynamoDbEndpoint"]["RouteTableIds"]

    def test_no_endpoint_is_created_without_need(self) -> None:
        assert {} == resolved(NetworkPlan(True)).of_type("AWS::EC2::VPCEndpoint")


class TestIam:
    def test_roles_have_the_name_format_and_the_boundary_of_the_limiter(self) -> None:
        iam = {"RoleNamePrefix": "pb-", "RoleNameSuffix": "-x", "PermissionBoundaryName": "team/bounds"}
        roles = resolved(iam=iam).of_type("AWS::IAM::Role").values()

        assert {f"pb-my-app-load-{role}-x" for role in LOAD_ROLES} == {role["RoleName"] for role in roles}
        assert {"arn:aws-cn:iam::123456789012:policy/team/bounds"} == {role["PermissionsBoundary"] for role in roles}

    def test_roles_without_a_boundary_of_the_limiter_have_none(self) -> None:
        assert not any("PermissionsBoundary" in role for role in resolved().of_type("AWS::IAM::Role").values())

    def test_master_and_workers_use_the_policy_of_the_limiter(self) -> None:
        """Their roles themselves allow nothing on the table."""
        stack = resolved()

        assert [POLICY] == stack.properties("WorkerRole")["ManagedPolicyArns"]
        assert [POLICY] == stack.properties("TaskRole")["ManagedPolicyArns"]
        assert "dynamodb:" not in json.dumps([statements(stack, role) for role in ("WorkerRole", "TaskRole")])

    def test_no_role_of_a_load_test_allows_all_actions_of_a_service(self) -> None:
        """Actions are listed one by one. Those on all resources have no resources to name."""
        stack = resolved(build_image=True)
        said = [one for role in stack.of_type("AWS::IAM::Role") for one in statements(stack, role)]
        everywhere = {action for one in said if one["Resource"] == "*" for action in one["Action"]}

        assert [] == [action for one in said for action in one["Action"] if "*" in action]
        assert {"ec2", "ecr", "ssmmessages"} == {action.partition(":")[0] for action in everywhere}

    def test_code_in_a_worker_may_not_change_the_network(self) -> None:
        """The permissions are for Lambda itself, which connects the function to the VPC."""
        allowed, denied = (
            {
                action
                for said in statements(resolved(), "WorkerRole")
                if said["Effect"] == effect
                for action in said["Action"]
            }
            for effect in ("Allow", "Deny")
        )

        assert {action for action in allowed if action.startswith("ec2:")} == denied

    def test_bucket_is_private_encrypted_and_deleted_with_the_stack(self) -> None:
        bucket = resolved().properties("CodeBucket")

        assert {True} == set(bucket["PublicAccessBlockConfiguration"].values())
        assert "BucketEncryption" in bucket
        assert "Delete" == parsed(load_template())["Resources"]["CodeBucket"]["DeletionPolicy"]
