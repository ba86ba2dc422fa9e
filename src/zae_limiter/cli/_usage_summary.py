"""Print the output formats of ``zae-limiter usage summary``, all from snapshots that were read once."""

from collections.abc import Callable, Sequence
from dataclasses import asdict

import click

from zae_limiter.cli._output import Column, Grid, print_grid, print_json, print_note
from zae_limiter.cli._place import StoreChoice
from zae_limiter.cli._usage_charts import page_of, print_charts, write_page
from zae_limiter.cli._usage_options import Asked, Shape
from zae_limiter.core.usage import UsageSnapshot, summarize
from zae_limiter.visualization.summary import sums_as_csv, sums_of

COLUMNS = [Column("limit"), Column("total", True), Column("mean", True)]
Snapshots = Sequence[UsageSnapshot]


def show_table(snapshots: Snapshots, asked: Asked, shape: Shape, store: StoreChoice) -> None:
    """Print sums and means, and what they cover."""
    for sums in sums_of(snapshots):
        print_grid(Grid(COLUMNS, sums.rows))
        print_note(sums.of_what)


def show_plot(snapshots: Snapshots, asked: Asked, shape: Shape, store: StoreChoice) -> None:
    """Print charts of the windows that were added up, and the sums below."""
    if snapshots:
        print_charts(snapshots)
        click.echo()
    show_table(snapshots, asked, shape, store)


def show_csv(snapshots: Snapshots, asked: Asked, shape: Shape, store: StoreChoice) -> None:
    """Print comma-separated values."""
    click.echo(sums_as_csv(snapshots))


def show_json(snapshots: Snapshots, asked: Asked, shape: Shape, store: StoreChoice) -> None:
    """Print JSON."""
    print_json({"window_type": asked.window, **asdict(summarize(snapshots))})


def show_page(snapshots: Snapshots, asked: Asked, shape: Shape, store: StoreChoice) -> None:
    """Write a page with the sums on top, and print its path."""
    assert shape.page is not None
    write_page(shape.page, page_of(asked, store, summed=True), snapshots)


SUMMED: dict[str, Callable[[Snapshots, Asked, Shape, StoreChoice], None]] = {
    "table": show_table,
    "plot": show_plot,
    "csv": show_csv,
    "json": show_json,
    "html": show_page,
}
