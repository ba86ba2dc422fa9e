"""Serve Locust's web page from a master on AWS."""

import webbrowser
from pathlib import Path

import click

from zae_limiter.cli._output import print_note, working
from zae_limiter.cli._place import StoreLocation
from zae_limiter.loadtest.aws_page import serve_page
from zae_limiter.loadtest.aws_run import open_load_test
from zae_limiter.loadtest.run_config import LONGEST_UI_S, RunMode


def ui_on_aws(place: StoreLocation, file: Path, port: int, *, browser: bool = True) -> None:
    """Serve the page at a port of this machine until Ctrl-C; open it in a browser when it answers.

    Raises:
        InfrastructureError: There is no load test, the plugin for the tunnel is missing, or the master failed.
        ValidationError: The file was not pushed.
    """
    with working(f"Starting the master of {place.name}"):
        test = open_load_test(place.name, place.region.clients(), place.region.endpoint_url, port)
        config = test.configure(RunMode.UI, file.as_posix())

    def open_page(url: str) -> None:
        click.echo(url)
        print_note(f"Ctrl-C stops the page and all workers; they end after {LONGEST_UI_S // 60} minutes by themselves.")
        if browser:
            webbrowser.open(url)

    print_note("Starting the master, which takes about a minute ...")
    serve_page(test, config, port, open_page)
