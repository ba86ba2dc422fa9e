"""Choose the snapshots that sums include, and print the output formats of ``zae-limiter usage summary``."""

from collections.abc import Callable, Iterable

import click

from zae_limiter.cli._output import Column, Grid, print_grid, print_json, print_note
from zae_limiter.cli._place import StoreChoice
from zae_limiter.cli._usage_charts import ShownUsage, page_of, print_charts, write_page
from zae_limiter.cli._usage_options import Asked, Shape
from zae_limiter.core.lazy_dataclass import asdict
from zae_limiter.core.names import ALL_RESOURCES
from zae_limiter.core.usage import UsageFilter, UsageSnapshot, summarize
from zae_limiter.visualization.summary import sums_as_csv, sums_of


class SummedUsage:
    """The snapshots that sums and charts include, and the limits that they lack."""

    def __init__(self, asked: Asked) -> None:
        self._wanted = UsageFilter(**asked.filters)
        self._included: set[str] = set()
        self._left_out: set[str] = set()

    def of(self, snapshots: Iterable[UsageSnapshot]) -> list[UsageSnapshot]:
        """Return the snapshots that count, without those that count the tokens of each resource again."""
        found = []
        for one in snapshots:
            if self._wanted.adds_up(one.resource):
                found.append(one)
                self._included.update(one.counters)
            else:
                self._left_out.update(one.counters)
        return found

    def note(self) -> str | None:
        """Describe the limits that only ``_all_`` has, and so the sums lack; None if there are none."""
        lacking = sorted(self._left_out - self._included)
        if not lacking:
            return None
        return (
            f"Not included: {', '.join(lacking)}, which apply across resources. Show them: --resource {ALL_RESOURCES}"
        )


def show_table(found: ShownUsage, asked: Asked, shape: Shape, store: StoreChoice) -> None:
    """Print sums and means, and what they cover."""
    for sums in sums_of(found.snapshots, found.units):
        columns = [Column(title, place > 0) for place, title in enumerate(sums.titles)]
        print_grid(Grid(columns, sums.rows))
        print_note(sums.of_what)


def show_plot(found: ShownUsage, asked: Asked, shape: Shape, store: StoreChoice) -> None:
    """Print charts of the windows that were added up, and the sums below."""
    if found.snapshots:
        print_charts(found)
        click.echo()
    show_table(found, asked, shape, store)


def show_csv(found: ShownUsage, asked: Asked, shape: Shape, store: StoreChoice) -> None:
    """Print comma-separated values."""
    click.echo(sums_as_csv(found.snapshots))


def show_json(found: ShownUsage, asked: Asked, shape: Shape, store: StoreChoice) -> None:
    """Print JSON."""
    facts = {"window_type": asked.window, **asdict(summarize(found.snapshots))}
    print_json(facts | ({"units": dict(found.units)} if found.units else {}))


def show_page(found: ShownUsage, asked: Asked, shape: Shape, store: StoreChoice) -> None:
    """Write a page with the sums on top, and print its path."""
    write_page(shape, page_of(asked, store, found.limits, summed=True), found.snapshots)


SUMMED: dict[str, Callable[[ShownUsage, Asked, Shape, StoreChoice], None]] = {
    "table": show_table,
    "plot": show_plot,
    "csv": show_csv,
    "json": show_json,
    "html": show_page,
}
