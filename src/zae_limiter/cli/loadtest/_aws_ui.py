"""Serve Locust's web page from a master on AWS."""

import webbrowser

from zae_limiter.cli._output import print_note, working
from zae_limiter.cli._place import StoreLocation
from zae_limiter.cli.loadtest._local_run import require_free_port
from zae_limiter.cli.loadtest._run_options import FinishedRun, WebPageOptions
from zae_limiter.loadtest.aws_page import serve_page
from zae_limiter.loadtest.aws_run import open_load_test
from zae_limiter.loadtest.run_config import INTERRUPTED, RunMode


def serve_from_aws(place: StoreLocation, page: WebPageOptions) -> FinishedRun | None:
    """Serve the page at a port of this machine until Ctrl-C; open it in a browser when it answers.

    Returns:
        What the last test measured, None if there was no call.

    Raises:
        click.UsageError: The port is in use.
        InfrastructureError: There is no load test, the plugin for the tunnel is missing, or the master failed.
        ValidationError: The file was not pushed.
    """
    require_free_port(page.port)
    with working(f"Starting the master of {place.name}"):
        test = open_load_test(place.name, place.region.clients(), place.region.endpoint_url, page.port)
        ceiling = {"max_usd": page.max_usd, "max_duration_s": page.max_duration_s}
        config = test.configure(RunMode.UI, page.file.as_posix(), **ceiling)
    longest_s = config.ceiling.max_duration_s or 0

    def open_page(url: str) -> None:
        print_note(f"Locust's page: {url} (Ctrl-C ends it and reports the last test)")
        print_note(
            f"Master and workers end by themselves after {longest_s:.0f} s, or when they cost USD {page.max_usd:g}."
        )
        if page.browser:
            webbrowser.open(url)

    print_note("Starting the master, which takes about a minute ...")
    result = serve_page(test, config, page.port, open_page)
    if result.stopped not in (None, INTERRUPTED):
        print_note(f"The page was stopped: {result.stopped}.")
    if result.measurements.started_s is None:
        return None
    return FinishedRun(result.measurements, is_interrupted=False, is_complete=not result.lost_workers)
