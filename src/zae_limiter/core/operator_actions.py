"""Decide what an operator does to the balances of a bucket, on all of its shards: reset them, or credit what was spent.

A reset makes limits full. It is a grant: it raises a balance by what the limit lacks, debts included. A credit gives
back at most what was spent, and so never raises a balance above full. Slots are left alone, because leases hold them.
"""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from zae_limiter.core import quota
from zae_limiter.core.add_or_set import Add
from zae_limiter.core.bucket import TimeBounds
from zae_limiter.core.calendar import CalendarSchedule, period_at
from zae_limiter.core.errors import ValidationError
from zae_limiter.core.lazy_dataclass import dataclass
from zae_limiter.core.limit import Limit
from zae_limiter.core.names import MAX_AMOUNT, check_limit_name, check_text, check_whole_number
from zae_limiter.core.tracked import proven, quota_view
from zae_limiter.core.view import View

if TYPE_CHECKING:
    from zae_limiter.core.multi_shard import Views

_LONGEST_KEY = 128
"""A sort key of DynamoDB has at most 1,024 bytes, and a character up to four."""


class IdempotencyKeyReusedError(ValidationError):
    """An idempotency key belongs to an earlier credit, of another resource or of other amounts."""


class Filled(NamedTuple):
    """How a reset fills one limit: the balance to set, and the lowest one that it may replace; None is no bound."""

    position: int
    balance: int
    low: int | None


@dataclass(frozen=True, slots=True)
class OperatorCredit:
    """What an operator gives back: the amount of each limit, and how each shard is written."""

    given: dict[str, int]
    parts: dict[int, list[Add]]


class GivenCredit(NamedTuple):
    """A credit as its record keeps it: what the operator asked for, and what was given."""

    resource: str
    amounts: Mapping[str, int]
    given: Mapping[str, int]


# Resets.


