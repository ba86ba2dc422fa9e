"""Usage as charts of characters, one for each limit, for a terminal."""

import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from zae_limiter.core.errors import MissingExtraError, ValidationError
from zae_limiter.core.usage import UsageSnapshot
from zae_limiter.visualization.axis import Axis, Tick, axis_of, ticks_of
from zae_limiter.visualization.series import Series, SeriesBounds, series_of
from zae_limiter.visualization.table import NOTHING
from zae_limiter.visualization.wording import UNITS, counted, in_window, short_number, span_of, whole_number

NARROWEST = 40
"""No chart is drawn in fewer columns."""

# Three months of hours.
_BOUNDS = SeriesBounds(windows=24 * 92, parts=1)
_WIDEST_STEP = 8
_COLUMNS_PER_LABEL = 12
# Between the labels of the axis and the chart stand a space and the axis.
_OFFSET = 3
# Both marks of the axis, where a line begins or ends, lines, corners, a rise.
_SYMBOLS = "┤┤╶╴─╰╭╮╯│"


@dataclass(frozen=True, slots=True)
class PlotFormatter:
    """A chart for each limit, with the package ``asciichartpy``: ``pip install "zae-limiter[plot]"``.

    ``width`` is that of the terminal in characters, ``height`` that of a chart in lines, about.

    Raises:
        ValidationError: It is too narrow or too low to draw anything.
    """

    width: int = 80
    height: int = 10

    def __post_init__(self) -> None:
        """Refuse a chart that has no room."""
        if self.width < NARROWEST:
            raise ValidationError("width", self.width, f"must be at least {NARROWEST} characters")
        if self.height < 2:
            raise ValidationError("height", self.height, "must be at least 2 lines")

    def format(self, snapshots: Sequence[UsageSnapshot]) -> str:
        """Return the charts, one below the other.

        Raises:
            MissingExtraError: The package is not installed.
        """
        draw = _drawing()
        if not snapshots:
            return NOTHING
        return "\n\n".join(self._chart(series, draw) for series in series_of(snapshots, _BOUNDS))

    def _chart(self, series: Series, draw: Any) -> str:
        amounts = series.amounts
        axis = axis_of(min(amounts), max(amounts), self.height)
        labels = _Labels(axis)
        room = self.width - labels.width - _OFFSET
        columns = _Columns.fitting(len(amounts), room)
        # In steps, so that every line of the chart is one of them.
        steps = [amount / axis.step for amount in columns.spread(amounts)]
        ends = {"min": axis.low // axis.step, "max": axis.high // axis.step}
        lines = draw(steps, {**ends, "format": labels, "offset": _OFFSET, "symbols": list(_SYMBOLS)})
        beneath = _time_axis(ticks_of(series.windows, max(1, room // _COLUMNS_PER_LABEL)), columns, room)
        indent = " " * (labels.width + 1)
        note = columns.note(UNITS[series.window_type])
        return "\n".join([*_heading(series), "", lines, *(indent + line for line in beneath), *note])


@dataclass(frozen=True, slots=True)
class _Columns:
    """How windows share the columns: several columns each, or several windows in one."""

    windows: int
    wide: int
    together: int

    @classmethod
    def fitting(cls, windows: int, room: int) -> "_Columns":
        if windows > room:
            return cls(windows, 1, -(-windows // room))
        return cls(windows, min(room // windows, _WIDEST_STEP), 1)

    @property
    def count(self) -> int:
        return -(-self.windows // self.together) * self.wide

    def place(self, window: int) -> int:
        """The first column of a window."""
        return window // self.together * self.wide

    def spread(self, amounts: Sequence[int]) -> list[int]:
        """The amount in each column; the first stands twice, since a line is drawn from one to the next."""
        groups = [amounts[first : first + self.together] for first in range(0, len(amounts), self.together)]
        values = [max(group, key=abs) for group in groups for _ in range(self.wide)]
        return [values[0], *values]

    def note(self, unit: str) -> list[str]:
        """Say so where a column is not one window."""
        return [] if self.together == 1 else [f"Each column shows the most of {counted(self.together, unit)}."]


class _Labels:
    """Writes the amounts beside the axis, readable and all of one width; the chart asks for them as of a format."""

    def __init__(self, axis: Axis) -> None:
        self._axis = axis
        self.width = max(_OFFSET, *(len(short_number(tick)) for tick in axis.ticks))

    def format(self, steps: float) -> str:
        """Return the label of a line."""
        return short_number(round(steps) * self._axis.step).rjust(self.width)


def _heading(series: Series) -> list[str]:
    unit = UNITS[series.window_type]
    most = f"{whole_number(max(series.amounts))} {in_window(series.windows[series.peak])}"
    return [
        f"{series.limit} by {unit}: {series.whose}, {span_of(series.windows)} UTC",
        f"total {whole_number(series.total)}, most {most}",
    ]


def _time_axis(ticks: Sequence[Tick], columns: _Columns, room: int) -> list[str]:
    """Draw the axis below a chart, and the times that are labelled; one that would run into another is left out."""
    line, labels = ["─"] * columns.count, ""
    for tick in ticks:
        column = columns.place(tick.place)
        if labels and column < len(labels) + 2:
            continue
        if column + len(tick.label) > room:
            continue
        line[column] = "┬"
        labels = labels.ljust(column) + tick.label
    return [f"└{''.join(line)}", f" {labels}"]


def _drawing() -> Any:
    try:
        return importlib.import_module("asciichartpy").plot
    except ImportError as error:
        raise MissingExtraError("plot", "asciichartpy") from error
