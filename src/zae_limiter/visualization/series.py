"""Turn snapshots into series: one for each limit and window type, without gaps, split by entity or resource."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache

from zae_limiter.core.calendar import CalendarSchedule, period_at
from zae_limiter.core.lazy_dataclass import dataclass, replace
from zae_limiter.core.limit import Limit
from zae_limiter.core.money import is_currency
from zae_limiter.core.timestamp import ms_from_iso
from zae_limiter.core.usage import WINDOW_TYPES, UsageSnapshot, Window, window_at
from zae_limiter.visualization.wording import amount_of, counted, limit_kind, noun_of, percent

_HOUR_MS = 3_600_000
_SHORTEST_MS = {"hourly": _HOUR_MS, "daily": 24 * _HOUR_MS, "monthly": 28 * 24 * _HOUR_MS}


LimitsInForce = Mapping[tuple[str, str], Sequence[Limit]]
"""The limits by entity id and resource; those that are missing are unknown."""

UnitsByName = Mapping[str, str]
"""The unit of each limit by its name, such as ``USD`` for ``spend``; limits without a unit are left out."""


@dataclass(frozen=True, slots=True)
class SeriesPart:
    """The usage of one entity or resource, or the sum of several; ``limit`` is None if it is unknown.

    ``highest_in_use`` is the highest number of slots in use in any window, None if the limit has no slots.
    """

    label: str
    amounts: tuple[int, ...]
    limit: Limit | None = None
    is_sum: bool = False
    highest_in_use: int | None = None

    @property
    def total(self) -> int:
        """The sum over all windows."""
        return sum(self.amounts)


@dataclass(frozen=True, slots=True)
class Series:
    """The usage of a limit, window by window; 0 in a window without usage.

    ``counted_in`` is the window type of the snapshots; ``windows`` may be longer. ``parts`` are
    sorted by size, largest first. If there are many, the last part is the sum of all others.
    ``unit`` is the unit of the amounts, None if there is none.
    """

    limit: str
    whose: str
    counted_in: str
    windows: tuple[Window, ...]
    parts: tuple[SeriesPart, ...]
    unit: str | None = None

    @property
    def window_type(self) -> str:
        """The type of its windows."""
        return self.windows[0].type

    @property
    def noun(self) -> str:
        """What the limit counts: ``requests``; its unit if that is no currency."""
        return noun_of(self.limit) if self.unit is None or is_currency(self.unit) else self.unit

    @property
    def only_limit(self) -> Limit | None:
        """The limit of the only part; None if it is unknown, or if there are several parts."""
        return self.parts[0].limit if len(self.parts) == 1 else None

    @property
    def is_soft(self) -> bool:
        """Whether the limit only counts, so that usage beyond it is not rejected."""
        limit = self.only_limit
        return limit is not None and not limit.enforce

    @property
    def window_limits(self) -> list[int | None] | None:
        """What the limit allows in each window, None where no number is true.

        None altogether if it is unknown or of slots, if there are several parts, or if no window has a number.
        """
        return self._in_windows(window_limit)

    @property
    def window_shares(self) -> list[int | None] | None:
        """What the usage of each window is a percentage of; None as for ``window_limits``."""
        return self._in_windows(window_share_of)

    def comparison(self, place: int) -> str:
        """Compare the usage of a window with the limit: ``73 % of the limit``; "" if there is nothing to compare with.

        What exceeds a soft limit is named too.
        """
        limit, amount = self.only_limit, sum(part.amounts[place] for part in self.parts)
        of = None if limit is None else window_share_of(limit, self.windows[place])
        if of is None or limit is None:
            return ""
        beyond = amount_of(amount - of, self.noun, self.unit) if self.is_soft and amount > of else None
        return f"{percent(amount, of)} of the {limit_kind(limit)}{f', {beyond} beyond it' if beyond else ''}"

    def _in_windows(self, amount_in: Callable[[Limit, Window], int | None]) -> list[int | None] | None:
        limit = self.only_limit
        amounts = [] if limit is None else [amount_in(limit, window) for window in self.windows]
        return amounts if any(amount is not None for amount in amounts) else None

    @property
    def highest_in_use(self) -> int | None:
        """The highest number of slots in use in any window and part; None if the limit has no slots."""
        return max((part.highest_in_use for part in self.parts if part.highest_in_use is not None), default=None)

    @property
    def amounts(self) -> list[int]:
        """The usage of all parts together, window by window."""
        return [sum(of_window) for of_window in zip(*(part.amounts for part in self.parts), strict=True)]

    @property
    def total(self) -> int:
        """The sum over all parts and windows."""
        return sum(part.total for part in self.parts)

    @property
    def peak(self) -> int:
        """The position of the window with the most usage, the first of several."""
        amounts = self.amounts
        return amounts.index(max(amounts))


@dataclass(frozen=True, slots=True)
class SeriesBounds:
    """The maximum number of windows and of parts of a series."""

    windows: int
    parts: int


def series_of(
    snapshots: Iterable[UsageSnapshot],
    bounds: SeriesBounds,
    limits: LimitsInForce | None = None,
    units: UnitsByName | None = None,
) -> list[Series]:
    """Return the series of every window type and limit. Types are never added up: each counts all usage."""
    by_kind: dict[str, list[UsageSnapshot]] = defaultdict(list)
    for snapshot in snapshots:
        by_kind[snapshot.window_type].append(snapshot)
    found = []
    for kind in sorted(by_kind, key=WINDOW_TYPES.index):
        windows = _windows(by_kind[kind], kind, bounds.windows)
        name = naming(by_kind[kind])
        for limit in limits_of(by_kind[kind]):
            used = _used(by_kind[kind], limit, windows[0].type, name)
            known = _limits_by_label(by_kind[kind], limit, name, limits or {})
            found_parts = _parts(used, windows, known)
            parts = _largest(_with_slots(found_parts, by_kind[kind], limit, name), bounds.parts)
            found.append(Series(limit, whose(by_kind[kind]), kind, windows, parts, (units or {}).get(limit)))
    return found


def window_limit(limit: Limit, window: Window) -> int | None:
    """Return how many tokens a limit allows in a window, beyond the burst with which it may begin.

    None for a limit of concurrent use: any number of takes may follow each other. None for a quota
    whose next period begins within the window: the window has parts of two amounts.

    A window that is shorter than the period of the limit may use the tokens of the whole period.
    """
    if limit.is_concurrent:
        return None
    begin_s, end_s = _seconds_of(window)
    if limit.schedule is not None:
        return limit.capacity if period_at(limit.schedule, begin_s)[1] >= end_s else None
    period = limit.refill_period_seconds
    return max(1, limit.refill_amount * max(end_s - begin_s, period) // period)


def window_share_of(limit: Limit, window: Window) -> int | None:
    """Return the amount that the usage of a window is a percentage of, None if there is none.

    For a quota, it is its amount if the window is one of its periods. A part of a period has no amount of its own.
    """
    if limit.schedule is None or _is_period(limit.schedule, window):
        return window_limit(limit, window)
    return None


def _is_period(schedule: CalendarSchedule, window: Window) -> bool:
    """Return whether a window is exactly one period of a schedule."""
    begin_s, end_s = _seconds_of(window)
    return period_at(schedule, begin_s) == (begin_s, end_s)


def _seconds_of(window: Window) -> tuple[int, int]:
    return ms_from_iso(window.start) // 1000, ms_from_iso(window.end) // 1000


def units_of(limits: LimitsInForce) -> UnitsByName:
    """Return the units of limits by name; a name is left out if its limits have different units."""
    found: dict[str, set[str | None]] = defaultdict(set)
    for in_force in limits.values():
        for limit in in_force:
            found[limit.name].add(limit.unit)
    return {name: unit for name, units in found.items() if len(units) == 1 and (unit := next(iter(units))) is not None}


def limits_of(snapshots: Iterable[UsageSnapshot]) -> list[str]:
    """Return the names of all limits, sorted."""
    return sorted({name for snapshot in snapshots for name in snapshot.counters})


def slots_of(snapshots: Iterable[UsageSnapshot]) -> list[str]:
    """Return the names of the limits of concurrent use, sorted."""
    return sorted({name for snapshot in snapshots for name in snapshot.highest_in_use})


def whose(snapshots: Sequence[UsageSnapshot]) -> str:
    """Describe the entities and resources, by name if there is one: ``user-1 · gpt-4``, ``12 entities · gpt-4``."""
    entities = {snapshot.entity_id for snapshot in snapshots}
    resources = {snapshot.resource for snapshot in snapshots}
    of_whom = entities.pop() if len(entities) == 1 else counted(len(entities), "entity")
    of_what = resources.pop() if len(resources) == 1 else counted(len(resources), "resource")
    return f"{of_whom} · {of_what}"


def naming(snapshots: Sequence[UsageSnapshot]) -> Callable[[UsageSnapshot], str]:
    """Return a function that labels a snapshot by what differs: the entity, the resource, or both."""
    many_entities = len({snapshot.entity_id for snapshot in snapshots}) > 1
    many_resources = len({snapshot.resource for snapshot in snapshots}) > 1
    if many_entities and many_resources:
        return lambda snapshot: f"{snapshot.entity_id} · {snapshot.resource}"
    if many_resources:
        return lambda snapshot: snapshot.resource
    return lambda snapshot: snapshot.entity_id


def _windows(snapshots: Sequence[UsageSnapshot], kind: str, most: int) -> tuple[Window, ...]:
    """Return all windows from the first to the last, of the shortest type that gives at most ``most``."""
    starts = [ms_from_iso(start) for start in {snapshot.window_start for snapshot in snapshots}]
    first_ms, last_ms = min(starts), max(starts)
    longer = WINDOW_TYPES[WINDOW_TYPES.index(kind) :]
    fitting = (one for one in longer if (last_ms - first_ms) // _SHORTEST_MS[one] < most)
    chosen = next(fitting, longer[-1])
    windows = [window_at(chosen, first_ms)]
    while (end_ms := ms_from_iso(windows[-1].end)) <= last_ms:
        windows.append(window_at(chosen, end_ms))
    return tuple(windows)


def _used(
    snapshots: Iterable[UsageSnapshot], limit: str, kind: str, name: Callable[[UsageSnapshot], str]
) -> dict[str, Counter[str]]:
    """Add up the usage of a limit, by label and window."""
    used: dict[str, Counter[str]] = defaultdict(Counter)
    for snapshot in snapshots:
        if limit in snapshot.counters:
            used[name(snapshot)][_key(kind, snapshot.window_start)] += snapshot.counters[limit]
    return used


def _limits_by_label(
    snapshots: Iterable[UsageSnapshot], limit_name: str, name: Callable[[UsageSnapshot], str], limits: LimitsInForce
) -> dict[str, Limit]:
    """Return the known limits of one name. A label is of one entity and one resource."""
    by_label = {name(one): (one.entity_id, one.resource) for one in snapshots}
    return {
        label: limit for label, use in by_label.items() for limit in limits.get(use, ()) if limit.name == limit_name
    }


# Many snapshots have the same window.
@lru_cache(maxsize=4096)
def _key(kind: str, start: str) -> str:
    """Return the key of the window of a type that contains a time."""
    return window_at(kind, ms_from_iso(start)).key


def _parts(
    used: Mapping[str, Counter[str]], windows: Sequence[Window], limits: Mapping[str, Limit]
) -> list[SeriesPart]:
    """Return the largest parts first."""
    parts = [
        SeriesPart(label, tuple(by_key[window.key] for window in windows), limits.get(label))
        for label, by_key in used.items()
    ]
    return sorted(parts, key=lambda part: (-part.total, part.label))


def _with_slots(
    parts: Sequence[SeriesPart],
    snapshots: Iterable[UsageSnapshot],
    limit: str,
    name: Callable[[UsageSnapshot], str],
) -> Sequence[SeriesPart]:
    """Return parts with the highest number of slots in use, if the limit has slots."""
    highest: dict[str, int] = {}
    for snapshot in snapshots:
        slots = snapshot.highest_in_use.get(limit)
        if slots is not None:
            highest[name(snapshot)] = max(slots, highest.get(name(snapshot), 0))
    return [replace(part, highest_in_use=highest.get(part.label)) for part in parts] if highest else parts


def _largest(parts: Sequence[SeriesPart], most: int) -> tuple[SeriesPart, ...]:
    """Return the first parts, and the sum of all others if there are too many."""
    if len(parts) <= most:
        return tuple(parts)
    shown, others = parts[: most - 1], parts[most - 1 :]
    together = tuple(sum(of_window) for of_window in zip(*(part.amounts for part in others), strict=True))
    highest = max((part.highest_in_use for part in others if part.highest_in_use is not None), default=None)
    return (*shown, SeriesPart(f"{len(others)} others", together, is_sum=True, highest_in_use=highest))
