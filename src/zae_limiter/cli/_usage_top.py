"""Rank entities or resources for ``zae-limiter usage top``, and print the ranking."""

from collections.abc import Mapping, Sequence
from functools import wraps
from typing import Any

import click

from zae_limiter._sync.limiter.limiter import SyncRateLimiter
from zae_limiter.cli._help import json_shape
from zae_limiter.cli._output import Column, Grid, print_grid, print_json, print_note
from zae_limiter.cli._place import Command
from zae_limiter.cli._usage_options import LARGEST_PAGE, Asked
from zae_limiter.cli._usage_summary import SummedUsage
from zae_limiter.cli._usage_units import units_of
from zae_limiter.core.lazy_dataclass import dataclass
from zae_limiter.core.usage_ranking import LimitRanking, Ranked, RankedBy, UsageRanking
from zae_limiter.visualization.series import UnitsByName
from zae_limiter.visualization.wording import percent, with_unit

TOP = (
    "zae-limiter usage top --start today",
    "zae-limiter usage top --resource gpt-4 --limit-name tpm --start '7 days ago' -w daily",
    "zae-limiter usage top --by resource --top 3 --json | jq '.limits[0].top'",
)
TOP_SHAPE = json_shape(
    "{window_type, by: entity or resource,",
    " limits: [{limit_name, total, top: [{name, amount, share: 0 to 1}]}]},",
    " and if known {unit} of the limit; money is in micro-units",
)
_BAR = 20
_FILLED, _EMPTY = "█", "░"


@dataclass(frozen=True, slots=True)
class Top:
    """What is ranked, by which limit, None for each, and how many names are shown."""

    by: RankedBy
    limit_name: str | None
    size: int


def top_options(command: Command) -> Command:
    """Add ``--by``, ``--limit-name`` and ``--top``; the command takes them as ``top``."""

    @click.option(
        "--by", type=click.Choice(["entity", "resource"]), default="entity", show_default=True, help="What to rank."
    )
    @click.option("--limit-name", metavar="LIMIT", help="Limit to rank by. Default: each limit in its own table.")
    @click.option(
        "--top", "--limit", "size", type=click.IntRange(min=1), default=10, show_default=True, help="How many to show."
    )
    @wraps(command)
    def with_top(*, by: RankedBy, limit_name: str | None, size: int, **others: Any) -> None:
        command(top=Top(by, limit_name, size), **others)

    return with_top


@dataclass(frozen=True, slots=True)
class FoundTop:
    """The rankings, the units of their limits, and a note about what is left out, None if nothing."""

    rankings: list[LimitRanking]
    units: UnitsByName
    note: str | None


def rank(limiter: SyncRateLimiter, asked: Asked, top: Top) -> FoundTop:
    """Read all snapshots page by page, and rank them."""
    ranking, sums = UsageRanking(top.by), SummedUsage(asked)
    uses: dict[tuple[str, str], tuple[str, str]] = {}
    start: Mapping[str, str] | None = None
    while True:
        page, start = limiter.get_usage_snapshots(**asked.filters, limit=LARGEST_PAGE, next_key=start)
        counted = sums.of(page)
        ranking.add(counted)
        for one in counted:
            name = one.entity_id if top.by == "entity" else one.resource
            for limit_name in one.counters:
                uses.setdefault((limit_name, name), (one.entity_id, one.resource))
        if start is None:
            break
    found = ranking.of(top.limit_name, top.size)
    shown = [uses[one.limit_name, ranked.name] for one in found for ranked in one.top]
    return FoundTop(found, units_of(limiter, shown), sums.note())


def print_top(found: FoundTop, asked: Asked, top: Top, as_json: bool) -> None:
    """Print rankings as JSON, or as a table for each limit."""
    if as_json:
        limits = [_facts(one, found.units.get(one.limit_name)) for one in found.rankings]
        print_json({"window_type": asked.window, "by": top.by, "limits": limits})
        return
    for one in found.rankings:
        unit = found.units.get(one.limit_name)
        columns = [Column(top.by), Column(one.limit_name, True), Column("share", True), Column("", is_whole=True)]
        print_grid(Grid(columns, [row_of(ranked, one, unit) for ranked in one.top]))
        of_what = f"of {asked.whose} " if asked.whose else ""
        print_note(f"Total {of_what}in {asked.window} windows: {with_unit(one.total, unit)} {one.limit_name}.")


def _facts(ranking: LimitRanking, unit: str | None) -> dict[str, object]:
    facts = ranking._asdict() | {"top": [ranked._asdict() for ranked in ranking.top]}
    return facts if unit is None else facts | {"unit": unit}


def row_of(ranked: Ranked, ranking: LimitRanking, unit: str | None) -> Sequence[str]:
    """Return a name with its amount, its share, and a bar of the share."""
    share = percent(ranked.amount, ranking.total) if ranking.total > 0 else "-"
    filled = round(_BAR * min(max(ranked.share, 0.0), 1.0))
    return (ranked.name, with_unit(ranked.amount, unit), share, _FILLED * filled + _EMPTY * (_BAR - filled))
