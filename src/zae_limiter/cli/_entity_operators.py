"""Define the commands of ``zae-limiter entity`` that change balances: reset, and credit."""

import click

from zae_limiter.cli._amount_syntax import (
    AMOUNT_FORM,
    WrittenAmount,
    check_currencies,
    gather_amounts,
    parse_amount,
)
from zae_limiter.cli._confirm import require_consent
from zae_limiter.cli._help import examples, help_of, json_shape
from zae_limiter.cli._options import Changing, LimitOptions, changing_options, reading_each, yes_option
from zae_limiter.cli._output import Column, Grid, print_grid, print_json, print_line, print_note
from zae_limiter.cli._resource_options import resource_argument, resource_option
from zae_limiter.cli._store import limits_in_force, opened
from zae_limiter.core.money import format_with_unit
from zae_limiter.core.names import ALL_RESOURCES

RESETTING = ("zae-limiter entity reset user-1 --yes", "zae-limiter entity reset user-1 --resource gpt-4 --yes")
CREDITING = (
    "zae-limiter entity credit user-1 gpt-4 -a spend:12.50usd --key ticket-1234",
    "zae-limiter entity credit user-1 gpt-4 -a rpm:1 -a tpm:500 --key ticket-1235 --principal ops",
)
RESET = json_shape("{entity_id, resources: [the resources whose buckets were reset]}")
CREDITED = json_shape("{entity_id, resource, amounts: {LIMIT: amount}, given: {LIMIT: amount}}")
COLUMNS = [Column("limit"), Column("asked", True), Column("given", True)]


@click.command("reset", short_help="Reset the limits of an entity.", epilog=help_of(examples(*RESETTING), RESET))
@click.argument("entity_id", metavar="ENTITY")
@resource_option("Reset only the bucket of this resource. Default: all buckets.", None)
@yes_option
@changing_options
def reset(entity_id: str, resource: str | None, yes: bool, changing: Changing) -> None:
    """Reset the limits of an entity: all of them are full immediately, and debts end.

    Quotas begin their next period as usual. Slots stay with the leases that hold them, and the
    usage stays as it is. Other clients notice within a second.
    """
    if not yes:
        which = "all buckets" if resource is None else f"the bucket {_for(resource)}"
        require_consent(f"Reset {which} of {entity_id}?", "Nothing was reset.", "reset it")
    with opened(changing.store) as limiter:
        resources = limiter.reset_buckets(entity_id, resource, changing.principal)
    if changing.as_json:
        print_json({"entity_id": entity_id, "resources": resources})
        return
    for one in resources:
        print_line(f"Reset the bucket of {entity_id} {_for(one)}.")
    if not resources:
        which = "" if resource is None else f" {_for(resource)}"
        print_line(f"Entity {entity_id} has no bucket{which} to reset; nothing was changed.")


@click.command(
    "credit", short_help="Credit an entity for what it has spent.", epilog=help_of(examples(*CREDITING), CREDITED)
)
@click.argument("entity_id", metavar="ENTITY")
@resource_argument
@click.option(
    "--amount",
    "-a",
    "amounts",
    callback=reading_each(parse_amount),
    metavar=AMOUNT_FORM,
    multiple=True,
    required=True,
    help="Amount to give back of a limit, such as tpm:1.5k or spend:12.50usd. Repeatable.",
)
@click.option(
    "--key",
    metavar="KEY",
    required=True,
    help="Idempotency key, such as the number of a ticket: the same credit is given once.",
)
@changing_options
def credit(entity_id: str, resource: str, amounts: tuple[WrittenAmount, ...], key: str, changing: Changing) -> None:
    """Credit an entity for at most what it has spent, and show how much was given.

    With the same key, a second call gives nothing, and shows what the first has given. To grant more
    than was spent, raise the limit.
    """
    asked = gather_amounts(amounts)
    with opened(changing.store) as limiter:
        limits = limits_in_force(limiter, LimitOptions(entity_id, resource, None), list(asked))
        units = {limit.name: limit.unit for limit in limits}
        check_currencies(amounts, units)
        given = limiter.credit(entity_id, resource, asked, key, changing.principal)
    if changing.as_json:
        print_json({"entity_id": entity_id, "resource": resource, "amounts": asked, "given": given})
        return
    texts = [[format_with_unit(one[name], units.get(name)) for one in (asked, given)] for name in asked]
    print_grid(Grid(COLUMNS, [(name, *both) for name, both in zip(asked, texts, strict=True)]))
    if given != asked:
        print_note("No more than that was spent.")


def _for(resource: str) -> str:
    return "across resources" if resource == ALL_RESOURCES else f"for {resource}"


COMMANDS = (reset, credit)
