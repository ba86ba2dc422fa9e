"""Define ``zae-limiter entity``: manage entities, their parents, limits and buckets."""

from functools import wraps
from json import loads
from shlex import quote
from typing import Any

import click

from zae_limiter.cli import _entity_changes as changes
from zae_limiter.cli import _entity_limits as limits
from zae_limiter.cli._confirm import require_consent
from zae_limiter.cli._entity_facts import ENTITY_KEYS, ancestors_of, cascade_words, entity_facts, print_entity
from zae_limiter.cli._entity_list import list_entities
from zae_limiter.cli._groups import CommandGroup
from zae_limiter.cli._help import examples, help_of, json_shape
from zae_limiter.cli._hints import calling
from zae_limiter.cli._options import Changing, changing_options, pairs_option, view_options, yes_option
from zae_limiter.cli._output import Column, Grid, print_grid, print_json, print_line, print_note
from zae_limiter.cli._place import Command, StoreChoice
from zae_limiter.cli._store import opened
from zae_limiter.core.entity import MetadataValue
from zae_limiter.core.lazy_dataclass import dataclass
from zae_limiter.core.short_repr import short_repr

CREATING = (
    "zae-limiter entity create project-1",
    'zae-limiter entity create key-1a --parent project-1 --cascade --display-name "Nightly jobs"',
    "zae-limiter entity create key-1b --parent project-1 --cascade --cascade-resource gpt-4",
    "zae-limiter entity create user-1 --metadata tier=gold --principal ops",
    """zae-limiter entity create user-2 --metadata-json '{"discount": 0.1, "regions": ["eu", "us"]}'""",
)
SHOWING = "zae-limiter entity show user-1"
DELETING = "zae-limiter entity delete user-1 --yes"
CHILDREN = "zae-limiter entity children project-1"
SHAPE = json_shape("ENTITY", *ENTITY_KEYS)
SHOWN = json_shape("ENTITY, and {ancestors: [ENTITY], the parent first}", *ENTITY_KEYS)
COLUMNS = [Column("entity"), Column("name"), Column("cascade"), Column("created")]


@dataclass(frozen=True, slots=True)
class Traits:
    """The properties of a new entity."""

    name: str | None
    parent_id: str | None
    cascade: bool
    metadata: dict[str, MetadataValue]
    cascade_resources: tuple[str, ...] | None


def _json_object(ctx: click.Context, param: click.Parameter, text: str | None) -> dict[str, MetadataValue]:
    try:
        found = {} if text is None else loads(text)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise click.BadParameter(
            f"{short_repr(text)}: must be a JSON object, such as '{{\"discount\": 0.1}}'", ctx, param
        )
    return found


def traits_options(command: Command) -> Command:
    """Add the options for the properties of an entity; the command takes them as ``traits``."""

    @click.option("--display-name", metavar="TEXT", help="Readable name of the entity.")
    @click.option("--parent", metavar="ENTITY", help="Parent of the entity, which must exist.")
    @click.option(
        "--cascade/--no-cascade",
        default=False,
        help="Take every amount from the parent as well.  [default: no-cascade]",
    )
    @changes.cascade_resource_option
    @pairs_option("--metadata", "Metadata of the entity, as text. Repeatable.", "tier=gold")
    @click.option(
        "--metadata-json",
        "nested",
        metavar="OBJECT",
        callback=_json_object,
        help="Metadata as a JSON object, with numbers, lists and objects.",
    )
    @wraps(command)
    def with_traits(
        *,
        display_name: str | None,
        parent: str | None,
        cascade: bool,
        cascade_resource: tuple[str, ...],
        metadata: dict[str, str],
        nested: dict[str, MetadataValue],
        **others: Any,
    ) -> None:
        if cascade and parent is None:
            raise click.UsageError("--cascade requires --parent", click.get_current_context())
        changes.require_cascade(cascade_resource, cascade)
        given: dict[str, MetadataValue] = {**nested, **metadata}
        command(traits=Traits(display_name, parent, cascade, given, cascade_resource or None), **others)

    return with_traits


@click.group(
    cls=CommandGroup,
    aliases={"get": "show"},
    short_help="Manage entities, their limits and buckets.",
    epilog=examples(CREATING[0], limits.SETTING[0], limits.RESOLVING[0]),
)
def entity() -> None:
    """Manage entities, such as users, keys and projects: their limits and buckets.

    You only need to create an entity to give it a parent, a name or metadata. Limits can be set for
    any id.
    """


@entity.command("create", short_help="Create an entity.", epilog=help_of(examples(*CREATING), SHAPE))
@click.argument("entity_id", metavar="ENTITY")
@traits_options
@changing_options
def create(entity_id: str, traits: Traits, changing: Changing) -> None:
    """Create an entity, optionally with a parent."""
    with opened(changing.store, create=True) as limiter:
        made = limiter.create_entity(
            entity_id,
            traits.name,
            traits.parent_id,
            traits.cascade,
            traits.metadata,
            changing.principal,
            traits.cascade_resources,
        )
    if changing.as_json:
        print_json(entity_facts(made))
    else:
        print_entity(made)


@entity.command("show", short_help="Show an entity (alias: get).", epilog=help_of(examples(SHOWING), SHOWN))
@click.argument("entity_id", metavar="ENTITY")
@view_options
def show(entity_id: str, as_json: bool, store: StoreChoice) -> None:
    """Show an entity that was created: the entities above it, whom it charges, its blocks and its bypass."""
    with opened(store) as limiter:
        found = changes.required(limiter.get_entity(entity_id), entity_id)
        ancestors = ancestors_of(limiter, found)
    if as_json:
        print_json({**entity_facts(found), "ancestors": [entity_facts(one) for one in ancestors]})
    else:
        print_entity(found, ancestors)


@entity.command(
    "delete",
    short_help="Delete an entity.",
    epilog=help_of(examples(DELETING), json_shape("{entity_id, deleted: true}")),
)
@click.argument("entity_id", metavar="ENTITY")
@yes_option
@changing_options
def delete(entity_id: str, yes: bool, changing: Changing) -> None:
    """Delete an entity with its limits and buckets. Its usage and its audit events stay."""
    with opened(changing.store) as limiter:
        if not yes:
            changes.required(limiter.get_entity(entity_id), entity_id)
            where = changing.store.namespace
            require_consent(f"Delete entity {entity_id} in namespace {where}, with its limits and buckets?")
        limiter.delete_entity(entity_id, changing.principal)
    if changing.as_json:
        print_json({"entity_id": entity_id, "deleted": True})
    else:
        print_line(f"Deleted entity {entity_id}.")


@entity.command(
    "children",
    short_help="List the children of an entity.",
    epilog=help_of(examples(CHILDREN), json_shape("[ENTITY]", *ENTITY_KEYS)),
)
@click.argument("entity_id", metavar="ENTITY")
@view_options
def children(entity_id: str, as_json: bool, store: StoreChoice) -> None:
    """List the children of an entity, sorted by id."""
    with opened(store) as limiter:
        found = limiter.get_children(entity_id)
    if as_json:
        print_json([entity_facts(one) for one in found])
    elif found:
        rows = [(one.id, one.name or "", cascade_words(one), one.created_at or "") for one in found]
        print_grid(Grid(COLUMNS, rows))
    else:
        create_one = calling(f"entity create key-1 --parent {quote(entity_id)} --cascade")
        print_note(f"Entity {entity_id} has no children. Create one: {create_one}")


for command in (*limits.COMMANDS, *changes.COMMANDS, list_entities):
    entity.add_command(command)
