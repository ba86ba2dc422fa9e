"""Define the options of a load test stack, check them, and convert them to template parameters. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from zae_limiter.core.errors import StackOperationError, ValidationError
from zae_limiter.core.names import check_stack_name, check_whole_number
from zae_limiter.infra import naming
from zae_limiter.infra.stack_state import StackState

CAPACITY_PROVIDERS = ("FARGATE_SPOT", "FARGATE")
LOAD_ROLES = ("worker", "exec", "task")

_SUFFIX = "-load"
_LONGEST_FUNCTION_NAME = 64
_POLICY = "FullAccessPolicyArn"
_BOUNDS = {
    "max_workers": (1, 1000),
    "users_per_worker": (1, 1000),
    "min_workers": (1, 1000),
    "lambda_timeout_minutes": (1, 15),
    "lambda_memory_mb": (128, 10_240),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadOptions:
    """The options of a load test stack; every option but the network has a default.

    ``dynamodb_endpoint`` also concerns the endpoint for S3: both are free, and workers in a public
    subnet need both. ``build_image`` puts the master's image into a repository of the stack.

    Raises:
        ValidationError: An option is invalid.
    """

    vpc_id: str
    subnet_ids: tuple[str, ...]
    max_workers: int = 100
    users_per_worker: int = 10
    min_workers: int = 1
    lambda_timeout_minutes: int = 5
    lambda_memory_mb: int = 1769
    capacity_provider: str = "FARGATE_SPOT"
    dynamodb_endpoint: bool = True
    ssm_endpoint: bool = False
    build_image: bool = False

    def __post_init__(self) -> None:
        for name, (least, most) in _BOUNDS.items():
            check_whole_number(name, getattr(self, name), least, most)
        if self.min_workers > self.max_workers:
            raise ValidationError("min_workers", self.min_workers, f"must be at most max_workers ({self.max_workers})")
        if self.capacity_provider not in CAPACITY_PROVIDERS:
            reason = f"must be one of {', '.join(CAPACITY_PROVIDERS)}"
            raise ValidationError("capacity_provider", self.capacity_provider, reason)
        if not self.subnet_ids:
            raise ValidationError("subnet_ids", self.subnet_ids, "must name at least one subnet")


@dataclass(frozen=True, slots=True)
class NetworkPlan:
    """What the network of a load test needs: a public address of the master, and endpoints that the VPC lacks.

    ``route_table_ids`` are those of the subnets, for the gateway endpoints. The notes say what the
    operator has to add, because a run would fail without it.
    """

    assign_public_ip: bool
    create_dynamodb_endpoint: bool = False
    create_s3_endpoint: bool = False
    create_ssm_endpoint: bool = False
    route_table_ids: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LimiterUnderTest:
    """What a load test takes over from the limiter's stack: its policy, name formats and permissions boundary."""

    name: str
    policy_arn: str
    iam: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class LoadOutputs:
    """The resources of a deployed load test stack."""

    limiter_name: str
    cluster_name: str
    service_name: str
    task_definition_arn: str
    function_name: str
    bucket_name: str
    worker_role_arn: str
    log_group_name: str
    master_log_group_name: str
    master_security_group_id: str
    worker_security_group_id: str
    subnet_ids: tuple[str, ...]
    max_workers: int
    min_workers: int
    users_per_worker: int
    lambda_timeout_s: int
    assign_public_ip: bool
    image_uri: str | None


def load_stack_name(limiter_name: str) -> str:
    """Return the name of the stack that tests a limiter."""
    return f"{limiter_name}{_SUFFIX}"


def worker_function_name(limiter_name: str) -> str:
    """Return the name of the function whose invocations are workers."""
    return f"{load_stack_name(limiter_name)}-worker"


def limiter_under_test(limiter: StackState) -> LimiterUnderTest:
    """Return what a load test takes over from the stack of its limiter.

    Raises:
        StackOperationError: The limiter has no policies, so workers could not use it.
    """
    if _POLICY not in limiter.outputs:
        reason = "it has no policies for the workers of a load test; deploy it again with create_iam=True"
        raise StackOperationError(limiter.name, reason)
    names = ("RoleNamePrefix", "RoleNameSuffix", "PermissionBoundaryArn", "PermissionBoundaryName")
    iam = {name: limiter.parameters.get(name, "") for name in names}
    return LimiterUnderTest(naming.user_name(limiter.name), limiter.outputs[_POLICY], iam)


