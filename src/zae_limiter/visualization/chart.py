"""Draw a series as a chart of a page: columns or rows, a line for the limit, and a legend."""

from collections.abc import Sequence
from html import escape

from zae_limiter.visualization.axis import ticks_of
from zae_limiter.visualization.columns import Bars, ColumnChart, ColumnLabel, draw_columns
from zae_limiter.visualization.series import Series, SeriesPart, window_share_of
from zae_limiter.visualization.wording import (
    UNITS,
    amount_of,
    limit_kind,
    number_of,
    percent,
    slots_in_use,
    span_of,
    window_name,
)

COLOURS = 6
"""The number of distinguishable parts; the last colour is for all others."""

_LABELS = 8
_MOST_METERS = 4
# A higher limit would leave only the lowest quarter for the bars.
_FARTHEST_LIMIT = 4


def chart_of(series: Series) -> str:
    """Return the figure: a column for each window, or a row for each if there are only a few."""
    unit = UNITS[series.window_type]
    label = f"{series.noun} per {unit}, {span_of(series.windows)} UTC."
    drawn = [_meters(series)] if _fits_meters(series) else _plot(series)
    keys = "" if _fits_meters(series) else ' tabindex="0"'
    hint = "" if _fits_meters(series) else " The arrow keys read the values."
    return "\n".join(
        [
            f'<figure{keys} role="group" aria-label="{escape(label + hint)}">',
            *drawn,
            *_note(series),
            *_legend(series),
            "</figure>",
        ]
    )


def _fits_meters(series: Series) -> bool:
    """Return whether a series is short enough for rows, and has no credit that a bar could not show."""
    return len(series.windows) <= _MOST_METERS and all(amount >= 0 for part in series.parts for amount in part.amounts)


def _meters(series: Series) -> str:
    """Return a row for each window: its time, its bar with a mark at the limit, and its amount in words."""
    drawn = [limit for limit in series.window_limits or () if limit is not None]
    longest = max([*series.amounts, *drawn, 1])
    rows = [_meter(series, place, longest) for place in range(len(series.windows))]
    return "\n".join(['<div class="meters">', *rows, "</div>"])


def _meter(series: Series, place: int, longest: int) -> str:
    window, amount, limits = series.windows[place], series.amounts[place], series.window_limits
    limit = limits[place] if limits is not None else None
    bars = "".join(
        f'<i class="c{colour}" style="width:{100 * part.amounts[place] / longest:.4g}%"'
        f' data-amount="{part.amounts[place]}"></i>'
        for colour, part in enumerate(series.parts)
        if part.amounts[place]
    )
    mark = ""
    if limit is not None:
        left = 100 * limit / longest
        beyond = max(0, amount - limit) if series.is_soft else 0
        mark = f'<u style="left:{left:.4g}%;width:{100 * beyond / longest:.4g}%"></u>' if beyond else ""
        mark += f'<b{" class=soft" if series.is_soft else ""} style="left:{left:.4g}%"></b>'
    compared = series.comparison(place)
    share = f" <small>{compared}</small>" if compared else ""
    return (
        f'<div data-window="{window.start}"><span>{window_name(window.type, window.start)}</span>'
        f'<div class="track" aria-hidden="true">{bars}{mark}</div>'
        f"<strong>{escape(amount_of(amount, series.noun, series.unit))}{share}</strong></div>"
    )


def _plot(series: Series) -> list[str]:
    windows = enumerate(series.windows)
    labels = [ColumnLabel(window.start, _value(series, place)) for place, window in windows]
    parts = [Bars(colour, part.amounts) for colour, part in enumerate(series.parts)]
    ticks, limits = ticks_of(series.windows, _LABELS), _near_limits(series)
    return draw_columns(ColumnChart(labels, parts, ticks, limits, series.is_soft, series.unit))


def _near_limits(series: Series) -> list[int | None] | None:
    """Return the limit of each window; None if it is unknown, or too far above the bars to be drawn."""
    limits = series.window_limits
    if limits is None:
        return None
    highest = max(limit for limit in limits if limit is not None)
    return None if highest > _FARTHEST_LIMIT * max(series.amounts) else limits


def _note(series: Series) -> list[str]:
    """Return a note if the limit is known, but is not drawn."""
    limit = series.only_limit
    if limit is not None and limit.is_quota and series.window_limits is None:
        return ['<p class="note">The periods of this limit are not these windows, so it is not drawn.</p>']
    if series.window_limits is None or _fits_meters(series) or _near_limits(series) is not None:
        return []
    return ['<p class="note">The limit is not drawn, because it is far above these bars.</p>']


def _value(series: Series, place: int) -> str:
    """Describe the usage in a window, by part if there are several."""
    window = series.windows[place]
    amounts = [(part.label, part.amounts[place]) for part in series.parts if part.amounts[place]]
    used = amount_of(sum(amount for _, amount in amounts), series.noun, series.unit)
    said = f"{window_name(window.type, window.start)}: {used}"
    compared = series.comparison(place)
    if compared:
        said += f", {compared}"
    if len(series.parts) == 1 or not amounts:
        return said
    return f"{said} ({', '.join(f'{label} {number_of(amount, series.unit)}' for label, amount in amounts)})"


def _legend(series: Series) -> Sequence[str]:
    if len(series.parts) == 1:
        return []
    total = series.total
    entries = []
    for colour, part in enumerate(series.parts):
        share = f", {100 * part.total / total:.0f} % of all" if total > 0 else ""
        used = number_of(part.total, series.unit)
        said = f"{escape(part.label)} <span>{used}{share}{_highest_share(series, part)}</span>"
        entries.append(f'<li class="c{colour}">{said}</li>')
    return [f'<ul class="legend">{"".join(entries)}</ul>']


def _highest_share(series: Series, part: SeriesPart) -> str:
    """Describe the busiest window of a part in percent of its limit, or say that this limit is unknown.

    If no limit is known, the facts of the chart say so. Parts that were added up have no limit.
    """
    if part.limit is None:
        known = any(one.limit is not None for one in series.parts)
        return ", limit unknown" if known and not part.is_sum else ""
    if part.limit.is_concurrent:
        most = part.highest_in_use
        return "" if most is None else f", highest in use {slots_in_use(most, part.limit)}"
    shares = [window_share_of(part.limit, window) for window in series.windows]
    known_shares = [(amount, of) for amount, of in zip(part.amounts, shares, strict=True) if of is not None]
    if not known_shares:
        return ""
    share, kind = percent(*max(known_shares, key=lambda one: one[0] / one[1])), limit_kind(part.limit)
    return f", {share} of its {kind}" if share.startswith("under") else f", at most {share} of its {kind}"
