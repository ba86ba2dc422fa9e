"""Define reserves: the part of each capacity that requests of a low priority must leave to others.

A reserve is a floor in the condition of a take. So it holds for any number of processes. ``reserved_take`` decides how
a take above its floor is written.
"""

from collections.abc import Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from zae_limiter.core.bucket import LimitShare, TimeBounds
from zae_limiter.core.errors import AmountExceedsCapacityError, ValidationError
from zae_limiter.core.lazy_dataclass import dataclass
from zae_limiter.core.limit import Limit
from zae_limiter.core.names import check_whole_number
from zae_limiter.core.sharding import share

if TYPE_CHECKING:
    from zae_limiter.core.levels import LevelOfLimit

MAX_PRIORITY = 1_000


class Reserve(NamedTuple):
    """A part of each capacity, as the quotient of two whole numbers."""

    numerator: int
    denominator: int

    @property
    def fraction(self) -> float:
        """The part of each capacity."""
        return self.numerator / self.denominator


def check_priority(value: object) -> int:
    """Require a priority.

    Raises:
        ValidationError: The value is no whole number, or is out of range.
    """
    return check_whole_number("priority", value, -MAX_PRIORITY, MAX_PRIORITY)


class PriorityReserves:
    """The reserves of a limiter, by priority."""

    __slots__ = ("_by_priority",)

    def __init__(self, by_priority: tuple[tuple[int, Reserve], ...]) -> None:
        # The lowest priority first, which has the largest reserve.
        self._by_priority = by_priority

    def of(self, priority: int) -> Reserve | None:
        """Return the largest reserve of those that apply to a priority; None if none does."""
        return next((reserve for highest, reserve in self._by_priority if priority <= highest), None)


def priority_reserves(value: object) -> PriorityReserves | None:
    """Return the reserves of a limiter from the caller's dict, None if there are none.

    Raises:
        ValidationError: A priority or a fraction is invalid, or a lower priority has a smaller reserve.
    """
    if value is None:
        return None
    if not isinstance(value, Mapping):
        raise ValidationError("priority_reserve", value, "must be a dict of priorities and fractions, like {-1: 0.5}")
    found = [(check_priority(priority), _checked(priority, fraction)) for priority, fraction in value.items()]
    found.sort()
    for (lower, larger), (higher, smaller) in pairwise(found):
        if larger.fraction <= smaller.fraction:
            reason = f"must be a smaller part than that of priority {lower}, which must leave more to others"
            raise ValidationError(f"priority_reserve[{higher}]", smaller.fraction, reason)
    return PriorityReserves(tuple(found)) if found else None


def _checked(priority: object, fraction: object) -> Reserve:
    if type(fraction) is not float or not 0 < fraction < 1:
        raise ValidationError(f"priority_reserve[{priority}]", fraction, "must be a fraction between 0 and 1, like 0.5")
    # Imported here, because most limiters have no reserves.
    from decimal import Decimal

    # Exactly as it is written: 0.1 of 30 is 3, but 0.1 as a float is a little more than that.
    return Reserve(*Decimal(repr(fraction)).as_integer_ratio())


# Floors.


def floor_of(limit: Limit, reserve: Reserve | None) -> int:
    """Return the whole tokens that must remain of a limit; 0 for a soft limit, which never rejects."""
    if reserve is None or not limit.enforce:
        return 0
    return -(-limit.capacity * reserve.numerator // reserve.denominator)


def floor_milli_of(limit: Limit, reserve: Reserve, shard: int = 0, shard_count: int = 1) -> int:
    """Return the millitokens that must remain of a limit on one shard: floors are divided like capacities."""
    whole = floor_of(limit, reserve)
    if limit.hold_seconds or limit.schedule is not None:
        return share(whole, shard, shard_count) * 1000
    return share(whole * 1000, shard, shard_count)


def require_room(limit: Limit, amount: int, reserve: Reserve, field: str) -> None:
    """Require that an amount and the reserve fit into the capacity together.

    Raises:
        AmountExceedsCapacityError: The request can never be admitted. Its statuses are empty.
    """
    floor = floor_of(limit, reserve)
    if amount and floor and amount + floor > limit.capacity:
        # Imported here, because few requests are too large.
        from zae_limiter.core.money import format_with_unit

        kept, capacity = format_with_unit(floor, limit.unit), format_with_unit(limit.capacity, limit.unit)
        reason = (
            f"is too large for its priority, which must leave a reserve of {kept} of the capacity of limit "
            f"{limit.name!r} ({capacity}): it can never be admitted"
        )
        raise AmountExceedsCapacityError((), f"{field}[{limit.name}]", amount, reason)


# Levels.


@dataclass(slots=True)
class LevelAbove:
    """What one limit has above a floor, on one shard, for requests that must leave the rest."""

    level: "LevelOfLimit"
    floor_milli: int

    @property
    def name(self) -> str:
        """The limit's name."""
        return self.level.name

    @property
    def limit(self) -> Limit:
        """The limit, undivided."""
        return self.level.limit

    @property
    def is_exact(self) -> bool:
        """Whether the wait is exact if no other request takes from the limit."""
        return self.level.is_exact

    def in_use_milli(self, now: TimeBounds) -> int | None:
        """Return the slots in use now, in millislots; None for a limit of another kind."""
        return self.level.in_use_milli(now)

    def resets_s(self, now: TimeBounds) -> int | None:
        """Return when a quota is full again, in seconds since the epoch; None for a limit of another kind."""
        return self.level.resets_s(now)

    def full_ms(self) -> int:
        """Return the millisecond at which the limit is full if nothing is taken from it."""
        return self.level.full_ms()

    def available_milli(self, now: TimeBounds) -> int:
        """Return the millitokens above the floor now."""
        return self.level.available_milli(now) - self.floor_milli

    def less(self, milli: int, at: TimeBounds) -> "LevelAbove":
        """Return the limit after a take of ``milli`` millitokens."""
        return LevelAbove(self.level.less(milli, at), self.floor_milli)

    def wait_ms(self, needed_milli: int, now: TimeBounds) -> int:
        """Return the milliseconds until ``needed_milli`` are available above the floor."""
        return self.level.wait_ms(needed_milli + self.floor_milli, now) if needed_milli else 0

    def above(self, reserve: Reserve) -> "LevelOfLimit":
        """Return what is above another floor."""
        return self.level.above(reserve)


def level_above(level: "LevelOfLimit", share_of: LimitShare, reserve: Reserve) -> LevelAbove:
    """Return what one limit has above the floor of a reserve, on one shard."""
    floor_milli = floor_milli_of(share_of.limit, reserve, share_of.shard, share_of.shard_count)
    return LevelAbove(level, floor_milli)
