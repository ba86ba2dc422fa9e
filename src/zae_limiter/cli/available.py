"""Define ``zae-limiter available``: show the tokens left of each limit."""

import click

from zae_limiter.cli._help import examples, help_of, json_shape
from zae_limiter.cli._limit_syntax import LIMIT_KEYS, describe_refill, limit_facts
from zae_limiter.cli._options import LimitOptions, asking_arguments, json_option
from zae_limiter.cli._output import Column, Grid, print_grid, print_json
from zae_limiter.cli._place import StoreChoice, store_options
from zae_limiter.cli._store import QUICK_S, opened
from zae_limiter.core.limit import Limit

COLUMNS = [Column("limit"), Column("available", True), Column("capacity", True), Column("refill")]


EXAMPLES = examples(
    "zae-limiter available user-1 gpt-4",
    "zae-limiter available user-1 gpt-4 --json | jq .available.rpm",
)


SHAPE = json_shape("{entity_id, resource, available: {limit: amount}, limits: [LIMIT]}", LIMIT_KEYS)


@click.command(short_help="Show the tokens left of each limit.", epilog=help_of(EXAMPLES, SHAPE))
@asking_arguments
@json_option
@store_options
def available(asking: LimitOptions, as_json: bool, store: StoreChoice) -> None:
    """Show the tokens left of each limit; a negative number is debt. Nothing is taken."""
    with opened(store, QUICK_S) as limiter:
        left = limiter.available(asking.entity_id, asking.resource, asking.limits)
        limits = asking.limits or limiter.resolve_limits(asking.entity_id, asking.resource).limits or []
    if as_json:
        facts = {"entity_id": asking.entity_id, "resource": asking.resource, "available": left}
        print_json(facts | {"limits": limit_facts(limits)})
    else:
        print_grid(Grid(COLUMNS, rows(left, limits)))


def rows(left: dict[str, int], limits: list[Limit]) -> list[tuple[str, ...]]:
    """Return one row per limit."""
    known = {limit.name: limit for limit in limits}
    return [
        (name, str(amount), str(known[name].capacity), describe_refill(known[name]))
        for name, amount in left.items()
        if name in known
    ]
