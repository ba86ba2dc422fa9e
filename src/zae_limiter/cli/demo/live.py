"""Show the demo in a terminal: balances as bars, redrawn several times a second.

Only bars, marks and names of steps are green, yellow or cyan. Sentences and numbers in these colours would be hard to
read on the white background of some terminals.
"""

import math
from typing import Self

from rich import box
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.live import Live
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from zae_limiter.cli.demo.progress import DemoFrame, DemoReport, DemoStanding, Step, StepState
from zae_limiter.cli.demo.scenario import LIMIT_NAMES
from zae_limiter.cli.demo.summary import ASCII_MARKS, COLOURS, MARKS, TEXT_STYLES, summary_lines
from zae_limiter.core.limit import Limit

# The smallest terminal that shows everything.
_COLUMNS, _LINES = 80, 24
# Lines for all but the events: title, legend, heading, projects and keys, steps, and one for the cursor.
_LINES_BESIDE_EVENTS = 20
_MOST_EVENTS = 40
# A mark, a space, and a name of up to seven characters.
_MARK_AND_NAME = 9
# From this width on, the limits and their sources are shown.
_WIDE = 110
_SOURCES = {
    "entity": "entity, this model",
    "entity_default": "entity, all models",
    "resource": "model default",
    "system": "system default",
}


class Bar:
    """A bar as wide as its cell, filled to a part; readable without colours and in ASCII."""

    def __init__(self, part: float, colour: str) -> None:
        self._part = min(1.0, max(0.0, part))
        self._colour = colour

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        full, empty = ("#", ".") if options.ascii_only else ("█", "░")
        filled = round(self._part * options.max_width)
        yield Text.assemble((full * filled, self._colour), (empty * (options.max_width - filled), "dim"), end="\n")

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        return Measurement(4, options.max_width)


class LiveView:
    """A table that is redrawn continuously."""

    every_s = 0.125

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(highlight=False)
        self._live = Live(console=self._console, auto_refresh=False, vertical_overflow="crop", transient=True)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        # The table is removed, so that the summary fits on the screen.
        self._live.stop()

    @property
    def _is_wide(self) -> bool:
        return self._console.width >= _WIDE

    def show(self, frame: DemoFrame) -> None:
        """Redraw the table."""
        room = max(0, min(_MOST_EVENTS, self._console.height - _LINES_BESIDE_EVENTS))
        self._live.update(drawing(frame, room, self._is_wide), refresh=True)


class Legend:
    """What the colours of the bars mean, or a hint if the terminal is too small to show everything."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if options.max_width < _COLUMNS or console.height < _LINES:
            yield _cropped(Text(f"A terminal of {_COLUMNS}x{_LINES} shows everything."))
            return
        full = "#" if options.ascii_only else "█"
        meanings = {"green": "more than half left", "yellow": "low", "red": "almost none, or debt"}
        parts = [(Text(full, style=colour), f" {colour}: {meaning}") for colour, meaning in meanings.items()]
        yield _cropped(Text("  ").join(Text.assemble(*part) for part in parts))


class StepLine:
    """A step as one line; its mark shows the state without colours and in ASCII."""

    def __init__(self, step: Step) -> None:
        self._step = step

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        marks = ASCII_MARKS if options.ascii_only else MARKS
        yield _cropped(_step_text(f"{marks[self._step.state]} {self._step}", self._step.state))


def _step_text(line: str, state: StepState) -> Text:
    """Return the line of a step. Its mark and its name have the colour of the state."""
    text = Text(line, style=TEXT_STYLES[state])
    text.stylize(COLOURS[state], end=_MARK_AND_NAME)
    return text


def drawing(frame: DemoFrame, events: int, wide: bool = False) -> RenderableType:
    """Draw the demo: its title, every project and key, the steps, and the last events."""
    recent = frame.events[len(frame.events) - events :] if events < len(frame.events) else frame.events
    padded = [*recent, *[""] * (events - len(recent))]
    log = [_cropped(Text(event, style="dim")) for event in ["", *padded]]
    steps = [StepLine(step) for step in frame.steps]
    return Group(_title(frame), Text(), _entities(frame, wide), Text(), *steps, *(log if events else ()))


def summary_drawing(report: DemoReport, marks: dict[StepState, str], activate: str | None = None) -> RenderableType:
    """Draw the summary; the mark and the name of a step have the colour of its state. No line is cut off."""
    states = {mark: state for state, mark in marks.items()}
    lines = summary_lines(report, marks, activate)
    return Group(*(_step_text(line, states[line[0]]) if line[:1] in states else Text(line) for line in lines))


def _title(frame: DemoFrame) -> RenderableType:
    line = Table.grid(expand=True, padding=(0, 1))
    line.add_column(ratio=1)
    line.add_column(justify="right")
    line.add_row(
        Text("zae-limiter demo", style="bold"), f"{frame.elapsed_s:.1f} of {frame.total_s:g} s, Ctrl-C ends it"
    )
    return Group(line, Bar(frame.elapsed_s / frame.total_s, "blue"), Legend())


def _cropped(line: Text) -> Text:
    """Cut the line off in a narrow terminal: the live view has a fixed number of lines."""
    line.no_wrap, line.overflow = True, "crop"
    return line


def _entities(frame: DemoFrame, wide: bool) -> Table:
    table = Table(box=box.SIMPLE_HEAD, expand=True, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("project, key", min_width=len("demo-project-1"), no_wrap=True, overflow="crop")
    if wide:
        table.add_column("limits per minute", no_wrap=True, overflow="crop")
        table.add_column("set for", no_wrap=True, overflow="crop")
    for name, widest in zip(LIMIT_NAMES, (len("-10"), len("-10,000")), strict=True):
        table.add_column(name, ratio=1, min_width=4, overflow="crop", no_wrap=True)
        table.add_column("left", justify="right", min_width=widest, no_wrap=True, overflow="crop")
    for title in ("admitted", "rejected", "retry"):
        table.add_column(title, justify="right", no_wrap=True, overflow="crop")
    for standing in frame.standings:
        table.add_row(*_cells(standing, wide))
    return table


def _cells(standing: DemoStanding, wide: bool) -> list[RenderableType]:
    member, counts = standing.member, standing.counts
    cells: list[RenderableType] = [
        f"  {member.entity_id}" if member.is_key else Text(member.entity_id, style="bold"),
    ]
    if wide:
        rates = (f"{limit.name} {limit.refill_amount:,}" for limit in standing.limits.values())
        cells += [Text(", ".join(rates)), Text(_SOURCES.get(standing.source, ""), style="dim")]
    for name in LIMIT_NAMES:
        cells += balance_cells(standing.limits.get(name), standing.balances.get(name, 0))
    waits = "" if standing.retry_after_s is None else f"{math.ceil(standing.retry_after_s * 10) / 10:.1f} s"
    return [*cells, f"{counts.admitted:,}", f"{counts.rejected:,}", waits]


def balance_cells(limit: Limit | None, left: int) -> list[RenderableType]:
    """Return a bar and a number for what is left of a limit, or "no limit"."""
    if limit is None:
        return [Text("no limit", style="dim"), Text()]
    colour = _colour(limit, left)
    # An empty bar shows no colour, so the number shows it.
    return [Bar(left / limit.capacity, colour), Text(f"{left:,}", style="red" if colour == "red" else "")]


def _colour(limit: Limit, left: int) -> str:
    if left * 2 > limit.capacity:
        return "green"
    return "yellow" if left * 8 > limit.capacity else "red"
