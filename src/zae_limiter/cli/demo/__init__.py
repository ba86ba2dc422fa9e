"""``zae-limiter demo``: some projects call a simulated model at once, each within its limits."""

import asyncio
import sys
from random import Random

import click

from zae_limiter._async.limiter.limiter import RateLimiter
from zae_limiter._async.repository import Repository
from zae_limiter.cli._failures import FAILED
from zae_limiter.cli._help import examples
from zae_limiter.cli._options import StoreChoice, store_options
from zae_limiter.cli._output import in_terminal
from zae_limiter.cli._store import announce, shown
from zae_limiter.cli.demo.plain import PlainView
from zae_limiter.cli.demo.progress import Report, View
from zae_limiter.cli.demo.scenario import PROJECTS
from zae_limiter.cli.demo.show import Show
from zae_limiter.cli.demo.summary import summary_lines
from zae_limiter.clock import SystemClock

SEED = 7


EXAMPLES = examples("zae-limiter demo", "zae-limiter demo --seconds 30 --url memory://")


@click.command(short_help="Watch the limiter at work, for ten seconds.", epilog=EXAMPLES)
@click.option("--seconds", type=click.FloatRange(0.1, 3600), default=10.0, show_default=True, help="How long it runs.")
@store_options
def demo(seconds: float, store: StoreChoice) -> None:
    """Watch the limiter at work: three projects call a simulated model at once, each within its limits.

    Every caller takes an estimate of the tokens its call will use, makes the call, and adjusts to what it used. Only
    the buckets of demo-project-1, -2 and -3 are touched.
    """
    report = asyncio.run(watch(seconds, store))
    click.echo("\n".join(summary_lines(report)))
    if report.is_exceeded:
        sys.exit(FAILED)


async def watch(seconds: float, store: StoreChoice) -> Report:
    """Run the show on the chosen store, and return how it went."""
    async with await Repository.open(store.url, namespace=store.namespace) as repository:
        announce(store, repository.name)
        show = Show(RateLimiter(repository), PROJECTS, SystemClock(), Random(SEED))
        with view() as shown_on:
            return await show.run(seconds, shown_on, shown(repository.name))


def view() -> View:
    """A live view in a terminal, lines elsewhere."""
    if not in_terminal():
        return PlainView()
    from zae_limiter.cli.demo.live import LiveView

    return LiveView()
