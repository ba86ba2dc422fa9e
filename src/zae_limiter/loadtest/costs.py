"""Compute what a load test costs, and whether it reached its ceiling.

The prices are those of us-east-1, without free tiers. They differ by region, and change.
"""

from dataclasses import dataclass

from zae_limiter.loadtest.measurements import Measurements

PRICES_AS_OF = "2024-11-01"
USD_PER_MILLION_READ_UNITS = 0.125
USD_PER_MILLION_WRITE_UNITS = 0.625
USD_PER_LAMBDA_GB_SECOND = 0.0000166667
USD_PER_FARGATE_VCPU_HOUR = 0.04048
USD_PER_FARGATE_GB_HOUR = 0.004445
_MILLION = 1_000_000
_HOUR_S = 3600


@dataclass(frozen=True, slots=True)
class CapacityCost:
    """The units that a test consumed on DynamoDB, and their price.

    DynamoDB bills refused writes but does not report them: ``refused_write_units`` is the least
    that they cost, which is one unit for each write.
    """

    read_units: float
    write_units: float
    index_write_units: float
    refused_write_units: int
    usd: float
    usd_per_million_calls: float | None


@dataclass(frozen=True, slots=True)
class WorkerTime:
    """The time for which Lambda workers and Fargate tasks ran, in seconds, and their sizes."""

    lambda_s: float = 0.0
    lambda_memory_mb: int = 1769
    fargate_s: float = 0.0
    fargate_vcpu: float = 1.0
    fargate_memory_gb: float = 2.0


@dataclass(frozen=True, slots=True)
class Ceiling:
    """What a test may cost in US dollars, and how many seconds it may take; None for any time.

    ``spent_usd`` and ``spent_s`` are those of earlier runs that belong to the same test.
    """

    max_usd: float
    max_duration_s: float | None = None
    spent_usd: float = 0.0
    spent_s: float = 0.0


class PageCosts:
    """What the tests of one web page cost on DynamoDB: those that have ended, and the last one."""

    def __init__(self) -> None:
        self.ended_usd = 0.0
        self.last_usd = 0.0

    def include(self, measured: Measurements) -> None:
        """Take over what the last test has measured. Each test begins at zero, so a lower cost is that of a new one."""
        usd = capacity_cost(measured).usd
        if usd < self.last_usd:
            self.ended_usd += self.last_usd
        self.last_usd = usd


def capacity_cost(measured: Measurements) -> CapacityCost:
    """Return what DynamoDB charges for a test; the price of a million calls is None if there was no call."""
    written = measured.write_units + measured.index_write_units + measured.refused_write_units
    usd = (measured.read_units * USD_PER_MILLION_READ_UNITS + written * USD_PER_MILLION_WRITE_UNITS) / _MILLION
    return CapacityCost(
        measured.read_units,
        measured.write_units,
        measured.index_write_units,
        measured.refused_write_units,
        usd,
        usd / measured.attempts * _MILLION if measured.attempts else None,
    )


def worker_usd(time: WorkerTime) -> float:
    """Return what the workers and the master of a test on AWS cost."""
    on_lambda = time.lambda_s * time.lambda_memory_mb / 1024 * USD_PER_LAMBDA_GB_SECOND
    per_hour = time.fargate_vcpu * USD_PER_FARGATE_VCPU_HOUR + time.fargate_memory_gb * USD_PER_FARGATE_GB_HOUR
    return on_lambda + time.fargate_s / _HOUR_S * per_hour


def reached_ceiling(ceiling: Ceiling, measured: Measurements, time: WorkerTime, elapsed_s: float) -> str | None:
    """Return why a test must stop now, in words; None if it may continue."""
    usd = ceiling.spent_usd + capacity_cost(measured).usd + worker_usd(time)
    total_s = ceiling.spent_s + elapsed_s
    if usd >= ceiling.max_usd:
        return f"it has cost USD {usd:.2f}, and --max-usd is {ceiling.max_usd:g}"
    if ceiling.max_duration_s is not None and total_s >= ceiling.max_duration_s:
        return f"it has run for {total_s:.0f} s, and --max-duration is {ceiling.max_duration_s:g} s"
    return None
