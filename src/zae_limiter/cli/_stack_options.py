"""Define the options of ``deploy``, one for each field of ``StackOptions``."""

import re
from collections.abc import Callable
from functools import partial, wraps
from typing import Any, NamedTuple

import click

from zae_limiter.cli._help import SectionedOption
from zae_limiter.cli._options import pairs_option
from zae_limiter.cli._place import Command
from zae_limiter.core.errors import ValidationError
from zae_limiter.infra.options import StackOptions

DEFAULTS = StackOptions()
TABLE, USAGE, FUNCTION, ALARMS, IAM = "Table", "Usage and audit", "Aggregator", "Alarms", "Roles and policies"


class Flag(NamedTuple):
    """The command-line form of a field; a switch has both its forms."""

    field: str
    form: str
    section: str
    help: str
    metavar: str | None = None


FLAGS = (
    Flag("pitr_recovery_days", "--pitr-recovery-days", TABLE, "Days of point-in-time recovery; 0 disables it.", "DAYS"),
    Flag(
        "enable_deletion_protection",
        "--enable-deletion-protection/--no-deletion-protection",
        TABLE,
        "Protect the table from deletion.",
    ),
    Flag("snapshot_windows", "--snapshot-windows", USAGE, "Usage windows: hourly, daily, monthly.", "WINDOWS"),
    Flag("usage_retention_days", "--usage-retention-days", USAGE, "Days to keep usage.", "DAYS"),
    Flag("audit_retention_days", "--audit-retention-days", USAGE, "Days to keep audit events.", "DAYS"),
    Flag("enable_audit_archival", "--audit-archival/--no-audit-archival", USAGE, "Archive expired events in S3."),
    Flag("audit_archive_glacier_days", "--audit-archive-glacier-days", USAGE, "Days until Glacier.", "DAYS"),
    Flag("enable_aggregator", "--aggregator/--no-aggregator", FUNCTION, "Count usage with a Lambda function."),
    Flag("lambda_timeout", "--lambda-timeout", FUNCTION, "Time limit of a run.", "SECONDS"),
    Flag("lambda_memory", "--lambda-memory", FUNCTION, "Memory of the function.", "MB"),
    Flag("log_retention_days", "--log-retention-days", FUNCTION, "Days to keep its logs.", "DAYS"),
    Flag("enable_tracing", "--enable-tracing/--no-tracing", FUNCTION, "Trace it with X-Ray."),
    Flag("aggregator_role_arn", "--aggregator-role-arn", FUNCTION, "Existing role for it.", "ARN"),
    Flag("enable_alarms", "--alarms/--no-alarms", ALARMS, "Create CloudWatch alarms."),
    Flag("alarm_sns_topic", "--alarm-sns-topic", ALARMS, "Topic that alarms notify.", "ARN"),
    Flag(
        "lambda_duration_threshold_pct",
        "--lambda-duration-threshold-pct",
        ALARMS,
        "Alarm if a run takes more of its timeout.",
        "PERCENT",
    ),
    Flag("create_iam", "--iam/--no-iam", IAM, "Create policies and roles."),
    Flag(
        "create_iam_roles",
        "--create-iam-roles/--no-iam-roles",
        IAM,
        "Create roles for applications, administrators and readers.",
    ),
    Flag("permission_boundary", "--permission-boundary", IAM, "Permissions boundary of every role.", "NAME|ARN"),
    Flag("role_name_format", "--role-name-format", IAM, "Format of role names; {} is the name.", "FORMAT"),
    Flag("policy_name_format", "--policy-name-format", IAM, "Format of policy names; {} is the name.", "FORMAT"),
)


def stack_options(command: Command) -> Command:
    """Add an option for each field of ``StackOptions``; the command takes them as ``options``."""

    @wraps(command)
    def with_options(*, tag: dict[str, str], **given: Any) -> None:
        chosen = {flag.field: given.pop(flag.field) for flag in FLAGS}
        command(options=chosen_options({**chosen, "tags": tag}), **given)

    added = pairs_option("--tag", "Tag of all resources. Repeatable.", "team=search")(with_options)
    for flag in reversed(FLAGS):
        added = _option(flag)(added)
    return added


def chosen_options(chosen: dict[str, Any]) -> StackOptions:
    """Return the chosen options.

    Raises:
        click.BadParameter: An option is invalid or conflicts with another; the message uses option names.
    """
    try:
        return StackOptions(**chosen)
    except ValidationError as error:
        context = click.get_current_context(silent=True)
        hint = _flag_of(error.field)
        raise click.BadParameter(f"{error.value!r}: {in_flags(error.reason)}", context, param_hint=hint) from error


def in_flags(reason: str) -> str:
    """Replace field names of ``StackOptions`` in a message by the options of the command line."""
    return re.sub(r"\b([a-z]+(?:_[a-z]+)+)(?:=(True|False))?", _in_flags, reason)


def _in_flags(found: re.Match[str]) -> str:
    known = {flag.field: flag.form for flag in FLAGS}
    if found[1] not in known:
        return found[0]
    on, _, off = known[found[1]].partition("/")
    return off if found[2] == "False" else on


def _flag_of(field: str) -> str:
    known = {flag.field: flag.form for flag in FLAGS}
    return known.get(field, "--tag")


def _option(flag: Flag) -> Callable[[Command], Command]:
    default = getattr(DEFAULTS, flag.field)
    make = partial(click.option, flag.form, flag.field, cls=SectionedOption, section=flag.section, help=flag.help)
    added: Callable[[Command], Command] = make(
        default=default,
        show_default=default is not None,
        metavar=flag.metavar,
        type=str if default is None else type(default),
    )
    return added
