"""Define ``zae-limiter demo``: API keys of two projects call a simulated model, within the limits of both."""

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


@click.command(short_help="Watch the limiter work for 20 seconds.", epilog=EXAMPLES)
@click.option(
    "--seconds", type=click.FloatRange(0.1, 3600), default=20.0, show_default=True, help="Duration of the demo."
)
@store_options
def demo(seconds: float, store: StoreChoice) -> None:
    """Watch a small LLM gateway: the API keys of two projects call a simulated model at the same time.

    Every call takes an estimate of its tokens from the key and from its project, or from neither.
    It then adjusts both to what it used. The limits are stored, and one of them is raised halfway.
    The demo only touches demo-project-1 and -2, their keys demo-key-1a to -2b, and the resource
    demo-model.
    """
    report = asyncio.run(watch(seconds, store))
    click.echo("\n".join(summary_lines(report, _bar())))
    if report.is_exceeded:
        sys.exit(FAILED)


async def watch(seconds: float, store: StoreChoice) -> DemoReport:
    """Run the demo on the chosen store, and return its report."""
    announce(store.target)
    async with AsyncExitStack() as closing:
        repository = await closing.enter_async_context(
            await Repository.open(store.url, namespace=store.namespace, config_cache_ttl=min(CACHE_TTL_S, seconds / 10))
        )
        await prepare(repository)
        operator = repository
        if repository.name != "memory://":
            # A separate client, so that the callers learn of the change as other processes would.
            operator = await closing.enter_async_context(await Repository.open(store.url, namespace=store.namespace))
        stage = Stage(RateLimiter(repository), operator, SystemClock(), Random(SEED))
        with view() as shown_on:
            return await run(stage, seconds, shown_on)


def view() -> DemoView:
    """Return a live view for a terminal, a plain one otherwise."""
    if not in_terminal():
        return PlainView()
    from zae_limiter.cli.demo.live import LiveView

    return LiveView()


def _bar() -> str:
    """Return the character of bars that the output encoding supports."""
    encoding = getattr(sys.stdout, "encoding", None) or "ascii"
    try:
        "█".encode(encoding)
    except UnicodeEncodeError:
        return "#"
    return "█"
