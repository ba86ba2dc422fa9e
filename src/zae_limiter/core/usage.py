"""Define usage snapshots, the time windows they cover, and sums over them."""

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import NamedTuple

from zae_limiter.core.errors import ValidationError
from zae_limiter.core.lazy_dataclass import dataclass, field
from zae_limiter.core.names import ALL_RESOURCES, check_entity_id, check_resource
from zae_limiter.core.timestamp import ms_from_iso, ms_from_time, utc_from_ms

WINDOW_TYPES = ("hourly", "daily", "monthly")
_KEY_FORMATS = {"hourly": "%Y-%m-%dT%H:00:00Z", "daily": "%Y-%m-%d", "monthly": "%Y-%m"}
_TYPES_BY_KEY_LENGTH = {len("2024-01-01T14:00:00Z"): "hourly", len("2024-01-01"): "daily", len("2024-01"): "monthly"}


class Window(NamedTuple):
    """A time window of usage; ``end`` is the first moment after it. Both ends are ISO 8601."""

    type: str
    key: str
    start: str
    end: str


@dataclass(frozen=True, slots=True)
class UsageSnapshot:
    """The tokens that one entity took from one resource in one window, by limit.

    ``window_end`` is the first moment after the window. ``highest_in_use`` is the highest number of slots in use at a
    time, for limits of concurrent use, whose counters count takes. With several shards, it is the sum of the highest
    number of each. That may be more than were in use at the same time. ``warnings`` are the highest thresholds
    (``warn_at``) that were reached in the window, of limits that have some.
    """

    entity_id: str
    resource: str
    window_start: str
    window_end: str
    window_type: str
    counters: dict[str, int]
    total_events: int
    highest_in_use: dict[str, int] = field(default_factory=dict)
    warnings: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class UsageSummary:
    """Sums and averages over snapshots, by limit.

    ``highest_in_use`` and ``warnings`` are the highest of any snapshot.
    """

    snapshot_count: int
    total: dict[str, int]
    average: dict[str, float]
    min_window_start: str | None
    max_window_start: str | None
    highest_in_use: dict[str, int] = field(default_factory=dict)
    warnings: dict[str, float] = field(default_factory=dict)


class KeyRange(NamedTuple):
    """The first and the last window key of a range, each "" if it is unbounded."""

    low: str
    high: str


@dataclass(frozen=True, slots=True)
class UsageFilter:
    """The snapshots to return, with windows that start between two times.

    They are those of an entity, a resource or both, or of the whole namespace if both are None. A
    time is ISO 8601 text or a ``datetime``; without an offset it is UTC.
    """

    entity_id: str | None = None
    resource: str | None = None
    window_type: str | None = None
    start_time: str | datetime | None = None
    end_time: str | datetime | None = None

    def __post_init__(self) -> None:
        """Check the fields.

        Raises:
            ValidationError: A field is invalid.
        """
        if self.entity_id is not None:
            check_entity_id(self.entity_id)
        if self.resource is not None:
            check_resource(self.resource, allow_all=True)
        if self.window_type is not None:
            check_window_type(self.window_type)
        for name in ("start_time", "end_time"):
            if getattr(self, name) is not None:
                ms_from_time(getattr(self, name), name)

    def admits(self, window: Window) -> bool:
        """Return whether the filter includes a window; both times are inclusive."""
        begins_ms = ms_from_iso(window.start)
        return (
            (self.window_type is None or window.type == self.window_type)
            and (self.start_time is None or begins_ms >= ms_from_time(self.start_time))
            and (self.end_time is None or begins_ms <= ms_from_time(self.end_time))
        )

    def adds_up(self, resource: str) -> bool:
        """Return whether sums over the filter include the snapshots of a resource.

        Those of ``_all_`` count the same tokens again. So they are included only if the filter names them.
        """
        return resource != ALL_RESOURCES or self.resource == ALL_RESOURCES

    @property
    def key_range(self) -> KeyRange:
        """The range of window keys that contains every window of the filter."""
        # The key of a month sorts before the keys of its days, and that of a day before those of its hours.
        low = _key_at(self.window_type or "monthly", self.start_time)
        return KeyRange(low, _key_at(self.window_type or "hourly", self.end_time))


class UsagePosition(NamedTuple):
    """The place of a snapshot in a list of usage, after which the next page begins."""

    window_key: str
    entity_id: str
    resource: str

    @property
    def next_key(self) -> dict[str, str]:
        """The position as callers get it."""
        return {"window": self.window_key, "entity_id": self.entity_id, "resource": self.resource}


