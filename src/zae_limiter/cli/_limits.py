"""Stored limits, as commands print them."""

from collections.abc import Sequence

from zae_limiter.cli._limit_syntax import describe_refill
from zae_limiter.cli._output import Column, Grid
from zae_limiter.core.limit import Limit

COLUMNS = [Column("limit"), Column("capacity", True), Column("refill")]
LIMIT_KEYS = "LIMIT is {name, capacity, refill_amount, refill_period_seconds}"
"""What JSON tells of a limit, for the help."""


def limits_grid(limits: Sequence[Limit]) -> Grid:
    """Return limits as a table."""
    return Grid(COLUMNS, [(limit.name, str(limit.capacity), describe_refill(limit)) for limit in limits])


def limit_facts(limits: Sequence[Limit]) -> list[dict[str, object]]:
    """Return limits ready for JSON."""
    return [dict(limit.to_dict()) for limit in limits]
