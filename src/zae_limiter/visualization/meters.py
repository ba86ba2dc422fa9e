"""Draw a series of very few windows: one labelled bar for each, from left to right."""

from html import escape

from zae_limiter.visualization.series import Series
from zae_limiter.visualization.wording import amount_of, percent, window_name

_MOST_WINDOWS = 4


def fits_meters(series: Series) -> bool:
    """Return whether a series is short enough, and has no credit that a bar could not show."""
    return len(series.windows) <= _MOST_WINDOWS and all(amount >= 0 for part in series.parts for amount in part.amounts)


def meters_of(series: Series) -> str:
    """Return a row for each window: its time, its bar with a mark at the limit, and its amount in words."""
    longest = max([*series.amounts, *(series.window_limits or ()), 1])
    rows = [_row(series, place, longest) for place in range(len(series.windows))]
    return "\n".join(['<div class="meters">', *rows, "</div>"])


def _row(series: Series, place: int, longest: int) -> str:
    window, amount, limits = series.windows[place], series.amounts[place], series.window_limits
    bars = "".join(
        f'<i class="c{colour}" style="width:{100 * part.amounts[place] / longest:.4g}%"'
        f' data-amount="{part.amounts[place]}"></i>'
        for colour, part in enumerate(series.parts)
        if part.amounts[place]
    )
    mark = f'<b style="left:{100 * limits[place] / longest:.4g}%"></b>' if limits else ""
    share = f" <small>{percent(amount, limits[place])} of the limit</small>" if limits else ""
    return (
        f'<div data-window="{window.start}"><span>{window_name(window.type, window.start)}</span>'
        f'<div class="track" aria-hidden="true">{bars}{mark}</div>'
        f"<strong>{escape(amount_of(amount, series.noun))}{share}</strong></div>"
    )
