"""Decide which thresholds of a limit were reached, and describe each as a warning.

A decision needs the newest state of a bucket, and what was warned of before (*marks*). It does not need the state in
between. So a change that is seen again, late or twice leads to the same decision. A level that moves up and down around
a threshold is one warning per period of a quota. For other limits it is one per time that the limit takes to fill.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from zae_limiter.core.calendar import period_at
from zae_limiter.core.lazy_dataclass import dataclass
from zae_limiter.core.limit import Limit
from zae_limiter.core.money import format_amount, format_with_unit
from zae_limiter.core.quota import BAND, epoch_of
from zae_limiter.core.slots import MixedView
from zae_limiter.core.timestamp import iso_from_ms, utc_from_ms
from zae_limiter.core.view import View

LEAST_QUIET_MS = 60_000
"""A limit that fills in less than this many milliseconds still warns at most once in this time."""


class WarningMark(NamedTuple):
    """When a threshold was last reached: the epoch of a quota, 0 for other limits, and the time."""

    period: int
    at_ms: int


MarkKey = tuple[str, int]
"""The name of a limit, and a threshold in thousandths of its capacity."""

Marks = Mapping[MarkKey, WarningMark]


class LimitUse(NamedTuple):
    """What was used of one limit at a time, in thousandths; ``period`` is the epoch of a quota, 0 for other limits."""

    limit: Limit
    used_milli: int
    period: int
    at_ms: int

    @property
    def used(self) -> int:
        """What was used, in whole tokens, slots or units, rounded up."""
        return -(-self.used_milli // 1000)


class Crossing(NamedTuple):
    """A threshold in thousandths that was reached, and the use that reached it."""

    use: LimitUse
    part: int

    @property
    def key(self) -> MarkKey:
        """What the crossing is marked as."""
        return self.use.limit.name, self.part

    @property
    def mark(self) -> WarningMark:
        """The mark of the crossing."""
        return WarningMark(self.use.period, self.use.at_ms)


@dataclass(frozen=True, slots=True)
class LimitWarning:
    """A limit whose use has reached one of its thresholds.

    Attributes:
        namespace: The name of the namespace.
        entity_id: The entity of the bucket.
        resource: The resource of the bucket.
        limit: The limit.
        threshold: The part of the capacity that was reached, such as 0.8.
        used: What was used: tokens, slots in use, or the amount spent in the period.
        at_ms: When this was seen, in milliseconds since the epoch.
        period: The start and the end of a quota's period in seconds since the epoch, None for other limits.
    """

    namespace: str
    entity_id: str
    resource: str
    limit: Limit
    threshold: float
    used: int
    at_ms: int
    period: tuple[int, int] | None = None

    @property
    def text(self) -> str:
        """The warning as a sentence or two, with the unit of the limit."""
        limit = self.limit
        verb = "is using" if limit.is_concurrent else "has used"
        amounts = f"{format_amount(self.used, limit.unit)} of {format_with_unit(limit.capacity, limit.unit)}"
        amounts = amounts if limit.unit else f"{amounts} {'slots' if limit.is_concurrent else 'tokens'}"
        told = f"{self.entity_id} {verb} {amounts} of limit {limit.name} for {self.resource}."
        told = f"{told} The warning is set at {_percent(self.threshold)} %."
        if self.period is None:
            return told
        return f"{told} The limit resets at {utc_from_ms(self.period[1] * 1000):%Y-%m-%d %H:%M} UTC."

    def as_dict(self) -> dict[str, Any]:
        """Return all data of the warning, ready for JSON."""
        limit = self.limit
        data: dict[str, Any] = {
            "namespace": self.namespace,
            "entity_id": self.entity_id,
            "resource": self.resource,
            "limit_name": limit.name,
            "kind": limit.kind,
            "enforce": limit.enforce,
            "threshold": self.threshold,
            "used": self.used,
            "capacity": limit.capacity,
            "unit": limit.unit,
            "at": iso_from_ms(self.at_ms),
            "message": self.text,
        }
        if self.period is not None:
            begin_s, end_s = self.period
            data |= {"period_start": iso_from_ms(begin_s * 1000), "period_end": iso_from_ms(end_s * 1000)}
        return data


def uses_of(view: View[Any], at_ms: int, level_ms: int | None = None) -> list[LimitUse]:
    """Return what is used of the limits of one shard that have thresholds.

    ``level_ms`` is the latest time that it may be, if the time is not exact. A level that has refilled until then is
    never too low, so that no warning comes too early.
    """
    layout, level_ms = view.layout, at_ms if level_ms is None else level_ms
    found = []
    for position in layout.shared.warned:
        share = layout.shared.shares[position]
        period = 0
        if share.limit.schedule is not None:
            # The number proves its epoch, so that a change of the last period is charged to it, however late it is.
            period = epoch_of(view.numbers[position])
            used_milli = (-BAND * period - view.numbers[position]) * 1000
        elif share.limit.hold_seconds:
            cohorts = view.cohorts[position] if isinstance(view, MixedView) else ()
            used_milli = sum(milli for end_s, milli in cohorts if end_s * 1000 > level_ms)
        else:
            used_milli = share.capacity_milli - view.level(position, level_ms)
        found.append(LimitUse(share.limit, used_milli, period, at_ms))
    return found


def total_uses(changed: Mapping[int, Sequence[LimitUse]], stored: Mapping[int, Sequence[LimitUse]]) -> list[LimitUse]:
    """Return what is used of each limit by all shards of a bucket, in the periods of the changes.

    ``changed`` are the uses of changes by shard, in order, and ``stored`` those of all shards as they are now. A shard
    may have begun a new period since its change.
    """
    found: dict[tuple[str, int], dict[int, LimitUse]] = {}
    for shard in stored:
        for use in changed.get(shard, ()):
            found.setdefault(_group(use, found), {})[shard] = use
    for shard, uses in stored.items():
        for use in uses:
            group = _group(use, found)
            if group in found:
                found[group][shard] = use
    totals = []
    for _, parts in sorted(found.items(), key=lambda one: one[0]):
        newest = max(parts.values(), key=lambda use: (use.period, use.at_ms))
        totals.append(newest._replace(used_milli=sum(use.used_milli for use in parts.values())))
    return totals


def crossings(uses: Iterable[LimitUse], marks: Marks) -> list[Crossing]:
    """Return the thresholds that were reached and are not marked, each once; ``uses`` are in the order of time."""
    known = dict(marks)
    found = []
    for use in uses:
        for part in parts_of(use.limit):
            if use.used * 1000 < part * use.limit.capacity:
                break
            crossing = Crossing(use, part)
            if not is_marked(use, known.get(crossing.key)):
                known[crossing.key] = crossing.mark
                found.append(crossing)
    return found


def is_all_marked(uses: Iterable[LimitUse], marks: Marks) -> bool:
    """Return whether every threshold of these limits is marked, so that no use can reach another one now."""
    return all(is_marked(use, marks.get((use.limit.name, part))) for use in uses for part in parts_of(use.limit))


def is_marked(use: LimitUse, mark: WarningMark | None) -> bool:
    """Return whether a mark covers a use: no other warning may be sent for it."""
    if mark is None:
        return False
    if use.limit.schedule is not None:
        return mark.period >= use.period or _same_period(use.period, use._replace(period=mark.period))
    return use.at_ms < mark.at_ms + quiet_ms(use.limit)


def quiet_ms(limit: Limit) -> int:
    """Return how many milliseconds after a warning a limit sends no other one for the same threshold.

    It does not apply to quotas, which warn once per period.
    """
    return max(limit.fill_time_ms, LEAST_QUIET_MS)


def quiet_until_ms(use: LimitUse) -> int:
    """Return when the mark of a use is not needed any more."""
    schedule = use.limit.schedule
    if schedule is None:
        return use.at_ms + quiet_ms(use.limit)
    # The next edge may be dated a little later by other time zone data.
    return (period_at(schedule, use.period // 2)[1] + schedule.tolerance // 2) * 1000


def parts_of(limit: Limit) -> list[int]:
    """Return the thresholds of a limit, in thousandths and in rising order."""
    return [round(part * 1000) for part in limit.warn_at]


def warning_of(crossing: Crossing, namespace: str, entity_id: str, resource: str) -> LimitWarning:
    """Return the warning about a threshold that was reached."""
    use = crossing.use
    schedule = use.limit.schedule
    period = None if schedule is None else (use.period // 2, period_at(schedule, use.period // 2)[1])
    return LimitWarning(namespace, entity_id, resource, use.limit, crossing.part / 1000, use.used, use.at_ms, period)


def _same_period(epoch: int, other: LimitUse) -> bool:
    """Return whether two epochs are one edge, which clients with other time zone data compute differently."""
    if epoch == other.period or other.limit.schedule is None:
        return True
    is_edge = not epoch % 2 and not other.period % 2
    return is_edge and abs(epoch - other.period) < other.limit.schedule.tolerance


def _group(use: LimitUse, known: Iterable[tuple[str, int]]) -> tuple[str, int]:
    """Return the limit and the period of a use, as a known one if it is the same."""
    same = (one for one in known if one[0] == use.limit.name and _same_period(one[1], use))
    return next(same, (use.limit.name, use.period))


def _percent(part: float) -> str:
    return f"{part * 100:.1f}".removesuffix(".0")
