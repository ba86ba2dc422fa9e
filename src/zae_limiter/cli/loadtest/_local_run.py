"""Run Locust on this machine, and show how far it is."""

import time
import webbrowser
from collections.abc import Callable
from pathlib import Path

from zae_limiter.cli._failures import tell_interrupted
from zae_limiter.cli._output import has_status_line, paused, print_note, visible, working
from zae_limiter.cli.loadtest._run_options import FinishedRun, RunOptions, WebPageOptions, usage_error
from zae_limiter.loadtest.locust_process import (
    STOP_S,
    LoadShape,
    LocustFailedError,
    LocustProcess,
    LocustProgress,
    LocustTest,
    answers,
    require_classes,
    run_locust,
    serving_locust,
)
from zae_limiter.loadtest.measurements import Measurements
from zae_limiter.visualization.wording import counted

_POLL_S = 0.2
_END_S = 20.0


def run_here(url: str, options: RunOptions) -> FinishedRun:
    """Run a test on this machine.

    Raises:
        MissingExtraError: Locust is not installed.
        ValidationError: The Locust file has no such class.
        LocustFailedError: Locust did not run the test.
    """
    require_file(options.path)
    test = LocustTest(options.path, url, options.classes, options.processes)
    shape = LoadShape(options.users, options.spawn_rate, options.duration_s)
    starting = f"Starting Locust with {options.file}"
    if not has_status_line():
        print_note(f"Running {options.file} for {options.duration_s} s, with {counted(options.users, 'user')} ...")
    with working(starting) as say:
        try:
            require_classes(options.classes, options.path)
            result = run_locust(test, shape, lambda now: say(progress_text(now, options.duration_s) or starting))
        except LocustFailedError as failure:
            print_output(failure)
            raise
    if result.is_interrupted:
        tell_interrupted()
    return FinishedRun(result.measured, result.is_interrupted)


def serve_here(url: str, page: WebPageOptions) -> FinishedRun | None:
    """Serve Locust's page until Ctrl-C. Return what the last test measured, None if there was no call.

    Raises:
        click.UsageError: The file does not exist, or the port is in use.
        MissingExtraError: Locust is not installed.
        ValidationError: The Locust file has no such class.
        LocustFailedError: Locust did not start, or ended by itself.
    """
    test = LocustTest(page.directory / page.file, url, page.classes, page.processes)
    require_file(test.file)
    require_free_port(page.port)
    address = f"http://127.0.0.1:{page.port}"
    try:
        with working(f"Starting Locust with {test.file}") as say:
            require_classes(test.classes, test.file)
            with serving_locust(test, page.port) as process:
                wait_for_page(process, page.port)
                with paused():
                    print_note(f"Locust's page: {address} (Ctrl-C ends it and reports the last test)")
                if page.browser:
                    webbrowser.open(address)
                measured = serve(process, lambda now: say(f"{address}: {progress_text(now) or 'no test has run yet'}"))
                return None if measured is None else FinishedRun(measured, is_interrupted=False)
    except LocustFailedError as failure:
        print_output(failure)
        raise


def wait_for_page(process: LocustProcess, port: int) -> None:
    """Wait until the page can be loaded.

    Raises:
        LocustFailedError: Locust has ended.
    """
    while not answers(port):
        if not process.is_running():
            raise process.failure() or LocustFailedError("Locust ended", process.output())
        time.sleep(_POLL_S)


def serve(process: LocustProcess, listener: Callable[[LocustProgress], None]) -> Measurements | None:
    """Wait for Ctrl-C, end Locust, and return what its last test measured; None if there was no call.

    Raises:
        LocustFailedError: Locust ended by itself.
    """
    try:
        while process.is_running():
            listener(process.progress())
            time.sleep(_POLL_S)
    except KeyboardInterrupt:
        process.interrupt()
        process.wait(STOP_S + _END_S)
        measured = process.measurements()
        return None if measured is None or measured.started_s is None else measured
    raise process.failure() or LocustFailedError("Locust ended", process.output())


def require_free_port(port: int) -> None:
    """Require a port of this machine that nothing listens on.

    Raises:
        click.UsageError: The port is in use.
    """
    if answers(port):
        raise usage_error(f"port {port} is in use; pass another one with --port")


def require_file(path: Path) -> None:
    """Require a Locust file.

    Raises:
        click.UsageError: The file does not exist.
    """
    if not path.is_file():
        raise usage_error(f"there is no Locust file {str(path)!r}")


def progress_text(progress: LocustProgress, duration_s: int | None = None) -> str | None:
    """Return how far a test is, in one line; None before its first call."""
    measured = progress.measured
    if measured is None or measured.started_s is None:
        return None
    ran_s = f"{measured.duration_s:.0f} s" if duration_s is None else f"{measured.duration_s:.0f} of {duration_s} s"
    last = measured.seconds.get(max(measured.seconds, default=0) - 1)
    rate = "" if last is None else f", {last.admitted + last.rejected + last.errors:,} calls/s"
    failed = f", {counted(measured.errors.total(), 'error')}" if measured.errors else ""
    return (
        f"{ran_s}, {counted(progress.users, 'user')}{rate}, "
        f"{measured.admitted:,} admitted, {measured.rejected:,} rejected{failed}"
    )


def print_output(failure: LocustFailedError) -> None:
    """Print the last lines of Locust's output, above the error."""
    for line in failure.lines:
        print_note(f"  {visible(line)}")
