"""Define the commands of ``zae-limiter entity`` that move, block and unblock an entity, and set its bypass."""

from datetime import datetime
from functools import wraps
from typing import Any

import click

from zae_limiter.cli._entity_facts import ENTITY_KEYS, block_facts, block_words, cascade_words, entity_facts
from zae_limiter.cli._help import examples, help_of, json_shape
from zae_limiter.cli._options import Changing, changing_options
from zae_limiter.cli._output import Column, Grid, print_grid, print_json, print_line, print_note
from zae_limiter.cli._place import Command
from zae_limiter.cli._store import opened
from zae_limiter.cli._times import END_FORMS, parse_end
from zae_limiter.clock import SystemClock
from zae_limiter.core.entity import Entity, EntityBlock
from zae_limiter.core.errors import EntityNotFoundError, ValidationError
from zae_limiter.core.lazy_dataclass import dataclass

MOVING = (
    "zae-limiter entity move key-1 --parent project-2",
    "zae-limiter entity move key-1 --parent project-2 --cascade-resource gpt-4",
    "zae-limiter entity move key-1 --no-parent",
)
BLOCKING = (
    'zae-limiter entity block user-1 --reason "unpaid invoice"',
    "zae-limiter entity block user-1 --resource gpt-4 --until 'in 2 hours'",
)
UNBLOCKING = ("zae-limiter entity unblock user-1", "zae-limiter entity unblock user-1 --resource gpt-4")
BYPASSING = ("zae-limiter entity bypass nightly-job --on", "zae-limiter entity bypass nightly-job --off")
BLOCK_KEYS = ENTITY_KEYS[-1]
MOVED = json_shape("{before: {parent_id, cascade, cascade_resources}, entity: ENTITY}", *ENTITY_KEYS)
BLOCKED = json_shape("{entity_id, resource, reason, until, replaced: BLOCK or null}", BLOCK_KEYS)
UNBLOCKED = json_shape("{entity_id, resource, removed: [BLOCK], remaining: [BLOCK]}", BLOCK_KEYS)
BYPASSED = json_shape("{entity_id, bypass, changed: whether it was different}")
NOTICED = "Other clients notice within the lifetime of their caches, 60 seconds by default."


@dataclass(frozen=True, slots=True)
class NewParent:
    """Where an entity is moved to. ``cascade`` is None if it stays as it is."""

    parent_id: str | None
    cascade: bool | None
    cascade_resources: tuple[str, ...]


def new_parent_options(command: Command) -> Command:
    """Add the options for the new parent; the command takes them as ``destination``."""

    @click.option("--parent", metavar="ENTITY", help="New parent of the entity, which must exist.")
    @click.option("--no-parent", is_flag=True, help="Leave the entity without a parent.")
    @click.option(
        "--cascade/--no-cascade", default=None, help="Take every amount from the parent as well. Default: unchanged."
    )
    @cascade_resource_option
    @wraps(command)
    def with_destination(
        *, parent: str | None, no_parent: bool, cascade: bool | None, cascade_resource: tuple[str, ...], **others: Any
    ) -> None:
        context = click.get_current_context()
        if no_parent is (parent is not None):
            raise click.UsageError("pass either --parent or --no-parent", context)
        if no_parent and cascade:
            raise click.UsageError("--cascade requires --parent", context)
        command(destination=NewParent(parent, cascade, cascade_resource), **others)

    return with_destination


def cascade_resource_option(command: Command) -> Command:
    """Add ``--cascade-resource``, which may be repeated."""
    help_text = "Resource for which it cascades. Repeatable. Default: all."
    return click.option("--cascade-resource", multiple=True, metavar="RESOURCE", help=help_text)(command)


def require_cascade(cascade_resources: tuple[str, ...], cascade: bool) -> None:
    """Require a cascade if resources for it are given.

    Raises:
        click.UsageError: The entity does not cascade.
    """
    if cascade_resources and not cascade:
        raise click.UsageError("--cascade-resource requires --cascade", click.get_current_context())


@click.command("move", short_help="Move an entity to another parent.", epilog=help_of(examples(*MOVING), MOVED))
@click.argument("entity_id", metavar="ENTITY")
@new_parent_options
@changing_options
def move(entity_id: str, destination: NewParent, changing: Changing) -> None:
    """Move an entity to another parent, or to none, and show what changed.

    Its limits and buckets stay. Open leases settle with the buckets they took from. Without
    --cascade-resource, it cascades for all resources.
    """
    with opened(changing.store) as limiter:
        before = required(limiter.get_entity(entity_id), entity_id)
        cascades = before.cascade if destination.cascade is None else destination.cascade
        require_cascade(destination.cascade_resources, cascades and destination.parent_id is not None)
        resources = destination.cascade_resources or None
        after = limiter.set_parent(entity_id, destination.parent_id, destination.cascade, resources, changing.principal)
    if changing.as_json:
        placed = {name: getattr(before, name) for name in ("parent_id", "cascade", "cascade_resources")}
        print_json({"before": placed, "entity": entity_facts(after)})
        return
    rows = [
        ("parent", before.parent_id or "none", after.parent_id or "none"),
        ("cascade", cascade_words(before), cascade_words(after)),
    ]
    changed = [row for row in rows if row[1] != row[2]]
    if changed:
        print_grid(Grid([Column(entity_id), Column("before"), Column("after")], changed))
        print_note(NOTICED)
    else:
        print_line(f"Entity {entity_id} was there already; nothing was changed.")


