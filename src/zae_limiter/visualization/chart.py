"""Draw a series as a chart of a page: bars in SVG, which stretch to any width, a line for the limit, and labels."""

from collections.abc import Sequence
from html import escape

from zae_limiter.visualization.axis import Axis, axis_of, ticks_of
from zae_limiter.visualization.meters import fits_meters, meters_of
from zae_limiter.visualization.series import Series, SeriesPart
from zae_limiter.visualization.window_limit import window_limit
from zae_limiter.visualization.wording import UNITS, percent, short_number, span_of, whole_number, window_name

COLOURS = 6
"""The number of distinguishable parts; the last colour is for all others."""

_STEPS = 5
_LABELS = 8
_HEIGHT = 1000
_COLUMN = 10
# Above this many windows the bars touch, because gaps would be wider than bars.
_APART = 200
# Wider bars look like areas.
_WIDEST_BAR_PX = 150
# A higher limit would leave only the lowest quarter for the bars.
_FARTHEST_LIMIT = 4


def chart_of(series: Series) -> str:
    """Return the figure: a column for each window, or a row for each if there are only a few."""
    unit = UNITS[series.window_type]
    label = f"{series.noun} per {unit}, {span_of(series.windows)} UTC."
    drawn = [meters_of(series)] if fits_meters(series) else _plot(series)
    keys = "" if fits_meters(series) else ' tabindex="0"'
    hint = "" if fits_meters(series) else " The arrow keys read the values."
    return "\n".join(
        [
            f'<figure{keys} role="group" aria-label="{escape(label + hint)}">',
            *drawn,
            *_far_limit(series),
            *_legend(series),
            "</figure>",
        ]
    )


def _plot(series: Series) -> list[str]:
    """Return the readout, the amounts, the bars with the limit, and the times."""
    axis = _axis_of(series)
    return [
        '<output class="readout" aria-live="polite">Point at a bar to read its value.</output>',
        f'<div class="plot" style="max-width:{len(series.windows) * _WIDEST_BAR_PX + 60}px">',
        _amounts(axis),
        f'<div class="area">{_bars(series, axis)}{_limit_label(series, axis)}</div>',
        _times(series),
        "</div>",
    ]


def _near_limits(series: Series) -> list[int] | None:
    """Return the limit of each window; None if it is unknown, or too far above the bars to be drawn."""
    limits = series.window_limits
    return None if limits is None or max(limits) > _FARTHEST_LIMIT * max(series.amounts) else limits


def _far_limit(series: Series) -> list[str]:
    """Return a note if the limit is known, but too far above the bars to be drawn."""
    if series.window_limits is None or fits_meters(series) or _near_limits(series) is not None:
        return []
    return ['<p class="note">The limit is not drawn, because it is far above these bars.</p>']


def _axis_of(series: Series) -> Axis:
    """Return the axis; positive parts are stacked upwards, negative ones downwards."""
    by_window = list(zip(*(part.amounts for part in series.parts), strict=True))
    lowest = min(sum(amount for amount in amounts if amount < 0) for amounts in by_window)
    highest = max(sum(amount for amount in amounts if amount > 0) for amounts in by_window)
    return axis_of(lowest, max([highest, *(_near_limits(series) or ())]), _STEPS)


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
    return "\n".join([opening, *lines, *columns, *_limit_line(series, axis), "</svg>"])


def _limit_line(series: Series, axis: Axis) -> list[str]:
    """Return the line of the limit, with a step where windows differ in length."""
    limits = _near_limits(series)
    if limits is None:
        return []
    steps = " ".join(f"V{_top(axis, limit):g} H{(place + 1) * _COLUMN}" for place, limit in enumerate(limits))
    path = f"M0 {_top(axis, limits[0]):g} {steps}"
    return [f'<path class="limit" d="{path}" vector-effect="non-scaling-stroke"/>']


def _limit_label(series: Series, axis: Axis) -> str:
    limits = _near_limits(series)
    if limits is None:
        return ""
    top = 100 - 100 * axis.share(limits[-1])
    return f'<span class="limit" style="top:{top:.4g}%" aria-hidden="true">limit {short_number(limits[-1])}</span>'


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
        f"{window_name(window.type, window.start)}: {whole_number(sum(amount for _, amount in amounts))} {series.noun}"
    )
    if series.window_limits is not None:
        said += f", {percent(series.amounts[place], series.window_limits[place])} of the limit"
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
        share = f", {100 * part.total / total:.0f} % of all" if total > 0 else ""
        said = f"{escape(part.label)} <span>{whole_number(part.total)}{share}{_highest_share(series, part)}</span>"
        entries.append(f'<li class="c{colour}">{said}</li>')
    return [f'<ul class="legend">{"".join(entries)}</ul>']


def _highest_share(series: Series, part: SeriesPart) -> str:
    """Describe the busiest window of a part in percent of its limit, or say that this limit is unknown.

    If no limit is known, the facts of the chart say so. Parts that were added up have no limit.
    """
    if part.limit is None:
        known = any(one.limit is not None for one in series.parts)
        return ", limit unknown" if known and not part.is_sum else ""
    limits = [window_limit(part.limit, window) for window in series.windows]
    amount, limit = max(zip(part.amounts, limits, strict=True), key=lambda one: one[0] / one[1])
    return f", at most {percent(amount, limit)} of its limit"


def _top(axis: Axis, amount: int) -> float:
    """Return the distance of an amount from the upper edge."""
    return round(_HEIGHT * (1 - axis.share(amount)), 3)
