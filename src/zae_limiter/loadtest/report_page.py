"""Format a report as one HTML page with charts, in light or dark mode, without external resources. Pure."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from statistics import median

from zae_limiter.loadtest.measurements import Latencies, Measurements, Second
from zae_limiter.loadtest.promise_check import DemandState, LimitVerdict, Verdict
from zae_limiter.loadtest.report import LoadReport
from zae_limiter.loadtest.report_text import (
    REFUSED_NOTE,
    TextTable,
    headline,
    in_time,
    latency_note,
    latency_table,
    limits_table,
    rate,
    summary_lines,
)
from zae_limiter.visualization.axis import Tick
from zae_limiter.visualization.columns import Bars, ColumnChart, ColumnLabel, draw_columns
from zae_limiter.visualization.document import Document, facts_list, table_card
from zae_limiter.visualization.wording import counted, whole_number

GENERATOR = '<meta name="generator" content="zae-limiter loadtest">'
"""Identifies a page that was written by this module."""
_MOST_COLUMNS = 120
_LABELS = 8
_STEPS_S = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 1800, 3600)
_BLUE, _AMBER, _GREEN, _PURPLE, _RED = range(5)
_SHOWN_BUCKETS = 6
_TALLEST = 10
"""A column of latencies is cut at this many times the median column, so that one slow second does not hide the rest."""
_NOTE = "Times count from the start of the test. The first and the last column may be incomplete."


@dataclass(frozen=True, slots=True)
class TimeSpan:
    """The seconds of a test, in steps of equal length; each step is a column."""

    first: int
    step_s: int
    count: int

    @classmethod
    def of(cls, measured: Measurements) -> "TimeSpan":
        """Return the span of all calls, in the shortest steps that give few enough columns."""
        first = int(measured.started_s or 0)
        seconds = max(1, math.ceil(measured.ended_s or 0) - first)
        step_s = next((step for step in _STEPS_S if math.ceil(seconds / step) <= _MOST_COLUMNS), _STEPS_S[-1])
        return cls(first, step_s, math.ceil(seconds / step_s))

    def seconds(self, place: int) -> range:
        """Return the seconds of a column."""
        start = self.first + place * self.step_s
        return range(start, start + self.step_s)

    def offset(self, place: int) -> str:
        """Return the start of a column, from the start of the test."""
        return f"{place * self.step_s} s"

    @property
    def ticks(self) -> list[Tick]:
        """The columns at round times that are labelled."""
        for step_s in _STEPS_S:
            places = [place for place in range(self.count) if place * self.step_s % step_s == 0]
            if len(places) <= _LABELS:
                return [Tick(place, self.offset(place)) for place in places]
        return [Tick(0, self.offset(0))]


@dataclass(frozen=True, slots=True)
class ChartCard:
    """A chart with its title, its facts, and a legend of its colours."""

    title: str
    about: str
    facts: dict[str, str]
    chart: ColumnChart
    legend: Sequence[tuple[int, str]]

    def html(self) -> str:
        """Return the card."""
        entries = "".join(f'<li class="c{colour}">{escape(text)}</li>' for colour, text in self.legend)
        label = escape(f"{self.title}. The arrow keys read the values.")
        return "\n".join(
            [
                '<section class="card">\n<div class="top">',
                f'<div><h2>{escape(self.title)}</h2><p class="sub">{escape(self.about)}</p></div>',
                f"{facts_list(self.facts)}\n</div>",
                f'<figure tabindex="0" role="group" aria-label="{label}">',
                *draw_columns(self.chart),
                f'<ul class="legend">{entries}</ul>',
                "</figure>\n</section>",
            ]
        )


@dataclass(frozen=True, slots=True)
class ReportPage:
    """A page of one test. ``target`` is what was tested, and ``made_at`` the time of the page."""

    target: str
    made_at: str | None = None

    def format(self, report: LoadReport) -> str:
        """Return the page."""
        measured, limits = report.measured, _limits(report)
        charts: list[ChartCard | None] = []
        if measured.seconds:
            span = TimeSpan.of(measured)
            charts = [calls_chart(report, span), latency_chart(report, span), shards_chart(measured, span)]
        drawn = [chart.html() for chart in charts if chart is not None]
        # If a limit broke the promise, it is what a reader looks for first.
        seen = [*drawn, limits] if report.held else [limits, *drawn]
        cards = [verdict_card(report), *seen, _latencies(report), *_capacity(report), *_errors(measured)]
        filters = {"target": self.target, "duration": f"{measured.duration_s:.0f} s"}
        return Document("Load test", GENERATOR, _NOTE, filters, self.made_at).page(cards)


def verdict_card(report: LoadReport) -> str:
    """Return whether the promise held, with the most important figures."""
    kind = "held" if report.held else "broken"
    lines = "".join(f"<br>{escape(line)}" for line in summary_lines(report)[2:])
    facts = {
        "Calls per second": rate(report.calls_per_s),
        "Admitted": f"{whole_number(report.measured.admitted)} <small>{rate(report.admitted_per_s)} per second</small>",
        "Rejected": whole_number(report.measured.rejected),
        "Errors": whole_number(report.errors),
    }
    if report.cost is not None and report.cost.usd_per_million_calls is not None:
        facts["USD per million calls"] = f"{report.cost.usd_per_million_calls:.2f}"
    broken = "The promise did not hold" if report.checked else "No limit was checked"
    title = "The promise held" if report.held else broken
    about = headline(report).rpartition(": ")[2]
    return (
        f'<section class="card verdict {kind}">\n<div class="top"><div><h2>{title}</h2>'
        f'<p class="sub">{escape(about)}{lines}</p></div>{facts_list(facts)}</div>\n</section>'
    )


def calls_chart(report: LoadReport, span: TimeSpan) -> ChartCard:
    """Return the calls per second over time."""
    measured = report.measured
    columns = [_sum_of(measured, span, place) for place in range(span.count)]
    parts = {
        "admitted": (_BLUE, [one.admitted for one in columns]),
        "rejected": (_AMBER, [one.rejected for one in columns]),
        "errors": (_RED, [one.errors for one in columns]),
    }
    drawn = {name: part for name, part in parts.items() if any(part[1])}
    labels = [
        ColumnLabel(
            span.offset(place),
            f"{span.offset(place)}: "
            + ", ".join(f"{rate(amounts[place] / span.step_s)} {name}" for name, (_, amounts) in drawn.items()),
        )
        for place in range(span.count)
    ]
    bars = [Bars(colour, [round(one / span.step_s) for one in amounts]) for colour, amounts in drawn.values()]
    busiest = max((one.admitted + one.rejected + one.errors) / span.step_s for one in columns)
    facts = {"Mean": rate(report.calls_per_s), "Highest": rate(busiest)}
    legend = [(colour, f"{name} {whole_number(sum(amounts))}") for name, (colour, amounts) in drawn.items()]
    about = "Acquires by the second in which they ended" + _each(span)
    return ChartCard("Calls per second", about, facts, ColumnChart(labels, bars, span.ticks), legend)


def latency_chart(report: LoadReport, span: TimeSpan) -> ChartCard | None:
    """Return the percentiles of admitted calls over time; None if none was admitted."""
    found = [_sum_of(report.measured, span, place).latencies for place in range(span.count)]
    rows = [_percentiles_ms(latencies) for latencies in found]
    tops_ms = [row[-1] for row in rows if row[-1]]
    if not tops_ms:
        return None
    shown_ms = min(max(tops_ms), _TALLEST * median(tops_ms))
    unit, scale = ("µs", 1000.0) if shown_ms < 5 else ("ms", 1.0) if shown_ms < 5000 else ("s", 0.001)
    heights = [[round(min(value, shown_ms) * scale) for value in row] for row in rows]
    bars = [
        Bars(_BLUE, [row[0] for row in heights]),
        Bars(_GREEN, [row[1] - row[0] for row in heights]),
        Bars(_PURPLE, [row[2] - row[1] for row in heights]),
    ]
    labels = [
        ColumnLabel(
            span.offset(place),
            f"{span.offset(place)}: p50 {in_time(row[0])}, p95 {in_time(row[1])}, p99 {in_time(row[2])}",
        )
        for place, row in enumerate(rows)
    ]
    whole = next(row for row in report.latencies if row.request_type == "ACQUIRE")
    times = {"p50": whole.p50_ms, "p95": whole.p95_ms, "p99": whole.p99_ms, "Maximum": whole.longest_ms}
    facts = {name: in_time(value) for name, value in times.items()}
    legend = [(_BLUE, "up to p50"), (_GREEN, "up to p95"), (_PURPLE, "up to p99")]
    cut = f". Columns are cut at {in_time(shown_ms)}" if shown_ms < max(tops_ms) else ""
    about = f"Of admitted calls, in {unit}, {report.latency_basis}{_each(span)}{cut}"
    return ChartCard("Latency", about, facts, ColumnChart(labels, bars, span.ticks), legend)


def shards_chart(measured: Measurements, span: TimeSpan) -> ChartCard | None:
    """Return the shards of the buckets that were split; None if none was."""
    split = sorted(measured.shards.items(), key=lambda one: (-max(one[1].values(), default=1), one[0]))
    split = [one for one in split if max(one[1].values(), default=1) > 1][:_SHOWN_BUCKETS]
    if not split:
        return None
    series = {bucket: _shards_over_time(counts, span) for bucket, counts in split}
    bars = [Bars(colour, amounts) for colour, amounts in enumerate(series.values())]
    labels = [
        ColumnLabel(
            span.offset(place),
            f"{span.offset(place)}: " + ", ".join(f"{bucket} {amounts[place]}" for bucket, amounts in series.items()),
        )
        for place in range(span.count)
    ]
    legend = [(colour, f"{bucket}, up to {max(amounts)}") for colour, (bucket, amounts) in enumerate(series.items())]
    facts = {"Most": str(max(max(amounts) for amounts in series.values()))}
    about = "Of the buckets that were split, sampled about once per second" + _each(span)
    return ChartCard("Shards over time", about, facts, ColumnChart(labels, bars, span.ticks), legend)


def _shards_over_time(counts: dict[int, int], span: TimeSpan) -> list[int]:
    """Return the shards of a bucket in each column; a second without a sample has the number before."""
    known, found = 1, []
    for place in range(span.count):
        sampled = [counts[second] for second in span.seconds(place) if second in counts]
        known = sampled[-1] if sampled else known
        found.append(known)
    return found


def _sum_of(measured: Measurements, span: TimeSpan, place: int) -> Second:
    total = Second()
    for second in span.seconds(place):
        if second in measured.seconds:
            total.merge(measured.seconds[second])
    return total


def _percentiles_ms(latencies: Latencies) -> list[float]:
    return [latencies.percentile_ms(share) or 0.0 for share in (0.5, 0.95, 0.99)]


def _each(span: TimeSpan) -> str:
    return "" if span.step_s == 1 else f". Each column is {span.step_s} s"


def _latencies(report: LoadReport) -> str:
    return _table("Latencies", latency_note(report), latency_table(report))


def _capacity(report: LoadReport) -> list[str]:
    cost, measured = report.cost, report.measured
    if cost is None:
        return []
    rows = [
        ("Write units", cost.write_units),
        ("Index write units", cost.index_write_units),
        ("Refused write units", cost.refused_write_units),
        ("Read units", cost.read_units),
        *((f"{action} calls", count) for action, count in measured.calls.most_common()),
        *((f"Throttled: {reason}", count) for reason, count in measured.throttles.most_common()),
    ]
    about = f"USD {cost.usd:.4f} in total, at on-demand prices of us-east-1. {REFUSED_NOTE}"
    return [_table("DynamoDB", about, TextTable(("what", "amount"), [(name, f"{n:,.10g}") for name, n in rows], 1))]


def _limits(report: LoadReport) -> str:
    about = (
        "Offered is the capacity plus the refill of the test. The share is the admitted part of the refill while "
        "the limit rejected again and again."
    )
    table = limits_table(report)
    # The verdict and the share come first, so that a narrow screen shows them.
    titles, rows = _verdict_first(table.titles), [_verdict_first(row) for row in table.rows]
    marks = [_mark(one) for one in report.limits]
    return _table("Limits", about, TextTable(titles, rows, table.named + 2), marks)


def _verdict_first(cells: Sequence[str]) -> list[str]:
    *others, share, verdict = cells
    return [verdict, share, *others]


def _mark(found: LimitVerdict) -> str:
    if found.verdict is not Verdict.HELD:
        return "broken"
    return "held" if found.demand is DemandState.JUDGED else ""


def _errors(measured: Measurements) -> list[str]:
    if not measured.errors:
        return []
    rows = [(kind, measured.error_examples.get(kind, ""), whole_number(n)) for kind, n in measured.errors.most_common()]
    about = f"{counted(measured.errors.total(), 'call')} failed; one message of each kind is shown."
    return [_table("Errors", about, TextTable(("error", "example", "count"), rows, 2))]


def _table(title: str, about: str, table: TextTable, marks: Sequence[str] = ()) -> str:
    """Return a table as a card; the first cell of a row has the class of its mark."""

    def cells(tag: str, row: Sequence[str], mark: str = "") -> str:
        named = [f"<{tag}><span>{escape(cell)}</span></{tag}>" for cell in row[: table.named]]
        numbers = [f'<{tag} class="number">{escape(cell)}</{tag}>' for cell in row[table.named :]]
        if mark:
            named[0] = f'<{tag} class="{mark}"><span>{escape(row[0])}</span></{tag}>'
        return "".join([*named, *numbers])

    rows = [cells("td", row, marks[number] if marks else "") for number, row in enumerate(table.rows)]
    return table_card(title, escape(about), cells("th", table.titles), rows)
