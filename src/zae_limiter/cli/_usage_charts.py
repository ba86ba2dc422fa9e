"""Show charts of usage in the terminal, and write them to an HTML page."""

import shutil
from collections.abc import Mapping, Sequence

import click

from zae_limiter._sync.limiter.limiter import SyncRateLimiter
from zae_limiter.cli._files import in_bytes, write_file
from zae_limiter.cli._place import StoreChoice
from zae_limiter.cli._usage_options import Asked, Shape
from zae_limiter.clock import SystemClock
from zae_limiter.core.lazy_dataclass import dataclass, field, replace
from zae_limiter.core.limit import Limit
from zae_limiter.core.namespace import DEFAULT_NAMESPACE
from zae_limiter.core.timestamp import utc_from_ms
from zae_limiter.core.usage import UsageSnapshot
from zae_limiter.visualization.page import GENERATOR, HtmlFormatter
from zae_limiter.visualization.plot import NARROWEST, PlotFormatter
from zae_limiter.visualization.series import LimitsInForce, UnitsByName
from zae_limiter.visualization.wording import counted

# Each costs a query.
_MOST_USES = 50


@dataclass(frozen=True, slots=True)
class ShownUsage:
    """Snapshots, the start of the next page, None after the last, and the limits if they were read.

    ``units`` are those of limits by name.
    """

    snapshots: list[UsageSnapshot]
    next: Mapping[str, str] | None
    limits: LimitsInForce = field(default_factory=dict)
    units: UnitsByName = field(default_factory=dict)


def print_charts(found: ShownUsage) -> None:
    """Print charts that fit the terminal."""
    width = max(NARROWEST, shutil.get_terminal_size().columns)
    click.echo(PlotFormatter(width, units=found.units).format(found.snapshots))


def with_limits(limiter: SyncRateLimiter, found: ShownUsage) -> ShownUsage:
    """Read the limits in force of every entity and resource with usage; of none if there are too many.

    A bucket has the limits of its last request, even if the caller passed them. Stored limits are for
    buckets that have expired.
    """
    uses = {(one.entity_id, one.resource) for one in found.snapshots}
    if len(uses) > _MOST_USES:
        return found
    return replace(found, limits={use: limits_in_force(limiter, *use) for use in sorted(uses)})


def limits_in_force(limiter: SyncRateLimiter, entity_id: str, resource: str) -> list[Limit]:
    """Return the limits of a bucket, or if it has expired, those that are stored for it."""
    states = limiter.get_buckets(entity_id, resource)
    if states:
        return [one.limit for one in states]
    return limiter.resolve_limits(entity_id, resource).limits or []


def page_of(asked: Asked, store: StoreChoice, limits: LimitsInForce, *, summed: bool = False) -> HtmlFormatter:
    """Return the formatter of the page for these filters, as of now."""
    whose = asked.whose or f"namespace {store.namespace}"
    made_at = f"{utc_from_ms(SystemClock().now_ms()):%Y-%m-%d %H:%M} UTC"
    return HtmlFormatter(f"Usage of {whose}", shown_filters(asked, store), made_at, summed, limits)


def write_page(shape: Shape, formatter: HtmlFormatter, snapshots: Sequence[UsageSnapshot]) -> None:
    """Write a page and print its path."""
    assert shape.page is not None, "the output format is a page"
    content = f"{formatter.format(snapshots)}\n".encode()
    write_file(shape.page, content, "--html")
    click.echo(f"Wrote {shape.page} ({in_bytes(len(content))}): {counted(len(snapshots), 'snapshot')}.")


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


def check_replaceable(shape: Shape) -> None:
    """Refuse to write a page to a file that is not a usage page, before any usage is read.

    Raises:
        click.BadParameter: The file exists and is not a usage page.
    """
    path = shape.page
    if path is None or shape.may_replace or not path.is_file():
        return
    with path.open("rb") as file:
        is_ours = GENERATOR.encode() in file.read(2_000)
    if not is_ours:
        reason = f"{str(path)!r} exists and is not a usage page; pass --yes to replace it"
        raise click.BadParameter(reason, click.get_current_context(silent=True), param_hint="--html")
