"""The CDK construct makes the same stack as the template, with the aggregator's code in it."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.infra import cdk
from tests.infra.resolved import Resolved
from zae_limiter.core.errors import InvalidNameError
from zae_limiter.infra import tags
from zae_limiter.infra.lambda_package import build_package
from zae_limiter.infra.options import StackOptions, template_parameters

NAME = "my-app"
ROLE = "arn:aws:iam::123456789012:role/mine"
CHOICES = [
    StackOptions(),
    StackOptions(create_iam_roles=True, role_name_format="pb-{}-X", permission_boundary="mine", enable_tracing=True),
    StackOptions(create_iam=False, aggregator_role_arn=ROLE, enable_alarms=False, enable_audit_archival=False),
    StackOptions(enable_aggregator=False, pitr_recovery_days=0, enable_deletion_protection=True, tags={"team": "x"}),
]


@pytest.fixture(autouse=True, scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Make the CDK importable after the packages of the environment.

    Only tests import it, since the import starts node.
    """
    reason = cdk.missing()
    if reason:
        pytest.skip(reason)
    with pytest.MonkeyPatch.context() as changed:
        for name, value in cdk.environment(tmp_path_factory.mktemp("cdk")).items():
            changed.setenv(name, value)
        # cfn-lint checks the template in another test.
        changed.setenv("CDK_VALIDATION", "false")
        changed.setattr(sys, "path", [*sys.path, str(cdk.FOLDER)])
        yield


class Synthesised:
    """A stack with a limiter, as CDK passes it to CloudFormation."""

    def __init__(self, folder: Path, options: StackOptions, name: str = NAME) -> None:
        import aws_cdk

        from zae_limiter.infra.cdk import Limiter

        app = aws_cdk.App(outdir=str(folder))
        self.limiter = Limiter(aws_cdk.Stack(app, name), "Limiter", options=options)
        stack = app.synth().get_stack_by_name(name)
        self.template: dict[str, Any] = stack.template
        self.tags: dict[str, str] = dict(stack.tags)
        self.files = [path.read_bytes() for path in folder.glob("asset.*.zip")]


@pytest.mark.parametrize("options", CHOICES, ids=["default", "roles", "lean", "bare"])
def test_cdk_construct_makes_the_stack_of_the_template(tmp_path: Path, options: StackOptions) -> None:
    """All resources and outputs are equal, except the code, which is an asset."""
    made = Synthesised(tmp_path, options)
    expected = Resolved(NAME, template_parameters(NAME, options))
    found = Resolved(NAME, {}, made.template)

    assert normal(without_code(expected.resources)) == normal(without_code(found.resources))
    assert normal(expected.outputs) == normal(found.outputs)


def test_cdk_construct_deploys_the_package_of_this_installation(tmp_path: Path) -> None:
    made = Synthesised(tmp_path, StackOptions())

    assert [build_package()] == made.files
    code = made.template["Resources"]["AggregatorFunction"]["Properties"]["Code"]
    assert {"S3Bucket", "S3Key"} == set(code)


def test_cdk_construct_without_an_aggregator_has_no_asset(tmp_path: Path) -> None:
    assert [] == Synthesised(tmp_path, StackOptions(enable_aggregator=False)).files


def test_cdk_construct_tags_the_stack_as_a_limiter(tmp_path: Path) -> None:
    """Tags of the user are kept beside them."""
    made = Synthesised(tmp_path, StackOptions(tags={"team": "search"}))

    assert (tags.LIMITER, "search") == (tags.stack_type(NAME, made.tags, ""), made.tags["team"])


def test_cdk_construct_outputs_can_be_used_elsewhere(tmp_path: Path) -> None:
    made = Synthesised(tmp_path, StackOptions(create_iam_roles=True))

    assert isinstance(made.limiter.output("AppRoleArn"), str)


def test_cdk_construct_with_an_invalid_name_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidNameError):
        Synthesised(tmp_path, StackOptions(), "a" * 56)


def without_code(resources: dict[str, Any]) -> dict[str, Any]:
    """Return the resources without the function's code and CDK's own additions."""
    kept = {name: one for name, one in resources.items() if one["Type"] != "AWS::CDK::Metadata"}
    for one in kept.values():
        one.get("Properties", {}).pop("Code", None)
        one.pop("Metadata", None)
        one.pop("Condition", None)
        if isinstance(one.get("DependsOn"), str):
            one["DependsOn"] = [one["DependsOn"]]
    return kept


def normal(value: Any) -> Any:
    """Return the value with numbers and booleans as text, since CDK replaces parameters by text."""
    return json.loads(json.dumps(value, sort_keys=True), parse_int=str)
