"""Draw stacked columns over time: bars in SVG, which stretch to any width, a line for the limit, and labels."""

from collections.abc import Sequence
from html import escape
from typing import NamedTuple

from zae_limiter.core.lazy_dataclass import dataclass
from zae_limiter.visualization.axis import Axis, Tick, axis_of
from zae_limiter.visualization.wording import short_amount

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
    """Columns from left to right. ``limits`` are the limit of each column, None if there is none to draw.

    A limit that is soft is drawn differently, and so is what exceeds it. ``unit`` is that of all amounts.
    """

    labels: Sequence[ColumnLabel]
    parts: Sequence[Bars]
    ticks: Sequence[Tick]
    limits: Sequence[int | None] | None = None
    is_soft: bool = False
    unit: str | None = None


def draw_columns(chart: ColumnChart) -> list[str]:
    """Return the readout, the amounts, the bars with the limit, and the times."""
    axis = _axis_of(chart)
    return [
        '<output class="readout" aria-live="polite">Point at a bar, or tap it, to read it.</output>',
        f'<div class="plot" style="max-width:{len(chart.labels) * _WIDEST_BAR_PX + 60}px">',
        _amounts(axis, chart.unit),
        f'<div class="area">{_bars(chart, axis)}{_limit_label(chart, axis)}</div>',
        _times(chart),
        "</div>",
    ]


def _axis_of(chart: ColumnChart) -> Axis:
    """Return the axis; positive parts are stacked upwards, negative ones downwards."""
    by_column = list(zip(*(part.amounts for part in chart.parts), strict=True))
    lowest = min(sum(amount for amount in amounts if amount < 0) for amounts in by_column)
    highest = max(sum(amount for amount in amounts if amount > 0) for amounts in by_column)
    drawn = [limit for limit in chart.limits or () if limit is not None]
    return axis_of(lowest, max([highest, *drawn]), _STEPS)


def _amounts(axis: Axis, unit: str | None) -> str:
    labels = [(short_amount(tick, unit), 100 - 100 * axis.share(tick)) for tick in axis.ticks]
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
    """Return the line of the limit: a step where columns differ in length, a gap where they have no limit."""
    if chart.limits is None:
        return []
    steps, before = [], None
    for place, limit in enumerate(chart.limits):
        if limit is not None:
            move = f"M{place * _COLUMN} {_top(axis, limit):g} " if before is None else ""
            steps.append(f"{move}V{_top(axis, limit):g} H{(place + 1) * _COLUMN}")
        before = limit
    return [f'<path class="{_limit_class(chart)}" d="{" ".join(steps)}" vector-effect="non-scaling-stroke"/>']


def _limit_class(chart: ColumnChart) -> str:
    return "limit soft" if chart.is_soft else "limit"


def _limit_label(chart: ColumnChart, axis: Axis) -> str:
    if chart.limits is None:
        return ""
    last = [limit for limit in chart.limits if limit is not None][-1]
    top = 100 - 100 * axis.share(last)
    named = f"{'soft limit' if chart.is_soft else 'limit'} {short_amount(last, chart.unit)}"
    return f'<span class="{_limit_class(chart)}" style="top:{top:.4g}%" aria-hidden="true">{named}</span>'


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
    bars += _beyond(chart, place, above, axis)
    label = chart.labels[place]
    hit = f'<rect class="hit" x="{left}" y="0" width="{_COLUMN}" height="{_HEIGHT}"/>'
    title = f"<title>{escape(label.value)}</title>"
    return f'<g class="col" data-window="{label.start}">{title}{hit}{"".join(bars)}</g>'


def _beyond(chart: ColumnChart, place: int, used: int, axis: Axis) -> list[str]:
    """Return the part of a column that exceeds a soft limit, to be drawn over its bars."""
    limit = chart.limits[place] if chart.limits is not None and chart.is_soft else None
    if limit is None or used <= limit:
        return []
    gap = 0 if len(chart.labels) > _APART else 1
    top, bottom = _top(axis, used), _top(axis, limit)
    size = f'x="{place * _COLUMN + gap}" y="{top:g}" width="{_COLUMN - 2 * gap}" height="{bottom - top:g}"'
    return [f'<rect class="beyond" {size}/>']


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
