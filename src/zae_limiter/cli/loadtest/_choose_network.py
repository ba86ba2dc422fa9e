"""Ask for the VPC and the subnets of a load test, with lists of those that exist."""

from collections.abc import Sequence
from typing import Any

import click

from zae_limiter.cli._confirm import somebody_is_there
from zae_limiter.cli._output import Column, Grid, paused, plain_lines, print_note
from zae_limiter.infra.clients import Clients
from zae_limiter.loadtest.load_stack import LoadStack
from zae_limiter.loadtest.networks import Network, Vpc, read_vpcs, suggested_subnets

_NO_TERMINAL = "cannot ask for the network without a terminal; pass --vpc-id and --subnet-ids"


def with_network(given: dict[str, Any], stored: dict[str, Any], stack: LoadStack, clients: Clients) -> dict[str, Any]:
    """Return the options with a network: the given one, that of an existing stack, or the one that the user chooses.

    Raises:
        click.UsageError: No network is given, and there is no terminal.
        ValidationError: There is no such VPC.
    """
    if "vpc_id" in given and "subnet_ids" in given:
        return given
    if "vpc_id" in given:
        subnets = suggested_subnets(stack.network(given["vpc_id"]))
        print_note(f"Using the subnets {', '.join(subnets)} (choose others with --subnet-ids)")
        return given | {"subnet_ids": subnets}
    if "vpc_id" in stored:
        return given
    if not somebody_is_there():
        raise click.UsageError(_NO_TERMINAL, click.get_current_context(silent=True))
    with paused():
        vpc = ask_for_vpc(read_vpcs(clients))
        return given | {"vpc_id": vpc.vpc_id, "subnet_ids": ask_for_subnets(stack.network(vpc.vpc_id))}


def ask_for_vpc(vpcs: Sequence[Vpc]) -> Vpc:
    """Return the VPC that the user chooses from a list.

    Raises:
        click.UsageError: The region has no VPC.
    """
    if not vpcs:
        raise click.UsageError("this region has no VPC; create one, or choose another region with --region")
    rows = [
        (str(place), one.vpc_id, one.name or ("default" if one.is_default else ""), one.cidr)
        for place, one in enumerate(vpcs, 1)
    ]
    _show(Grid([Column(""), Column("vpc"), Column("name"), Column("addresses")], rows))
    chosen = click.prompt("VPC", type=click.IntRange(1, len(vpcs)), default=1, err=True)
    return vpcs[chosen - 1]


def ask_for_subnets(network: Network) -> tuple[str, ...]:
    """Return the subnets that the user chooses from a list; the default needs no further options."""
    rows = [
        (str(place), one.subnet_id, one.zone, one.cidr, one.reach.value) for place, one in enumerate(network.subnets, 1)
    ]
    _show(Grid([Column(""), Column("subnet"), Column("zone"), Column("addresses"), Column("kind")], rows))
    suggested = suggested_subnets(network)
    default = ",".join(str(place) for place, one in enumerate(network.subnets, 1) if one.subnet_id in suggested)

    def read(text: str) -> tuple[str, ...]:
        return tuple(_numbered(network, part.strip()) for part in text.split(",") if part.strip())

    chosen: tuple[str, ...] = click.prompt("Subnets", value_proc=read, default=default, err=True)
    return chosen


def _numbered(network: Network, number: str) -> str:
    """Return the id of a subnet by its number in the list."""
    if not number.isdigit() or not 1 <= int(number) <= len(network.subnets):
        raise click.BadParameter(f"{number!r}: must be a number from 1 to {len(network.subnets)}")
    return network.subnets[int(number) - 1].subnet_id


def _show(grid: Grid) -> None:
    """Show a list on stderr, because it is part of a question."""
    click.echo("\n".join(plain_lines(grid)), err=True)
