"""Select a resource by an option or an argument, or the limits that all resources of an entity share."""

from collections.abc import Callable
from functools import wraps
from typing import Any

import click

from zae_limiter.cli._place import Command
from zae_limiter.core.names import ALL_RESOURCES

_ACROSS = "Select the limits across resources: all resources of an entity share them."


def resource_option(purpose: str, default: str | None) -> Callable[[Command], Command]:
    """Add ``--resource`` and ``--all-resources``; the command takes ``resource``, the default without either."""

    def add(command: Command) -> Command:
        @click.option("--resource", "-r", metavar="RESOURCE", help=purpose)
        @click.option("--all-resources", is_flag=True, help=_ACROSS)
        @wraps(command)
        def with_resource(*, resource: str | None, all_resources: bool, **others: Any) -> None:
            if all_resources and resource is not None:
                raise click.UsageError("pass --resource or --all-resources, not both", click.get_current_context())
            chosen = default if resource is None else resource
            command(resource=ALL_RESOURCES if all_resources else chosen, **others)

        return with_resource

    return add


def resource_argument(command: Command) -> Command:
    """Add ``RESOURCE`` and ``--all-resources``, one of which is required; the command takes ``resource``."""

    @click.argument("resource", metavar="[RESOURCE]", required=False)
    @click.option("--all-resources", is_flag=True, help=_ACROSS)
    @wraps(command)
    def with_resource(*, resource: str | None, all_resources: bool, **others: Any) -> None:
        command(resource=_chosen(resource, all_resources), **others)

    return with_resource


def resource_and_limit_arguments(command: Command) -> Command:
    """Add ``RESOURCE`` or ``--all-resources``, then ``LIMIT``; the command takes ``resource`` and ``limit_name``."""

    @click.argument("names", metavar="[RESOURCE] LIMIT", nargs=-1)
    @click.option("--all-resources", is_flag=True, help=_ACROSS)
    @wraps(command)
    def with_names(*, names: tuple[str, ...], all_resources: bool, **others: Any) -> None:
        context = click.get_current_context()
        *first, limit_name = names or ("",)
        if len(first) > 1:
            raise click.UsageError(f"Got unexpected extra argument {names[2]!r}.", context)
        resource = _chosen(first[0] if first else None, all_resources or not names)
        if not names:
            raise click.UsageError("Missing argument 'LIMIT'.", context)
        command(resource=resource, limit_name=limit_name, **others)

    return with_names


def _chosen(resource: str | None, all_resources: bool) -> str:
    """Return the selected resource.

    Raises:
        click.UsageError: None is selected, or two are.
    """
    if all_resources and resource is not None:
        raise click.UsageError("pass RESOURCE or --all-resources, not both", click.get_current_context())
    if all_resources:
        return ALL_RESOURCES
    if resource is None:
        raise click.UsageError("Missing argument 'RESOURCE'; or pass --all-resources", click.get_current_context())
    return resource
