"""Parameters, conditions, outputs, IAM actions and audit events on the infrastructure pages exist."""

import ast
import gzip
import json
import re
from dataclasses import fields
from typing import Any

import botocore.session
import pytest
from botocore import xform_name

from tests.docs.operator_pages import DOCS, rows, text
from tests.infra.resolved import Resolved, parsed
from zae_limiter.core.audit import AuditAction, AuditEvent
from zae_limiter.infra.options import StackOptions, template_parameters
from zae_limiter_aggregator.archive import object_of
from zae_limiter_aggregator.records import ExpiredEvent

STACK = Resolved("my-app", template_parameters("my-app", StackOptions(create_iam_roles=True)))
SRC = DOCS.parent / "src"
PARAMETERS = rows("infra/cloudformation.md", "## Parameters")
TOPIC = "arn:aws:sns:us-east-1:123456789012:warnings"
OTHER_CHOICES: dict[str, Any] = {
    "snapshot_windows": "monthly",
    "alarm_sns_topic": "arn:aws:sns:us-east-1:123456789012:alarms",
    "warning_sns_topic": TOPIC,
    "aggregator_role_arn": "arn:aws:iam::123456789012:role/mine",
    "role_name_format": "a{}z",
    "policy_name_format": "a{}z",
}
BOUNDARIES = {
    "PermissionBoundaryArn": "arn:aws:iam::aws:policy/PowerUserAccess",
    "PermissionBoundaryName": "PowerUserAccess",
}


def other_choice(option: str, parameter: str) -> Any:
    """Return a value that an operator may choose instead of the default."""
    default = getattr(StackOptions(), option)
    if option == "permission_boundary":
        return BOUNDARIES[parameter]
    if option in OTHER_CHOICES:
        return OTHER_CHOICES[option]
    if isinstance(default, bool):
        return not default
    # Within the bounds of all: megabytes have other bounds than days, seconds and percent.
    return 512 if option == "lambda_memory" else 14


class TestTemplate:
    """The page on CloudFormation describes the template."""

    def test_every_parameter_is_on_the_page_with_its_default(self) -> None:
        """The table has exactly the parameters of the template."""
        documented = {name: cells[1] for name, cells in PARAMETERS.items()}
        template = parsed()["Parameters"]
        defaults = {name: f"`{one['Default']}`" if str(one["Default"]) else "(empty)" for name, one in template.items()}

        assert defaults == documented

    @pytest.mark.parametrize("parameter", PARAMETERS)
    def test_parameter_changes_with_the_option_beside_it(self, parameter: str) -> None:
        """Another choice of the option is another value of the parameter."""
        option = PARAMETERS[parameter][0].strip("`")
        # Without IAM the aggregator needs a role.
        role = {} if option != "create_iam" else {"aggregator_role_arn": OTHER_CHOICES["aggregator_role_arn"]}
        chosen = StackOptions(**{**role, option: other_choice(option, parameter)})
        before = template_parameters("my-app", StackOptions())

        assert template_parameters("my-app", chosen)[parameter] != before[parameter]

    def test_every_bound_of_a_number_is_on_the_page(self) -> None:
        """As "least to most"."""
        documented = {name: cells[2] for name, cells in PARAMETERS.items()}
        for name, one in parsed()["Parameters"].items():
            if "MaxValue" in one:
                assert documented[name].startswith(f"{one['MinValue']} to {one['MaxValue']}")

    def test_every_condition_is_on_the_page_with_its_resources(self) -> None:
        """The table has exactly the conditions of the template."""
        documented = rows("infra/cloudformation.md", "## Conditions")
        makes: dict[str, set[str]] = {name: set() for name in parsed()["Conditions"]}
        for logical_id, resource in parsed()["Resources"].items():
            if "Condition" in resource:
                makes[resource["Condition"]].add(logical_id)

        assert makes == {name: set(re.findall(r"`(\w+)`", cells[1])) for name, cells in documented.items()}

    def test_every_output_is_on_the_page_with_its_condition(self) -> None:
        """No output is exported."""
        documented = {
            name: cells[0].strip("`") for name, cells in rows("infra/cloudformation.md", "## Outputs").items()
        }

        assert {name: one.get("Condition", "always") for name, one in parsed()["Outputs"].items()} == documented
        assert all("Export" not in one for one in parsed()["Outputs"].values())

    def test_rule_of_the_template_is_on_the_page(self) -> None:
        """By its name."""
        (rule,) = parsed()["Rules"]

        assert f"`{rule}`" in text("infra/cloudformation.md")

    def test_actions_of_the_aggregator_role_are_on_the_page(self) -> None:
        """A custom role needs what the template's role has."""
        heading = "### A role of your own for the aggregator"
        documented = {
            name: set(re.findall(r"`(.+?)`", cells[0]))
            for name, cells in rows("infra/cloudformation.md", heading).items()
        }
        role = Resolved(
            "my-app", template_parameters("my-app", StackOptions(enable_tracing=True, warning_sns_topic=TOPIC))
        )
        policies = role.properties("AggregatorRole")["Policies"]
        given = [statement for policy in policies for statement in policy["PolicyDocument"]["Statement"]]

        assert {one["Sid"]: set(one["Action"]) for one in given} == documented

    def test_indexes_of_the_table_have_keys_only(self) -> None:
        """The page says so, and why."""
        indexes = STACK.properties("Table")["GlobalSecondaryIndexes"]

        assert {"KEYS_ONLY"} == {one["Projection"]["ProjectionType"] for one in indexes}


