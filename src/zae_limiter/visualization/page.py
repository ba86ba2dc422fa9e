"""Format usage as a self-contained HTML page: charts, totals and numbers, without external resources."""

from collections.abc import Mapping, Sequence
from html import escape

from zae_limiter.core.lazy_dataclass import dataclass, field
from zae_limiter.core.limit import Limit
from zae_limiter.core.money import MICRO, is_currency
from zae_limiter.core.usage import UsageSnapshot
from zae_limiter.visualization.chart import COLOURS, chart_of
from zae_limiter.visualization.document import Document, facts_list, table_card
from zae_limiter.visualization.series import (
    LimitsInForce,
    Series,
    SeriesBounds,
    UnitsByName,
    limits_of,
    series_of,
    units_of,
    whose,
    window_limit,
)
from zae_limiter.visualization.summary import Sums, sums_of
from zae_limiter.visualization.table import NOTHING, Rows, rows_of
from zae_limiter.visualization.wording import (
    UNITS,
    counted,
    in_window,
    limit_kind,
    noun_of,
    number_of,
    per_period,
    percent,
    period_begin,
    rounded,
    short_amount,
    span_of,
    whole_number,
)

# A month of hours is still readable on a desktop.
_BOUNDS = SeriesBounds(windows=24 * 31, parts=COLOURS)
_READABLE = 100_000
# Browsers scroll through this many rows without delay.
_MOST_ROWS = 5_000
_NOTE = "All times are UTC; the last window may be incomplete."

GENERATOR = '<meta name="generator" content="zae-limiter usage">'
"""Identifies a page that was written by this module."""


@dataclass(frozen=True, slots=True)
class HtmlFormatter:
    """A page with a chart for each limit, totals, and the numbers below, in light or dark mode.

    ``filters`` are the filters of the query, by name, and ``made_at`` is the time of the page; both
    are shown as they are. With ``summed`` the sums of all windows are on top, as in
    ``get_usage_summary``. Snapshots do not contain limits: pass them as ``limits``, by entity id and
    resource, to compare the usage with them.

    Example:
        ```python
        hours, _ = repo.get_usage_snapshots("user-1", window_type="hourly")
        limits = {("user-1", "gpt-4"): [Limit.per_minute("rpm", 100)]}
        page = HtmlFormatter("Usage of user-1", limits=limits).format(hours)
        ```
    """

    title: str = "Usage"
    filters: Mapping[str, str] = field(default_factory=dict)
    made_at: str | None = None
    summed: bool = False
    limits: LimitsInForce = field(default_factory=dict)

    def format(self, snapshots: Sequence[UsageSnapshot]) -> str:
        """Return the page."""
        units = units_of(self.limits)
        sums = map(_in_all, sums_of(snapshots, units)) if self.summed else ()
        charts = map(_card, series_of(snapshots, _BOUNDS, self.limits, units))
        shown = [*sums, *charts, _numbers(snapshots, units)] if snapshots else [_NOTHING]
        return Document(self.title, GENERATOR, _NOTE, self.filters, self.made_at).page(shown)


def _in_all(sums: Sums) -> str:
    """Return the sums over windows of one type, with the scope of their mean.

    The mean of a chart differs, because it includes windows without usage.
    """
    unit = UNITS[sums.window_type]
    about = f"{sums.of_what} A snapshot is {'an' if unit == 'hour' else 'a'} {unit} in which an entity used a resource."
    titles = ["total", "mean of a snapshot", *sums.titles[3:]]
    head = "<th>limit</th>" + "".join(f'<th class="number">{title}</th>' for title in titles)
    rows = [
        f"<td><span>{_in_words(limit, sums.units)}</span></td>"
        + "".join(f'<td class="number">{cell}</td>' for cell in cells)
        for limit, *cells in sums.rows
    ]
    return table_card("Totals", about, head, rows)


def _card(series: Series) -> str:
    unit = UNITS[series.window_type]
    summed = "" if series.counted_in == series.window_type else f", summed from {series.counted_in} windows"
    facts = {"Total": _fact(series.total, series.unit), **_busiest(series, unit), **_limit_facts(series, unit)}
    return "\n".join(
        [
            '<section class="card">\n<div class="top">',
            f"<div><h2>{escape(_capitalized(series.noun))} per {unit}{_in_currency(series)}</h2>",
            f'<p class="sub">{escape(series.whose)} · limit {escape(series.limit)}',
            f"<br>{span_of(series.windows)} UTC{summed}</p></div>",
            f"{facts_list(facts)}\n</div>",
            chart_of(series),
            "</section>",
        ]
    )


def _busiest(series: Series, unit: str) -> dict[str, str]:
    """Return the highest amount and the mean; nothing for one window, whose amount is the total."""
    if len(series.windows) == 1:
        return {}
    most = f"{_fact(max(series.amounts), series.unit)} <small>{in_window(series.windows[series.peak])}</small>"
    return {
        f"Most in {'an' if unit == 'hour' else 'a'} {unit}": most,
        f"Mean of {counted(len(series.windows), unit)}": _fact(round(series.total / len(series.windows)), series.unit),
    }


