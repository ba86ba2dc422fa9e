"""The options of ``deploy``: every option has a flag, and an invalid value is explained."""

import json
from dataclasses import fields

import click
import pytest

from tests.dynamodb.engines import free_port
from zae_limiter.cli import _stack_options
from zae_limiter.cli._stack_options import FLAGS, in_flags, stack_options
from zae_limiter.infra.given_options import KEEP_ALL, GivenOptions
from zae_limiter.infra.options import StackOptions

ROLE = "arn:aws:iam::123456789012:role/mine"
TOPIC = "arn:aws:sns:us-east-1:123456789012:alarms"


def chosen(*arguments):
    """Return the options that a command line results in."""
    heard = []

    @click.command()
    @stack_options
    def listen(given):
        heard.append(given)

    listen(arguments, standalone_mode=False)
    return heard[0]


def test_every_stack_option_has_a_flag():
    """There are no other flags."""
    assert {one.name for one in fields(StackOptions)} == {flag.field for flag in FLAGS} | {"tags"}


def test_deploy_without_flags_gives_no_option():
    """So an existing stack keeps all its options, and a new one has the defaults."""
    assert KEEP_ALL == chosen()
    assert GivenOptions(reset=True) == chosen("--reset-options")


@pytest.mark.parametrize("field", [one.name for one in fields(StackOptions) if one.type is bool])
def test_every_switch_of_deploy_can_be_turned_on_and_off(field):
    """Both forms, and all aliases, set the field of the switch."""
    (flag,) = [flag for flag in FLAGS if flag.field == field]
    forms = [form.partition("/") for form in (flag.form, *flag.aliases)]
    role = ("--aggregator-role-arn", ROLE)

    assert [True] * len(forms) == [chosen(on).chosen[field] for on, _, _ in forms]
    assert {False} == {chosen(off, *role).chosen[field] for _, _, off in forms if off}


@pytest.mark.parametrize(
    "form",
    [
        *("--enable-aggregator", "--aggregator", "--no-aggregator", "--enable-alarms", "--alarms", "--no-alarms"),
        *("--enable-audit-archival", "--audit-archival", "--no-audit-archival", "--enable-tracing", "--no-tracing"),
        *("--enable-deletion-protection", "--no-deletion-protection", "--iam", "--no-iam"),
        *("--create-iam-roles", "--no-iam-roles", "--no-create-iam-roles"),
    ],
)
def test_deploy_knows_the_switches_of_the_specification_and_of_earlier_versions(form):
    """Commands that were written for them still run."""
    assert 1 == len(chosen(form).chosen)


@pytest.mark.parametrize("flag", ["--alarm-sns-topic", "--aggregator-role-arn", "--permission-boundary"])
def test_an_empty_value_removes_an_option_without_a_default(flag):
    """Otherwise it could only be removed by a reset."""
    assert [None] == list(chosen(flag, "").chosen.values())


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("--pitr-recovery-days", "7"), {"pitr_recovery_days": 7}),
        (("--enable-deletion-protection",), {"enable_deletion_protection": True}),
        (("--snapshot-windows", "monthly"), {"snapshot_windows": "monthly"}),
        (("--usage-interval-seconds", "10"), {"usage_interval_seconds": 10}),
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
        (("--warning-sns-topic", TOPIC), {"warning_sns_topic": TOPIC}),
        (("--lambda-duration-threshold-pct", "50"), {"lambda_duration_threshold_pct": 50}),
        (("--create-iam-roles",), {"create_iam_roles": True}),
        (("--permission-boundary", "mine"), {"permission_boundary": "mine"}),
        (("--role-name-format", "pb-{}"), {"role_name_format": "pb-{}"}),
        (("--policy-name-format", "pb-{}"), {"policy_name_format": "pb-{}"}),
        (("--tag", "team=search", "--tag", "cost=a=b"), {"tags": {"team": "search", "cost": "a=b"}}),
        (("--no-tags",), {"tags": {}}),
    ],
)
def test_a_deploy_flag_sets_the_option_of_its_name(arguments, expected):
    assert GivenOptions(expected) == chosen(*arguments)


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
        (
            ("--no-iam", "--enable-aggregator", "--reset-options"),
            "pass --aggregator-role-arn, --iam or --no-aggregator",
        ),
        (("--no-iam", "--create-iam-roles"), "roles need --iam: pass it, or pass --no-iam-roles"),
        (("--tag", "a=b", "--no-tags"), "pass --tag or --no-tags, not both"),
    ],
)
def test_an_invalid_deploy_option_is_explained_with_the_names_of_the_flags(run, arguments, words):
    """One line is printed, and AWS is not called: no server listens at the endpoint."""
    done = run("deploy", "-n", "my-app", "--endpoint-url", f"http://127.0.0.1:{free_port()}", *arguments)

    assert (2, "", 1) == (done.exit_code, done.stdout, done.stderr.count("\n"))
    assert words in done.stderr


def test_flags_replace_only_known_option_names_in_a_message():
    """Other words of the message stay the same."""
    assert "or pass --reset-options" == in_flags("or pass stack_options(StackOptions())")
    assert "set --no-iam and some_thing=True" == in_flags("set create_iam=False and some_thing=True")


def test_deploy_help_groups_flags_below_headings(run):
    """Headings make the long list readable."""
    printed = run("deploy", "--help").stdout

    assert [] == [flag.section for flag in FLAGS if f"\n{flag.section}:\n" not in printed]
    assert json.dumps(_stack_options.DEFAULTS.snapshot_windows).strip('"') in printed
