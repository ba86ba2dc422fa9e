"""Define the values that reports return: limits, buckets, resources and the limiter itself."""

from collections.abc import Sequence
from enum import StrEnum
from typing import Any, NamedTuple, Protocol

from zae_limiter.core.calendar import CalendarSchedule
from zae_limiter.core.errors import ValidationError
from zae_limiter.core.lazy_dataclass import dataclass
from zae_limiter.core.limit import Limit


class OnUnavailable(StrEnum):
    """The policy for requests while the store is unavailable: allow without limiting, or raise an error."""

    ALLOW = "allow"
    BLOCK = "block"


def check_on_unavailable(value: object) -> OnUnavailable | None:
    """Return the chosen policy, None if none was chosen.

    Raises:
        ValidationError: The value is neither 'allow' nor 'block'.
    """
    if value is None:
        return None
    if isinstance(value, str) and value in set(OnUnavailable):
        return OnUnavailable(value)
    raise ValidationError("on_unavailable", value, "must be 'allow' or 'block'")


@dataclass(frozen=True, slots=True)
class LimitStatus:
    """One limit as a request found it; ``available`` is negative if the bucket is in debt.

    ``exact`` is False for a limit of concurrent use, whose slots are returned at any time. ``retry_after_seconds`` is
    then the longest wait, if no lease renews its slots. ``in_use`` is the number of slots in use, None for other
    limits. ``resets_at`` is when a quota is full again, in seconds since the epoch, None for other limits.
    ``reserved`` is what the request must leave because of its priority, 0 if it may take everything.
    """

    entity_id: str
    resource: str
    limit_name: str
    limit: Limit
    available: int
    requested: int
    exceeded: bool
    retry_after_seconds: float
    exact: bool = True
    in_use: int | None = None
    resets_at: int | None = None
    reserved: int = 0

    @property
    def rejects(self) -> bool:
        """Whether the limit rejects the request: it is exceeded, and not soft."""
        return self.exceeded and self.limit.enforce

    @property
    def deficit(self) -> int:
        """The number of missing tokens, 0 if there were enough."""
        return max(0, self.requested + self.reserved - self.available)

    def as_dict(self) -> dict[str, Any]:
        """Return all data of the status, ready for JSON."""
        data: dict[str, Any] = {
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
        if not self.limit.enforce:
            data["enforce"] = False
        if self.reserved:
            data["reserved"] = self.reserved
        if self.limit.unit is not None:
            data["unit"] = self.limit.unit
        if self.resets_at is not None:
            schedule = self.limit.schedule
            return data | {"unit": self.limit.unit, "schedule": schedule and schedule.text, "resets_at": self.resets_at}
        if self.in_use is None:
            return data
        return data | {"hold_seconds": self.limit.hold_seconds, "in_use": self.in_use, "exact": self.exact}


class DeferredStatuses(Protocol):
    """A rejection that makes its statuses when they are read."""

    def statuses(self) -> Sequence[LimitStatus]:
        """Return the status of every limit."""


@dataclass(frozen=True, slots=True)
class BucketState:
    """One limit of a bucket: its balance as of ``last_refill_ms``, and the numbers of the limit.

    A limit of concurrent use has a hold. ``tokens_milli`` are then its free slots, and ``cohorts`` the slots in use:
    their end in seconds since the epoch, and millislots. Slots whose end has passed are free as well.

    A quota has a ``schedule``. ``tokens_milli`` is then what is left of the period that began at ``last_refill_ms``.
    ``resets_at`` is when it is full again, in seconds since the epoch.
    """

    entity_id: str
    resource: str
    limit_name: str
    tokens_milli: int
    last_refill_ms: int
    capacity_milli: int
    refill_amount_milli: int
    refill_period_ms: int
    total_consumed_milli: int = 0
    hold_seconds: int = 0
    cohorts: tuple[tuple[int, int], ...] = ()
    schedule: CalendarSchedule | None = None
    unit: str | None = None
    enforce: bool = True
    warn_at: tuple[float, ...] = ()
    resets_at: int | None = None

    @property
    def tokens(self) -> int:
        """The balance in whole tokens, rounded down."""
        return self.tokens_milli // 1000

    @property
    def capacity(self) -> int:
        """The capacity in whole tokens."""
        return self.capacity_milli // 1000

    @property
    def limit(self) -> Limit:
        """The limit in force."""
        return Limit(
            self.limit_name,
            self.capacity,
            self.refill_amount_milli // 1000,
            self.refill_period_ms // 1000,
            self.hold_seconds,
            self.schedule,
            self.unit,
            self.enforce,
            self.warn_at,
        )

    def in_use(self, now_ms: int) -> int:
        """Return how many slots are in use at a time, in milliseconds since the epoch."""
        return sum(milli for end_s, milli in self.cohorts if end_s * 1000 > now_ms) // 1000


@dataclass(frozen=True, slots=True)
class Balance:
    """What is left of one limit of an entity; ``available`` is negative in debt.

    ``resource`` is ``_all_`` for a limit across resources. ``in_use`` are the slots in use, None for other limits.
    ``resets_at`` is when the period of a quota ends, in seconds since the epoch, None for other limits. ``full_at`` is
    when the limit is full if nothing is taken meanwhile, in the same unit, None if it is full now. Slots are free then
    if no lease renews them.
    """

    entity_id: str
    resource: str
    limit: Limit
    available: int
    in_use: int | None = None
    resets_at: int | None = None
    full_at: int | None = None

    @property
    def limit_name(self) -> str:
        """The name of the limit."""
        return self.limit.name

    @property
    def kind(self) -> str:
        """The kind of the limit: ``rate``, ``slots`` or ``quota``."""
        return self.limit.kind

    @property
    def unit(self) -> str | None:
        """The unit of the amounts, None if they have none. Amounts of money are in micro-units."""
        return self.limit.unit

    @property
    def capacity(self) -> int:
        """The capacity of the limit, of a quota its amount."""
        return self.limit.capacity

    @property
    def used(self) -> int:
        """What is used of the capacity; more than the capacity in debt."""
        return self.limit.capacity - self.available

    @property
    def used_pct(self) -> float:
        """The used part of the capacity, in percent; above 100 in debt."""
        return utilization_pct(self.limit.capacity, self.available)

    def as_dict(self) -> dict[str, Any]:
        """Return all data of the balance, ready for JSON."""
        schedule = self.limit.schedule
        return {
            "entity_id": self.entity_id,
            "resource": self.resource,
            "limit_name": self.limit_name,
            "kind": self.kind,
            "capacity": self.capacity,
            "available": self.available,
            "used": self.used,
            "used_pct": round(self.used_pct, 2),
            "unit": self.unit,
            "enforce": self.limit.enforce,
            "schedule": None if schedule is None else schedule.text,
            "resets_at": self.resets_at,
            "full_at": self.full_at,
            "in_use": self.in_use,
        }


@dataclass(frozen=True, slots=True)
class EntityCapacity:
    """The capacity of one entity for a resource, and the tokens it has left; ``unit`` is None if they have none."""

    entity_id: str
    capacity: int
    available: int
    unit: str | None = None

    @property
    def utilization_pct(self) -> float:
        """The used part of the capacity, in percent; above 100 if in debt."""
        return utilization_pct(self.capacity, self.available)


@dataclass(frozen=True, slots=True)
class ResourceCapacity:
    """The capacity of all entities for a resource, and the tokens they have left.

    ``unit`` is None if they have none, or not all the same.
    """

    resource: str
    limit_name: str
    total_capacity: int
    total_available: int
    utilization_pct: float
    entities: list[EntityCapacity]
    unit: str | None = None


class CapacityTotals:
    """A running sum over the entities of a resource."""

    def __init__(self, resource: str, limit_name: str) -> None:
        self._resource = resource
        self._limit_name = limit_name
        self._capacity = 0
        self._available = 0
        self._entities: list[EntityCapacity] = []

    def add(self, entities: Sequence[EntityCapacity]) -> None:
        """Add entities, in the order in which they are reported."""
        self._capacity += sum(entity.capacity for entity in entities)
        self._available += sum(entity.available for entity in entities)
        self._entities += entities

    def capacity(self) -> ResourceCapacity:
        """Return the capacity of all entities so far, and the tokens they have left."""
        capacity, available = self._capacity, self._available
        used = utilization_pct(capacity, available)
        units = {one.unit for one in self._entities}
        unit = units.pop() if len(units) == 1 else None
        return ResourceCapacity(self._resource, self._limit_name, capacity, available, used, self._entities, unit)


def utilization_pct(capacity: int, available: int) -> float:
    """Return the used part of a capacity, in percent; 0 if the capacity is 0."""
    return (capacity - available) * 100 / capacity if capacity else 0.0


@dataclass(frozen=True, slots=True)
class CacheStats:
    """Hits, misses, size and lifetime of a cache."""

    hits: int
    misses: int
    size: int
    ttl_seconds: int | float


@dataclass(frozen=True, slots=True)
class BackendCapabilities:
    """The features of a backend; ``partition_writes_per_second`` is None if a partition has no write limit."""

    supports_audit_logging: bool = True
    supports_usage_snapshots: bool = True
    supports_infrastructure_management: bool = False
    supports_change_streams: bool = False
    supports_batch_operations: bool = True
    partition_writes_per_second: int | None = None


class TableSize(NamedTuple):
    """The number of items in a table and their size in bytes, None if unknown.

    The fields are named as in ``Status``.
    """

    table_item_count: int
    table_size_bytes: int | None
    log_size_bytes: int | None = None
    log_held_back: bool | None = None


@dataclass(frozen=True, slots=True)
class Status:
    """The status of a limiter. A field is None if it does not apply to the backend or is unknown.

    ``log_size_bytes`` is the size of a SQLite file's write-ahead log. ``log_held_back`` is True if
    the log is long because another program keeps a read transaction open.
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
