"""Say what a report found, in words: for the terminal and for the page. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from zae_limiter.loadtest.costs import CapacityCost
from zae_limiter.loadtest.measurements import MOST_LIMITS
from zae_limiter.loadtest.promise_check import LEAST_REQUESTS, LEAST_SHARE, DemandState, LimitVerdict, Verdict
from zae_limiter.loadtest.report import LatencyBasis, LatencyRow, LoadReport
from zae_limiter.visualization.wording import counted, per_period, whole_number

LATENCY_TITLES = ("call", "count", "p50", "p95", "p99", "max")
LIMIT_TITLES = ("entity", "resource", "limit", "admitted", "offered", "rejections", "share", "verdict")
UNCHECKED = "No limit was checked, because no call took anything."
REFUSED_NOTE = "DynamoDB bills refused writes but does not report them; each counts as one unit."

_BASES = {
    LatencyBasis.SCHEDULED: "from the scheduled time of each call, so that waiting for a late driver counts",
    LatencyBasis.SERVICE: "as service time, from the moment at which a call was sent",
    LatencyBasis.BOTH: "from the scheduled time where a call had one, else as service time",
}
_UNJUDGED = {
    DemandState.NO_REJECTIONS: "held; it rejected nothing",
    DemandState.TOO_SHORT: "held; too little demand to judge the share",
    DemandState.SMALL_CAPACITY: f"held; a capacity below {LEAST_REQUESTS} requests has no promised share",
    DemandState.UNKNOWN_LIMIT: "not checked; the limit is unknown",
    DemandState.INCOMPLETE: "held; the share is not judged, because calls of lost workers are missing",
}


@dataclass(frozen=True, slots=True)
class TextTable:
    """Titles and rows of equal length; the first ``named`` cells of a row are words, the others numbers."""

    titles: Sequence[str]
    rows: Sequence[Sequence[str]]
    named: int


def headline(report: LoadReport) -> str:
    """Return whether the promise held, in one sentence."""
    if not report.checked:
        return UNCHECKED if report.measured.attempts else "No call was made."
    checked = f"{counted(report.checked, 'limit')} checked, {report.judged} with enough demand to judge the share"
    if report.measured.limits_left_out:
        checked += f"; of more limits, these {MOST_LIMITS} were chosen by a hash of their names"
    if report.held:
        return f"The promise held: {checked}."
    broken = sum(one.verdict is not Verdict.HELD for one in report.limits)
    return f"The promise did not hold for {counted(broken, 'limit')}: {checked}."


def summary_lines(report: LoadReport) -> list[str]:
    """Return the rates and counts, one fact per line."""
    measured = report.measured
    calls = f"{counted(measured.attempts, 'call')} in {measured.duration_s:.1f} s"
    counts = {"admitted": measured.admitted, "rejected": measured.rejected, "errors": report.errors}
    lines = [
        f"{calls}: {rate(report.calls_per_s)} per second, {rate(report.admitted_per_s)} admitted per second",
        ", ".join(f"{name} {whole_number(count)}" for name, count in counts.items()),
    ]
    if measured.never:
        lines.append(f"{counted(measured.never, 'call')} can never be admitted: the amount is above the capacity")
    if measured.unsent:
        lines.append(f"{counted(measured.unsent, 'call')} could not be sent in time: the driver is at its limit")
    if measured.degraded:
        lines.append(f"{counted(measured.degraded, 'call')} admitted without limiting: the store was unavailable")
    return lines


def error_lines(report: LoadReport, most: int = 3) -> list[str]:
    """Return the most frequent kinds of errors, with an example of each."""
    measured = report.measured
    return [
        f"{whole_number(count)} x {kind}: {measured.error_examples.get(kind, '')}"
        for kind, count in measured.errors.most_common(most)
    ]


def latency_note(report: LoadReport) -> str:
    """Return the time from which latencies count, in words."""
    return f"Latencies count {_BASES[report.latency_basis]}."


def latency_table(report: LoadReport) -> TextTable:
    """Return the latencies of every request type."""
    return TextTable(LATENCY_TITLES, [_latency_cells(row) for row in report.latencies], named=1)


def store_lines(report: LoadReport) -> list[str]:
    """Return what DynamoDB consumed and throttled, and the shards; nothing for other stores."""
    lines = [] if report.cost is None else [cost_line(report.cost)]
    if report.cost is not None and report.cost.refused_write_units:
        lines.append(REFUSED_NOTE)
    if report.measured.throttles:
        throttles = report.measured.throttles.most_common()
        lines.append("throttles: " + ", ".join(f"{reason} {whole_number(count)}" for reason, count in throttles))
    if report.largest_shard_count > 1:
        lines.append(f"shards: a bucket had up to {report.largest_shard_count}")
    return lines


def cost_line(cost: CapacityCost) -> str:
    """Return the consumed capacity and its price."""
    units = {
        "write": cost.write_units,
        "index write": cost.index_write_units,
        "refused write": cost.refused_write_units,
        "read": cost.read_units,
    }
    listed = ", ".join(f"{amount:,.10g} {kind}" for kind, amount in units.items() if amount)
    price = "" if cost.usd_per_million_calls is None else f", USD {cost.usd_per_million_calls:.2f} per million calls"
    return f"DynamoDB units: {listed or 'none'}; USD {cost.usd:.4f}{price}"


def limits_table(report: LoadReport, most: int | None = None) -> TextTable:
    """Return the limits and their verdicts, the worst first; at most ``most`` of them."""
    start_s = report.measured.started_s or 0.0
    rows = [limit_cells(one, start_s) for one in report.limits[:most]]
    return TextTable(LIMIT_TITLES, rows, named=3)


def limit_cells(found: LimitVerdict, start_s: float) -> list[str]:
    """Return the cells of one limit."""
    stretch = found.stretch
    return [
        found.key.entity_id,
        found.key.resource,
        found.key.limit_name if found.limit is None else f"{found.key.limit_name} {per_period(found.limit)}",
        whole_number(found.admitted),
        "?" if found.limit is None else whole_number(round(found.offered)),
        whole_number(found.rejections),
        "-" if stretch is None else percentage(stretch.share),
        verdict_words(found, start_s),
    ]


def verdict_words(found: LimitVerdict, start_s: float) -> str:
    """Return the verdict about a limit; times count from the start of the test."""
    window, stretch = found.window, found.stretch
    if found.verdict is Verdict.EXCEEDED and window is not None:
        span = _span(window.start_s - start_s, window.end_s - start_s)
        return f"EXCEEDED by {whole_number(round(window.excess))} of {whole_number(round(window.allowed))}, {span}"
    if found.verdict is Verdict.UNDERUSED and stretch is not None:
        span = _span(stretch.start_s - start_s, stretch.end_s - start_s)
        return f"BELOW {percentage(LEAST_SHARE)} of the refill, {span}"
    return "held" if found.demand is DemandState.JUDGED else _UNJUDGED[found.demand]


def percentage(share: float) -> str:
    """Format a share: ``99.8 %``."""
    return f"{100 * share:.1f} %"


def rate(per_second: float) -> str:
    """Format a rate, with a decimal if it is small."""
    return f"{per_second:,.0f}" if per_second >= 100 else f"{per_second:.1f}"


def in_time(milliseconds: float) -> str:
    """Format a duration with three digits: ``0.031 ms``, ``12.3 ms``, ``1.23 s``."""
    if milliseconds >= 1000:
        return f"{milliseconds / 1000:.2f} s"
    digits = 0 if milliseconds >= 100 else 1 if milliseconds >= 10 else 2 if milliseconds >= 1 else 3
    return f"{milliseconds:.{digits}f} ms"


def _latency_cells(row: LatencyRow) -> list[str]:
    times = (row.p50_ms, row.p95_ms, row.p99_ms, row.longest_ms)
    return [row.request_type, whole_number(row.count), *map(in_time, times)]


def _span(start_s: float, end_s: float) -> str:
    return f"from {max(0.0, start_s):.1f} to {end_s:.1f} s"
