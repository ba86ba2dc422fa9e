"""Print the report of a load test, and write it as a page."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from zae_limiter.cli._failures import FAILED, INTERRUPTED
from zae_limiter.cli._files import in_bytes, write_file
from zae_limiter.cli._output import Column, Grid, print_grid, print_json, print_line, print_note
from zae_limiter.cli.loadtest._run_options import LoadTarget, NativeOptions, RunOptions, WebPageOptions, usage_error
from zae_limiter.clock import SystemClock
from zae_limiter.core.location import without_credentials
from zae_limiter.core.timestamp import utc_from_ms
from zae_limiter.loadtest.promise_check import ONE_MACHINE, Environment
from zae_limiter.loadtest.report import LoadReport, report_of
from zae_limiter.loadtest.report_page import GENERATOR, ReportPage
from zae_limiter.loadtest.report_text import (
    TextTable,
    error_lines,
    headline,
    latency_note,
    latency_table,
    limits_table,
    store_lines,
    summary_lines,
)
from zae_limiter.visualization.wording import counted

if TYPE_CHECKING:
    from zae_limiter.loadtest.measurements import Measurements

_ON_AWS = Environment(clock_spread_s=0.05)
_SHOWN_LIMITS = 10
_LIMIT_NUMBERS = ("admitted", "offered", "share")
_SHORT_PERIODS = {" per second": "/s", " per minute": "/min", " per hour": "/h", " per day": "/d"}


def show_report(
    measured: "Measurements",
    options: RunOptions | NativeOptions | WebPageOptions | None = None,
    target: LoadTarget | None = None,
    *,
    is_complete: bool = True,
    is_interrupted: bool = False,
) -> int:
    """Print the report of a test, write its page if the options say so, and return the exit code.

    ``is_complete`` is False if calls of lost workers are missing.

    The code is 1 if a limit did not hold, or if none was checked. An interrupted test has the code
    of an interrupt, unless a limit did not hold.
    """
    on_aws = target is not None and target.place is not None
    report = report_of(measured, replace(_ON_AWS if on_aws else ONE_MACHINE, is_complete=is_complete))
    if options is not None and options.as_json:
        print_json(report.to_dict())
    else:
        print_report(report)
    if options is not None and options.html is not None:
        write_page(options.html, report, target)
    if is_interrupted and (report.held or not report.limits):
        return INTERRUPTED
    return 0 if report.held else FAILED


def print_report(report: LoadReport) -> None:
    """Print a report: rates, latencies, the store, the limits, and the verdict last."""
    for line in (*summary_lines(report), *error_lines(report), *store_lines(report)):
        print_line(line)
    if report.latencies:
        click.echo()
        print_text_table(latency_table(report))
        print_note(latency_note(report))
    if report.limits:
        click.echo()
        print_limits(limits_table(report, _SHOWN_LIMITS))
        hidden = len(report.limits) - _SHOWN_LIMITS
        if hidden > 0:
            print_note(f"{counted(hidden, 'limit')} more, all no worse; --json and --html list them")
    click.echo()
    print_line(headline(report))


def print_limits(table: TextTable) -> None:
    """Print the limits so that they fit into 80 columns: one name for a bucket, short periods, notes below."""
    resources = {row[1] for row in table.rows}
    rows, reasons = [], []
    for entity_id, resource, limit, admitted, offered, _, share, verdict in table.rows:
        bucket = entity_id if len(resources) == 1 else f"{entity_id} {resource}"
        held, _, reason = verdict.partition("; ")
        reasons += [reason] if reason and reason not in reasons else []
        rows.append((bucket, _with_short_period(limit), admitted, offered, share, held))
    title = "entity" if len(resources) == 1 else "entity, resource"
    columns = [Column(title), Column("limit", is_whole=True), *(Column(one, True, True) for one in _LIMIT_NUMBERS)]
    print_grid(Grid([*columns, Column("verdict")], rows))
    if reasons:
        print_note(f"No share: {', or '.join(reasons)}.")


def _with_short_period(limit: str) -> str:
    for words, short in _SHORT_PERIODS.items():
        limit = limit.removesuffix(words) + (short if limit.endswith(words) else "")
    return limit


def print_text_table(table: TextTable) -> None:
    """Print a table of a report."""
    columns = [Column(title, table.named <= place and title != "verdict") for place, title in enumerate(table.titles)]
    print_grid(Grid(columns, table.rows))


def check_page(path: Path) -> None:
    """Refuse to replace a file that is not a report of a load test, before a test runs.

    Raises:
        click.UsageError: The file exists and is something else, or its directory does not exist.
    """
    if not path.parent.is_dir():
        raise usage_error(f"--html: there is no directory {str(path.parent)!r}")
    if not path.is_file():
        return
    with path.open("rb") as file:
        is_ours = GENERATOR.encode() in file.read(2_000)
    if not is_ours:
        raise usage_error(f"--html: {str(path)!r} exists and is not a report of a load test; choose another name")


def write_page(path: Path, report: LoadReport, target: LoadTarget | None) -> None:
    """Write the page of a report, and print its path on stderr."""
    made_at = f"{utc_from_ms(SystemClock().now_ms()):%Y-%m-%d %H:%M} UTC"
    page = ReportPage("" if target is None else without_credentials(target.url), made_at)
    content = f"{page.format(report)}\n".encode()
    write_file(path, content, "--html")
    print_note(f"Wrote {path} ({in_bytes(len(content))})")
