"""What commands print: tables in a terminal, plain columns in a pipe, JSON where it is asked for, notes on stderr."""

import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import click

if TYPE_CHECKING:
    from rich.status import Status

# What is shown to be under way at the moment: one at most, since one terminal has one last line.
_shown: "list[Status]" = []


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table; numbers stand to the right, and what is whole is not folded where there is little room."""

    title: str
    is_number: bool = False
    is_whole: bool = False


@dataclass(frozen=True, slots=True)
class Grid:
    """Columns, and rows of as many cells."""

    columns: Sequence[Column]
    rows: Sequence[Sequence[str]]


def in_terminal() -> bool:
    """Say whether somebody is looking, rather than a program reading."""
    return sys.stdout.isatty() and os.environ.get("TERM") != "dumb"


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


def print_note(text: str) -> None:
    """Say on stderr, dimly, what is good to know and no result."""
    click.echo(text if "NO_COLOR" in os.environ else click.style(text, dim=True), err=True)


def print_line(text: str) -> None:
    """Print a result that is a sentence."""
    click.echo(visible(text))


@contextmanager
def working(text: str) -> Iterator[Callable[[str], None]]:
    """Show on stderr that something is under way, if somebody is looking; what is yielded says what it is by now."""
    if not sys.stderr.isatty() or os.environ.get("TERM") == "dumb":
        yield lambda _: None
        return
    from rich.console import Console

    if _shown:
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
    """Leave the terminal to somebody else for a while, such as a question."""
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
    """Write characters that a terminal would obey, or that would break a line, as escapes."""
    return text if text.isprintable() else "".join(one if one.isprintable() else ascii(one)[1:-1] for one in text)


def plain_lines(grid: Grid) -> list[str]:
    """Write a table in aligned columns, two spaces apart."""
    lines = [[column.title.upper() for column in grid.columns], *grid.rows]
    widths = [max(len(line[place]) for line in lines) for place in range(len(grid.columns))]
    return [_plain_line(line, grid.columns, widths) for line in lines]


def _plain_line(cells: Sequence[str], columns: Sequence[Column], widths: Sequence[int]) -> str:
    padded = [
        cell.rjust(width) if column.is_number else cell.ljust(width)
        for cell, column, width in zip(cells, columns, widths, strict=True)
    ]
    return "  ".join(padded).rstrip()


def _print_rich(grid: Grid) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    # Where somebody looks, a column without a single word only takes room from the others.
    places = [
        place for place, column in enumerate(grid.columns) if not column.title or any(r[place] for r in grid.rows)
    ]
    for column in (grid.columns[place] for place in places):
        justify: Literal["left", "right"] = "right" if column.is_number else "left"
        # A cell that is cut off is lost; one that is folded can be read.
        table.add_column(column.title, justify=justify, header_style="bold", overflow="fold", no_wrap=column.is_whole)
    for row in grid.rows:
        table.add_row(*(row[place] for place in places))
    Console(highlight=False, markup=False).print(table)
