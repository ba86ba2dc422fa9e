"""Define options that several commands share; each group of options becomes one value."""

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

import click

from zae_limiter.cli._amount_syntax import AMOUNT_FORM, NUMBER_HELP, WrittenAmount, parse_amount, parse_amounts
from zae_limiter.cli._limit_syntax import LIMIT_FORM, parse_limit
from zae_limiter.cli._place import Command, StoreChoice, store_options
from zae_limiter.core.audit import check_principal
from zae_limiter.core.errors import ValidationError
from zae_limiter.core.lazy_dataclass import dataclass
from zae_limiter.core.limit import Limit

V = TypeVar("V")

_PAGE = 100
_LARGEST_PAGE = 10_000


@dataclass(frozen=True, slots=True)
class Changing:
    """The options of a command that changes something: the store, the principal, and the output format."""

    store: StoreChoice
    principal: str | None
    as_json: bool


@dataclass(frozen=True, slots=True)
class PageOptions:
    """A page of a long list: its size and the cursor it starts after. ``everything`` is all that follows."""

    size: int
    cursor: str | None
    everything: bool


@dataclass(frozen=True, slots=True)
class LimitOptions:
    """The entity and resource of a bucket; the stored limits are used if ``limits`` is None."""

    entity_id: str
    resource: str
    limits: list[Limit] | None


@dataclass(frozen=True, slots=True)
class WrittenRequest:
    """What to take from another entity and resource, as it was typed."""

    entity_id: str
    resource: str
    amounts: tuple[WrittenAmount, ...]


def limit_arguments(command: Command) -> Command:
    """Add ``ENTITY RESOURCE`` and ``-l``; the command takes them as ``options``."""

    @click.argument("entity_id", metavar="ENTITY")
    @click.argument("resource", metavar="RESOURCE")
    @limits_option("Limits to use instead of the stored ones.", required=False)
    @wraps(command)
    def with_options(*, entity_id: str, resource: str, limits: tuple[Limit, ...], **others: Any) -> None:
        command(options=LimitOptions(entity_id, resource, list(limits) or None), **others)

    return with_options


def limits_option(purpose: str, *, required: bool) -> Callable[[Command], Command]:
    """Add ``-l``, which may be repeated; the command takes it as ``limits``."""
    help_text = f"{purpose} {NUMBER_HELP} For quotas, slots and options, see Limits below. Repeatable."
    read = reading_each(parse_limit)
    return click.option(
        "--limit", "-l", "limits", callback=read, metavar=LIMIT_FORM, multiple=True, required=required, help=help_text
    )


def consume_option(command: Command) -> Command:
    """Add ``-c``, which may be repeated; the command takes it as ``amounts``."""
    read = reading_each(parse_amount)
    help_text = (
        "Amount to take of a limit, such as rpm:1, tpm:1.5k or spend:0.05usd. Repeatable; all amounts are taken, or "
        "none."
    )
    return click.option(
        "--consume", "-c", "amounts", callback=read, metavar=AMOUNT_FORM, multiple=True, required=True, help=help_text
    )(command)


def also_option(command: Command) -> Command:
    """Add ``--also``, which may be repeated; the command takes it as ``also``."""

    def read(
        ctx: click.Context, param: click.Parameter, values: tuple[tuple[str, str, str], ...]
    ) -> tuple[WrittenRequest, ...]:
        try:
            return tuple(WrittenRequest(entity, resource, parse_amounts(text)) for entity, resource, text in values)
        except ValidationError as error:
            raise click.BadParameter(f"{error.value!r}: {error.reason}", ctx, param) from error

    help_text = "Take these amounts of another entity and resource too, or none at all. -l does not apply. Repeatable."
    return click.option(
        "--also", nargs=3, callback=read, metavar=f"ENTITY RESOURCE {AMOUNT_FORM}[,...]", multiple=True, help=help_text
    )(command)


def changing_options(command: Command) -> Command:
    """Add the options of a command that changes something; the command takes them as ``changing``."""

    @principal_option
    @view_options
    @wraps(command)
    def with_changing(*, store: StoreChoice, principal: str | None, as_json: bool, **others: Any) -> None:
        command(changing=Changing(store, principal, as_json), **others)

    return with_changing


def view_options(command: Command) -> Command:
    """Add the options of a command that shows something; the command takes them as ``as_json`` and ``store``."""
    return json_option(store_options(command))


def page_options(*cursor_options: str) -> Callable[[Command], Command]:
    """Add ``--limit``, ``--cursor``, with further names for it, and ``--all``; the command takes them as ``page``."""

    def add(command: Command) -> Command:
        @click.option(
            "--limit",
            "size",
            type=click.IntRange(1, _LARGEST_PAGE),
            metavar="N",
            help=f"Maximum number to show.  [default: {_PAGE}]",
        )
        @click.option(
            "--cursor",
            *cursor_options,
            "cursor",
            metavar="CURSOR",
            help="Continue after this cursor of an earlier page.",
        )
        @click.option("--all", "everything", is_flag=True, help="Show all.")
        @wraps(command)
        def with_page(*, size: int | None, cursor: str | None, everything: bool, **others: Any) -> None:
            if everything and size is not None:
                raise click.UsageError("pass --limit or --all, not both", click.get_current_context())
            command(page=PageOptions(size or _PAGE, cursor, everything), **others)

        return with_page

    return add


def principal_option(command: Command) -> Command:
    """Add ``--principal``; its default is the name of the user."""
    help_text = "Author of the change, for the audit log.  [default: your user name]"
    return click.option("--principal", metavar="NAME", default=user_name, help=help_text)(command)


def user_name() -> str | None:
    """Return the name of the user who runs the command; None if it is unknown or cannot be recorded."""
    from getpass import getuser

    try:
        name = getuser()
        check_principal(name)
    except (KeyError, ImportError, OSError, ValidationError):
        # A container may run as a user without a name.
        return None
    return name


def pairs_option(flag: str, purpose: str, example: str) -> Callable[[Command], Command]:
    """Add an option of the form KEY=VALUE, which may be repeated; the command takes a dictionary."""

    def read(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
        for value in values:
            if not value.partition("=")[1]:
                raise click.BadParameter(f"{value!r}: must be KEY=VALUE, such as {example}", ctx, param)
        return {key: said for key, _, said in (value.partition("=") for value in values)}

    return click.option(flag, multiple=True, metavar="KEY=VALUE", callback=read, help=purpose)


def wait_option(help_text: str) -> Callable[[Command], Command]:
    """Add ``--wait`` and ``--no-wait`` as ``wait``; the default is to wait."""
    return click.option("--wait/--no-wait", "wait", default=True, show_default=True, help=help_text)


def yes_option(command: Command) -> Command:
    """Add ``--yes``."""
    return click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")(command)


def inherit_option(next_level: str) -> Callable[[Command], Command]:
    """Add ``--inherit``."""
    help_text = f"Limits that are not given here come from {next_level}."
    return click.option("--inherit", is_flag=True, help=help_text)


def json_option(command: Command) -> Command:
    """Add ``--json`` as ``as_json``."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON.")(command)


def reading_each(
    parse: Callable[[str], V],
) -> Callable[[click.Context, click.Parameter, tuple[str, ...]], tuple[V, ...]]:
    """Return a callback that parses every value of an option; an invalid value is a usage error."""

    def read(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> tuple[V, ...]:
        try:
            return tuple(parse(value) for value in values)
        except ValidationError as error:
            raise click.BadParameter(f"{error.value!r}: {error.reason}", ctx, param) from error

    return read
