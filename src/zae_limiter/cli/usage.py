"""Define ``zae-limiter usage``: show usage by hour, day and month."""

from collections.abc import Callable, Mapping
from shlex import quote

import click

from zae_limiter._sync.limiter.limiter import SyncRateLimiter
from zae_limiter.cli._groups import CommandGroup
from zae_limiter.cli._help import examples, help_of
from zae_limiter.cli._no_usage_hint import why_nothing
from zae_limiter.cli._options import view_options
from zae_limiter.cli._output import Column, Grid, in_terminal, print_grid, print_json, print_note, working
from zae_limiter.cli._place import StoreChoice, store_options
from zae_limiter.cli._store import opened
from zae_limiter.cli._usage_charts import ShownUsage, check_replaceable, page_of, print_charts, with_limits, write_page
from zae_limiter.cli._usage_options import (
    LARGEST_PAGE,
    PAGE,
    Asked,
    Paging,
    Shape,
    asked_options,
    paging_options,
    shape_options,
    token_of,
)
from zae_limiter.cli._usage_summary import SUMMED, SummedUsage
from zae_limiter.cli._usage_top import TOP, TOP_SHAPE, Top, print_top, rank, top_options
from zae_limiter.cli._usage_units import with_units
from zae_limiter.core.lazy_dataclass import asdict, replace
from zae_limiter.core.usage import UsageSnapshot
from zae_limiter.visualization.table import CsvFormatter, TableFormatter, rows_of

LISTING = (
    "zae-limiter usage list",
    "zae-limiter usage list --entity user-1",
    'zae-limiter usage list --resource gpt-4 --start "2 days ago" --plot',
    "zae-limiter usage list -e user-1 -w daily --start 2026-01 --end 2026-01 --html january.html",
    "zae-limiter usage list -r gpt-4 --all --csv > usage.csv",
)
CHARTS = ("plot", "html")
"""The output formats that add up usage."""

SUMMING = (
    "zae-limiter usage summary --entity user-1 --start yesterday --end yesterday",
    "zae-limiter usage summary -w daily --start 2026-01 --end 2026-01",
    "zae-limiter usage summary -r gpt-4 -w monthly --json | jq .total",
    "zae-limiter usage summary -r gpt-4 -w daily --start 2026-01 --end 2026-01 --html january.html",
)


@click.group(
    cls=CommandGroup,
    short_help="Show usage by hour, day and month.",
    epilog=examples(LISTING[1], SUMMING[0], TOP[0]),
)
def usage() -> None:
    """Show usage by hour, day and month. All times are UTC."""


@usage.command("list", short_help="Show the usage of each window.", epilog=examples(*LISTING))
@asked_options(all_windows=True)
@paging_options
@shape_options
@store_options
def list_usage(asked: Asked, paging: Paging, shape: Shape, store: StoreChoice) -> None:
    """Show the usage of each window as a table, charts, CSV, JSON or a page.

    Without --entity and --resource, it is the usage of the whole namespace, the newest window first.

    With cascade, a call counts for the key and for its parent. So it counts twice in the usage of a
    resource. The resource _all_ has the usage of limits across resources, which charts leave out
    unless --resource names it.
    """
    check_replaceable(shape)
    with opened(store) as limiter, working("Counting"):
        found = read(limiter, asked, wanted(paging, shape), paging.start)
        found, lacking = summed(found, asked) if shape.form in CHARTS else (found, None)
        note = lacking if found.snapshots else lacking or why_nothing(limiter, asked, store)
        found = READ[shape.form](limiter, found)
    SHOWN[shape.form](found, asked, shape, store)
    if note is not None:
        print_note(note)
    if found.next is not None:
        print_note(f"There are more; pass --all, or continue with --cursor {quote(token_of(found.next))}")


@usage.command("summary", short_help="Add up the usage of all windows.", epilog=examples(*SUMMING))
@asked_options(all_windows=False)
@shape_options
@store_options
def summarize_usage(asked: Asked, shape: Shape, store: StoreChoice) -> None:
    """Add up usage by limit, over windows of one length. The mean counts only windows with usage.

    Charts and pages also show each window. Limits across resources count the same tokens again, so
    they are left out unless you pass --resource _all_.
    """
    check_replaceable(shape)
    with opened(store) as limiter, working("Counting"):
        found, lacking = summed(read(limiter, asked, None, None), asked)
        note = lacking if found.snapshots else lacking or why_nothing(limiter, asked, store)
        found = READ[shape.form](limiter, found)
    SUMMED[shape.form](found, asked, shape, store)
    if note is not None:
        print_note(note)


