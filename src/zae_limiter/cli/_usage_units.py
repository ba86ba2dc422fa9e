"""Find the units of limits whose usage is shown, because snapshots do not contain them."""

from collections.abc import Iterable

from zae_limiter._sync.limiter.limiter import SyncRateLimiter
from zae_limiter.cli._usage_charts import ShownUsage, limits_in_force
from zae_limiter.core.lazy_dataclass import replace
from zae_limiter.visualization import series
from zae_limiter.visualization.series import UnitsByName

# Each costs a query.
_MOST_USES = 50


def units_of(limiter: SyncRateLimiter, uses: Iterable[tuple[str, str]]) -> UnitsByName:
    """Return the units of limits by name, by the first uses: pairs of an entity and a resource.

    A limit has none if it has different units in several uses.
    """
    shown = list(dict.fromkeys(uses))[:_MOST_USES]
    return series.units_of({use: limits_in_force(limiter, *use) for use in shown})


def with_units(limiter: SyncRateLimiter, found: ShownUsage) -> ShownUsage:
    """Return usage with the units of its limits."""
    return replace(found, units=units_of(limiter, ((one.entity_id, one.resource) for one in found.snapshots)))
