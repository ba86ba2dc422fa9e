"""Format usage as text charts for a terminal, one for each limit."""

import importlib
from collections.abc import Sequence
from typing import Any

from zae_limiter.core.errors import ValidationError
from zae_limiter.core.lazy_dataclass import dataclass, field
from zae_limiter.core.money import is_currency
from zae_limiter.core.usage import UsageSnapshot
from zae_limiter.installation import missing_extra
from zae_limiter.visualization.axis import Axis, Tick, axis_of, ticks_of
from zae_limiter.visualization.series import Series, SeriesBounds, UnitsByName, series_of
from zae_limiter.visualization.table import NOTHING
from zae_limiter.visualization.wording import UNITS, counted, in_window, short_amount, span_of, whole_number, with_unit

NARROWEST = 40
"""The minimum width of a chart in columns."""

# Three months of hours.
_BOUNDS = SeriesBounds(windows=24 * 92, parts=1)
_WIDEST_STEP = 8
_COLUMNS_PER_LABEL = 12
# A space and the axis are between the labels and the chart.
_OFFSET = 3
# Two axis marks, start and end of a line, lines, corners, and a vertical step.
_SYMBOLS = "┤┤╶╴─╰╭╮╯│"


@dataclass(frozen=True, slots=True)
class PlotFormatter:
    """A chart for each limit, drawn with ``asciichartpy``, which the extra ``plot`` installs.

    ``width`` is the width of the terminal in characters, ``height`` the approximate height of a
    chart in lines. Snapshots do not contain units: pass them as ``units``, such as
    ``{"spend": "USD"}``, to show money as money.

    Raises:
        ValidationError: The width or height is too small.
    """

    width: int = 80
    height: int = 10
    units: UnitsByName = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Reject a chart without enough room."""
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
        return "\n\n".join(self._chart(series, draw) for series in series_of(snapshots, _BOUNDS, units=self.units))

    def _chart(self, series: Series, draw: Any) -> str:
        amounts = series.amounts
        axis = axis_of(min(amounts), max(amounts), self.height)
        labels = _Labels(axis, series.unit)
        room = self.width - labels.width - _OFFSET
        columns = _Columns.fitting(len(amounts), room)
        # Amounts in steps of the axis, so that every line of the chart is one step.
        steps = [amount / axis.step for amount in columns.spread(amounts)]
        ends = {"min": axis.low // axis.step, "max": axis.high // axis.step}
        lines = draw(steps, {**ends, "format": labels, "offset": _OFFSET, "symbols": list(_SYMBOLS)})
        beneath = _time_axis(ticks_of(series.windows, max(1, room // _COLUMNS_PER_LABEL)), columns, room)
        indent = " " * (labels.width + 1)
        note = columns.note(UNITS[series.window_type])
        return "\n".join([*_heading(series), "", lines, *(indent + line for line in beneath), *note])


@dataclass(frozen=True, slots=True)
class _Columns:
    """How windows share columns: several columns per window, or several windows per column."""

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
        """Return the first column of a window."""
        return window // self.together * self.wide

    def spread(self, amounts: Sequence[int]) -> list[int]:
        """Return the amount of each column; the first one is repeated, because a line joins two amounts."""
        groups = [amounts[first : first + self.together] for first in range(0, len(amounts), self.together)]
        values = [max(group, key=abs) for group in groups for _ in range(self.wide)]
        return [values[0], *values]

    def note(self, unit: str) -> list[str]:
        """Return a note if a column shows several windows."""
        return [] if self.together == 1 else [f"Each column is the maximum of {counted(self.together, unit)}."]


class _Labels:
    """Format the amounts beside the axis with equal widths; the chart library calls ``format``."""

    def __init__(self, axis: Axis, unit: str | None) -> None:
        self._axis = axis
        self._unit = unit
        self.width = max(_OFFSET, *(len(short_amount(tick, unit)) for tick in axis.ticks))

    def format(self, steps: float) -> str:
        """Return the label of a line."""
        return short_amount(round(steps) * self._axis.step, self._unit).rjust(self.width)


def _heading(series: Series) -> list[str]:
    unit = UNITS[series.window_type]
    name = "" if series.noun == series.limit else f" ({series.limit})"
    most = f"{_amount(max(series.amounts), series)} {in_window(series.windows[series.peak])}"
    highest = "" if series.highest_in_use is None else f", highest in use {whole_number(series.highest_in_use)}"
    return [
        f"{series.noun} per {unit}{name}: {series.whose}",
        f"{span_of(series.windows)} UTC",
        f"total {_amount(series.total, series)}, most {most}{highest}",
    ]


def _amount(amount: int, series: Series) -> str:
    """Format an amount: money with its currency, others without a unit, as the title has it."""
    return with_unit(amount, series.unit) if is_currency(series.unit) else whole_number(amount)


def _time_axis(ticks: Sequence[Tick], columns: _Columns, room: int) -> list[str]:
    """Draw the axis below a chart with labelled times; a label that would overlap another is left out."""
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
        raise missing_extra("plot", "asciichartpy") from error
