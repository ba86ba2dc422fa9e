"""Options that several commands share, each group of them handed to the command as one value."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Any, TypeVar

import click

from zae_limiter.cli._forms import AMOUNT_FORM, LIMIT_FORM, parse_amount, parse_limit
from zae_limiter.core.errors import ValidationError
from zae_limiter.core.limit import Limit

Command = Callable[..., None]
V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class Asking:
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
        command(asking=Asking(entity_id, resource, list(limits) or None), **others)

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
