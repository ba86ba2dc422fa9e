"""Define the options of ``deploy``, one for each field of ``StackOptions``."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial, wraps
from typing import Any, NamedTuple

import click

from zae_limiter.cli._help import SectionedOption
from zae_limiter.cli._options import pairs_option
from zae_limiter.cli._place import Command
from zae_limiter.core.errors import StackOperationError, ValidationError
from zae_limiter.infra.given_options import GivenOptions
from zae_limiter.infra.options import StackOptions

DEFAULTS = StackOptions()
TABLE, USAGE, FUNCTION, ALARMS, IAM = "Table", "Usage and audit", "Aggregator", "Alarms", "Roles and policies"


class Flag(NamedTuple):
    """The command-line form of a field; a switch has both its forms. The aliases are other forms of it.

    ``named`` is the field if its name differs from that of the form.
    """

    form: str
    section: str
    help: str
    metavar: str | None = None
    aliases: tuple[str, ...] = ()
    named: str | None = None

    @property
    def field(self) -> str:
        """The field of the options: ``lambda_memory`` for ``--lambda-memory``."""
        return self.named or self.form.partition("/")[0].removeprefix("--").replace("-", "_")


FLAGS = (
    Flag("--pitr-recovery-days", TABLE, "Days of point-in-time recovery; 0 disables it.", "DAYS"),
    Flag("--enable-deletion-protection/--no-deletion-protection", TABLE, "Protect the table from deletion."),
    Flag("--snapshot-windows", USAGE, "Usage windows: hourly, daily, monthly.", "WINDOWS"),
    Flag("--usage-interval-seconds", USAGE, "Count usage about this often; 0 counts it every 2 s.", "SECONDS"),
    Flag("--usage-retention-days", USAGE, "Days to keep usage.", "DAYS"),
    Flag("--audit-retention-days", USAGE, "Days to keep audit events.", "DAYS"),
    Flag(
        "--enable-audit-archival/--no-audit-archival",
        USAGE,
        "Archive expired events in S3.",
        aliases=("--audit-archival",),
    ),
    Flag("--audit-archive-glacier-days", USAGE, "Days until archived events move to Glacier.", "DAYS"),
    Flag(
        "--enable-aggregator/--no-aggregator",
        FUNCTION,
        "Count usage with a Lambda function.",
        aliases=("--aggregator",),
    ),
    Flag("--lambda-timeout", FUNCTION, "Time limit of a run.", "SECONDS"),
    Flag("--lambda-memory", FUNCTION, "Memory of the function.", "MB"),
    Flag("--log-retention-days", FUNCTION, "Days to keep its logs.", "DAYS"),
    Flag("--enable-tracing/--no-tracing", FUNCTION, "Trace it with X-Ray."),
    Flag("--aggregator-role-arn", FUNCTION, "Existing role to use; empty for none.", "ARN"),
    Flag("--enable-alarms/--no-alarms", ALARMS, "Create CloudWatch alarms.", aliases=("--alarms",)),
    Flag("--alarm-sns-topic", ALARMS, "Topic that alarms notify; empty for none.", "ARN"),
    Flag(
        "--lambda-duration-threshold-pct",
        ALARMS,
        "Alarm if a run takes more than this percentage of its timeout.",
        "PERCENT",
    ),
    Flag(
        "--iam/--no-iam",
        IAM,
        "Create policies and roles. --no-iam alone also turns the aggregator off, unless it has --aggregator-role-arn.",
        aliases=("--enable-iam",),
        named="create_iam",
    ),
    Flag(
        "--create-iam-roles/--no-iam-roles",
        IAM,
        "Create roles for applications, administrators and readers.",
        aliases=("--enable-iam-roles/--no-create-iam-roles",),
    ),
    Flag("--permission-boundary", IAM, "Permissions boundary of every role; empty for none.", "NAME|ARN"),
    Flag("--role-name-format", IAM, "Format of role names; {} is the name.", "FORMAT"),
    Flag("--policy-name-format", IAM, "Format of policy names; {} is the name.", "FORMAT"),
)


def stack_options(command: Command) -> Command:
    """Add an option for each field of ``StackOptions``, and ``--reset-options``, as ``given``."""

    @click.option("--reset-options", is_flag=True, help="Restore the default of every option that you omit.")
    @pairs_option("--tag", "Tag of all resources. Repeatable; replaces all tags.", "team=search")
    @click.option("--no-tags", is_flag=True, help="Remove all tags.")
    @wraps(command)
    def with_options(*, reset_options: bool, tag: dict[str, str], no_tags: bool, **others: Any) -> None:
        if tag and no_tags:
            raise click.UsageError("pass --tag or --no-tags, not both", click.get_current_context())
        values = {flag.field: others.pop(flag.field) for flag in FLAGS}
        chosen = {field: _without_empty(field, value) for field, value in values.items() if value is not None}
        given = GivenOptions(chosen | ({"tags": tag} if tag or no_tags else {}), reset_options)
        with explained_in_flags():
            given.check()
        command(given=given, **others)

    added: Command = with_options
    for flag in reversed(FLAGS):
        added = flag_option(flag, getattr(DEFAULTS, flag.field))(added)
    return added


@contextmanager
def explained_in_flags(flags: Sequence[Flag] = FLAGS) -> Iterator[None]:
    """Report an option that is invalid or cannot be applied, with the names of the command line.

    Raises:
        click.BadParameter: An option is invalid, or contradicts another one.
        StackOperationError: As raised inside.
    """
    try:
        yield
    except ValidationError as error:
        hint = _flag_of(error.field, flags)
        if hint is None:
            raise
        context = click.get_current_context(silent=True)
        said = in_flags(error.reason, flags)
        raise click.BadParameter(f"{error.value!r}: {said}", context, param_hint=hint) from error
    except StackOperationError as error:
        raise type(error)(error.stack_name, in_flags(error.reason, flags), error.events) from error


def in_flags(reason: str, flags: Sequence[Flag] = FLAGS) -> str:
    """Replace field names of options in a message by the options of the command line."""
    reset = reason.replace("stack_options(StackOptions())", "--reset-options")
    known = {flag.field: flag.form for flag in flags}
    return re.sub(r"\b([a-z]+(?:_[a-z]+)+)(?:=(True|False))?", lambda found: _in_flags(found, known), reset)


def shown_option(field: str) -> str:
    """Return the name of an option for people: ``--lambda-memory``."""
    return (_flag_of(field) or field).partition("/")[0]


def shown_value(value: object) -> str:
    """Return the value of an option for people."""
    if isinstance(value, Mapping):
        return ",".join(f"{key}={said}" for key, said in sorted(value.items())) or "none"
    if isinstance(value, bool):
        return "on" if value else "off"
    return "none" if value is None else str(value)


def _without_empty(field: str, value: Any) -> Any:
    """Return a value, None for an empty text, which removes an option without a default."""
    return None if value == "" and getattr(DEFAULTS, field) is None else value


def _in_flags(found: re.Match[str], known: Mapping[str, str]) -> str:
    if found[1] not in known:
        return found[0]
    on, _, off = known[found[1]].partition("/")
    return off if found[2] == "False" else on


def _flag_of(field: str, flags: Sequence[Flag] = FLAGS) -> str | None:
    """Return the form of a field, None if it is no option of a stack."""
    known = {flag.field: flag.form for flag in flags} | dict.fromkeys(("tags", "tag", "tag key", "tag value"), "--tag")
    return known.get(field)


def flag_option(flag: Flag, default: object) -> Callable[[Command], Command]:
    """Return the option of a field; it is None unless it is given, and the help shows the default."""
    shown = "" if default is None else f"  [default: {shown_value(default)}]"
    make = partial(click.option, flag.form, *flag.aliases, flag.field, cls=SectionedOption, section=flag.section)
    added: Callable[[Command], Command] = make(
        default=None, help=f"{flag.help}{shown}", metavar=flag.metavar, type=str if default is None else type(default)
    )
    return added
