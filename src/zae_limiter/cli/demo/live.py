"""The demo in a terminal: balances as bars, redrawn several times a second."""

import math
from types import TracebackType
from typing import Self

from rich import box
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.live import Live
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from zae_limiter.cli.demo.progress import Frame, Standing
from zae_limiter.cli.demo.scenario import LIMITS
from zae_limiter.core.limit import Limit

# Lines taken by everything but the events: title, rules, heading, projects, and one to spare for the prompt.
_LINES_BESIDE_EVENTS = 14
_MOST_EVENTS = 10


class Bar:
    """A bar as wide as its place, filled to a part; it can be read without colours, and in ASCII."""

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
    """A table that changes while one looks at it."""

    every_s = 0.125

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(highlight=False)
        self._live = Live(console=self._console, auto_refresh=False, vertical_overflow="crop")
        self._last: Frame | None = None

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._last is not None:
            # Without the events, so that the summary fits on the same screen.
            self._live.update(drawing(self._last, 0), refresh=True)
        self._live.stop()

    def show(self, frame: Frame) -> None:
        """Redraw."""
        room = max(0, min(_MOST_EVENTS, self._console.height - _LINES_BESIDE_EVENTS))
        self._last = frame
        self._live.update(drawing(frame, room), refresh=True)


def drawing(frame: Frame, events: int) -> RenderableType:
    """Draw the demo: what it is, every project, and the last events."""
    recent = frame.events[len(frame.events) - events :] if events < len(frame.events) else frame.events
    padded = [*recent, *[""] * (events - len(recent))]
    log = [_line(event, style="dim") for event in ["", *padded]]
    return Group(_title(frame), Text(), _projects(frame), *(log if events else ()))


def _title(frame: Frame) -> RenderableType:
    callers = sum(one.project.callers for one in frame.standings)
    limits = ", ".join(f"{limit.name} {limit.refill_amount:,}/s burst {limit.capacity:,}" for limit in LIMITS)
    line = Table.grid(expand=True, padding=(0, 1))
    line.add_column(ratio=1)
    line.add_column(justify="right")
    line.add_row(Text("zae-limiter demo", style="bold"), f"{frame.elapsed_s:.1f} of {frame.total_s:g} s")
    return Group(
        line,
        Bar(frame.elapsed_s / frame.total_s, "blue"),
        _line(f"{len(frame.standings)} projects, {callers} callers; each project: {limits}"),
        _line("every call: take an estimate, call the model, adjust to what it used"),
    )


def _line(text: str, style: str = "") -> Text:
    """One line, however narrow the terminal is."""
    return Text(text, style=style, no_wrap=True, overflow="crop")


def _projects(frame: Frame) -> Table:
    table = Table(box=box.SIMPLE_HEAD, expand=True, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("project", no_wrap=True)
    for limit in LIMITS:
        table.add_column(limit.name, ratio=1)
        table.add_column("left", justify="right", min_width=len(f"-{limit.capacity:,}"), no_wrap=True)
    for title in ("admitted", "rejected", "retry in"):
        table.add_column(title, justify="right", no_wrap=True)
    for standing in frame.standings:
        table.add_row(*_cells(standing))
    return table


def _cells(standing: Standing) -> list[RenderableType]:
    cells: list[RenderableType] = [standing.project.entity_id]
    for limit in LIMITS:
        left = standing.balances.get(limit.name, limit.capacity)
        colour = _colour(limit, left)
        cells += [Bar(left / limit.capacity, colour), Text(f"{left:,}", style=colour)]
    waits = "" if standing.retry_after_s is None else f"{math.ceil(standing.retry_after_s * 10) / 10:.1f} s"
    rejected = Text(f"{standing.rejected:,}", style="red" if standing.rejected else "")
    return [*cells, Text(f"{standing.admitted:,}", style="green"), rejected, waits]


def _colour(limit: Limit, left: int) -> str:
    if left * 2 > limit.capacity:
        return "green"
    return "yellow" if left * 8 > limit.capacity else "red"
