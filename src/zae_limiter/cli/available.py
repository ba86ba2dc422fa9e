"""Define ``zae-limiter available``: show the tokens left of each limit."""

from typing import TYPE_CHECKING

import click

from zae_limiter.cli._failures import blocked_line
from zae_limiter.cli._help import examples, help_of, json_shape
from zae_limiter.cli._limit_syntax import LIMIT_KEYS, describe_refill, limit_facts
from zae_limiter.cli._options import LimitOptions, json_option, limit_arguments
from zae_limiter.cli._output import Column, Grid, print_grid, print_json, print_line
from zae_limiter.cli._place import StoreChoice, store_options
from zae_limiter.cli._store import QUICK_S, opened
from zae_limiter.core.errors import EntityBlockedError
from zae_limiter.core.limit import Limit
from zae_limiter.core.names import ALL_RESOURCES

if TYPE_CHECKING:
    from zae_limiter._sync.limiter.limiter import SyncRateLimiter

COLUMNS = [Column("limit"), Column("available", True), Column("capacity", True), Column("refill")]


EXAMPLES = examples(
    "zae-limiter available user-1 gpt-4",
    "zae-limiter available user-1 gpt-4 --json | jq .available.rpm",
)


SHAPE = json_shape(
    "{entity_id, resource, available: {limit: amount}, limits: [LIMIT],",
    " blocked: null, or {error, message, entity_id, resource, reason, until}}",
    LIMIT_KEYS,
)


@click.command(short_help="Show the tokens left of each limit.", epilog=help_of(EXAMPLES, SHAPE))
@limit_arguments
@json_option
@store_options
def available(options: LimitOptions, as_json: bool, store: StoreChoice) -> None:
    """Show the tokens left of each limit; a negative number is debt. Nothing is taken.

    If a request would take from several buckets, it is the smallest amount of all. If the entity is
    blocked, nothing is left, and the command says who is blocked and why.
    """
    with opened(store, QUICK_S) as limiter:
        left = limiter.available(options.entity_id, options.resource, options.limits)
        blocked = None if any(left.values()) else block_of(limiter, options)
        limits = limits_of(limiter, options)
    if as_json:
        facts = {"entity_id": options.entity_id, "resource": options.resource, "available": left}
        refused = None if blocked is None else blocked.as_dict() | {"message": blocked_line(blocked)}
        print_json(facts | {"limits": limit_facts(limits), "blocked": refused})
        return
    print_grid(Grid(COLUMNS, rows(left, limits)))
    if blocked is not None:
        print_line(blocked_line(blocked))


def block_of(limiter: "SyncRateLimiter", options: LimitOptions) -> EntityBlockedError | None:
    """Return the block that refuses requests, None if none does."""
    try:
        limiter.time_until_available(options.entity_id, options.resource, {}, options.limits)
    except EntityBlockedError as error:
        return error
    return None


def limits_of(limiter: "SyncRateLimiter", options: LimitOptions) -> list[Limit]:
    """Return the limits of the entity: those of the resource, and others across resources."""
    limits = options.limits or limiter.resolve_limits(options.entity_id, options.resource).limits or []
    named = {limit.name for limit in limits}
    across = limiter.resolve_limits(options.entity_id, ALL_RESOURCES).limits or []
    return [*limits, *(limit for limit in across if limit.name not in named)]


def rows(left: dict[str, int], limits: list[Limit]) -> list[tuple[str, ...]]:
    """Return one row per limit."""
    known = {limit.name: limit for limit in limits}
    return [
        (name, str(amount), str(known[name].capacity), describe_refill(known[name]))
        for name, amount in left.items()
        if name in known
    ]
