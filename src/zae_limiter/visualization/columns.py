"""Draw stacked columns over time: bars in SVG, which stretch to any width, a line for the limit, and labels."""

from collections.abc import Sequence
from html import escape
from typing import NamedTuple

from zae_limiter.core.lazy_dataclass import dataclass
from zae_limiter.visualization.axis import Axis, Tick, axis_of
from zae_limiter.visualization.wording import short_number

_STEPS = 5
_HEIGHT = 1000
_COLUMN = 10
# Above this many columns the bars touch, because gaps would be wider than bars.
_APART = 200
# Wider bars look like areas.
_WIDEST_BAR_PX = 150


class ColumnLabel(NamedTuple):
    """The start of a column in time, and its values in words."""

    start: str
    value: str


class Bars(NamedTuple):
    """One part of every column, in a colour by its number."""

    colour: int
    amounts: Sequence[int]


@dataclass(frozen=True, slots=True)
class ColumnChart:
    """Columns from left to right. ``limits`` are the limit of each column, None if there is none to draw."""

    labels: Sequence[ColumnLabel]
    parts: Sequence[Bars]
    ticks: Sequence[Tick]
    limits: Sequence[int] | None = None


def draw_columns(chart: ColumnChart) -> list[str]:
    """Return the readout, the amounts, the bars with the limit, and the times."""
    axis = _axis_of(chart)
    return [
        '<output class="readout" aria-live="polite">Point at a bar, or tap it, to read it.</output>',
        f'<div class="plot" style="max-width:{len(chart.labels) * _WIDEST_BAR_PX + 60}px">',
        _amounts(axis),
        f'<div class="area">{_bars(chart, axis)}{_limit_label(chart, axis)}</div>',
        _times(chart),
        "</div>",
    ]


def _axis_of(chart: ColumnChart) -> Axis:
    """Return the axis; positive parts are stacked upwards, negative ones downwards."""
    by_column = list(zip(*(part.amounts for part in chart.parts), strict=True))
    lowest = min(sum(amount for amount in amounts if amount < 0) for amounts in by_column)
    highest = max(sum(amount for amount in amounts if amount > 0) for amounts in by_column)
    return axis_of(lowest, max([highest, *(chart.limits or ())]), _STEPS)


def _amounts(axis: Axis) -> str:
    labels = [(short_number(tick), 100 - 100 * axis.share(tick)) for tick in axis.ticks]
    widest = max((label for label, _ in labels), key=len)
    placed = "".join(f'<span style="top:{top:g}%">{label}</span>' for label, top in labels)
    return f'<div class="amounts" aria-hidden="true"><i>{widest}</i>{placed}</div>'


def _bars(chart: ColumnChart, axis: Axis) -> str:
    width = len(chart.labels) * _COLUMN
    lines = [_line(axis, tick, width) for tick in axis.ticks]
    columns = [_column(chart, place, axis) for place in range(len(chart.labels))]
    opening = (
        f'<svg viewBox="0 0 {width} {_HEIGHT}" preserveAspectRatio="none" aria-hidden="true" data-high="{axis.high}">'
    )
    return "\n".join([opening, *lines, *columns, *_limit_line(chart, axis), "</svg>"])


def _limit_line(chart: ColumnChart, axis: Axis) -> list[str]:
    """Return the line of the limit, with a step where columns differ in length."""
    if chart.limits is None:
        return []
    steps = " ".join(f"V{_top(axis, limit):g} H{(place + 1) * _COLUMN}" for place, limit in enumerate(chart.limits))
    path = f"M0 {_top(axis, chart.limits[0]):g} {steps}"
    return [f'<path class="limit" d="{path}" vector-effect="non-scaling-stroke"/>']


def _limit_label(chart: ColumnChart, axis: Axis) -> str:
    if chart.limits is None:
        return ""
    last = chart.limits[-1]
    top = 100 - 100 * axis.share(last)
    return f'<span class="limit" style="top:{top:.4g}%" aria-hidden="true">limit {short_number(last)}</span>'


def _line(axis: Axis, tick: int, width: int) -> str:
    kind, top = "grid" if tick else "zero", _top(axis, tick)
    ends = f'x1="0" x2="{width}" y1="{top:g}" y2="{top:g}"'
    return f'<line class="{kind}" {ends} vector-effect="non-scaling-stroke"/>'


def _column(chart: ColumnChart, place: int, axis: Axis) -> str:
    left = place * _COLUMN
    gap = 0 if len(chart.labels) > _APART else 1
    above = below = 0
    bars = []
    for part in chart.parts:
        amount = part.amounts[place]
        if amount > 0:
            low, above = above, above + amount
            high = above
        elif amount < 0:
            high, below = below, below + amount
            low = below
        else:
            continue
        top, bottom = _top(axis, high), _top(axis, low)
        size = f'x="{left + gap}" y="{top:g}" width="{_COLUMN - 2 * gap}" height="{bottom - top:g}"'
        bars.append(f'<rect class="c{part.colour}" {size} data-amount="{amount}"/>')
    label = chart.labels[place]
    hit = f'<rect class="hit" x="{left}" y="0" width="{_COLUMN}" height="{_HEIGHT}"/>'
    title = f"<title>{escape(label.value)}</title>"
    return f'<g class="col" data-window="{label.start}">{title}{hit}{"".join(bars)}</g>'


def _times(chart: ColumnChart) -> str:
    count = len(chart.labels)
    spans = []
    for number, tick in enumerate(chart.ticks):
        left = 100 * (tick.place + 0.5) / count
        classes = ["second"] if number % 2 else []
        if left < 5:
            classes.append("edge-left")
        elif left > 95:
            classes.append("edge-right")
        named = f' class="{" ".join(classes)}"' if classes else ""
        spans.append(f'<span{named} style="left:{left:.4g}%">{tick.label}</span>')
    return f'<div class="times" aria-hidden="true">{"".join(spans)}</div>'


def _top(axis: Axis, amount: int) -> float:
    """Return the distance of an amount from the upper edge."""
    return round(_HEIGHT * (1 - axis.share(amount)), 3)
