"""Define ``zae-limiter loadtest run``: run a load test, and report what it measured."""

import sys

import click

from zae_limiter.cli._help import SectionedCommand, examples, help_of, section
from zae_limiter.cli.loadtest._run_options import (
    FinishedRun,
    LoadTarget,
    NativeOptions,
    RunOptions,
    load_target_options,
    run_options,
)

EXAMPLES = examples(
    "zae-limiter loadtest run --url sqlite:///load.db -f locustfiles/simple.py --users 5",
    "zae-limiter loadtest run --url sqlite:///load.db -f max_rps.py MaxRpsUser --processes 2",
    "zae-limiter loadtest run --url memory:// --driver native -c rpm:1 -l rpm:6000 --duration 10",
    "zae-limiter loadtest run -n my-app -f locustfiles/max_rps.py --workers 10 --users 100",
)
EXIT_CODES = section(
    "Exit codes",
    "0    the test ran, and every limit held",
    "1    a limit did not hold, or Locust failed on this machine",
    "69   the test failed on AWS, or its store cannot be used; stderr has the reason",
    "130  interrupted; the report covers the time until then",
)


@click.command(
    cls=SectionedCommand,
    short_help="Run a load test, and report what it measured.",
    epilog=help_of(EXAMPLES, EXIT_CODES),
)
@load_target_options
@run_options
def run(target: LoadTarget, options: RunOptions | NativeOptions) -> None:
    """Run a load test, and report calls per second, latencies, costs, and whether the limits held.

    With --url, the test runs on this machine. With --name, it runs on AWS, where loadtest deploy
    has prepared it. All user classes of the Locust file run, or those that are named. Ctrl-C ends
    the test with its report.
    """
    # Imported here, because help does not need it.
    from zae_limiter.cli.loadtest._report import check_page, show_report

    if options.html is not None:
        check_page(options.html)
    finished = drive(target, options)
    exit_code = show_report(
        finished.measured,
        options,
        target,
        is_complete=finished.is_complete,
        is_interrupted=finished.is_interrupted,
    )
    sys.exit(exit_code)


def drive(target: LoadTarget, options: RunOptions | NativeOptions) -> FinishedRun:
    """Run the test where its options say."""
    if isinstance(options, NativeOptions):
        from zae_limiter.cli.loadtest._native import run_native

        return run_native(target.url, options)
    if target.place is not None:
        from zae_limiter.cli.loadtest._aws_run import run_on_aws

        return run_on_aws(target.place, options)
    from zae_limiter.cli.loadtest._local_run import run_here

    return run_here(target.url, options)
