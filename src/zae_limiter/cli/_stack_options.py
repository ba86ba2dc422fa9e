"""The options of ``deploy``: one for every choice there is about a stack, handed to the command as ``StackOptions``."""

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
    """How a choice is written on the command line; a switch has both its forms."""

    field: str
    form: str
    section: str
    help: str
    metavar: str | None = None


FLAGS = (
    Flag("pitr_recovery_days", "--pitr-recovery-days", TABLE, "Restorable to any second so far back; 0: not.", "DAYS"),
    Flag(
        "enable_deletion_protection",
        "--enable-deletion-protection/--no-deletion-protection",
        TABLE,
        "Whether the table refuses to be deleted.",
    ),
    Flag("snapshot_windows", "--snapshot-windows", USAGE, "Any of hourly, daily, monthly.", "WINDOWS"),
    Flag("usage_retention_days", "--usage-retention-days", USAGE, "How long usage is kept.", "DAYS"),
    Flag("audit_retention_days", "--audit-retention-days", USAGE, "How long audit events are kept.", "DAYS"),
    Flag("enable_audit_archival", "--audit-archival/--no-audit-archival", USAGE, "Whether expired ones go to S3."),
    Flag("audit_archive_glacier_days", "--audit-archive-glacier-days", USAGE, "When they go to Glacier.", "DAYS"),
    Flag("enable_aggregator", "--aggregator/--no-aggregator", FUNCTION, "Whether usage is counted at all."),
    Flag("lambda_timeout", "--lambda-timeout", FUNCTION, "How long a run may take.", "SECONDS"),
    Flag("lambda_memory", "--lambda-memory", FUNCTION, "Its memory.", "MB"),
    Flag("log_retention_days", "--log-retention-days", FUNCTION, "How long its logs are kept.", "DAYS"),
    Flag("enable_tracing", "--enable-tracing/--no-tracing", FUNCTION, "Whether X-Ray traces it."),
    Flag("aggregator_role_arn", "--aggregator-role-arn", FUNCTION, "A role of your own for it.", "ARN"),
    Flag("enable_alarms", "--alarms/--no-alarms", ALARMS, "Whether there are alarms."),
    Flag("alarm_sns_topic", "--alarm-sns-topic", ALARMS, "A topic that they are told to.", "ARN"),
    Flag(
        "lambda_duration_threshold_pct",
        "--lambda-duration-threshold-pct",
        ALARMS,
        "A run that takes more of its timeout alarms.",
        "PERCENT",
    ),
    Flag("create_iam", "--iam/--no-iam", IAM, "Whether any policy or role is made."),
    Flag(
        "create_iam_roles",
        "--create-iam-roles/--no-iam-roles",
        IAM,
        "Whether roles for applications, administrators and readers are.",
    ),
    Flag("permission_boundary", "--permission-boundary", IAM, "A policy that bounds every role.", "NAME|ARN"),
    Flag("role_name_format", "--role-name-format", IAM, "Names of roles, {} for the name.", "FORMAT"),
    Flag("policy_name_format", "--policy-name-format", IAM, "Names of policies, {} for the name.", "FORMAT"),
)


def stack_options(command: Command) -> Command:
    """Add an option for every choice about a stack; the command takes them as ``options``."""

    @wraps(command)
    def with_options(*, tag: dict[str, str], **given: Any) -> None:
        chosen = {flag.field: given.pop(flag.field) for flag in FLAGS}
        command(options=chosen_options({**chosen, "tags": tag}), **given)

    added = pairs_option("--tag", "A tag for all of it. Repeatable.", "team=search")(with_options)
    for flag in reversed(FLAGS):
        added = _option(flag)(added)
    return added


def chosen_options(chosen: dict[str, Any]) -> StackOptions:
    """Return the options that were chosen.

    Raises:
        click.BadParameter: One is out of bounds, or goes badly with another; the text speaks of flags.
    """
    try:
        return StackOptions(**chosen)
    except ValidationError as error:
        context = click.get_current_context(silent=True)
        hint = _flag_of(error.field)
        raise click.BadParameter(f"{error.value!r}: {in_flags(error.reason)}", context, param_hint=hint) from error


def in_flags(reason: str) -> str:
    """Write a reason that speaks of options of ``StackOptions`` in the words of the command line."""
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