def reset(views: "Views", now: TimeBounds) -> dict[int, list[Filled]]:
    """Return how each shard of a bucket is filled; a shard that has only slots is left out.

    Dormant limits are filled too. Otherwise a limit that is removed and added again after the reset would have the
    level from before it.
    """
    filled: dict[int, list[Filled]] = {}
    for shard, view in views.items():
        shared = view.layout.shared
        for position in range(len(shared.shares)):
            if position not in shared.slots and position not in shared.quotas:
                filled.setdefault(shard, []).append(_full_rate(view, position, now[1]))
    for shard, part in _full_quotas(views, now[0] // 1000):
        filled.setdefault(shard, []).append(part)
    return filled


def _full_rate(view: View[Any], position: int, late_ms: int) -> Filled:
    # Full at the latest time: at an earlier one, what the limit has earned since would be above its capacity.
    return Filled(position, _ceiling(view, position, late_ms), None)


def _full_quotas(views: "Views", low_s: int) -> Iterator[tuple[int, Filled]]:
    """Yield how the quotas of each shard are filled: in one new epoch on all shards with the same schedule."""
    groups: dict[tuple[str, CalendarSchedule], list[tuple[int, int]]] = {}
    for shard, view in views.items():
        for position in view.layout.shared.quotas:
            limit = view.layout.shared.shares[position].limit
            groups.setdefault((limit.name, limit.schedule), []).append((shard, position))
    for (_, schedule), places in groups.items():
        numbers = [views[shard].numbers[position] for shard, position in places]
        capacities = [views[shard].layout.shared.shares[position].capacity_milli for shard, position in places]
        seen = [
            quota.view_at(number, capacity // 1000, schedule, low_s, numbers)
            for number, capacity in zip(numbers, capacities, strict=True)
        ]
        writes = quota.reset(seen, low_s, period_at(schedule, quota.known_s(low_s, numbers)))
        for (shard, position), write in zip(places, writes, strict=True):
            yield shard, Filled(position, write.qk, write.low)


# Credits.


def operator_credit(views: "Views", amounts: Mapping[str, int], now: TimeBounds) -> OperatorCredit:
    """Return how amounts are given back: to the emptiest shards first, and at most what was spent.

    What was spent of a rate limit is what it lacks to be full. Of a quota, it is what was spent in its current epoch.
    """
    given: dict[str, int] = {}
    parts: dict[int, list[Add]] = {}
    now = proven(views.values(), now)
    for name, amount in amounts.items():
        rooms = dict(_rooms(views, name, now))
        left = min(amount * 1000, sum(rooms.values()) // 1000 * 1000)
        given[name] = left // 1000
        for shard in sorted(rooms, key=lambda one: -rooms[one]):
            milli = min(left, rooms[shard])
            if milli:
                parts.setdefault(shard, []).append(_credit(views[shard], name, milli, now))
                left -= milli
    return OperatorCredit(given, parts)


def _rooms(views: "Views", name: str, now: TimeBounds) -> Iterator[tuple[int, int]]:
    """Yield what may be given back to each shard that has a limit, in thousandths."""
    for shard, view in views.items():
        position = view.layout.position(name)
        if position is None:
            continue
        if position in view.layout.shared.quotas:
            seen = quota_view(view, position, now[0] // 1000)
            # A saturated quota has lost count.
            yield shard, seen.spent * 1000 if seen.spent < quota.MOST_SPENT else 0
        else:
            yield shard, max(0, _ceiling(view, position, now[1]) - view.numbers[position])


def _credit(view: View[Any], name: str, milli: int, now: TimeBounds) -> Add:
    position = view.layout.position(name)
    assert position is not None, "a limit that the shard lacks has no room"
    if position in view.layout.shared.quotas:
        write = quota.credit(quota.epoch_of(view.numbers[position]), milli // 1000)
        return Add(position, -milli, write.change, write.low, write.high)
    return Add(position, -milli, milli, None, _ceiling(view, position, now[1]) - milli)


def _ceiling(view: View[Any], position: int, late_ms: int) -> int:
    """Return the balance with which a rate limit is exactly full at the latest possible time."""
    baseline = view.layout.baseline(position)
    ceiling: int = baseline.capacity_milli - baseline.earned(late_ms)
    return ceiling


# Arguments.


def check_credit(amounts: object, idempotency_key: object) -> dict[str, int]:
    """Return a copy of the amounts of a credit, and require that they and the key are valid.

    Raises:
        ValidationError: An amount is not at least 1, there is none, or the key is empty or too long.
    """
    if not isinstance(amounts, Mapping) or not amounts:
        raise ValidationError("amounts", amounts, "must be a dict with at least one limit and its amount")
    for name, amount in amounts.items():
        check_limit_name(name, "limit name")
        check_whole_number(f"amounts[{name}]", amount, 1, MAX_AMOUNT)
    check_text("idempotency_key", idempotency_key, _LONGEST_KEY)
    if not idempotency_key:
        raise ValidationError("idempotency_key", idempotency_key, "must not be empty")
    return dict(amounts)


def check_credited(limits: Mapping[str, Limit], amounts: Mapping[str, int]) -> None:
    """Require that limits in force can be credited.

    Raises:
        ValidationError: A limit is not in force, or is a limit of concurrent use.
    """
    for name, amount in amounts.items():
        limit = limits.get(name)
        if limit is None:
            known = ", ".join(sorted(limits)) or "none"
            raise ValidationError(f"amounts[{name}]", amount, f"is not a limit in force; these are: {known}")
        if limit.hold_seconds:
            reason = "is a limit of concurrent use: its leases return its slots, or their hold ends"
            raise ValidationError(f"amounts[{name}]", amount, reason)


def repeated(record: GivenCredit, resource: str, amounts: Mapping[str, int], idempotency_key: str) -> dict[str, int]:
    """Return what an earlier credit with the same key has given.

    Raises:
        IdempotencyKeyReusedError: It was a credit of another resource or of other amounts.
    """
    if (record.resource, dict(record.amounts)) != (resource, dict(amounts)):
        before = ", ".join(f"{name} {amount}" for name, amount in sorted(record.amounts.items()))
        reason = f"was used for another credit, of {before} for {record.resource}: choose another key"
        raise IdempotencyKeyReusedError("idempotency_key", idempotency_key, reason)
    return dict(record.given)