@click.command("block", short_help="Block an entity.", epilog=help_of(examples(*BLOCKING), BLOCKED))
@click.argument("entity_id", metavar="ENTITY")
@click.option("--resource", "-r", metavar="RESOURCE", help="Resource to block. Default: all.")
@click.option("--reason", metavar="TEXT", help="Reason, which the refused caller gets.")
@click.option("--until", metavar="TIME", help=f"End of the block: {END_FORMS}, in UTC. Default: no end.")
@changing_options
def block(entity_id: str, resource: str | None, reason: str | None, until: str | None, changing: Changing) -> None:
    """Block an entity, and every entity that cascades to it: all requests are refused.

    An earlier block of the same resource is replaced. A date for --until means its first moment.
    """
    new = EntityBlock(resource, reason, None if until is None else end_of(until))
    with opened(changing.store) as limiter:
        before = required(limiter.get_entity(entity_id), entity_id)
        limiter.block_entity(entity_id, new.resource, new.reason, new.until, changing.principal)
    replaced = next((one for one in before.blocks if one.resource == resource), None)
    if changing.as_json:
        facts = {"entity_id": entity_id, **block_facts(new)}
        print_json({**facts, "replaced": None if replaced is None else block_facts(replaced)})
        return
    print_line(f"Blocked {entity_id} for {block_words(new)}")
    if replaced is not None and replaced != new:
        print_note(f"Before, it was blocked for {block_words(replaced)}")
    print_note(NOTICED)


@click.command("unblock", short_help="Unblock an entity.", epilog=help_of(examples(*UNBLOCKING), UNBLOCKED))
@click.argument("entity_id", metavar="ENTITY")
@click.option("--resource", "-r", metavar="RESOURCE", help="Remove only the block of this resource. Default: all.")
@changing_options
def unblock(entity_id: str, resource: str | None, changing: Changing) -> None:
    """Unblock an entity: remove all its blocks, or that of one resource."""
    with opened(changing.store) as limiter:
        before = required(limiter.get_entity(entity_id), entity_id)
        limiter.unblock_entity(entity_id, resource, changing.principal)
    removed = [one for one in before.blocks if resource in (None, one.resource)]
    remaining = [one for one in before.blocks if one not in removed]
    if changing.as_json:
        facts = {"entity_id": entity_id, "resource": resource, "removed": [block_facts(one) for one in removed]}
        print_json({**facts, "remaining": [block_facts(one) for one in remaining]})
        return
    for one in removed:
        print_line(f"Removed the block of {entity_id} for {block_words(one)}")
    if not removed:
        of_what = "block" if resource is None else f"block for {resource}"
        print_line(f"Entity {entity_id} has no {of_what}; nothing was changed.")
    for one in remaining:
        print_note(f"It is still blocked for {block_words(one, SystemClock().now_ms())}")
    if removed:
        print_note(NOTICED)


@click.command("bypass", short_help="Set the bypass of an entity.", epilog=help_of(examples(*BYPASSING), BYPASSED))
@click.argument("entity_id", metavar="ENTITY")
@click.option(
    "--on/--off", "bypass", default=None, required=True, help="Let no limit reject its requests, or end that."
)
@changing_options
def set_bypass(entity_id: str, bypass: bool | None, changing: Changing) -> None:
    """Set whether limits reject the requests of an entity. What it uses is counted in any case."""
    if bypass is None:
        raise click.UsageError("pass either --on or --off", click.get_current_context())
    with opened(changing.store) as limiter:
        before = required(limiter.get_entity(entity_id), entity_id)
        limiter.set_bypass(entity_id, bypass, changing.principal)
    changed = before.bypass is not bypass
    if changing.as_json:
        print_json({"entity_id": entity_id, "bypass": bypass, "changed": changed})
        return
    now = "No limit rejects requests" if bypass else "Limits reject requests"
    print_line(f"{now} of {entity_id}{' now' if changed else '; nothing was changed'}.")
    if changed:
        print_note(NOTICED)


def required(found: Entity | None, entity_id: str) -> Entity:
    """Return an entity that was found.

    Raises:
        EntityNotFoundError: It does not exist.
    """
    if found is None:
        raise EntityNotFoundError(entity_id)
    return found


def end_of(text: str) -> datetime:
    """Parse the end of a block.

    Raises:
        click.BadParameter: The text is no time.
    """
    try:
        return parse_end(text, SystemClock().now_ms())
    except ValidationError as error:
        context = click.get_current_context()
        raise click.BadParameter(f"{error.value!r}: {error.reason}", context, param_hint="--until") from error


COMMANDS = (move, block, unblock, set_bypass)
