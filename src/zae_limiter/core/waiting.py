"""Decide about requests that wait for a bucket: what a wait costs, how long it takes, and whether it can end in time.

Times are seconds on the monotonic clock, and come in as arguments. ``waiting_line`` decides about the order.
"""

from collections.abc import Mapping, Sequence
from math import inf
from typing import Literal, NamedTuple, TypeGuard

from zae_limiter.core.bucket import TimeBounds
from zae_limiter.core.errors import RateLimitExceeded, ValidationError
from zae_limiter.core.lazy_dataclass import dataclass, field
from zae_limiter.core.levels import LevelOfLimit
from zae_limiter.core.names import check_whole_number
from zae_limiter.core.status import LimitStatus

AGE_S = 10.0
"""One step of priority counts as this many seconds of waiting, so a low priority waits longer, but not forever."""

MAX_PRIORITY = 1_000
_MAX_WAITING = 10_000_000
_LEAST_COST = 1e-9
_TICK_S = 0.001
_ASK_FOR_SLOTS_S = 0.25
"""The first request that waits for a slot asks again after this many seconds."""


@dataclass(frozen=True, slots=True)
class Queue:
    """How many requests of a limiter may wait for one bucket, and in which order.

    Requests of a higher priority go first. If ``fair_by`` is ``entity``, entities with the same priority take turns, in
    proportion to their weights in ``weights``. An entity without a weight has 1. If ``fair_by`` is None, the request
    that came first goes first.

    Raises:
        ValidationError: A value is invalid.
    """

    max_waiting: int = 1_000
    fair_by: Literal["entity"] | None = "entity"
    weights: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_whole_number("max_waiting", self.max_waiting, 1, _MAX_WAITING)
        if self.fair_by not in ("entity", None):
            raise ValidationError("fair_by", self.fair_by, "must be 'entity' or None")
        if not isinstance(self.weights, Mapping):
            raise ValidationError("weights", self.weights, "must be a dict of entities and numbers")
        for entity_id, weight in self.weights.items():
            if not _is_number(weight) or not 0 < weight < inf:
                raise ValidationError(f"weights[{entity_id}]", weight, "must be a number above 0")

    def flow_of(self, entity_id: str) -> str:
        """Return the name of the flow that a request belongs to; flows share the bucket fairly."""
        return entity_id if self.fair_by == "entity" else ""

    def weight_of(self, entity_id: str) -> float:
        """Return the weight of the flow that a request belongs to."""
        return self.weights.get(entity_id, 1.0) if self.fair_by == "entity" else 1.0


DEFAULT_QUEUE = Queue()


def check_queue(value: object) -> Queue:
    """Require a queue.

    Raises:
        ValidationError: The value is something else.
    """
    if not isinstance(value, Queue):
        raise ValidationError("queue", value, "must be a Queue(max_waiting, fair_by, weights)")
    return value


def _is_number(value: object) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def check_wait(max_wait_s: object, priority: object) -> None:
    """Require valid arguments of a request that may wait.

    Raises:
        ValidationError: The wait is not a number of seconds from 0, or the priority is not a whole number.
    """
    if not _is_number(max_wait_s) or not max_wait_s >= 0:
        raise ValidationError("max_wait", max_wait_s, "must be a number of seconds, at least 0")
    check_whole_number("priority", priority, -MAX_PRIORITY, MAX_PRIORITY)


class LimitSupply(NamedTuple):
    """The level of one limit at a time, and its refill, in millitokens and millitokens per second.

    ``rate`` is 0 if only other requests give tokens back.
    """

    level: float
    at_s: float
    rate: float
    capacity: float

    def available(self, now_s: float) -> float:
        """Return the millitokens that are surely available now."""
        # The clock of the bucket counts whole milliseconds, so it may be one behind.
        return min(self.capacity, self.level + self.rate * max(0.0, now_s - self.at_s - _TICK_S))

    def wait_s(self, needed: float, now_s: float) -> float:
        """Return the seconds until ``needed`` millitokens were available in total; inf if they never will be."""
        level, at_s, rate, capacity = self
        # What ``available`` returns, written out: this is done several times for each request that waits.
        elapsed_s = now_s - at_s - _TICK_S
        available = level + rate * elapsed_s if elapsed_s > 0 else level
        if needed <= (available if available < capacity else capacity):
            return 0.0
        if not rate:
            return inf
        # The refill comes in whole millitokens. One more makes sure that a request is not made too early.
        return at_s + _TICK_S + (needed + 1 - level) / rate - now_s

    def less(self, taken: float, now_s: float) -> "LimitSupply":
        """Return the supply after millitokens were taken."""
        if self.available(now_s) >= self.capacity:
            return LimitSupply(self.capacity - taken, now_s, self.rate, self.capacity)
        return LimitSupply(self.level - taken, self.at_s, self.rate, self.capacity)


