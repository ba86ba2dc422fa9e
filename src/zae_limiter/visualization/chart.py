"""Draw a series as a chart of a page: bars in SVG, which stretch to any width, and labels in HTML."""

from collections.abc import Sequence
from html import escape

from zae_limiter.visualization.axis import Axis, axis_of, ticks_of
from zae_limiter.visualization.series import Series
from zae_limiter.visualization.wording import UNITS, short_number, span_of, whole_number, window_name

COLOURS = 6
"""The number of distinguishable parts; the last colour is for all others."""

_STEPS = 5
_LABELS = 8
_HEIGHT = 1000
_COLUMN = 10
# Above this many windows the bars touch, because gaps would be wider than bars.
_APART = 200


def chart_of(series: Series) -> str:
    """Return the figure: the readout, the amounts, the bars, the times, and the legend."""
    axis = _axis_of(series)
    unit = UNITS[series.window_type]
    label = f"{series.limit} by {unit}, {span_of(series.windows)} UTC. The arrow keys read the values."
    return "\n".join(
        [
            f'<figure tabindex="0" role="group" aria-label="{escape(label)}">',
            '<output class="readout" aria-live="polite">Point at a bar to read its value.</output>',
            '<div class="plot">',
            _amounts(axis),
            _bars(series, axis),
            _times(series),
            "</div>",
            *_legend(series),
            "</figure>",
        ]
    )


def _axis_of(series: Series) -> Axis:
    """Return the axis; positive parts are stacked upwards, negative ones downwards."""
    by_window = list(zip(*(part.amounts for part in series.parts), strict=True))
    lowest = min(sum(amount for amount in amounts if amount < 0) for amounts in by_window)
    highest = max(sum(amount for amount in amounts if amount > 0) for amounts in by_window)
    return axis_of(lowest, highest, _STEPS)


def _amounts(axis: Axis) -> str:
    labels = [(short_number(tick), 100 - 100 * axis.share(tick)) for tick in axis.ticks]
    widest = max((label for label, _ in labels), key=len)
    placed = "".join(f'<span style="top:{top:g}%">{label}</span>' for label, top in labels)
    return f'<div class="amounts" aria-hidden="true"><i>{widest}</i>{placed}</div>'


def _bars(series: Series, axis: Axis) -> str:
    width = len(series.windows) * _COLUMN
    lines = [_line(axis, tick, width) for tick in axis.ticks]
    columns = [_column(series, place, axis) for place in range(len(series.windows))]
    opening = (
        f'<svg viewBox="0 0 {width} {_HEIGHT}" preserveAspectRatio="none" aria-hidden="true" data-high="{axis.high}">'
    )
    return "\n".join([opening, *lines, *columns, "</svg>"])


def _line(axis: Axis, tick: int, width: int) -> str:
    kind, top = "grid" if tick else "zero", _top(axis, tick)
    ends = f'x1="0" x2="{width}" y1="{top:g}" y2="{top:g}"'
    return f'<line class="{kind}" {ends} vector-effect="non-scaling-stroke"/>'


def _column(series: Series, place: int, axis: Axis) -> str:
    left = place * _COLUMN
    gap = 0 if len(series.windows) > _APART else 1
    above = below = 0
    bars = []
    for colour, part in enumerate(series.parts):
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
        bars.append(f'<rect class="c{colour}" {size} data-amount="{amount}"/>')
    title = f"<title>{escape(_value(series, place))}</title>"
    hit = f'<rect class="hit" x="{left}" y="0" width="{_COLUMN}" height="{_HEIGHT}"/>'
    return f'<g class="col" data-window="{series.windows[place].start}">{title}{hit}{"".join(bars)}</g>'


def _value(series: Series, place: int) -> str:
    """Describe the usage in a window, by part if there are several."""
    window = series.windows[place]
    amounts = [(part.label, part.amounts[place]) for part in series.parts if part.amounts[place]]
    said = (
        f"{window_name(window.type, window.start)}: {whole_number(sum(amount for _, amount in amounts))} {series.limit}"
    )
    if len(series.parts) == 1 or not amounts:
        return said
    return f"{said} ({', '.join(f'{label} {whole_number(amount)}' for label, amount in amounts)})"


def _times(series: Series) -> str:
    count = len(series.windows)
    spans = []
    for number, tick in enumerate(ticks_of(series.windows, _LABELS)):
        left = 100 * (tick.place + 0.5) / count
        classes = ["second"] if number % 2 else []
        if left < 5:
            classes.append("edge-left")
        elif left > 95:
            classes.append("edge-right")
        named = f' class="{" ".join(classes)}"' if classes else ""
        spans.append(f'<span{named} style="left:{left:.4g}%">{tick.label}</span>')
    return f'<div class="times" aria-hidden="true">{"".join(spans)}</div>'


def _legend(series: Series) -> Sequence[str]:
    if len(series.parts) == 1:
        return []
    total = series.total
    entries = []
    for colour, part in enumerate(series.parts):
        share = f", {100 * part.total / total:.0f} %" if total > 0 else ""
        said = f"{escape(part.label)} <span>{whole_number(part.total)}{share}</span>"
        entries.append(f'<li class="c{colour}">{said}</li>')
    return [f'<ul class="legend">{"".join(entries)}</ul>']


def _top(axis: Axis, amount: int) -> float:
    """Return the distance of an amount from the upper edge."""
    return round(_HEIGHT * (1 - axis.share(amount)), 3)
