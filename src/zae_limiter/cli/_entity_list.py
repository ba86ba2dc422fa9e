"""Define ``zae-limiter entity list``: all entities, or those with their own limits for a resource."""

from collections.abc import Sequence
from shlex import quote
from typing import TYPE_CHECKING

import click

from zae_limiter.cli._entity_facts import ENTITY_KEYS, cascade_words, entity_facts, is_in_force, status_words
from zae_limiter.cli._help import examples, help_of, json_shape
from zae_limiter.cli._hints import calling
from zae_limiter.cli._options import PageOptions, page_options, view_options
from zae_limiter.cli._output import Column, Grid, print_grid, print_json, print_note, working
from zae_limiter.cli._place import StoreChoice
from zae_limiter.cli._store import opened
from zae_limiter.clock import SystemClock
from zae_limiter.core.config import ALL_ENTITIES, make_cursor
from zae_limiter.core.entity import Entity
from zae_limiter.core.names import ALL_RESOURCES, DEFAULT_RESOURCE

if TYPE_CHECKING:
    from zae_limiter._sync.limiter.limiter import SyncRateLimiter

LISTING = (
    "zae-limiter entity list",
    "zae-limiter entity list --blocked",
    "zae-limiter entity list --with-custom-limits gpt-4",
    "zae-limiter entity list --with-custom-limits gpt-4 --all --json | jq -r '.entities[]'",
)
SHAPE = json_shape(
    "{entities: [ENTITY], next_cursor: null after the last page}",
    "with --with-custom-limits: {resource, entities: [ids], next_cursor}",
    *ENTITY_KEYS,
)
COLUMNS = [Column("entity"), Column("name"), Column("parent"), Column("cascade"), Column("status")]
_READ_AT_ONCE = 1000


@click.command("list", short_help="List entities.", epilog=help_of(examples(*LISTING), SHAPE))
@click.option(
    "--with-custom-limits",
    "resource",
    metavar="RESOURCE",
    help=f"List ids with their own limits for a resource; {DEFAULT_RESOURCE} means all resources without their own, "
    f"and {ALL_RESOURCES} limits across resources.",
)
@click.option("--blocked", is_flag=True, help="List only entities that are blocked now, for some or all resources.")
@page_options()
@view_options
def list_entities(resource: str | None, blocked: bool, page: PageOptions, as_json: bool, store: StoreChoice) -> None:
    """List the entities that were created, sorted by id, with their parent and whether they are blocked.

    An id that was never created is not an entity, even if it has limits, buckets and usage. An
    entity below a blocked one is not marked.
    """
    if resource is None:
        list_all(blocked, page, as_json, store)
    elif blocked:
        raise click.UsageError("pass --blocked or --with-custom-limits, not both", click.get_current_context())
    else:
        list_limited(resource, page, as_json, store)


def list_all(blocked: bool, page: PageOptions, as_json: bool, store: StoreChoice) -> None:
    """Print all entities of a namespace, or those that are blocked."""
    now_ms = SystemClock().now_ms()
    with opened(store) as limiter, working("Listing entities"):
        if blocked:
            found, cursor = read_blocked(limiter, page, now_ms)
        else:
            found, cursor = limiter.list_entities(size_of(page), page.cursor)
    if as_json:
        print_json({"entities": [entity_facts(one) for one in found], "next_cursor": cursor})
        return
    if found:
        print_grid(Grid(COLUMNS, [row_of(one, now_ms) for one in found]))
    elif blocked:
        print_note("No entity is blocked.")
    else:
        print_note(f"No entity was created. Create one: {calling('entity create user-123')}")
    print_more(f"entity list{' --blocked' if blocked else ''}", page, cursor)


def read_blocked(limiter: "SyncRateLimiter", page: PageOptions, now_ms: int) -> tuple[list[Entity], str | None]:
    """Read entities until a page of them is blocked; return these, and the cursor of the next page, None if none."""
    found: list[Entity] = []
    most, cursor = size_of(page), page.cursor
    while True:
        some, cursor = limiter.list_entities(_READ_AT_ONCE, cursor)
        found += [one for one in some if any(is_in_force(block, now_ms) for block in one.blocks)]
        if most is not None and len(found) > most:
            return found[:most], make_cursor(ALL_ENTITIES, found[most - 1].id)
        if cursor is None:
            return found, None


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


def row_of(entity: Entity, now_ms: int) -> Sequence[str]:
    """Return an entity as a row; only an entity with a parent can cascade."""
    cascade = "" if entity.parent_id is None else cascade_words(entity)
    return (entity.id, entity.name or "", entity.parent_id or "", cascade, status_words(entity, now_ms))


def print_more(listing: str, page: PageOptions, cursor: str | None) -> None:
    """Print how to continue, if there are more."""
    if cursor is not None:
        following = calling(f"{listing} --limit {page.size} --cursor {quote(cursor)}")
        print_note(f"There are more; pass --all, or continue with: {following}")
