"""Turn measurements into a report: rates, latencies, costs, and whether the promise held. Pure."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from zae_limiter.loadtest.costs import CapacityCost, capacity_cost
from zae_limiter.loadtest.measurements import Latencies, Measurements
from zae_limiter.loadtest.promise_check import (
    ONE_MACHINE,
    DemandState,
    Environment,
    LimitVerdict,
    Verdict,
    check_limits,
)


class LatencyBasis(StrEnum):
    """The time from which latencies count."""

    SCHEDULED = "scheduled time"
    SERVICE = "service time"
    BOTH = "scheduled and service time"


@dataclass(frozen=True, slots=True)
class LatencyRow:
    """The latencies of one request type, in milliseconds."""

    request_type: str
    count: int
    p50_ms: float
    p95_ms: float
    p99_ms: float
    longest_ms: float


@dataclass(frozen=True, slots=True)
class LoadReport:
    """What a load test found.

    ``cost`` is None if no call to DynamoDB was counted. ``measured`` has the values over time.
    """

    measured: Measurements
    calls_per_s: float
    admitted_per_s: float
    errors: int
    latency_basis: LatencyBasis
    latencies: tuple[LatencyRow, ...]
    cost: CapacityCost | None
    limits: tuple[LimitVerdict, ...]

    @property
    def held(self) -> bool:
        """Whether limits were checked, and none of them broke the promise."""
        return self.checked > 0 and all(one.verdict is Verdict.HELD for one in self.limits)

    @property
    def checked(self) -> int:
        """The number of limits that were checked: all whose numbers are known."""
        return sum(one.demand is not DemandState.UNKNOWN_LIMIT for one in self.limits)

    @property
    def judged(self) -> int:
        """The number of limits whose lower bound was judged too."""
        return sum(one.demand is DemandState.JUDGED for one in self.limits)

    @property
    def largest_shard_count(self) -> int:
        """The largest number of shards that a bucket had."""
        return max((count for counts in self.measured.shards.values() for count in counts.values()), default=1)

    def to_dict(self) -> dict[str, Any]:
        """Return the report, ready for JSON. Values over time are left out, except the shards."""
        measured = self.measured
        return {
            "promise_held": self.held,
            "started_s": measured.started_s,
            "duration_s": measured.duration_s,
            "calls": measured.attempts,
            "calls_per_s": self.calls_per_s,
            "admitted": measured.admitted,
            "admitted_per_s": self.admitted_per_s,
            "rejected": measured.rejected,
            "never": measured.never,
            "unsent": measured.unsent,
            "degraded": measured.degraded,
            "errors": [
                {"kind": kind, "count": count, "example": measured.error_examples.get(kind, "")}
                for kind, count in measured.errors.most_common()
            ],
            "latency_basis": str(self.latency_basis),
            "latencies": [asdict(row) for row in self.latencies],
            "capacity": None if self.cost is None else asdict(self.cost),
            "dynamodb_calls": dict(measured.calls.most_common()),
            "throttles": dict(measured.throttles.most_common()),
            "shards": {bucket: sorted(counts.items()) for bucket, counts in measured.shards.items()},
            "limits": [_limit_facts(one) for one in self.limits],
            "limits_left_out": measured.limits_left_out,
        }


def report_of(measured: Measurements, environment: Environment = ONE_MACHINE) -> LoadReport:
    """Return the report of a test."""
    duration_s = measured.duration_s or 1.0
    return LoadReport(
        measured=measured,
        calls_per_s=measured.attempts / duration_s,
        admitted_per_s=measured.admitted / duration_s,
        errors=measured.errors.total(),
        latency_basis=_basis(measured),
        latencies=tuple(_row(kind, found) for kind, found in sorted(measured.latencies.items()) if found.count),
        cost=capacity_cost(measured) if measured.calls else None,
        limits=tuple(check_limits(measured.limits.values(), most_shards(measured.shards), environment)),
    )


def most_shards(shards: Mapping[str, Mapping[int, int]]) -> dict[tuple[str, str], int]:
    """Return the largest number of shards that each bucket had, by entity and resource."""
    found: dict[tuple[str, str], int] = {}
    for bucket, counts in shards.items():
        # Neither name contains a space.
        entity_id, _, resource = bucket.partition(" ")
        found[entity_id, resource] = max(counts.values(), default=1)
    return found


def _basis(measured: Measurements) -> LatencyBasis:
    if not measured.scheduled:
        return LatencyBasis.SERVICE
    return LatencyBasis.SCHEDULED if measured.scheduled >= measured.attempts else LatencyBasis.BOTH


def _row(request_type: str, found: Latencies) -> LatencyRow:
    p50, p95, p99 = (found.percentile_ms(share) or 0.0 for share in (0.5, 0.95, 0.99))
    return LatencyRow(request_type, found.count, p50, p95, p99, found.longest_ms)


def _limit_facts(found: LimitVerdict) -> dict[str, Any]:
    entity_id, resource, name = found.key
    return {
        "entity_id": entity_id,
        "resource": resource,
        "limit_name": name,
        "limit": None if found.limit is None else found.limit.to_dict(),
        "verdict": str(found.verdict),
        "demand": str(found.demand),
        "admitted": found.admitted,
        "offered": found.offered,
        "requested": found.requested,
        "rejections": found.rejections,
        "window": None if found.window is None else {**asdict(found.window), "excess": found.window.excess},
        "stretch": None if found.stretch is None else asdict(found.stretch),
    }