def check_next_key(next_key: object, wanted: UsageFilter) -> UsagePosition:
    """Return the position of a key that an earlier page of the same query has returned.

    Raises:
        ValidationError: The value is another one.
    """
    named = dict(next_key) if isinstance(next_key, Mapping) else {}
    try:
        position = UsagePosition(named.pop("window"), named.pop("entity_id"), named.pop("resource"))
        check_entity_id(position.entity_id)
        check_resource(position.resource, allow_all=True)
    except (KeyError, ValidationError):
        position = None
    if position is None or named or not _is_place_in(position, wanted):
        raise ValidationError("next_key", next_key, "must be the key that an earlier page of the same query returned")
    return position


def _is_place_in(position: UsagePosition, wanted: UsageFilter) -> bool:
    window = window_of_key(position.window_key) if type(position.window_key) is str else None
    return (
        window is not None
        and wanted.admits(window)
        and wanted.entity_id in (None, position.entity_id)
        and wanted.resource in (None, position.resource)
    )


def check_window_type(value: object, field: str = "window_type") -> str:
    """Require a valid window type, and return it.

    Raises:
        ValidationError: The value is not a window type.
    """
    if type(value) is not str or value not in WINDOW_TYPES:
        raise ValidationError(field, value, f"must be one of {', '.join(WINDOW_TYPES)}")
    return value


def window_at(window_type: str, at_ms: int) -> Window:
    """Return the window of a type that contains a time."""
    return _window_from(window_type, utc_from_ms(at_ms))


def window_of_key(key: str) -> Window | None:
    """Return the window of a key, None if the key is invalid."""
    window_type = _TYPES_BY_KEY_LENGTH.get(len(key))
    if window_type is None:
        return None
    try:
        window = window_at(window_type, ms_from_iso(f"{key}-01" if window_type == "monthly" else key))
    except (ValidationError, OverflowError):
        return None
    return window if window.key == key else None


def window_key_before(window: Window, window_type: str) -> str:
    """Return the largest key of a type that sorts before the key of a window of another type."""
    begins_ms = ms_from_iso(window.start)
    # The key of a longer window that contains this one sorts before it. Shorter ones must begin before it.
    is_longer = WINDOW_TYPES.index(window_type) > WINDOW_TYPES.index(window.type)
    return window_at(window_type, begins_ms if is_longer else begins_ms - 1).key


class UsageTotals:
    """A running sum over snapshots, which are not kept."""

    def __init__(self) -> None:
        self._count = 0
        self._total: Counter[str] = Counter()
        self._highest: dict[str, int] = {}
        self._warnings: dict[str, float] = {}
        self._first: str | None = None
        self._last: str | None = None

    def add(self, snapshots: Iterable[UsageSnapshot]) -> None:
        """Add snapshots to the sums."""
        for snapshot in snapshots:
            start = snapshot.window_start
            self._count += 1
            self._total.update(snapshot.counters)
            for name, slots in snapshot.highest_in_use.items():
                self._highest[name] = max(slots, self._highest.get(name, 0))
            for name, threshold in snapshot.warnings.items():
                self._warnings[name] = max(threshold, self._warnings.get(name, 0.0))
            self._first = start if self._first is None else min(self._first, start)
            self._last = start if self._last is None else max(self._last, start)

    def summary(self) -> UsageSummary:
        """Return the summary so far. The average of a limit is over all snapshots, including those without it."""
        return UsageSummary(
            snapshot_count=self._count,
            total=dict(self._total),
            average={name: amount / self._count for name, amount in self._total.items()},
            min_window_start=self._first,
            max_window_start=self._last,
            highest_in_use=dict(self._highest),
            warnings=dict(self._warnings),
        )


def summarize(snapshots: Iterable[UsageSnapshot]) -> UsageSummary:
    """Return the summary of snapshots."""
    totals = UsageTotals()
    totals.add(snapshots)
    return totals.summary()


def _key_at(window_type: str, time: str | datetime | None) -> str:
    """Return the key of the window that contains a time, "" for no time or one that no window contains."""
    try:
        text = "" if time is None else utc_from_ms(ms_from_time(time)).isoformat(timespec="hours")[:13]
    except OverflowError:
        return ""
    # Not strftime(), which does not pad a year to four digits on every platform.
    keys = {"hourly": f"{text}:00:00Z", "daily": text[:10], "monthly": text[:7]}
    return keys[window_type] if text else ""


def _window_from(window_type: str, moment: datetime) -> Window:
    start = moment.replace(minute=0, second=0, microsecond=0)
    if window_type != "hourly":
        start = start.replace(hour=0)
    if window_type == "monthly":
        start = start.replace(day=1)
    end = _end_of(window_type, start)
    return Window(window_type, start.strftime(_KEY_FORMATS[window_type]), _iso(start), _iso(end))


def _end_of(window_type: str, start: datetime) -> datetime:
    if window_type == "hourly":
        return start + timedelta(hours=1)
    if window_type == "daily":
        return start + timedelta(days=1)
    return (start + timedelta(days=31)).replace(day=1)


def _iso(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