Supply = Mapping[str, LimitSupply]
"""The limits of a bucket by name, as its last response showed them, or as follows from it."""

Demand = Mapping[str, int]
"""Tokens by the name of the limit."""


def supply_of(levels: Sequence[LevelOfLimit], now: TimeBounds, now_s: float) -> dict[str, LimitSupply]:
    """Return the supply of a bucket with these levels, at the time ``now``, which is ``now_s`` on the other clock.

    Slots are left out: they are returned at any time, so nothing is known of a wait for them. Quotas are left out too,
    because nothing is refilled before the end of the period, and soft limits, which reject nothing.
    """
    return {
        level.name: LimitSupply(
            level.available_milli(now),
            now_s,
            level.limit.refill_amount_milli * 1000 / level.limit.refill_period_ms,
            level.limit.capacity_milli,
        )
        for level in levels
        if level.is_exact and level.limit.enforce and not level.limit.is_quota
    }


def supply_after(supply: Supply, taken: Demand, now_s: float) -> dict[str, LimitSupply]:
    """Return the supply after a request was admitted."""
    return {name: one.less(taken.get(name, 0) * 1000, now_s) for name, one in supply.items()}


def wait_s(supply: Supply, ahead: Demand, own: Demand, now_s: float) -> float:
    """Return the seconds after which a request can be admitted at the earliest, after the requests ahead of it.

    It takes longer if other requests take tokens, or if a limit is full while the requests wait for another limit.
    """
    longest = 0.0
    for name, amount in own.items():
        limit = supply.get(name)
        if limit is not None and amount:
            longest = max(longest, limit.wait_s((ahead.get(name, 0) + amount) * 1000, now_s))
    return longest


def exceeds_capacity(supply: Supply, own: Demand) -> bool:
    """Return whether a request asks for more than a limit can hold."""
    return any(amount * 1000 > supply[name].capacity for name, amount in own.items() if name in supply)


def cost_of(supply: Supply, own: Demand) -> float:
    """Return what a request costs its flow: the largest part of a capacity that it takes."""
    largest = _LEAST_COST if supply else 1.0
    for name, amount in own.items():
        limit = supply.get(name)
        if limit is not None:
            largest = max(largest, amount * 1000 / limit.capacity)
    return largest


class Standing(NamedTuple):
    """Where a request waits: its place, 1 for the next, and the estimated seconds until it is admitted."""

    position: int
    estimate_s: float


class PaceProgress(NamedTuple):
    """How far a paced job is: the leases granted, of how many, and the seconds waited and elapsed so far.

    ``total`` is None if the job has no known end.
    """

    granted: int
    total: int | None
    waited_s: float
    elapsed_s: float

    @property
    def per_second(self) -> float:
        """The leases granted per second, on average."""
        return self.granted / self.elapsed_s if self.elapsed_s > 0 else 0.0

    @property
    def remaining_s(self) -> float | None:
        """The seconds left at this speed, None if the total is unknown."""
        return None if self.total is None else (self.total - self.granted) * self.elapsed_s / self.granted


def next_ask_s(error: RateLimitExceeded) -> float:
    """Return the seconds after which a rejected request asks again: its exact wait, or earlier for slots.

    Slots may be returned at any time, also by other processes. So they are asked for often.
    """
    exceeded = [status for status in error.statuses if status.rejects]
    exact = max([status.retry_after_seconds for status in exceeded if status.exact], default=0.0)
    inexact = [status.retry_after_seconds for status in exceeded if not status.exact]
    return max(exact, min(_ASK_FOR_SLOTS_S, *inexact)) if inexact else error.retry_after_seconds


def primary_bucket(statuses: Sequence[LimitStatus]) -> tuple[str, str] | None:
    """Return the bucket that a rejected request has to wait for longest; None if no limit was exceeded."""
    exceeded = [status for status in statuses if status.rejects]
    if not exceeded:
        return None
    longest = max(exceeded, key=lambda status: status.retry_after_seconds)
    return longest.entity_id, longest.resource
