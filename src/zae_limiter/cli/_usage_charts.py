"""Show charts of usage in the terminal, and write them to an HTML page."""

import shutil
from collections.abc import Sequence
from pathlib import Path

import click

from zae_limiter.cli._files import in_bytes, write_file
from zae_limiter.cli._place import StoreChoice
from zae_limiter.cli._usage_options import Asked
from zae_limiter.clock import SystemClock
from zae_limiter.core.namespace import DEFAULT_NAMESPACE
from zae_limiter.core.timestamp import utc_from_ms
from zae_limiter.core.usage import UsageSnapshot
from zae_limiter.visualization.page import GENERATOR, HtmlFormatter
from zae_limiter.visualization.plot import NARROWEST, PlotFormatter
from zae_limiter.visualization.wording import counted


def print_charts(snapshots: Sequence[UsageSnapshot]) -> None:
    """Print charts that fit the terminal."""
    click.echo(PlotFormatter(max(NARROWEST, shutil.get_terminal_size().columns)).format(snapshots))


def page_of(asked: Asked, store: StoreChoice, *, summed: bool = False) -> HtmlFormatter:
    """Return the formatter of the page for these filters, as of now."""
    whose = " · ".join(name for name in (asked.entity_id, asked.resource) if name is not None)
    made_at = f"{utc_from_ms(SystemClock().now_ms()):%Y-%m-%d %H:%M} UTC"
    return HtmlFormatter(f"Usage of {whose}", shown_filters(asked, store), made_at, summed)


def write_page(path: Path, formatter: HtmlFormatter, snapshots: Sequence[UsageSnapshot]) -> None:
    """Write a page and print its path."""
    content = f"{formatter.format(snapshots)}\n".encode()
    write_file(path, content, "--html")
    click.echo(f"Wrote {path} ({in_bytes(len(content))}): {counted(len(snapshots), 'snapshot')}.")


def shown_filters(asked: Asked, store: StoreChoice) -> dict[str, str]:
    """Return the filters as the page shows them."""
    place = store.target.place
    filters = {
        "limiter": None if place is None else place.name,
        "namespace": None if store.namespace == DEFAULT_NAMESPACE else store.namespace,
        "entity": asked.entity_id,
        "resource": asked.resource,
        "windows": asked.window,
        "from": None if asked.start_time is None else f"{asked.start_time[:16].replace('T', ' ')} UTC",
        "to": None if asked.end_time is None else f"{asked.end_time[:16].replace('T', ' ')} UTC",
    }
    return {name: text for name, text in filters.items() if text is not None}


def check_replaceable(path: Path, may_replace: bool) -> None:
    """Refuse to replace a file that is not a usage page, before any usage is read.

    Raises:
        click.BadParameter: The file exists and is not a usage page.
    """
    if may_replace or not path.is_file():
        return
    with path.open("rb") as file:
        is_ours = GENERATOR.encode() in file.read(2_000)
    if not is_ours:
        reason = f"{str(path)!r} exists and is not a usage page; pass --yes to replace it"
        raise click.BadParameter(reason, click.get_current_context(silent=True), param_hint="--html")
