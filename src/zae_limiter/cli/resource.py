"""Define ``zae-limiter resource``: manage the default limits of a resource, and show its capacity."""

from shlex import quote

import click

from zae_limiter.cli._confirm import require_consent
from zae_limiter.cli._dropping import confirm_dropped, of_resource
from zae_limiter.cli._groups import CommandGroup
from zae_limiter.cli._help import examples, help_of, json_shape
from zae_limiter.cli._hints import calling
from zae_limiter.cli._limit_syntax import FORMS
from zae_limiter.cli._limit_words import LIMIT_KEYS, limit_facts, limits_grid
from zae_limiter.cli._options import Changing, changing_options, inherit_option, limits_option, view_options, yes_option
from zae_limiter.cli._output import Column, Grid, print_grid, print_json, print_line, print_note, working
from zae_limiter.cli._place import StoreChoice
from zae_limiter.cli._resource_options import resource_and_limit_arguments, resource_argument
from zae_limiter.cli._store import opened
from zae_limiter.core.lazy_dataclass import asdict
from zae_limiter.core.limit import Limit
from zae_limiter.core.money import format_share, format_with_unit
from zae_limiter.core.names import ALL_RESOURCES
from zae_limiter.core.status import ResourceCapacity

SETTING = (
    "zae-limiter resource set-defaults gpt-4 -l rpm:500 -l tpm:50000",
    "zae-limiter resource set-defaults gpt-4 -l rpm:500/min:burst=750 --principal ops",
    "zae-limiter resource set-defaults --all-resources -l rpm:2k",
)
GETTING = "zae-limiter resource get-defaults gpt-4 --json"
DELETING = "zae-limiter resource delete-defaults gpt-4 --yes"
LISTING = "zae-limiter resource list"
COUNTING = (
    "zae-limiter resource capacity gpt-4 tpm",
    "zae-limiter resource capacity gpt-4 tpm --parents-only --json",
    "zae-limiter resource capacity --all-resources tpm",
)
SHAPE = json_shape("{resource, limits: [LIMIT]}", *LIMIT_KEYS)
COUNTED = json_shape(
    "{resource, limit_name, total_capacity, total_available, utilization_pct,",
    " entities: [{entity_id, capacity, available, utilization_pct}]},",
    " and if set {unit} of the total and of each entity",
)
COLUMNS = [Column("entity"), Column("capacity", True), Column("available", True), Column("used", True)]


@click.group(
    cls=CommandGroup, short_help="Manage the default limits of a resource.", epilog=examples(SETTING[0], LISTING)
)
def resource() -> None:
    """Manage the limits of all entities for one resource, or across resources, and show the capacity.

    An entity's own limits override them.
    """


@resource.command(
    "set-defaults", short_help="Set the limits of a resource.", epilog=help_of(examples(*SETTING), FORMS, SHAPE)
)
@resource_argument
@limits_option("Limits to set; they replace those that are stored here.", required=True)
@inherit_option("the system defaults")
@yes_option
@changing_options
def set_defaults(resource: str, limits: tuple[Limit, ...], inherit: bool, yes: bool, changing: Changing) -> None:
    """Set the limits of all entities for a resource.

    With --all-resources, all resources of each entity share these limits, in addition to the limits
    of each resource. They are not shared between entities.

    If a limit in force would be removed, the command names it and asks for confirmation.
    """
    if inherit and resource == ALL_RESOURCES:
        reason = "--inherit has no effect with --all-resources, because no level follows"
        raise click.UsageError(reason, click.get_current_context())
    with opened(changing.store, create=True) as limiter:
        if not yes:
            confirm_dropped(of_resource(limiter, resource), limits, whose=whose(resource), inherit=inherit)
        limiter.set_resource_defaults(resource, list(limits), changing.principal, inherit)
        stored = limiter.get_resource_defaults(resource)
    print_defaults(resource, stored, changing.as_json)
    if inherit:
        print_note("All other limits are inherited.")


@resource.command("get-defaults", short_help="Show the limits of a resource.", epilog=help_of(examples(GETTING), SHAPE))
@resource_argument
@view_options
def get_defaults(resource: str, as_json: bool, store: StoreChoice) -> None:
    """Show the limits of all entities for a resource."""
    with opened(store) as limiter:
        stored = limiter.get_resource_defaults(resource)
    print_defaults(resource, stored, as_json)


