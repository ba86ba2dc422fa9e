"""What commands print: tables in a terminal, plain columns in a pipe, JSON where it is asked for, notes on stderr."""

import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

import click


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table; numbers stand to the right."""

    title: str
    is_number: bool = False


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
    if in_terminal():
        _print_rich(grid)
    else:
        click.echo("\n".join(plain_lines(grid)))


def print_note(text: str) -> None:
    """Say on stderr, dimly, what is good to know and no result."""
    click.echo(text if "NO_COLOR" in os.environ else click.style(text, dim=True), err=True)


@contextmanager
def working(text: str) -> Iterator[Callable[[str], None]]:
    """Show on stderr that something is under way, if somebody is looking; what is yielded says what it is by now."""
    if not sys.stderr.isatty() or os.environ.get("TERM") == "dumb":
        yield lambda _: None
        return
    from rich.console import Console
    from rich.text import Text

    with Console(stderr=True, highlight=False).status(Text(f"{text} ...")) as status:
        yield lambda said: status.update(Text(f"{said} ...", no_wrap=True, overflow="ellipsis"))


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
    for column in grid.columns:
        justify: Literal["left", "right"] = "right" if column.is_number else "left"
        # A cell that is cut off is lost; one that is folded can be read.
        table.add_column(column.title, justify=justify, header_style="bold", overflow="fold")
    for row in grid.rows:
        table.add_row(*row)
    Console(highlight=False, markup=False).print(table)
