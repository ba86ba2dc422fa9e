"""Define ``zae-limiter entity``: manage entities, their parents, limits and buckets."""

from functools import wraps
from shlex import quote
from typing import Any

import click

from zae_limiter.cli import _entity_limits as limits
from zae_limiter.cli._confirm import require_consent
from zae_limiter.cli._entity_list import list_entities
from zae_limiter.cli._groups import CommandGroup
from zae_limiter.cli._help import examples, help_of, json_shape
from zae_limiter.cli._hints import calling
from zae_limiter.cli._options import Changing, changing_options, json_option, pairs_option, yes_option
from zae_limiter.cli._output import Column, Grid, print_grid, print_json, print_line, print_note
from zae_limiter.cli._place import Command, StoreChoice, store_options
from zae_limiter.cli._store import opened
from zae_limiter.core.entity import Entity, MetadataValue
from zae_limiter.core.errors import EntityNotFoundError
from zae_limiter.core.lazy_dataclass import asdict, dataclass

CREATING = (
    "zae-limiter entity create project-1",
    'zae-limiter entity create key-1a --parent project-1 --cascade --display-name "Nightly jobs"',
    "zae-limiter entity create user-1 --metadata tier=gold --principal ops",
)
SHOWING = "zae-limiter entity show user-1"
DELETING = "zae-limiter entity delete user-1 --yes"
CHILDREN = "zae-limiter entity children project-1"
ENTITY_KEYS = "{id, name, parent_id, cascade, metadata, created_at}"
SHAPE = json_shape(ENTITY_KEYS)
COLUMNS = [Column("entity"), Column("name"), Column("cascade"), Column("created")]


@dataclass(frozen=True, slots=True)
class Traits:
    """The properties of a new entity."""

    name: str | None
    parent_id: str | None
    cascade: bool
    metadata: dict[str, MetadataValue]


def traits_options(command: Command) -> Command:
    """Add the options for the properties of an entity; the command takes them as ``traits``."""

    @click.option("--display-name", metavar="TEXT", help="Readable name of the entity.")
    @click.option("--parent", metavar="ENTITY", help="Parent of the entity, which must exist.")
    @click.option(
        "--cascade/--no-cascade",
        default=False,
        help="Take every amount from the parent as well.  [default: no-cascade]",
    )
    @pairs_option("--metadata", "Metadata of the entity. Repeatable.", "tier=gold")
    @wraps(command)
    def with_traits(
        *, display_name: str | None, parent: str | None, cascade: bool, metadata: dict[str, str], **others: Any
    ) -> None:
        if cascade and parent is None:
            raise click.UsageError("--cascade requires --parent", click.get_current_context())
        command(traits=Traits(display_name, parent, cascade, {**metadata}), **others)

    return with_traits


@click.group(
    cls=CommandGroup,
    aliases={"get": "show"},
    short_help="Manage entities, their limits and buckets.",
    epilog=examples(CREATING[0], limits.SETTING[0], limits.RESOLVING),
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
            entity_id, traits.name, traits.parent_id, traits.cascade, traits.metadata, changing.principal
        )
    print_entity(made, changing.as_json)


@entity.command("show", short_help="Show an entity (alias: get).", epilog=help_of(examples(SHOWING), SHAPE))
@click.argument("entity_id", metavar="ENTITY")
@json_option
@store_options
def show(entity_id: str, as_json: bool, store: StoreChoice) -> None:
    """Show an entity that was created."""
    with opened(store) as limiter:
        found = limiter.get_entity(entity_id)
    if found is None:
        raise EntityNotFoundError(entity_id)
    print_entity(found, as_json)


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
            if limiter.get_entity(entity_id) is None:
                raise EntityNotFoundError(entity_id)
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
    epilog=help_of(examples(CHILDREN), json_shape(f"[{ENTITY_KEYS}]")),
)
@click.argument("entity_id", metavar="ENTITY")
@json_option
@store_options
def children(entity_id: str, as_json: bool, store: StoreChoice) -> None:
    """List the children of an entity, sorted by id."""
    with opened(store) as limiter:
        found = limiter.get_children(entity_id)
    if as_json:
        print_json([asdict(one) for one in found])
    elif found:
        rows = [(one.id, one.name or "", in_words(one.cascade), one.created_at or "") for one in found]
        print_grid(Grid(COLUMNS, rows))
    else:
        create_one = calling(f"entity create key-1 --parent {quote(entity_id)} --cascade")
        print_note(f"Entity {entity_id} has no children. Create one: {create_one}")


def print_entity(found: Entity, as_json: bool) -> None:
    """Print an entity."""
    if as_json:
        print_json(asdict(found))
        return
    rows = [
        ("id", found.id),
        ("name", found.name or ""),
        ("parent", found.parent_id or ""),
        ("cascade", "" if found.parent_id is None else in_words(found.cascade)),
        *((f"metadata {key}", str(value)) for key, value in sorted(found.metadata.items())),
        ("created", found.created_at or ""),
    ]
    print_grid(Grid([Column("entity"), Column("")], [row for row in rows if row[1]]))


def in_words(cascade: bool) -> str:
    """Return "yes" or "no"."""
    return "yes" if cascade else "no"


for command in (*limits.COMMANDS, list_entities):
    entity.add_command(command)
