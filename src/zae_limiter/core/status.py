"""What a user is told about limits, buckets, resources and the limiter itself, as values.

Working these out of a stored bucket is the business of ``core.bucket`` and its neighbours.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple

from zae_limiter.core.errors import ValidationError
from zae_limiter.core.limit import Limit

LimitName = str
"""The name of a limit, as a key of what is consumed and of what is available."""


class OnUnavailable(StrEnum):
    """What to do with a request while the store is away: let it through unlimited, or raise."""

    ALLOW = "allow"
    BLOCK = "block"


def check_on_unavailable(value: object) -> OnUnavailable | None:
    """Return the choice a user made, None for none.

    Raises:
        ValidationError: it is neither allow nor block.
    """
    if value is None:
        return None
    if isinstance(value, str) and value in set(OnUnavailable):
        return OnUnavailable(value)
    raise ValidationError("on_unavailable", value, "must be 'allow' or 'block'")


@dataclass(frozen=True, slots=True)
class LimitStatus:
    """One limit as one request found it; ``available`` is negative when the bucket is in debt."""

    entity_id: str
    resource: str
    limit_name: str
    limit: Limit
    available: int
    requested: int
    exceeded: bool
    retry_after_seconds: float

    @property
    def deficit(self) -> int:
        """How many tokens were missing, 0 when there were enough."""
        return max(0, self.requested - self.available)

    def as_dict(self) -> dict[str, Any]:
        """Everything the status knows, ready for JSON."""
        return {
            "entity_id": self.entity_id,
            "resource": self.resource,
            "limit_name": self.limit_name,
            "capacity": self.limit.capacity,
            "refill_amount": self.limit.refill_amount,
            "refill_period_seconds": self.limit.refill_period_seconds,
            "available": self.available,
            "requested": self.requested,
            "deficit": self.deficit,
            "exceeded": self.exceeded,
            "retry_after_seconds": self.retry_after_seconds,
        }


@dataclass(frozen=True, slots=True)
class BucketState:
    """One limit of a bucket: its balance as of ``last_refill_ms``, and the limit it was built from."""

    entity_id: str
    resource: str
    limit_name: str
    tokens_milli: int
    last_refill_ms: int
    capacity_milli: int
    refill_amount_milli: int
    refill_period_ms: int
    total_consumed_milli: int = 0

    @property
    def tokens(self) -> int:
        """The balance in whole tokens, rounded down."""
        return self.tokens_milli // 1000

    @property
    def capacity(self) -> int:
        """The capacity in whole tokens."""
        return self.capacity_milli // 1000


@dataclass(frozen=True, slots=True)
class EntityCapacity:
    """What one entity may take of a resource, and has left."""

    entity_id: str
    capacity: int
    available: int

    @property
    def utilization_pct(self) -> float:
        """The part of the capacity in use, in percent; above 100 in debt."""
        return utilization_pct(self.capacity, self.available)


@dataclass(frozen=True, slots=True)
class ResourceCapacity:
    """What all entities together may take of a resource, and have left."""

    resource: str
    limit_name: str
    total_capacity: int
    total_available: int
    utilization_pct: float
    entities: list[EntityCapacity]


class CapacityTotals:
    """The entities of a resource, added up some at a time."""

    def __init__(self, resource: str, limit_name: str) -> None:
        self._resource = resource
        self._limit_name = limit_name
        self._capacity = 0
        self._available = 0
        self._entities: list[EntityCapacity] = []

    def add(self, entities: Sequence[EntityCapacity]) -> None:
        """Add entities, in the order in which they are to be reported."""
        self._capacity += sum(entity.capacity for entity in entities)
        self._available += sum(entity.available for entity in entities)
        self._entities += entities

    def capacity(self) -> ResourceCapacity:
        """Return what all entities so far may take, and have left."""
        capacity, available = self._capacity, self._available
        used = utilization_pct(capacity, available)
        return ResourceCapacity(self._resource, self._limit_name, capacity, available, used, self._entities)


def utilization_pct(capacity: int, available: int) -> float:
    """The part of a capacity in use, in percent; 0 of nothing."""
    return (capacity - available) * 100 / capacity if capacity else 0.0


@dataclass(frozen=True, slots=True)
class CacheStats:
    """How a cache has served so far."""

    hits: int
    misses: int
    size: int
    ttl_seconds: int | float


@dataclass(frozen=True, slots=True)
class BackendCapabilities:
    """What a backend can do; ``partition_writes_per_second`` is None where a partition has no bound of its own."""

    supports_audit_logging: bool = True
    supports_usage_snapshots: bool = True
    supports_infrastructure_management: bool = False
    supports_change_streams: bool = False
    supports_batch_operations: bool = True
    partition_writes_per_second: int | None = None


class TableSize(NamedTuple):
    """The number of items in a table and their bytes, None if unknown; the fields are named as in ``Status``."""

    table_item_count: int
    table_size_bytes: int | None
    log_size_bytes: int | None = None
    log_held_back: bool | None = None


@dataclass(frozen=True, slots=True)
class Status:
    """The limiter as a whole; None is what does not apply to the backend, or is not known.

    ``log_size_bytes`` is the size of a SQLite file's write-ahead log. ``log_held_back`` is True if the log is long
    because another program keeps a read transaction open.
    """

    available: bool
    latency_ms: float | None = None
    stack_status: str | None = None
    table_status: str | None = None
    aggregator_enabled: bool = False
    name: str | None = None
    region: str | None = None
    schema_version: str | None = None
    lambda_version: str | None = None
    client_version: str | None = None
    table_item_count: int | None = None
    table_size_bytes: int | None = None
    app_role_arn: str | None = None
    admin_role_arn: str | None = None
    readonly_role_arn: str | None = None
    log_size_bytes: int | None = None
    log_held_back: bool | None = None
