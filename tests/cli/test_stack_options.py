"""The options of ``deploy``: every option has a flag, and an invalid value is explained."""

import json
from dataclasses import fields, replace

import click
import pytest

from tests.dynamodb.engines import free_port
from zae_limiter.cli import _stack_options
from zae_limiter.cli._stack_options import FLAGS, in_flags, stack_options
from zae_limiter.infra.options import StackOptions

ROLE = "arn:aws:iam::123456789012:role/mine"
TOPIC = "arn:aws:sns:us-east-1:123456789012:alarms"


def chosen(*arguments):
    """Return the options that a command line results in."""
    heard = []

    @click.command()
    @stack_options
    def listen(options):
        heard.append(options)

    listen(arguments, standalone_mode=False)
    return heard[0]


def test_every_stack_option_has_a_flag():
    """There are no other flags."""
    assert {one.name for one in fields(StackOptions)} == {flag.field for flag in FLAGS} | {"tags"}


def test_deploy_without_flags_uses_the_default_options():
    assert StackOptions() == chosen()


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("--pitr-recovery-days", "7"), {"pitr_recovery_days": 7}),
        (("--enable-deletion-protection",), {"enable_deletion_protection": True}),
        (("--snapshot-windows", "monthly"), {"snapshot_windows": "monthly"}),
        (("--usage-retention-days", "7"), {"usage_retention_days": 7}),
        (("--audit-retention-days", "7"), {"audit_retention_days": 7}),
        (("--no-audit-archival",), {"enable_audit_archival": False}),
        (("--audit-archive-glacier-days", "7"), {"audit_archive_glacier_days": 7}),
        (("--no-aggregator",), {"enable_aggregator": False}),
        (("--lambda-timeout", "30"), {"lambda_timeout": 30}),
        (("--lambda-memory", "512"), {"lambda_memory": 512}),
        (("--log-retention-days", "7"), {"log_retention_days": 7}),
        (("--enable-tracing",), {"enable_tracing": True}),
        (("--no-iam", "--aggregator-role-arn", ROLE), {"create_iam": False, "aggregator_role_arn": ROLE}),
        (("--no-alarms",), {"enable_alarms": False}),
        (("--alarm-sns-topic", TOPIC), {"alarm_sns_topic": TOPIC}),
        (("--lambda-duration-threshold-pct", "50"), {"lambda_duration_threshold_pct": 50}),
        (("--create-iam-roles",), {"create_iam_roles": True}),
        (("--permission-boundary", "mine"), {"permission_boundary": "mine"}),
        (("--role-name-format", "pb-{}"), {"role_name_format": "pb-{}"}),
        (("--policy-name-format", "pb-{}"), {"policy_name_format": "pb-{}"}),
        (("--tag", "team=search", "--tag", "cost=a=b"), {"tags": {"team": "search", "cost": "a=b"}}),
    ],
)
def test_a_deploy_flag_sets_the_option_of_its_name(arguments, expected):
    assert replace(StackOptions(), **expected) == chosen(*arguments)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--lambda-memory", "1"), "--lambda-memory"),
        (("--lambda-memory", "many"), "--lambda-memory"),
        (("--log-retention-days", "2"), "must be one of 1, 3, 5"),
        (("--snapshot-windows", "yearly"), "--snapshot-windows"),
        (("--alarm-sns-topic", "mine"), "must be an ARN such as"),
        (("--tag", "search"), "must be KEY=VALUE"),
        (("--tag", "aws:x=1"), "--tag"),
        (("--no-iam",), "pass --aggregator-role-arn, or pass --no-aggregator"),
        (("--no-iam", "--no-aggregator", "--create-iam-roles"), "with --no-iam; omit one of the two"),
    ],
)
def test_an_invalid_deploy_option_is_explained_with_the_names_of_the_flags(run, arguments, words):
    """One line is printed, and AWS is not called: no server listens at the endpoint."""
    done = run("deploy", "-n", "my-app", "--endpoint-url", f"http://127.0.0.1:{free_port()}", *arguments)

    assert (2, "", 1) == (done.exit_code, done.stdout, done.stderr.count("\n"))
    assert words in done.stderr


def test_flags_replace_only_known_option_names_in_a_message():
    """Other words of the message stay the same."""
    assert "set --no-iam and some_thing=True" == in_flags("set create_iam=False and some_thing=True")


def test_deploy_help_groups_flags_below_headings(run):
    """Headings make the long list readable."""
    printed = run("deploy", "--help").stdout

    assert [] == [flag.section for flag in FLAGS if f"\n{flag.section}:\n" not in printed]
    assert json.dumps(_stack_options.DEFAULTS.snapshot_windows).strip('"') in printed
