"""Run the native driver, and show how far it is."""

import asyncio
import shlex
import signal
from collections.abc import Callable
from contextlib import suppress

from zae_limiter.cli._failures import tell_interrupted
from zae_limiter.cli._hints import PLACE, calling
from zae_limiter.cli._output import has_status_line, print_note, working
from zae_limiter.cli.loadtest._run_options import FinishedRun, NativeOptions, usage_error
from zae_limiter.core.errors import NoLimitsInForceError
from zae_limiter.loadtest.measurements import Measurements
from zae_limiter.loadtest.native_driver import NativeProgress, NativeRun, Workload
from zae_limiter.visualization.wording import counted


def run_native(url: str, options: NativeOptions) -> FinishedRun:
    """Run a test with the native driver. Ctrl-C ends it early.

    Raises:
        click.UsageError: No limits are in force for the resource.
        ValidationError: A limit is not in force, or an amount is above its capacity.
        InfrastructureError: The store cannot be used; the error says why.
    """
    workload = workload_of(options)
    if not has_status_line():
        print_note(f"Calling for {options.duration_s} s, {described(workload)} ...")
    with working(f"Calling {described(workload)}") as say:
        try:
            finished = asyncio.run(drive(url, workload, lambda now: say(progress_text(now, options.duration_s))))
        except NoLimitsInForceError as error:
            raise usage_error(no_limits_text(workload)) from error
    if finished.is_interrupted:
        tell_interrupted()
    return finished


async def drive(url: str, workload: Workload, listener: Callable[[NativeProgress], None]) -> FinishedRun:
    """Run a test until its end, or until Ctrl-C."""
    run = NativeRun(workload, listener=listener)
    loop = asyncio.get_running_loop()

    def stop() -> None:
        run.stop.set()
        # A second Ctrl-C ends the command.
        loop.remove_signal_handler(signal.SIGINT)

    # Not every system has signal handlers in an event loop.
    with suppress(NotImplementedError):
        loop.add_signal_handler(signal.SIGINT, stop)
    measured: Measurements = await run.on_url(url)
    return FinishedRun(measured, run.stop.is_set())


def workload_of(options: NativeOptions) -> Workload:
    """Return the workload that the options describe."""
    return Workload(
        consume=options.consume,
        resource=options.resource,
        limits=options.limits or None,
        entities=options.entities,
        rate=options.rate,
        users=options.users,
        cascade=options.cascade,
        adjust=options.adjust,
        duration_s=options.duration_s,
    )


def described(workload: Workload) -> str:
    """Return how a workload calls, in words."""
    load = counted(workload.users, "user") if workload.rate is None else f"{workload.rate:,.10g} calls per second"
    return f"{load} for {counted(workload.entities, 'entity')}"


def progress_text(progress: NativeProgress, duration_s: int) -> str:
    """Return how far a test is, in one line."""
    failed = f", {counted(progress.errors, 'error')}" if progress.errors else ""
    counts = f"{progress.admitted:,} admitted, {progress.rejected:,} rejected{failed}"
    return f"{min(progress.elapsed_s, duration_s):.0f} of {duration_s} s, {counts}"


def no_limits_text(workload: Workload) -> str:
    """Return that limits are missing, and the command that stores some."""
    limits = " ".join(f"-l {name}:{1000 * max(1, amount)}/s" for name, amount in workload.consume.items())
    store = calling(f"resource set-defaults {shlex.quote(workload.resource)} {limits}", PLACE)
    return f"no limits are in force for resource {workload.resource!r}; pass {limits}, or store them: {store}"