def load_parameters(limiter: LimiterUnderTest, options: LoadOptions, network: NetworkPlan) -> dict[str, str]:
    """Return the template parameters of the stack that tests a limiter.

    Raises:
        ValidationError: A name that is derived from the limiter's name is too long.
    """
    _check_names(limiter)
    return {
        "LimiterName": limiter.name,
        "LimiterPolicyArn": limiter.policy_arn,
        "VpcId": options.vpc_id,
        "SubnetIds": ",".join(options.subnet_ids),
        "RouteTableIds": ",".join(network.route_table_ids),
        "AssignPublicIp": "ENABLED" if network.assign_public_ip else "DISABLED",
        "DynamoDbEndpointWanted": _flag(options.dynamodb_endpoint),
        "SsmEndpointWanted": _flag(options.ssm_endpoint),
        "CreateDynamoDbEndpoint": _flag(network.create_dynamodb_endpoint),
        "CreateS3Endpoint": _flag(network.create_s3_endpoint),
        "CreateSsmEndpoint": _flag(network.create_ssm_endpoint),
        "BuildImage": _flag(options.build_image),
        "CapacityProvider": options.capacity_provider,
        "MaxWorkers": str(options.max_workers),
        "MinWorkers": str(options.min_workers),
        "UsersPerWorker": str(options.users_per_worker),
        "LambdaTimeoutSeconds": str(options.lambda_timeout_minutes * 60),
        "LambdaMemory": str(options.lambda_memory_mb),
        **limiter.iam,
    }


def stored_load_options(parameters: Mapping[str, str]) -> dict[str, Any]:
    """Return the options of an existing stack, by field of ``LoadOptions``."""
    return {
        "vpc_id": parameters["VpcId"],
        "subnet_ids": tuple(parameters["SubnetIds"].split(",")),
        "max_workers": int(parameters["MaxWorkers"]),
        "min_workers": int(parameters["MinWorkers"]),
        "users_per_worker": int(parameters["UsersPerWorker"]),
        "lambda_timeout_minutes": int(parameters["LambdaTimeoutSeconds"]) // 60,
        "lambda_memory_mb": int(parameters["LambdaMemory"]),
        "capacity_provider": parameters["CapacityProvider"],
        "dynamodb_endpoint": parameters["DynamoDbEndpointWanted"] == "true",
        "ssm_endpoint": parameters["SsmEndpointWanted"] == "true",
        "build_image": parameters["BuildImage"] == "true",
    }


def outputs_of(state: StackState) -> LoadOutputs:
    """Return the resources of a stack.

    Raises:
        StackOperationError: The stack is incomplete.
    """
    told = state.outputs
    if "ServiceName" not in told:
        reason = f"it is incomplete, in state {state.status}; deploy it again, or delete it"
        raise StackOperationError(state.name, reason)
    return LoadOutputs(
        limiter_name=told["LimiterName"],
        cluster_name=told["ClusterName"],
        service_name=told["ServiceName"],
        task_definition_arn=told["TaskDefinitionArn"],
        function_name=told["FunctionName"],
        bucket_name=told["BucketName"],
        worker_role_arn=told["WorkerRoleArn"],
        log_group_name=told["LogGroupName"],
        master_log_group_name=told["MasterLogGroupName"],
        master_security_group_id=told["MasterSecurityGroupId"],
        worker_security_group_id=told["WorkerSecurityGroupId"],
        subnet_ids=tuple(told["SubnetIds"].split(",")),
        max_workers=int(told["MaxWorkers"]),
        min_workers=int(told["MinWorkers"]),
        users_per_worker=int(told["UsersPerWorker"]),
        lambda_timeout_s=int(told["LambdaTimeoutSeconds"]),
        assign_public_ip=told["AssignPublicIp"] == "ENABLED",
        image_uri=told.get("ImageUri"),
    )


def _check_names(limiter: LimiterUnderTest) -> None:
    """Require names that IAM and Lambda accept."""
    check_stack_name(limiter.name)
    function = worker_function_name(limiter.name)
    if len(function) > _LONGEST_FUNCTION_NAME:
        reason = f"makes the function name {function!r} of {len(function)} characters; Lambda accepts at most 64"
        raise ValidationError("name", limiter.name, reason)
    name_format = f"{limiter.iam.get('RoleNamePrefix', '')}{{}}{limiter.iam.get('RoleNameSuffix', '')}"
    naming.check_role_names(load_stack_name(limiter.name), name_format, LOAD_ROLES)


def _flag(value: bool) -> str:
    return "true" if value else "false"
