"""Snapshots as series: one for each limit and kind of window, without gaps, split by whose usage it is."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from zae_limiter.core.timestamp import ms_from_iso
from zae_limiter.core.usage import WINDOW_TYPES, UsageSnapshot, Window, window_at
from zae_limiter.visualization.wording import counted

_HOUR_MS = 3_600_000
_SHORTEST_MS = {"hourly": _HOUR_MS, "daily": 24 * _HOUR_MS, "monthly": 28 * 24 * _HOUR_MS}


@dataclass(frozen=True, slots=True)
class SeriesPart:
    """What one of several used, window by window."""

    label: str
    amounts: tuple[int, ...]

    @property
    def total(self) -> int:
        """All of it."""
        return sum(self.amounts)


@dataclass(frozen=True, slots=True)
class Series:
    """What was used of a limit, window by window; where nothing was, it is zero.

    ``counted_in`` is the kind of window that the snapshots have, and ``windows`` may be of a longer one.
    ``parts`` are the largest first; where there are many, the last holds all others.
    """

    limit: str
    whose: str
    counted_in: str
    windows: tuple[Window, ...]
    parts: tuple[SeriesPart, ...]

    @property
    def window_type(self) -> str:
        """The kind of its windows."""
        return self.windows[0].type

    @property
    def amounts(self) -> list[int]:
        """What all parts used together, window by window."""
        return [sum(of_window) for of_window in zip(*(part.amounts for part in self.parts), strict=True)]

    @property
    def total(self) -> int:
        """All of it."""
        return sum(part.total for part in self.parts)

    @property
    def peak(self) -> int:
        """The place of the window in which most was used, the first of several."""
        amounts = self.amounts
        return amounts.index(max(amounts))


@dataclass(frozen=True, slots=True)
class SeriesBounds:
    """How many windows a series may have, and how many parts."""

    windows: int
    parts: int


def series_of(snapshots: Iterable[UsageSnapshot], bounds: SeriesBounds) -> list[Series]:
    """Return the series of every kind of window and limit; kinds are never added up, since each counts everything."""
    by_kind: dict[str, list[UsageSnapshot]] = defaultdict(list)
    for snapshot in snapshots:
        by_kind[snapshot.window_type].append(snapshot)
    found = []
    for kind in sorted(by_kind, key=WINDOW_TYPES.index):
        windows = _windows(by_kind[kind], kind, bounds.windows)
        name = naming(by_kind[kind])
        for limit in limits_of(by_kind[kind]):
            used = _used(by_kind[kind], limit, windows[0].type, name)
            found.append(Series(limit, whose(by_kind[kind]), kind, windows, _parts(used, windows, bounds.parts)))
    return found


def limits_of(snapshots: Iterable[UsageSnapshot]) -> list[str]:
    """Return the names of all limits, in order."""
    return sorted({name for snapshot in snapshots for name in snapshot.counters})


def whose(snapshots: Sequence[UsageSnapshot]) -> str:
    """Say whose usage of what it is, by name where it is one: ``user-1 · gpt-4``, ``12 entities · gpt-4``."""
    entities = {snapshot.entity_id for snapshot in snapshots}
    resources = {snapshot.resource for snapshot in snapshots}
    of_whom = entities.pop() if len(entities) == 1 else counted(len(entities), "entity")
    of_what = resources.pop() if len(resources) == 1 else counted(len(resources), "resource")
    return f"{of_whom} · {of_what}"


def naming(snapshots: Sequence[UsageSnapshot]) -> Callable[[UsageSnapshot], str]:
    """Return what names the usage of a snapshot by what differs between them: the entity, the resource, or both."""
    many_entities = len({snapshot.entity_id for snapshot in snapshots}) > 1
    many_resources = len({snapshot.resource for snapshot in snapshots}) > 1
    if many_entities and many_resources:
        return lambda snapshot: f"{snapshot.entity_id} · {snapshot.resource}"
    if many_resources:
        return lambda snapshot: snapshot.resource
    return lambda snapshot: snapshot.entity_id


def _windows(snapshots: Sequence[UsageSnapshot], kind: str, most: int) -> tuple[Window, ...]:
    """Return all windows from the first to the last, of the shortest kind of which there are not too many."""
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
    """Add up what was used of a limit, by whose it is and by window."""
    used: dict[str, Counter[str]] = defaultdict(Counter)
    for snapshot in snapshots:
        if limit in snapshot.counters:
            used[name(snapshot)][_key(kind, snapshot.window_start)] += snapshot.counters[limit]
    return used


# Many snapshots are of the same window.
@lru_cache(maxsize=4096)
def _key(kind: str, start: str) -> str:
    """The key of the window of a kind that a moment falls into."""
    return window_at(kind, ms_from_iso(start)).key


def _parts(used: Mapping[str, Counter[str]], windows: Sequence[Window], most: int) -> tuple[SeriesPart, ...]:
    """Return the largest parts, the largest first, and all others as one where there are too many."""
    parts = [SeriesPart(label, tuple(by_key[window.key] for window in windows)) for label, by_key in used.items()]
    parts.sort(key=lambda part: (-part.total, part.label))
    if len(parts) <= most:
        return tuple(parts)
    shown, others = parts[: most - 1], parts[most - 1 :]
    together = tuple(sum(of_window) for of_window in zip(*(part.amounts for part in others), strict=True))
    return (*shown, SeriesPart(f"{len(others)} others", together))