@resource.command(
    "delete-defaults",
    short_help="Delete the limits of a resource.",
    epilog=help_of(examples(DELETING), json_shape("{resource, deleted: whether limits existed}")),
)
@resource_argument
@yes_option
@changing_options
def delete_defaults(resource: str, yes: bool, changing: Changing) -> None:
    """Delete the limits of a resource, so that those of the system apply."""
    with opened(changing.store) as limiter:
        is_there = bool(limiter.get_resource_defaults(resource))
        if is_there and not yes:
            require_consent(f"Delete the limits of {whose(resource)} in namespace {changing.store.namespace}?")
        limiter.delete_resource_defaults(resource, changing.principal)
    if changing.as_json:
        print_json({"resource": resource, "deleted": is_there})
    else:
        none = f"There are no limits for {whose(resource)}; nothing was deleted."
        print_line(f"Deleted the limits of {whose(resource)}." if is_there else none)


@resource.command(
    "list",
    short_help="List the resources that have limits.",
    epilog=help_of(examples(LISTING), json_shape("[names]")),
)
@view_options
def list_resources(as_json: bool, store: StoreChoice) -> None:
    """List the resources with their own limits. For resources with limits of entities, use: entity list-resources.

    _all_ means limits across resources.
    """
    with opened(store) as limiter:
        found = limiter.list_resources_with_defaults()
    if as_json:
        print_json(found)
    elif found:
        print_grid(Grid([Column("resource")], [[name] for name in found]))
    else:
        store_some = calling("resource set-defaults gpt-4 -l rpm:500")
        print_note(f"No resource has its own limits. Set some: {store_some}")


@resource.command(
    "capacity", short_help="Show the capacity left for all entities.", epilog=help_of(examples(*COUNTING), COUNTED)
)
@resource_and_limit_arguments
@click.option("--parents-only", is_flag=True, help="Omit entities that have a parent.")
@view_options
def capacity(resource: str, limit_name: str, parents_only: bool, as_json: bool, store: StoreChoice) -> None:
    """Show the capacity of a limit for all entities that have used a resource, and what is left of it."""
    what = f"{limit_name} {'across resources' if resource == ALL_RESOURCES else f'of {resource}'}"
    with opened(store) as limiter, working(f"Adding up {what}"):
        found = limiter.get_resource_capacity(resource, limit_name, parents_only)
    if as_json:
        print_json(capacity_facts(found))
    elif found.entities:
        print_capacity(found)
    else:
        shown = "gpt-4" if resource == ALL_RESOURCES else resource
        take = calling(f"acquire user-1 {quote(shown)} -c {quote(limit_name)}:1")
        print_note(f"No entity has used {what} yet. Use it, for example: {take}")


def print_defaults(resource: str, limits: list[Limit], as_json: bool) -> None:
    """Print the limits of a resource."""
    if as_json:
        print_json({"resource": resource, "limits": limit_facts(limits)})
    elif limits:
        print_grid(limits_grid(limits))
    else:
        option = "--all-resources" if resource == ALL_RESOURCES else quote(resource)
        store_some = calling(f"resource set-defaults {option} -l rpm:500")
        print_note(f"There are no limits for {whose(resource)}. Set some: {store_some}")


def whose(resource: str) -> str:
    """Describe what the limits are for."""
    return "entities across resources" if resource == ALL_RESOURCES else f"resource {resource}"


def capacity_facts(found: ResourceCapacity) -> dict[str, object]:
    """Return the capacity of a resource, ready for JSON."""
    entities = [{**asdict(one), "utilization_pct": round(one.utilization_pct, 2)} for one in found.entities]
    facts = asdict(found) | {"utilization_pct": round(found.utilization_pct, 2), "entities": entities}
    for one in (facts, *entities):
        if one["unit"] is None:
            del one["unit"]
    return facts


def print_capacity(found: ResourceCapacity) -> None:
    """Print the capacity of a resource, by entity and in total."""
    rows = [
        (
            one.entity_id,
            format_with_unit(one.capacity, one.unit),
            format_with_unit(one.available, one.unit),
            f"{one.utilization_pct:.1f} %",
        )
        for one in found.entities
    ]
    print_grid(Grid(COLUMNS, rows))
    left = format_share(found.total_available, found.total_capacity, found.unit)
    click.echo(f"Total: {left} left, {found.utilization_pct:.1f} % in use.")
