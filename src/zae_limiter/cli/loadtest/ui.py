"""Define ``zae-limiter loadtest ui``: start tests from Locust's web page."""

import sys
from collections.abc import Mapping
from functools import wraps
from typing import Any

import click
from click.core import ParameterSource

from zae_limiter.cli._help import SectionedCommand, examples, help_of, section
from zae_limiter.cli._place import Command
from zae_limiter.cli.loadtest._run_options import (
    FinishedRun,
    LoadTarget,
    WebPageOptions,
    load_target_options,
    misplaced,
    page_run_options,
    unshared,
    usage_error,
)

EXAMPLES = examples(
    "zae-limiter loadtest ui --url sqlite:///load.db -f locustfiles/simple.py",
    "zae-limiter loadtest ui -n my-app -f locustfiles/simple.py --port 8090",
)
EXIT_CODES = section(
    "Exit codes",
    "0    every limit of the last test held, or no test ran",
    "1    a limit did not hold, or Locust failed on this machine",
    "69   the page failed on AWS; stderr has the reason",
    "130  interrupted before the page was there",
)
_CEILINGS = ("max_usd", "max_duration_s")


def page_options(command: Command) -> Command:
    """Add the options of the page; the command takes them as ``page``."""

    @page_run_options
    @click.option(
        "--port",
        type=click.IntRange(1, 65_535),
        default=8089,
        show_default=True,
        metavar="PORT",
        help="Port of the page on this machine.",
    )
    @click.option("--browser/--no-browser", default=True, show_default=True, help="Open the page in a browser.")
    @wraps(command)
    def with_page(*, target: LoadTarget, **given: Any) -> None:
        context = click.get_current_context()
        ceilings = {name for name in _CEILINGS if context.get_parameter_source(name) is ParameterSource.COMMANDLINE}
        on_aws = target.place is not None
        problem = misplaced(ceilings, on_aws=on_aws, native=False) or unusable(target, given)
        if problem is not None:
            raise usage_error(problem)
        command(target=target, page=WebPageOptions(**given))

    return with_page


def unusable(target: LoadTarget, given: Mapping[str, Any]) -> str | None:
    """Return why a page cannot be served with these options; None if it can."""
    if given["file"] is None:
        return "pass a Locust file with --file"
    if target.place is not None and (given["classes"] or given["processes"] > 1):
        return "CLASS and --processes require --url; on AWS the page lists all classes"
    return unshared(target.url, given["processes"])


@click.command(
    cls=SectionedCommand,
    short_help="Start Locust's web page.",
    epilog=help_of(EXAMPLES, EXIT_CODES),
)
@load_target_options
@page_options
def ui(target: LoadTarget, page: WebPageOptions) -> None:
    """Start Locust's web page, on which you start and stop tests. Ctrl-C ends it, and reports the last test.

    With --url, Locust runs on this machine. With --name, it runs on AWS, and the page is reached
    through a tunnel.
    """
    # Imported here, because help does not need it.
    from zae_limiter.cli.loadtest._report import check_page, show_report

    if page.html is not None:
        check_page(page.html)
    finished = serve(target, page)
    if finished is not None:
        sys.exit(show_report(finished.measured, page, target, is_complete=finished.is_complete))


def serve(target: LoadTarget, page: WebPageOptions) -> FinishedRun | None:
    """Serve the page until Ctrl-C; return the last test, None if it made no call."""
    if target.place is not None:
        from zae_limiter.cli.loadtest._aws_ui import serve_from_aws

        return serve_from_aws(target.place, page)
    from zae_limiter.cli.loadtest._local_run import serve_here

    return serve_here(target.url, page)
