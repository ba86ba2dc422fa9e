"""Run Locust on AWS, and show how far it is."""

from collections.abc import Callable

from zae_limiter.cli._deploying import steps_shown
from zae_limiter.cli._failures import tell_interrupted
from zae_limiter.cli._output import has_status_line, print_note, visible
from zae_limiter.cli._place import StoreLocation
from zae_limiter.cli.loadtest._run_options import FinishedRun, RunOptions
from zae_limiter.loadtest.aws_run import RunListener, RunProgress, RunResult, open_load_test
from zae_limiter.loadtest.run_config import INTERRUPTED, RunMode
from zae_limiter.loadtest.run_objects import RunFailure

_LINE_EVERY_S = 10.0


def run_on_aws(place: StoreLocation, options: RunOptions) -> FinishedRun:
    """Run a test on AWS.

    Raises:
        InfrastructureError: There is no load test, or the test failed; the message has the reason.
        ValidationError: The file was not pushed, a class does not exist, or the run is too long for its mode.
    """
    test = open_load_test(place.name, place.region.clients(), place.region.endpoint_url)
    config = test.configure(
        mode_of(options),
        options.file.as_posix(),
        classes=options.classes,
        users=options.users,
        spawn_rate=options.spawn_rate,
        duration_s=options.duration_s,
        workers=options.workers or 1,
        max_usd=options.max_usd,
        max_duration_s=options.max_duration_s,
    )
    with steps_shown(f"Load test of {place.name}") as hear:
        result = test.run(config, telling(hear, options))
    print_ending(result)
    return FinishedRun(result.measurements, result.stopped == INTERRUPTED, is_complete=not result.lost_workers)


def print_ending(result: RunResult) -> None:
    """Print why a test was stopped, and what happened to its workers."""
    if result.stopped == INTERRUPTED:
        tell_interrupted()
    elif result.stopped is not None:
        print_note(f"The test was stopped early: {result.stopped}.")
    if result.replaced_workers:
        print_note(f"{result.replaced_workers} workers were replaced during the test.")
    if result.lost_workers:
        print_note(
            f"{result.lost_workers} workers were lost. Up to 3 s of their calls are missing, "
            "so the shares of limits are not judged."
        )


def mode_of(options: RunOptions) -> RunMode:
    """Return where the users of a test run."""
    if options.standalone:
        return RunMode.STANDALONE
    return RunMode.HEADLESS if options.workers is None else RunMode.DISTRIBUTED


def telling(hear: Callable[[str], None], options: RunOptions) -> RunListener:
    """Return a listener that shows progress as one line, and the failure of a worker with its log."""
    told_s = -_LINE_EVERY_S

    def listen(event: RunProgress | RunFailure) -> None:
        nonlocal told_s
        match event:
            case RunFailure():
                print_failure(event)
            # A terminal replaces the line, a log file would fill with them.
            case RunProgress() if has_status_line() or event.running_s - told_s >= _LINE_EVERY_S:
                told_s = event.running_s
                hear(progress_text(event, options))
            case RunProgress():
                pass

    return listen


def progress_text(progress: RunProgress, options: RunOptions) -> str:
    """Return the status line of a running test."""
    measured = progress.measured
    if measured is None or measured.started_s is None or measured.ended_s is None:
        return f"starting, {progress.running_s:.0f} s"
    ran_s = min(measured.ended_s - measured.started_s, options.duration_s)
    workers = "" if options.workers is None else f" on {progress.workers} of {options.workers} workers"
    failed = f", {measured.errors.total():,} errors" if measured.errors else ""
    return (
        f"{ran_s:.0f} of {options.duration_s} s, {progress.users} users{workers}: "
        f"{measured.admitted:,} admitted, {measured.rejected:,} rejected{failed}"
    )


def print_failure(failure: RunFailure) -> None:
    """Print why a worker failed, and the last lines of its log."""
    print_note(f"{failure.worker_id} failed: {visible(failure.reason)}")
    for line in failure.log_lines:
        print_note(f"  {visible(line)}")
