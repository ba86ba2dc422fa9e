"""Print results: tables in a terminal, plain columns in a pipe, JSON on request, notes on stderr."""

import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal

import click

from zae_limiter.core.lazy_dataclass import dataclass

if TYPE_CHECKING:
    from rich.status import Status

# The status line that is shown now: at most one, because a terminal has one last line.
_shown: "list[Status]" = []


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table. Numbers are aligned right. A column with ``is_whole`` is never folded."""

    title: str
    is_number: bool = False
    is_whole: bool = False


@dataclass(frozen=True, slots=True)
class Grid:
    """Columns, and rows of as many cells."""

    columns: Sequence[Column]
    rows: Sequence[Sequence[str]]


def in_terminal() -> bool:
    """Return whether stdout is an interactive terminal."""
    return sys.stdout.isatty() and os.environ.get("TERM") != "dumb"


def has_status_line() -> bool:
    """Return whether stderr is an interactive terminal, in which a line can be replaced."""
    return sys.stderr.isatty() and os.environ.get("TERM") != "dumb"


def print_json(value: object) -> None:
    """Print a value as JSON, on one line in a pipe."""
    click.echo(json.dumps(value, indent=2 if in_terminal() else None))


def print_grid(grid: Grid) -> None:
    """Print a table."""
    grid = Grid(grid.columns, [[visible(cell) for cell in row] for row in grid.rows])
    if in_terminal():
        _print_rich(grid)
    else:
        click.echo("\n".join(plain_lines(grid)))


def print_details(grid: Grid) -> None:
    """Print a table on stderr if it is an interactive terminal. A program reads the same from JSON."""
    if has_status_line():
        _print_rich(Grid(grid.columns, [[visible(cell) for cell in row] for row in grid.rows]), err=True)


def print_note(text: str) -> None:
    """Print a dimmed note on stderr, which is not part of the result."""
    click.echo(text if "NO_COLOR" in os.environ else click.style(text, dim=True), err=True)


def print_line(text: str) -> None:
    """Print a result that is a sentence."""
    click.echo(visible(text))


@contextmanager
def working(text: str) -> Iterator[Callable[[str], None]]:
    """Show a status line on stderr in a terminal. The yielded function replaces its text."""
    if not has_status_line():
        yield lambda _: None
        return
    from rich.console import Console

    if _shown:
        # A terminal has one status line. The inner text replaces the outer one until it ends.
        before = _shown[-1].status
        _say(_shown[-1], text)
        try:
            yield lambda said: _say(_shown[-1], said)
        finally:
            _shown[-1].update(before)
        return
    with Console(stderr=True, highlight=False).status("") as status:
        _say(status, text)
        _shown.append(status)
        try:
            yield lambda said: _say(status, said)
        finally:
            _shown.pop()


@contextmanager
def paused() -> Iterator[None]:
    """Hide the status line meanwhile, for example for a question."""
    for status in _shown:
        status.stop()
    try:
        yield
    finally:
        for status in _shown:
            status.start()


def _say(status: "Status", text: str) -> None:
    from rich.text import Text

    status.update(Text(f"{visible(text)} ...", no_wrap=True, overflow="ellipsis"))


def visible(text: str) -> str:
    """Escape control characters and line breaks."""
    return text if text.isprintable() else "".join(one if one.isprintable() else ascii(one)[1:-1] for one in text)


def plain_lines(grid: Grid) -> list[str]:
    """Format a table in aligned columns, two spaces apart."""
    lines = [[column.title.upper() for column in grid.columns], *grid.rows]
    widths = [max(len(line[place]) for line in lines) for place in range(len(grid.columns))]
    return [_plain_line(line, grid.columns, widths) for line in lines]


def _plain_line(cells: Sequence[str], columns: Sequence[Column], widths: Sequence[int]) -> str:
    padded = [
        cell.rjust(width) if column.is_number else cell.ljust(width)
        for cell, column, width in zip(cells, columns, widths, strict=True)
    ]
    return "  ".join(padded).rstrip()


def _print_rich(grid: Grid, *, err: bool = False) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    # In a terminal, omit columns in which every cell is empty.
    places = [
        place for place, column in enumerate(grid.columns) if not column.title or any(r[place] for r in grid.rows)
    ]
    for column in (grid.columns[place] for place in places):
        justify: Literal["left", "right"] = "right" if column.is_number else "left"
        # Fold long cells rather than cut them off.
        table.add_column(column.title, justify=justify, header_style="bold", overflow="fold", no_wrap=column.is_whole)
    for row in grid.rows:
        table.add_row(*(row[place] for place in places))
    # A name may contain the code of an emoji, such as ":free:". It is shown as it is.
    Console(stderr=err, highlight=False, markup=False, emoji=False).print(table)