class TestAudit:
    """The page on auditing describes the audit."""

    def test_every_audit_action_is_on_the_page(self) -> None:
        """The table has exactly the actions of the code."""
        assert {action.value for action in AuditAction} == rows("infra/auditing.md", "## What is recorded").keys()

    def test_line_of_the_archive_is_as_shown(self) -> None:
        """With the fields of an archived event, in their order."""
        (shown,) = re.findall(r"```json\n(.*?)\n```", text("infra/auditing.md"), re.DOTALL)
        event = AuditEvent(**{name: value for name, value in json.loads(shown).items() if name != "namespace_id"})
        made = object_of([ExpiredEvent("a7x3kq00000", "100", 1_794_811_187_000, event)])

        assert f"{shown}\n" == gzip.decompress(made.body).decode()
        assert "audit/year=2026/month=11/day=16/100-100.jsonl.gz" == made.key

    def test_athena_table_has_the_fields_of_a_line(self) -> None:
        """The page's statement creates exactly these columns."""
        (columns,) = re.findall(r"CREATE EXTERNAL TABLE \w+ \((.*?)\)\n", text("infra/auditing.md"), re.DOTALL)

        assert {"namespace_id", *(one.name for one in fields(AuditEvent))} == set(
            re.findall(r"`?(\w+)`? string", columns)
        )


class TestProduction:
    """The page on production describes policies, encryption and billing."""

    PAGE = text("infra/production.md")

    def test_actions_of_the_application_policy_are_on_the_page(self) -> None:
        """With their conditions on keys."""
        documented = rows("infra/production.md", "### What an application may do")
        given = STACK.properties("AcquireOnlyPolicy")["PolicyDocument"]["Statement"]
        reads, writes = given

        assert {action for one in given for action in one["Action"]} == documented.keys()
        assert {
            action for action, cells in documented.items() if "key is that of a bucket, `*/BUCKET#*`" in cells[0]
        } == set(writes["Action"])
        assert ["*/BUCKET#*"] == writes["Condition"]["ForAllValues:StringLike"]["dynamodb:LeadingKeys"]
        for pattern in reads["Condition"]["ForAllValues:StringLike"]["dynamodb:LeadingKeys"]:
            assert f"`{pattern}`" in documented["dynamodb:GetItem"][0]

    def test_namespace_policies_use_the_tag_that_the_page_names(self) -> None:
        """The tag isolates tenants."""
        for policy in ("NamespaceAcquirePolicy", "NamespaceFullAccessPolicy", "NamespaceReadOnlyPolicy"):
            assert "${aws:PrincipalTag/zael_namespace_id}/" in json.dumps(STACK.properties(policy))
        assert "`zael_namespace_id`" in self.PAGE

    @pytest.mark.parametrize("service", ["cloudformation", "lambda", "dynamodb"])
    def test_deploy_permissions_on_the_page_are_those_that_the_code_needs(self, service: str) -> None:
        """Every call and every waiter of a client in infra, no more."""
        table = self.PAGE.partition("### Permissions for deploying")[2].partition("\nCloudFormation creates")[0]

        assert asked_of(service) == set(re.findall(rf"`{service}:(\w+)`", table))

    def test_encryption_is_as_the_page_says(self) -> None:
        """By the services' own keys, and the archive over TLS only."""
        assert "SSESpecification" not in STACK.properties("Table")
        assert STACK.properties("AggregatorDeadLetterQueue")["SqsManagedSseEnabled"]
        assert "AES256" in json.dumps(STACK.properties("ArchiveBucket")["BucketEncryption"])
        assert "aws:SecureTransport" in json.dumps(STACK.properties("ArchiveBucketPolicy"))

    def test_table_is_billed_per_request(self) -> None:
        """As the page says."""
        assert "PAY_PER_REQUEST" == STACK.properties("Table")["BillingMode"]


def asked_of(service: str) -> set[str]:
    """Return the calls of a service that code in infra makes, directly or by waiting."""
    session = botocore.session.Session()
    calls = {xform_name(name): name for name in session.get_service_model(service).operation_names}
    waiters = session.get_waiter_model(service)
    calls |= {xform_name(name): waiters.get_waiter(name).operation for name in waiters.waiter_names}
    found: set[str] = set()
    for path in sorted((SRC / "zae_limiter" / "infra").glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            # Paginators use the name of the call.
            name = node.attr if isinstance(node, ast.Attribute) else getattr(node, "value", None)
            if isinstance(name, str) and name in calls:
                found.add(calls[name])
    return found
