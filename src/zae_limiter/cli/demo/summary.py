"""Format the report of the demo: at most 23 lines of 80 columns, so that it fits the smallest terminal. Pure."""

from zae_limiter.cli._output import Column, Grid, plain_lines
from zae_limiter.cli.demo.progress import DemoReport, Line, Step, StepState

MARKS = {
    StepState.WAITING: "·",
    StepState.RUNNING: "▶",
    StepState.DONE: "✓",
    StepState.FAILED: "✗",
    StepState.SKIPPED: "-",
}
ASCII_MARKS = {
    StepState.WAITING: ".",
    StepState.RUNNING: ">",
    StepState.DONE: "+",
    StepState.FAILED: "!",
    StepState.SKIPPED: "-",
}
COLOURS = {
    StepState.WAITING: "dim",
    StepState.RUNNING: "bold cyan",
    StepState.DONE: "green",
    StepState.FAILED: "bold red",
    StepState.SKIPPED: "yellow",
}
TEXT_STYLES = {
    StepState.WAITING: "dim",
    StepState.RUNNING: "bold",
    StepState.DONE: "",
    StepState.FAILED: "bold red",
    StepState.SKIPPED: "",
}
# Not the user of the README: its commands would find fewer tokens than they say.
NEXT_COMMANDS = (
    "zae-limiter acquire alice gpt-4 -c rpm:1 -l rpm:5",
    "zae-limiter available alice gpt-4 -l rpm:5",
    "zae-limiter usage list --entity alice",
)
_COLUMNS = (
    Column("project, key"),
    Column("admitted", is_number=True),
    Column("rejected", is_number=True),
    Column("by project", is_number=True),
    Column("estimated", is_number=True),
    Column("used", is_number=True),
    Column("peak", is_number=True),
)


def summary_steps(report: DemoReport) -> list[Step]:
    """Return the steps, and the two checks at the end as further steps."""
    return [*report.steps, _limits_step(report), _usage_step(report)]


def summary_lines(report: DemoReport, marks: dict[StepState, str] = MARKS, activate: str | None = None) -> list[str]:
    """Return the report: every project and key, the steps, whether the limits held, and what to try next.

    ``activate`` is the shell command that makes the next commands work, None if they work already.
    """
    ended = ", interrupted" if report.is_interrupted else ""
    refunded = f"{report.total.failed:,} failed calls refunded"
    return [
        f"zae-limiter demo: {report.processes} processes, {report.seconds:.1f} s{ended}; {refunded}",
        "",
        *plain_lines(Grid(_COLUMNS, [_cells(line) for line in report.lines])),
        "",
        *(f"{marks[step.state]} {step}" for step in summary_steps(report)),
        "",
        "Try next:",
        *(f"  {command}" for command in (*([] if activate is None else [activate]), *NEXT_COMMANDS)),
    ]


def _cells(line: Line) -> list[str]:
    counts = line.counts
    numbers = (counts.admitted, counts.rejected, counts.rejected_above, counts.estimated, counts.used)
    name = f"  {line.member.entity_id}" if line.member.is_key else line.member.entity_id
    return [name, *(f"{number:,}" for number in numbers), f"{line.highest_share * 100:.1f} %"]


def _limits_step(report: DemoReport) -> Step:
    share = f"{report.highest_share * 100:.1f} %"
    if report.is_exceeded:
        return Step("limits", StepState.FAILED, f"EXCEEDED: {share} of capacity and refill; please report this")
    return Step("limits", StepState.DONE, f"never exceeded: highest PEAK {share} of capacity and refill")


def _usage_step(report: DemoReport) -> Step:
    counted = f"{report.total.used:,} tokens"
    if report.is_usage_equal:
        return Step("usage", StepState.DONE, f"snapshots equal the counts of the processes: {counted}")
    stored = f"{sum(report.usage.values()):,}"
    return Step("usage", StepState.FAILED, f"DIFFERS: snapshots {stored}, counted {counted}; please report this")
