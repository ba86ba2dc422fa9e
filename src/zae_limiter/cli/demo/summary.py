"""Format the report of the demo. Pure."""

from collections.abc import Mapping

from zae_limiter.cli._output import Column, Grid, plain_lines
from zae_limiter.cli.demo.progress import DemoReport, Effect, Line, raise_line

_CHART_WIDE = 44
_COLUMNS = (
    Column("project, key"),
    Column("admitted", is_number=True),
    Column("rejected", is_number=True),
    Column("by project", is_number=True),
    Column("estimated", is_number=True),
    Column("used", is_number=True),
    Column("peak", is_number=True),
)


def summary_lines(report: DemoReport, bar: str = "█") -> list[str]:
    """Return the report: every project and key, the raise, whether the limits held, and the usage."""
    return [
        "",
        f"{report.callers} callers, {report.seconds:.1f} s, in {report.location}",
        "",
        *plain_lines(Grid(_COLUMNS, [_cells(line) for line in report.lines])),
        "",
        *_effect_lines(report.effect),
        f"{report.total.failed:,} admitted calls failed and gave their tokens back",
        f"limits {_verdict(report)}",
        "",
        *chart_lines(report.usage, bar),
        "",
        "Next: zae-limiter acquire user-1 gpt-4 -c rpm:1 -l rpm:100",
    ]


def chart_lines(usage: Mapping[str, int], bar: str) -> list[str]:
    """Draw the tokens that each key used; the longest bar is the most."""
    most = max([1, *usage.values()])
    wide = max(map(len, usage))
    return [
        "tokens used, from usage snapshots",
        *(f"{key.ljust(wide)} {used:7,} {bar * round(used * _CHART_WIDE / most)}" for key, used in usage.items()),
    ]


def _cells(line: Line) -> list[str]:
    counts = line.counts
    numbers = (counts.admitted, counts.rejected, counts.rejected_above, counts.estimated, counts.used)
    name = f"  {line.member.entity_id}" if line.member.is_key else line.member.entity_id
    return [name, *(f"{number:,}" for number in numbers), f"{line.highest_share * 100:.1f} %"]


def _effect_lines(effect: Effect) -> list[str]:
    lines = [raise_line(effect.raised)]
    if effect.before_per_s is not None and effect.after_per_s is not None:
        lines.append(
            f"its keys took {effect.before_per_s:,.0f} tokens per second before, {effect.after_per_s:,.0f} after"
        )
    return lines


def _verdict(report: DemoReport) -> str:
    share = f"{report.highest_share * 100:.1f} %"
    if report.is_exceeded:
        return f"EXCEEDED: {share} of capacity and refill taken; please report this"
    return f"never exceeded: at most {share} of capacity and refill taken"
