"""Define ``zae-limiter system``: manage the limits that apply by default."""

from collections.abc import Sequence

import click

from zae_limiter.cli._confirm import require_consent
from zae_limiter.cli._dropping import confirm_dropped, of_system
from zae_limiter.cli._groups import CommandGroup
from zae_limiter.cli._help import examples, help_of, json_shape
from zae_limiter.cli._hints import calling
from zae_limiter.cli._limit_syntax import FORMS
from zae_limiter.cli._limit_words import LIMIT_KEYS, limit_facts, limits_grid
from zae_limiter.cli._options import Changing, changing_options, limits_option, view_options, yes_option
from zae_limiter.cli._output import print_grid, print_json, print_line, print_note
from zae_limiter.cli._place import StoreChoice
from zae_limiter.cli._store import opened
from zae_limiter.core.limit import Limit
from zae_limiter.core.status import OnUnavailable

SETTING = (
    "zae-limiter system set-defaults -l rpm:1000 -l tpm:100000",
    "zae-limiter system set-defaults -l rpm:1000 -l spend:500usd/month@Europe/Berlin:warn=0.8,1",
    "zae-limiter system set-defaults -l rps:50/s:burst=200 --on-unavailable allow --principal ops",
)
GETTING = "zae-limiter system get-defaults --json"
DELETING = "zae-limiter system delete-defaults --yes"
SHAPE = json_shape("{limits: [LIMIT], on_unavailable: allow, block or null}", *LIMIT_KEYS)


@click.group(
    cls=CommandGroup, short_help="Manage the limits that apply by default.", epilog=examples(SETTING[0], GETTING)
)
def system() -> None:
    """Manage the limits of entities and resources without their own, and the policy for an unavailable store."""


@system.command("set-defaults", short_help="Set the default limits.", epilog=help_of(examples(*SETTING), FORMS, SHAPE))
@limits_option("Limits to set; they replace those that are stored here.", required=True)
@click.option(
    "--on-unavailable",
    type=click.Choice([choice.value for choice in OnUnavailable]),
    help="Policy for requests while the store is unavailable. Unchanged if omitted.",
)
@yes_option
@changing_options
def set_defaults(limits: tuple[Limit, ...], on_unavailable: str | None, yes: bool, changing: Changing) -> None:
    """Set the limits of entities and resources without their own limits.

    If a limit in force would be removed, the command names it and asks for confirmation.
    """
    with opened(changing.store, create=True) as limiter:
        if not yes:
            confirm_dropped(of_system(limiter), limits, whose="all entities without their own limits")
        limiter.set_system_defaults(list(limits), on_unavailable, changing.principal)
        stored, choice = limiter.get_system_defaults()
    print_defaults(stored, choice, changing.as_json)


@system.command("get-defaults", short_help="Show the default limits.", epilog=help_of(examples(GETTING), SHAPE))
@view_options
def get_defaults(as_json: bool, store: StoreChoice) -> None:
    """Show the limits of entities and resources without their own limits."""
    with opened(store) as limiter:
        stored, choice = limiter.get_system_defaults()
    print_defaults(stored, choice, as_json)


@system.command(
    "delete-defaults",
    short_help="Delete the default limits.",
    epilog=help_of(examples(DELETING), json_shape("{deleted: whether defaults existed}")),
)
@yes_option
@changing_options
def delete_defaults(yes: bool, changing: Changing) -> None:
    """Delete the system defaults: the limits, and the policy for an unavailable store."""
    with opened(changing.store) as limiter:
        stored, choice = limiter.get_system_defaults()
        is_there = bool(stored) or choice is not None
        if is_there and not yes:
            require_consent(f"Delete the system defaults in namespace {changing.store.namespace}?")
        limiter.delete_system_defaults(changing.principal)
    if changing.as_json:
        print_json({"deleted": is_there})
    else:
        print_line("Deleted the system defaults." if is_there else "There are no system defaults; nothing was deleted.")


def print_defaults(limits: Sequence[Limit], choice: OnUnavailable | None, as_json: bool) -> None:
    """Print limits, and the policy for an unavailable store."""
    if as_json:
        print_json({"limits": limit_facts(limits), "on_unavailable": choice})
        return
    if not limits:
        print_note(f"There are no system defaults. Set some: {calling('system set-defaults -l rpm:1000')}")
        return
    print_grid(limits_grid(limits))
    if choice is not None:
        click.echo(f"If the store is unavailable: {choice}")
