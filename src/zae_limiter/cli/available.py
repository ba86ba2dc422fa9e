"""Define ``zae-limiter available``: show the tokens left of each limit."""

from typing import TYPE_CHECKING

import click

from zae_limiter.cli._failures import blocked_line
from zae_limiter.cli._help import examples, help_of, json_shape
from zae_limiter.cli._limit_syntax import FORMS
from zae_limiter.cli._limit_words import LIMIT_KEYS, describe_refill, facts_with_reset, resets_at
from zae_limiter.cli._options import LimitOptions, json_option, limit_arguments
from zae_limiter.cli._output import Column, Grid, print_grid, print_json, print_line
from zae_limiter.cli._place import StoreChoice, store_options
from zae_limiter.cli._store import QUICK_S, limits_in_force, opened
from zae_limiter.clock import SystemClock
from zae_limiter.core.errors import EntityBlockedError
from zae_limiter.core.limit import Limit
from zae_limiter.core.money import format_with_unit

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
    *LIMIT_KEYS,
    "Each LIMIT of a quota also has {resets_at}.",
)


@click.command(short_help="Show the tokens left of each limit.", epilog=help_of(EXAMPLES, FORMS, SHAPE))
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
        limits = limits_in_force(limiter, options)
    now_ms = SystemClock().now_ms()
    if as_json:
        facts = {"entity_id": options.entity_id, "resource": options.resource, "available": left}
        refused = None if blocked is None else blocked.as_dict() | {"message": blocked_line(blocked)}
        print_json(facts | {"limits": facts_with_reset(limits, now_ms), "blocked": refused})
        return
    print_grid(Grid(COLUMNS, rows(left, limits, now_ms)))
    if blocked is not None:
        print_line(blocked_line(blocked))


def block_of(limiter: "SyncRateLimiter", options: LimitOptions) -> EntityBlockedError | None:
    """Return the block that refuses requests, None if none does."""
    try:
        limiter.time_until_available(options.entity_id, options.resource, {}, options.limits)
    except EntityBlockedError as error:
        return error
    return None


def rows(left: dict[str, int], limits: list[Limit], now_ms: int) -> list[tuple[str, ...]]:
    """Return one row per limit."""
    known = {limit.name: limit for limit in limits}
    return [row_of(known[name], amount, now_ms) for name, amount in left.items() if name in known]


def row_of(limit: Limit, left: int, now_ms: int) -> tuple[str, ...]:
    """Return a limit with what is left of it, and how it refills."""
    amounts = format_with_unit(left, limit.unit), format_with_unit(limit.capacity, limit.unit)
    return (limit.name, *amounts, describe_refill(limit, resets_at(limit, now_ms)))
