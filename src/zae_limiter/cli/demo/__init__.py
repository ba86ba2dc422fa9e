"""``zae-limiter demo``: API keys of two projects call a simulated model at once, within the limits of both."""

import asyncio
import sys
from contextlib import AsyncExitStack
from random import Random

import click

from zae_limiter._async.limiter.limiter import RateLimiter
from zae_limiter._async.repository import Repository
from zae_limiter.cli._failures import FAILED
from zae_limiter.cli._help import examples
from zae_limiter.cli._output import in_terminal
from zae_limiter.cli._place import StoreChoice, announce, store_options
from zae_limiter.cli.demo.plain import PlainView
from zae_limiter.cli.demo.progress import DemoReport, DemoView
from zae_limiter.cli.demo.show import Stage, run
from zae_limiter.cli.demo.stored import prepare
from zae_limiter.cli.demo.summary import summary_lines
from zae_limiter.clock import SystemClock

SEED = 7
CACHE_TTL_S = 1.0


EXAMPLES = examples("zae-limiter demo", "zae-limiter demo --seconds 30 --url memory://")


@click.command(short_help="Watch the limiter at work, for twenty seconds.", epilog=EXAMPLES)
@click.option("--seconds", type=click.FloatRange(0.1, 3600), default=20.0, show_default=True, help="How long it runs.")
@store_options
def demo(seconds: float, store: StoreChoice) -> None:
    """Watch a small LLM gateway: the API keys of two projects call a simulated model at once.

    Every call takes an estimate of its tokens from the key and from its project, both or neither, and adjusts both to
    what it used. The limits are stored, and one of them is raised halfway. Only demo-project-1 and -2, their keys
    demo-key-1a to -2b, and the resource demo-model are touched.
    """
    report = asyncio.run(watch(seconds, store))
    click.echo("\n".join(summary_lines(report, _bar())))
    if report.is_exceeded:
        sys.exit(FAILED)


async def watch(seconds: float, store: StoreChoice) -> DemoReport:
    """Run the demo on the chosen store, and return how it went."""
    announce(store.target)
    async with AsyncExitStack() as closing:
        repository = await closing.enter_async_context(
            await Repository.open(store.url, namespace=store.namespace, config_cache_ttl=min(CACHE_TTL_S, seconds / 10))
        )
        await prepare(repository)
        operator = repository
        if repository.name != "memory://":
            # A client of its own, so that the callers learn of the change as other processes would.
            operator = await closing.enter_async_context(await Repository.open(store.url, namespace=store.namespace))
        stage = Stage(RateLimiter(repository), operator, SystemClock(), Random(SEED))
        with view() as shown_on:
            return await run(stage, seconds, shown_on)


def view() -> DemoView:
    """A live view in a terminal, lines elsewhere."""
    if not in_terminal():
        return PlainView()
    from zae_limiter.cli.demo.live import LiveView

    return LiveView()


def _bar() -> str:
    """What bars are made of, as far as the output can show it."""
    encoding = getattr(sys.stdout, "encoding", None) or "ascii"
    try:
        "█".encode(encoding)
    except UnicodeEncodeError:
        return "#"
    return "█"