@usage.command("top", short_help="Show the largest users.", epilog=help_of(examples(*TOP), TOP_SHAPE))
@top_options
@asked_options(all_windows=False)
@view_options
def top_usage(top: Top, asked: Asked, as_json: bool, store: StoreChoice) -> None:
    """Show the entities or resources that have used most of a limit, with their share of the total.

    With cascade, a call counts for the key and for its parent, so shares of entities overlap. Limits
    across resources are left out unless you pass --resource _all_.
    """
    with opened(store) as limiter, working("Counting"):
        found = rank(limiter, asked, top)
        note = found.note if found.rankings else found.note or why_nothing(limiter, asked, store)
    print_top(found, asked, top, as_json)
    if note is not None:
        print_note(note)


def wanted(paging: Paging, shape: Shape) -> int | None:
    """Return how many snapshots to read, None for all, because a chart of only some would mislead."""
    if paging.everything or (paging.limit is None and shape.form in CHARTS):
        return None
    return paging.limit or PAGE


def read(limiter: SyncRateLimiter, asked: Asked, most: int | None, start: Mapping[str, str] | None) -> ShownUsage:
    """Read snapshots, page by page."""
    snapshots: list[UsageSnapshot] = []
    while True:
        room = LARGEST_PAGE if most is None else min(most - len(snapshots), LARGEST_PAGE)
        page, start = limiter.get_usage_snapshots(**asked.filters, limit=room, next_key=start)
        snapshots += page
        if start is None or len(snapshots) == most:
            return ShownUsage(snapshots, start)


def summed(found: ShownUsage, asked: Asked) -> tuple[ShownUsage, str | None]:
    """Return the usage that sums include, and a note about what they lack, None if nothing."""
    sums = SummedUsage(asked)
    return replace(found, snapshots=sums.of(found.snapshots)), sums.note()


def show_table(found: ShownUsage, asked: Asked, shape: Shape, store: StoreChoice) -> None:
    """Print a table."""
    if not in_terminal():
        table = TableFormatter(found.units).format(found.snapshots) if found.snapshots else ""
        click.echo(table, nl=bool(found.snapshots))
    elif found.snapshots:
        rows = rows_of(found.snapshots, found.units)
        columns = [Column(title, place >= rows.named) for place, title in enumerate(rows.titles)]
        print_grid(Grid(columns, rows.cells))


def show_plot(found: ShownUsage, asked: Asked, shape: Shape, store: StoreChoice) -> None:
    """Print charts that fit the terminal."""
    if found.snapshots:
        print_charts(found)


def show_csv(found: ShownUsage, asked: Asked, shape: Shape, store: StoreChoice) -> None:
    """Print comma-separated values."""
    click.echo(CsvFormatter().format(found.snapshots))


def show_json(found: ShownUsage, asked: Asked, shape: Shape, store: StoreChoice) -> None:
    """Print JSON with the cursor of the next page."""
    following = None if found.next is None else token_of(found.next)
    facts = {"snapshots": [asdict(one) for one in found.snapshots], "next_cursor": following}
    print_json(facts | ({"units": dict(found.units)} if found.units else {}))


def show_page(found: ShownUsage, asked: Asked, shape: Shape, store: StoreChoice) -> None:
    """Write a page, and print its path."""
    write_page(shape, page_of(asked, store, found.limits), found.snapshots)


def as_it_is(limiter: SyncRateLimiter, found: ShownUsage) -> ShownUsage:
    """Return the usage: CSV has neither limits nor units."""
    return found


READ: dict[str, Callable[[SyncRateLimiter, ShownUsage], ShownUsage]] = {
    "table": with_units,
    "plot": with_units,
    "csv": as_it_is,
    "json": with_units,
    "html": with_limits,
}
"""Reads what each form shows besides the snapshots."""

SHOWN: dict[str, Callable[[ShownUsage, Asked, Shape, StoreChoice], None]] = {
    "table": show_table,
    "plot": show_plot,
    "csv": show_csv,
    "json": show_json,
    "html": show_page,
}
