"""Define ``zae-limiter loadtest delete``: delete the stack that tests a limiter."""

import click

from zae_limiter.cli._confirm import require_consent
from zae_limiter.cli._deploying import steps_shown
from zae_limiter.cli._help import examples, section
from zae_limiter.cli._options import json_option, yes_option
from zae_limiter.cli._output import print_json
from zae_limiter.cli._place import StoreLocation, place_options
from zae_limiter.loadtest.load_stack import LoadStack

DELETE = examples("zae-limiter loadtest delete -n my-app", "zae-limiter loadtest delete -n my-app --yes")
DELETE_CODES = section(
    "Exit codes",
    "0   the load test is deleted",
    "1   you declined",
    "2   there is no terminal; pass --yes",
    "69  AWS refused or failed; stderr has the reason",
)


@click.command(short_help="Delete what load tests on AWS need.", epilog=f"{DELETE}\n\n{DELETE_CODES}")
@place_options
@yes_option
@json_option
def delete(place: StoreLocation, yes: bool, as_json: bool) -> None:
    """Delete the load test of a limiter: its stack, its code, its results and its logs. The limiter stays.

    A running test is stopped. AWS may take some minutes to remove the network interfaces of the
    workers.
    """
    stack = LoadStack(place.name, place.region.clients())
    if not yes and stack.own(stack.describe()) is not None:
        require_consent(f"Delete the load test of {place.name} in {place.resolved().region.name}, with its results?")
    with steps_shown(f"Deleting the load test of {place.name}") as hear:
        existed = stack.delete(hear)
    if as_json:
        print_json({"deleted": existed})
    else:
        click.echo(
            f"Deleted the load test of {place.name}."
            if existed
            else f"There is no load test of {place.name!r}; nothing was deleted."
        )
