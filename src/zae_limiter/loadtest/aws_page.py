"""Serve the web page of a master on AWS at a port of this machine. Blocking."""

import time
import urllib.error
import urllib.request
from collections.abc import Callable

from zae_limiter.loadtest.aws_run import AwsLoadTest, RunResult, result_of
from zae_limiter.loadtest.load_test_error import LoadTestError
from zae_limiter.loadtest.run_config import RunConfig
from zae_limiter.loadtest.run_objects import RunObjects

_PAGE_S = 300.0
_POLL_S = 1.0


def serve_page(test: AwsLoadTest, config: RunConfig, port: int, opened: Callable[[str], None]) -> RunResult:
    """Serve the page until the run ends or is interrupted, and return what its last test measured.

    ``opened`` gets the URL of the page when it answers.

    Raises:
        MissingPluginError: The plugin for the tunnel is not installed.
        LoadTestError: The master does not start, or fails.
        KeyboardInterrupt: It was interrupted before the master began.
    """
    run = RunObjects(test.bucket, config)
    try:
        test.begin(run)
        with test.page(port) as url:
            _await_page(test, run, url)
            opened(url)
            while (found := run.result()) is None:
                test.check(run)
                time.sleep(_POLL_S)
            return result_of(found)
    except KeyboardInterrupt:
        return test.interrupted(run)
    finally:
        test.end(run)


def _await_page(test: AwsLoadTest, run: RunObjects, url: str) -> None:
    until_s = time.monotonic() + _PAGE_S
    while not _answers(url):
        test.check(run)
        if time.monotonic() > until_s:
            raise LoadTestError(f"the web page does not answer within {_PAGE_S:.0f} s")
        time.sleep(_POLL_S)


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=_POLL_S):
            return True
    except (urllib.error.URLError, OSError):
        # The tunnel accepts connections before the page does.
        return False
