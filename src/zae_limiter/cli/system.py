"""``zae-limiter system``: the limits of everyone who has no others."""

from collections.abc import Sequence

import click

from zae_limiter.cli._forms import describe_refill
from zae_limiter.cli._help import examples
from zae_limiter.cli._hints import calling
from zae_limiter.cli._options import json_option, limits_option
from zae_limiter.cli._output import Column, Grid, print_grid, print_json, print_note
from zae_limiter.cli._place import StoreChoice, store_options
from zae_limiter.cli._store import opened
from zae_limiter.core.limit import Limit
from zae_limiter.core.status import OnUnavailable

COLUMNS = [Column("limit"), Column("capacity", True), Column("refill")]


SETTING = (
    "zae-limiter system set-defaults -l rpm:1000 -l tpm:100000",
    "zae-limiter system set-defaults -l rps:50/s:burst=200 --on-unavailable allow --principal ops",
)
GETTING = "zae-limiter system get-defaults --json"


@click.group(short_help="Limits of everyone who has no others.", epilog=examples(SETTING[0], GETTING))
def system() -> None:
    """Limits of every entity and resource that has no others, and what to do while the store is away."""


@system.command("set-defaults", short_help="Store the limits.", epilog=examples(*SETTING))
@limits_option("Limits to store; they replace those stored before.", required=True)
@click.option(
    "--on-unavailable",
    type=click.Choice([choice.value for choice in OnUnavailable]),
    help="Let calls through, or not, while the store is away. Left as it is if not given.",
)
@click.option("--principal", metavar="NAME", help="Who makes the change, for the audit log.")
@json_option
@store_options
def set_defaults(
    limits: tuple[Limit, ...], on_unavailable: str | None, principal: str | None, as_json: bool, store: StoreChoice
) -> None:
    """Store the limits of every entity and resource that has no others."""
    with opened(store) as limiter:
        limiter.set_system_defaults(list(limits), on_unavailable, principal)
        stored, choice = limiter.get_system_defaults()
    print_defaults(stored, choice, as_json)


@system.command("get-defaults", short_help="Show the limits.", epilog=examples(GETTING))
@json_option
@store_options
def get_defaults(as_json: bool, store: StoreChoice) -> None:
    """Show the limits of every entity and resource that has no others."""
    with opened(store) as limiter:
        stored, choice = limiter.get_system_defaults()
    print_defaults(stored, choice, as_json)


def print_defaults(limits: Sequence[Limit], choice: OnUnavailable | None, as_json: bool) -> None:
    """Print limits, and what to do while the store is away."""
    if as_json:
        print_json({"limits": [limit.to_dict() for limit in limits], "on_unavailable": choice})
        return
    if not limits:
        print_note(f"There are no system defaults. Store some: {calling('system set-defaults -l rpm:1000')}")
        return
    print_grid(Grid(COLUMNS, [(limit.name, str(limit.capacity), describe_refill(limit)) for limit in limits]))
    if choice is not None:
        click.echo(f"While the store is away: {choice}")