def _limit_facts(series: Series, unit: str) -> dict[str, str]:
    """Return the limit and the percentage of it in the busiest window, or say that the limit is unknown.

    One window has its percentage in the chart. Several parts have a limit each, which the legend
    compares them with.
    """
    known = [part.limit for part in series.parts if part.limit is not None]
    if series.highest_in_use is not None or any(limit.is_concurrent for limit in known):
        return _slot_facts(series)
    if not known:
        return {"Limit": "unknown <small>usage does not record it</small>"}
    limit = series.only_limit
    if limit is None:
        return {}
    kind = limit_kind(limit)
    stated = {_capitalized(kind): _limit_in_words(series, limit, unit)}
    shares = series.window_shares
    peak = None if shares is None else shares[series.peak]
    if shares is None or peak is None or len(series.windows) == 1:
        return stated
    share = f"{percent(series.amounts[series.peak], peak)} <small>in the busiest {unit}</small>"
    beyond = [max(0, amount - of) for amount, of in zip(series.amounts, shares, strict=True) if of is not None]
    if limit.enforce or not any(beyond):
        return {**stated, f"Of the {kind}": share}
    where = f"in {counted(sum(map(bool, beyond)), unit)}"
    return {**stated, f"Of the {kind}": share, "Beyond it": f"{_fact(sum(beyond), series.unit)} <small>{where}</small>"}


def _limit_in_words(series: Series, limit: Limit, unit: str) -> str:
    """Return the amount of a limit, and its period below; for a rate, what it allows in the busiest window."""
    if limit.schedule is not None:
        per = f"per {limit.schedule.every}{period_begin(limit.schedule)}"
        return f"{_fact(limit.capacity, series.unit)} <small>{per}</small>"
    allowed = window_limit(limit, series.windows[series.peak]) or limit.capacity
    per = per_period(limit) if allowed == limit.refill_amount else f"per {unit}, from {per_period(limit)}"
    return f"{_fact(allowed, series.unit)} <small>{per}</small>"


def _slot_facts(series: Series) -> dict[str, str]:
    """Return the highest number of slots in use, and the limit if it is known and of one part."""
    most = series.highest_in_use
    highest = {} if most is None else {"Highest in use": whole_number(most)}
    limit = series.parts[0].limit
    if len(series.parts) > 1 or limit is None:
        return highest
    return {**highest, "Limit": f"{_fact(limit.capacity)} <small>at a time</small>"}


def _in_currency(series: Series) -> str:
    """Return the currency of a chart for its title, "" if it does not show money."""
    return f" in {series.unit}" if is_currency(series.unit) else ""


def _capitalized(noun: str) -> str:
    return noun[:1].upper() + noun[1:]


def _in_words(limit_name: str, units: UnitsByName) -> str:
    """Return what a limit counts, with its name or its unit beside it."""
    noun = noun_of(limit_name)
    if limit_name in units:
        return f"{escape(limit_name)} <small>{escape(units[limit_name])}</small>"
    return escape(limit_name) if noun == limit_name else f"{escape(noun)} <small>{escape(limit_name)}</small>"


def _fact(amount: int, unit: str | None = None) -> str:
    """Format an amount, with the full amount as a tooltip if it is shortened or rounded."""
    is_money = is_currency(unit)
    if abs(amount) >= _READABLE * (MICRO if is_money else 1):
        short = short_amount(amount, unit)
    else:
        short = number_of(rounded(amount, unit), unit)
    shown, full = f"{short} {unit}" if is_money else short, number_of(amount, unit)
    return shown if short == full else f'<span title="{full}">{shown}</span>'


def _numbers(snapshots: Sequence[UsageSnapshot], units: UnitsByName) -> str:
    rows = rows_of(snapshots[-_MOST_ROWS:], units)
    shown = _telling_names(rows)

    def written(tag: str, cells: Sequence[str]) -> str:
        named = "".join(f"<{tag}><span>{escape(cells[place])}</span></{tag}>" for place in shown)
        numbers = "".join(f'<{tag} class="number">{cell}</{tag}>' for cell in cells[rows.named :])
        return named + numbers

    words = [_in_words(name, units) for name in limits_of(snapshots[-_MOST_ROWS:])]
    titles = [*rows.titles[: rows.named], *words, *map(escape, rows.titles[rows.counted : -1]), "writes"]
    count = counted(len(snapshots), "row")
    if len(snapshots) > _MOST_ROWS:
        count = f"the last {whole_number(_MOST_ROWS)} of {count} (CSV output has all)"
    about = f"{escape(whose(snapshots))}, {count}. The last column counts the writes to the buckets."
    return table_card("Numbers", about, written("th", titles), [written("td", cells) for cells in rows.cells])


def _telling_names(rows: Rows) -> list[int]:
    """Return the columns of names to show: the windows, and those whose values differ."""
    differing = [place for place in range(1, rows.named) if len({cells[place] for cells in rows.cells}) > 1]
    return [0, *differing]


_NOTHING = f'<section class="card nothing">{NOTHING}</section>'
