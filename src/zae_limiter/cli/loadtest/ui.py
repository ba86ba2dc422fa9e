"""Define ``zae-limiter loadtest ui``: start tests from Locust's web page."""

import sys
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any

import click

from zae_limiter.cli._help import SectionedCommand, examples
from zae_limiter.cli._place import Command
from zae_limiter.cli.loadtest._run_options import (
    LoadTarget,
    file_options,
    load_target_options,
    processes_option,
    unshared,
    usage_error,
)

EXAMPLES = examples(
    "zae-limiter loadtest ui --url sqlite:///load.db -f locustfiles/simple.py",
    "zae-limiter loadtest ui -n my-app -f locustfiles/simple.py --port 8090",
)


@dataclass(frozen=True, slots=True)
class WebPage:
    """The page, and the Locust file behind it. All classes of the file run if ``classes`` is empty."""

    file: Path
    directory: Path
    classes: tuple[str, ...]
    processes: int
    port: int
    browser: bool


def page_options(command: Command) -> Command:
    """Add the options of the page; the command takes them as ``page``."""

    @file_options
    @click.option(
        "--port",
        type=click.IntRange(1, 65_535),
        default=8089,
        show_default=True,
        metavar="PORT",
        help="Port of the page on this machine.",
    )
    @click.option("--browser/--no-browser", default=True, show_default=True, help="Open the page in a browser.")
    @processes_option
    @wraps(command)
    def with_page(*, target: LoadTarget, **given: Any) -> None:
        if given["file"] is None:
            raise usage_error("pass a Locust file with --file")
        problem = unshared(target.url, given["processes"])
        if target.place is not None and (given["classes"] or given["processes"] > 1):
            problem = "CLASS and --processes require --url; on AWS the page lists all classes"
        if problem is not None:
            raise usage_error(problem)
        command(target=target, page=WebPage(**given))

    return with_page


@click.command(cls=SectionedCommand, short_help="Start Locust's web page.", epilog=EXAMPLES)
@load_target_options
@page_options
def ui(target: LoadTarget, page: WebPage) -> None:
    """Start Locust's web page, on which you start and stop tests. Ctrl-C ends it.

    With --url, Locust runs on this machine, and the last test is reported at the end. With --name,
    it runs on AWS, and the page is reached through a tunnel.
    """
    if target.place is not None:
        from zae_limiter.cli.loadtest._aws_ui import ui_on_aws

        ui_on_aws(target.place, page.file, page.port, browser=page.browser)
        return
    from zae_limiter.cli.loadtest._local_run import serve_here
    from zae_limiter.loadtest.locust_process import LocustTest

    test = LocustTest(page.directory / page.file, target.url, page.classes, page.processes)
    measured = serve_here(test, page.port, browser=page.browser)
    if measured is not None:
        from zae_limiter.cli.loadtest._report import show_report

        sys.exit(show_report(measured, target=target))
