"""Options that several commands share, each group of them handed to the command as one value."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Any, TypeVar

import click

from zae_limiter.cli._limit_syntax import AMOUNT_FORM, LIMIT_FORM, parse_amount, parse_limit
from zae_limiter.cli._place import Command, StoreChoice, store_options
from zae_limiter.core.errors import ValidationError
from zae_limiter.core.limit import Limit

V = TypeVar("V")

_PAGE = 100
_LARGEST_PAGE = 10_000


@dataclass(frozen=True, slots=True)
class Changing:
    """How something is changed: where, by whom, and how what came of it is told."""

    store: StoreChoice
    principal: str | None
    as_json: bool


@dataclass(frozen=True, slots=True)
class PageOptions:
    """A part of a long list: how much of it, and after what; ``everything`` is all that follows."""

    size: int
    cursor: str | None
    everything: bool


@dataclass(frozen=True, slots=True)
class LimitOptions:
    """Whose bucket is asked about; without limits of its own it has those that are stored."""

    entity_id: str
    resource: str
    limits: list[Limit] | None


def asking_arguments(command: Command) -> Command:
    """Add ``ENTITY RESOURCE`` and ``-l``; the command takes them as ``asking``."""

    @click.argument("entity_id", metavar="ENTITY")
    @click.argument("resource", metavar="RESOURCE")
    @limits_option("Limits to use in place of the stored ones.", required=False)
    @wraps(command)
    def with_asking(*, entity_id: str, resource: str, limits: tuple[Limit, ...], **others: Any) -> None:
        command(asking=LimitOptions(entity_id, resource, list(limits) or None), **others)

    return with_asking


def limits_option(purpose: str, *, required: bool) -> Callable[[Command], Command]:
    """Add ``-l``, any number of times, as ``limits``."""
    help_text = f"{purpose} The period is s, min (as when there is none), h or d. Repeatable."
    read = _reading_each(parse_limit)
    return click.option(
        "--limit", "-l", "limits", callback=read, metavar=LIMIT_FORM, multiple=True, required=required, help=help_text
    )


def consume_option(command: Command) -> Command:
    """Add ``-c``, any number of times, as ``amounts``."""
    read = _reading_each(parse_amount)
    help_text = "How much to take of a limit. Repeatable: all are taken, or none."
    return click.option(
        "--consume", "-c", "amounts", callback=read, metavar=AMOUNT_FORM, multiple=True, required=True, help=help_text
    )(command)


def changing_options(command: Command) -> Command:
    """Add the options of whatever changes something; the command takes them as ``changing``."""

    @principal_option
    @json_option
    @store_options
    @wraps(command)
    def with_changing(*, store: StoreChoice, principal: str | None, as_json: bool, **others: Any) -> None:
        command(changing=Changing(store, principal, as_json), **others)

    return with_changing


def page_options(command: Command) -> Command:
    """Add ``--limit``, ``--cursor`` and ``--all``; the command takes them as ``page``."""

    @click.option(
        "--limit",
        "size",
        type=click.IntRange(1, _LARGEST_PAGE),
        metavar="N",
        help=f"How many to show at most; {_PAGE} unless you say.",
    )
    @click.option("--cursor", metavar="CURSOR", help="Where to go on, as the page before it says.")
    @click.option("--all", "everything", is_flag=True, help="Show all that follow, however many.")
    @wraps(command)
    def with_page(*, size: int | None, cursor: str | None, everything: bool, **others: Any) -> None:
        if everything and size is not None:
            raise click.UsageError("give --limit or --all, not both", click.get_current_context())
        command(page=PageOptions(size or _PAGE, cursor, everything), **others)

    return with_page


def principal_option(command: Command) -> Command:
    """Add ``--principal``."""
    return click.option("--principal", metavar="NAME", help="Who makes the change, for the audit log.")(command)


def pairs_option(flag: str, purpose: str, example: str) -> Callable[[Command], Command]:
    """Add an option that is given as KEY=VALUE, any number of times, and taken as a dictionary."""

    def read(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
        for value in values:
            if not value.partition("=")[1]:
                raise click.BadParameter(f"{value!r}: must be KEY=VALUE, such as {example}", ctx, param)
        return {key: said for key, _, said in (value.partition("=") for value in values)}

    return click.option(flag, multiple=True, metavar="KEY=VALUE", callback=read, help=purpose)


def yes_option(command: Command) -> Command:
    """Add ``--yes``."""
    return click.option("--yes", "-y", is_flag=True, help="Do not ask.")(command)


def json_option(command: Command) -> Command:
    """Add ``--json`` as ``as_json``."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON.")(command)


def _reading_each(
    parse: Callable[[str], V],
) -> Callable[[click.Context, click.Parameter, tuple[str, ...]], tuple[V, ...]]:
    """Return a callback that reads every value of an option; what is wrong with one is a usage error."""

    def read(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> tuple[V, ...]:
        try:
            return tuple(parse(value) for value in values)
        except ValidationError as error:
            raise click.BadParameter(f"{error.value!r}: {error.reason}", ctx, param) from error

    return read
