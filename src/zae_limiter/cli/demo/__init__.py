"""Define ``zae-limiter demo``: processes share the limits of two projects, on a temporary file."""

import asyncio
import shlex
import shutil
import signal
import sys
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import click

from zae_limiter._async.limiter.limiter import RateLimiter
from zae_limiter._async.repository import Repository
from zae_limiter.cli._failures import FAILED, INTERRUPTED
from zae_limiter.cli._help import examples
from zae_limiter.cli._output import in_terminal, working
from zae_limiter.cli.demo.plain import PlainView
from zae_limiter.cli.demo.progress import DemoReport, DemoView
from zae_limiter.cli.demo.scenario import CACHE_TTL_S, TRAFFIC_DEADLINE_S
from zae_limiter.cli.demo.show import Show, Stage, make_book, start_processes
from zae_limiter.cli.demo.stored import prepare
from zae_limiter.cli.demo.summary import ASCII_MARKS, MARKS, summary_lines
from zae_limiter.clock import SystemClock

SEED = 7

EXAMPLES = examples("zae-limiter demo", "zae-limiter demo --seconds 60")


@click.command(short_help="Watch the limiter work for 20 seconds.", epilog=EXAMPLES)
@click.option(
    "--seconds",
    type=click.FloatRange(0.1, 3600),
    default=20.0,
    show_default=True,
    help="Minimum duration of the demo. Every step is completed.",
)
def demo(seconds: float) -> None:
    """Watch several processes share the limits of two projects, on one SQLite file.

    A caller waits exactly retry_after and is admitted. A stream goes into debt. A limit is raised
    while calls run. A store fails and recovers. Ctrl-C ends the demo with its summary. The demo
    uses a temporary file, and does not touch your own store.
    """
    report = asyncio.run(watch(seconds, view()))
    print_summary(report)
    if report.is_failed:
        sys.exit(FAILED)
    if report.is_interrupted:
        sys.exit(INTERRUPTED)


async def watch(seconds: float, shown_on: DemoView) -> DemoReport:
    """Run the demo in a temporary directory, and return its report."""
    async with AsyncExitStack() as closing:
        folder = closing.enter_context(TemporaryDirectory(prefix="zae-limiter-demo-"))
        path = str(Path(folder, "shared.db"))
        with working("Creating a temporary SQLite file") as say:
            repository = await closing.enter_async_context(
                await Repository.open(f"sqlite:///{path}", config_cache_ttl=CACHE_TTL_S, deadline_s=TRAFFIC_DEADLINE_S)
            )
            say("Storing projects, keys and limits")
            await prepare(repository)
            stage = Stage(RateLimiter(repository), repository, str(Path(folder, "outage.db")), SystemClock())
            book = await make_book(stage)
            processes = await start_processes(path, SEED, say, closing)
        with shown_on, _stop_on_interrupt() as stop:
            return await Show(stage, book, seconds).run(processes, shown_on, stop)


def view() -> DemoView:
    """Return a live view for a terminal, a plain one otherwise."""
    if not in_terminal():
        return PlainView()
    from zae_limiter.cli.demo.live import LiveView

    return LiveView()


def print_summary(report: DemoReport) -> None:
    """Print the summary; in a terminal, the lines of the steps have the colour of their state."""
    marks = MARKS if _encodes("".join(MARKS.values())) else ASCII_MARKS
    activate = activate_command()
    if not in_terminal():
        click.echo("\n".join(summary_lines(report, marks, activate)))
        return
    from rich.console import Console

    from zae_limiter.cli.demo.live import summary_drawing

    # A narrow terminal wraps the lines itself, so that the commands can still be copied.
    Console(highlight=False).print(summary_drawing(report, marks, activate), soft_wrap=True)


def activate_command() -> str | None:
    """Return the shell command that puts ``zae-limiter`` on the PATH; None if it is there, or if there is none."""
    script = Path(sys.prefix, "bin", "activate")
    if shutil.which("zae-limiter") is not None or not script.is_file():
        return None
    shown = script.relative_to(Path.cwd()) if script.is_relative_to(Path.cwd()) else script
    return f". {shlex.quote(str(shown))}"


@contextmanager
def _stop_on_interrupt() -> Iterator[asyncio.Event]:
    """Set the yielded event on the first Ctrl-C, or when the terminal is closed. A second one ends it immediately."""
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    if sys.platform == "win32":
        # Its event loop handles no signals: Ctrl-C ends the demo without a summary.
        yield stop
        return
    signals = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    def restore() -> None:
        for one in signals:
            loop.remove_signal_handler(one)

    def interrupt() -> None:
        stop.set()
        restore()

    for one in signals:
        loop.add_signal_handler(one, interrupt)
    try:
        yield stop
    finally:
        restore()


def _encodes(text: str) -> bool:
    """Return whether the output encoding supports these characters."""
    try:
        text.encode(getattr(sys.stdout, "encoding", None) or "ascii")
    except UnicodeEncodeError:
        return False
    return True
