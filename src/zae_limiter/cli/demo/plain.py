"""The demo in a pipe: a line every second."""

from collections.abc import Iterable
from types import TracebackType
from typing import Self

import click

from zae_limiter.cli.demo.progress import Frame

_BALANCES_WIDE = 16


class PlainView:
    """A heading, then a row every second: what was admitted and rejected so far, and the balance of each project."""

    every_s = 1.0

    def __init__(self) -> None:
        self._has_heading = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    def show(self, frame: Frame) -> None:
        """Print a row, the first time below a heading."""
        if not self._has_heading:
            self._has_heading = True
            _print(" TIME  ADMITTED  REJECTED", (one.project.entity_id for one in frame.standings))
        admitted = sum(one.admitted for one in frame.standings)
        rejected = sum(one.rejected for one in frame.standings)
        balances = (" ".join(f"{name} {left:,}" for name, left in one.balances.items()) for one in frame.standings)
        _print(f"{frame.elapsed_s:3.0f} s  {admitted:8}  {rejected:8}", balances)


def _print(start: str, cells: Iterable[str]) -> None:
    click.echo("  ".join([start, *(cell.ljust(_BALANCES_WIDE) for cell in cells)]).rstrip())
