"""The options of a load test stack: their bounds, and the way to and from parameters of the template."""

import re
from datetime import UTC, datetime
from typing import Any

import pytest

from tests.loadtest.load_stacks import load_options
from zae_limiter.core.errors import StackOperationError, ValidationError
from zae_limiter.infra.stack_state import StackState
from zae_limiter.loadtest.load_options import (
    LimiterUnderTest,
    LoadOptions,
    NetworkPlan,
    limiter_under_test,
    load_parameters,
    outputs_of,
    stored_load_options,
)

POLICY = "arn:aws:iam::123456789012:policy/my-app-full"


def state(outputs: dict[str, str], parameters: dict[str, str] | None = None, name: str = "my-app") -> StackState:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    return StackState("id", name, "CREATE_COMPLETE", None, parameters or {}, outputs, {}, "", now, None)


@pytest.mark.parametrize(
    ("chosen", "field"),
    [
        ({"max_workers": 0}, "max_workers"),
        ({"max_workers": 1001}, "max_workers"),
        ({"users_per_worker": 0}, "users_per_worker"),
        ({"min_workers": 5, "max_workers": 4}, "min_workers"),
        ({"lambda_timeout_minutes": 16}, "lambda_timeout_minutes"),
        ({"lambda_timeout_minutes": 0}, "lambda_timeout_minutes"),
        ({"lambda_memory_mb": 127}, "lambda_memory_mb"),
        ({"capacity_provider": "EC2"}, "capacity_provider"),
        ({"subnet_ids": ()}, "subnet_ids"),
    ],
)
def test_load_option_out_of_bounds_is_refused_by_its_name(chosen: dict[str, Any], field: str) -> None:
    with pytest.raises(ValidationError) as caught:
        load_options(**chosen)

    assert field == caught.value.field


@pytest.mark.parametrize(
    "options",
    [
        load_options(),
        load_options(
            max_workers=500,
            users_per_worker=20,
            min_workers=2,
            lambda_timeout_minutes=15,
            lambda_memory_mb=3008,
            capacity_provider="FARGATE",
            ssm_endpoint=True,
            build_image=True,
        ),
        load_options(dynamodb_endpoint=False),
    ],
)
def test_stored_load_options_are_those_of_the_deployment(options: LoadOptions) -> None:
    """A later deployment keeps the options that it does not name."""
    gateways = options.dynamodb_endpoint
    network = NetworkPlan(True, gateways, gateways, options.ssm_endpoint, ("rtb-1",))
    parameters = load_parameters(LimiterUnderTest("my-app", POLICY, {}), options, network)

    assert options == LoadOptions(**stored_load_options(parameters))


def test_limiter_under_test_passes_on_its_policy_names_and_boundary() -> None:
    """Parameters of another kind stay with the limiter."""
    found = limiter_under_test(state({"FullAccessPolicyArn": POLICY}, {"RoleNamePrefix": "pb-", "LambdaMemory": "256"}))

    assert ("my-app", POLICY, "pb-") == (found.name, found.policy_arn, found.iam["RoleNamePrefix"])
    assert "LambdaMemory" not in found.iam


def test_limiter_under_test_without_policies_says_what_to_deploy() -> None:
    """Workers could not use it."""
    with pytest.raises(StackOperationError, match="create_iam=True"):
        limiter_under_test(state({}))


@pytest.mark.parametrize(
    ("name", "prefix", "problem"),
    [("n" * 53, "", "Lambda accepts at most 64"), ("my-app", "p" * 50, "IAM accepts at most 64")],
)
def test_load_test_names_that_are_too_long_are_refused(name: str, prefix: str, problem: str) -> None:
    with pytest.raises(ValidationError, match=re.escape(problem)):
        load_parameters(LimiterUnderTest(name, POLICY, {"RoleNamePrefix": prefix}), load_options(), NetworkPlan(True))


def test_outputs_of_an_incomplete_stack_say_what_to_do() -> None:
    with pytest.raises(StackOperationError, match="deploy it again, or delete it"):
        outputs_of(state({}, name="my-app-load"))
