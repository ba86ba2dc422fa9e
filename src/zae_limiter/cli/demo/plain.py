"""Show the demo in a pipe: one line per second."""

from collections.abc import Iterable
from typing import Self

import click

from zae_limiter.cli.demo.progress import DemoFrame, StepState

_START = "TIME  ADMITTED REJECTED RETRY"


class PlainView:
    """A heading, then one row per second: calls admitted and rejected so far, and the tokens left."""

    every_s = 1.0

    def __init__(self) -> None:
        self._has_heading = False
        self._printed: set[str] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def show(self, frame: DemoFrame) -> None:
        """Print a row, after the heading if it is the first. Print each step when it begins and when it is done."""
        names = [one.member.entity_id.removeprefix("demo-") for one in frame.standings]
        if not self._has_heading:
            self._has_heading = True
            click.echo("longest retry-after in seconds; tokens left of each project and key")
            _print(_START, names, names)
        for step in frame.steps:
            if step.state is StepState.RUNNING and step.name not in self._printed:
                self._print_once(step.name, f"{step.name}: begins")
            elif step.state in (StepState.DONE, StepState.FAILED):
                self._print_once(f"{step.name} {step.state}", f"{step.name} {step.state.value}: {step.text}")
        keys = [one for one in frame.standings if one.member.is_key]
        admitted, rejected = sum(one.counts.admitted for one in keys), sum(one.counts.rejected for one in keys)
        waits = max((one.retry_after_s or 0.0 for one in keys), default=0.0)
        balances = (f"{one.balances['tpm']:,}" for one in frame.standings)
        _print(f"{frame.elapsed_s:3.0f} s {admitted:9} {rejected:8} {waits:5.2f}", balances, names)

    def _print_once(self, key: str, line: str) -> None:
        if key not in self._printed:
            self._printed.add(key)
            click.echo(f"  {line}")


def _print(start: str, cells: Iterable[str], names: Iterable[str]) -> None:
    """Print cells below their names."""
    click.echo(" ".join([start, *(cell.rjust(max(6, len(name))) for cell, name in zip(cells, names, strict=True))]))
