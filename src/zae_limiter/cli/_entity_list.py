"""Define ``zae-limiter entity list``: all entities, or those with their own limits for a resource."""

from collections.abc import Sequence
from shlex import quote

import click

from zae_limiter.cli._help import examples, help_of, json_shape
from zae_limiter.cli._hints import calling
from zae_limiter.cli._options import PageOptions, json_option, page_options
from zae_limiter.cli._output import Column, Grid, print_grid, print_json, print_note, working
from zae_limiter.cli._place import StoreChoice, store_options
from zae_limiter.cli._store import opened
from zae_limiter.core.entity import Entity
from zae_limiter.core.lazy_dataclass import asdict
from zae_limiter.core.names import DEFAULT_RESOURCE

LISTING = (
    "zae-limiter entity list",
    "zae-limiter entity list --with-custom-limits gpt-4",
    "zae-limiter entity list --with-custom-limits gpt-4 --all --json | jq -r '.entities[]'",
)
SHAPE = json_shape(
    "{entities: [{id, name, parent_id, cascade, metadata, created_at}],",
    " next_cursor: null after the last page}",
    "with --with-custom-limits: {resource, entities: [ids], next_cursor}",
)
COLUMNS = [Column("entity"), Column("name"), Column("parent"), Column("cascade")]


@click.command("list", short_help="List entities.", epilog=help_of(examples(*LISTING), SHAPE))
@click.option(
    "--with-custom-limits",
    "resource",
    metavar="RESOURCE",
    help=f"List ids with their own limits for a resource; {DEFAULT_RESOURCE} means all resources without their own.",
)
@page_options()
@json_option
@store_options
def list_entities(resource: str | None, page: PageOptions, as_json: bool, store: StoreChoice) -> None:
    """List the entities that were created, sorted by id.

    An id that was never created is not an entity, even if it has limits, buckets and usage.
    """
    if resource is None:
        list_all(page, as_json, store)
    else:
        list_limited(resource, page, as_json, store)


def list_all(page: PageOptions, as_json: bool, store: StoreChoice) -> None:
    """Print all entities of a namespace."""
    with opened(store) as limiter, working("Listing entities"):
        found, cursor = limiter.list_entities(size_of(page), page.cursor)
    if as_json:
        print_json({"entities": [asdict(one) for one in found], "next_cursor": cursor})
        return
    if found:
        print_grid(Grid(COLUMNS, [row_of(one) for one in found]))
    else:
        print_note(f"No entity was created. Create one: {calling('entity create user-123')}")
    print_more("entity list", page, cursor)


def list_limited(resource: str, page: PageOptions, as_json: bool, store: StoreChoice) -> None:
    """Print the ids that have their own limits for a resource."""
    with opened(store) as limiter, working(f"Listing entities with limits for {resource}"):
        found, cursor = limiter.list_entities_with_custom_limits(resource, size_of(page), page.cursor)
    if as_json:
        print_json({"resource": resource, "entities": found, "next_cursor": cursor})
        return
    if found:
        print_grid(Grid([Column("entity")], [[entity_id] for entity_id in found]))
    else:
        store_some = calling(f"entity set-limits user-123 --resource {quote(resource)} -l rpm:1000")
        print_note(f"No entity has its own limits for {resource}. Set some: {store_some}")
    print_more(f"entity list --with-custom-limits {quote(resource)}", page, cursor)


def size_of(page: PageOptions) -> int | None:
    """Return how many entities to read, None for all."""
    return None if page.everything else page.size


def row_of(entity: Entity) -> Sequence[str]:
    """Return an entity as a row; only an entity with a parent can cascade."""
    cascade = "" if entity.parent_id is None else "yes" if entity.cascade else "no"
    return (entity.id, entity.name or "", entity.parent_id or "", cascade)


def print_more(listing: str, page: PageOptions, cursor: str | None) -> None:
    """Print how to continue, if there are more."""
    if cursor is not None:
        following = calling(f"{listing} --limit {page.size} --cursor {quote(cursor)}")
        print_note(f"There are more; pass --all, or continue with: {following}")
