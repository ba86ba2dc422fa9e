"""Define usage snapshots, the time windows they cover, and sums over them."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple

from zae_limiter.core.errors import ValidationError
from zae_limiter.core.names import check_entity_id, check_resource
from zae_limiter.core.timestamp import ms_from_iso, utc_from_ms

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

    ``window_end`` is the first moment after the window.
    """

    entity_id: str
    resource: str
    window_start: str
    window_end: str
    window_type: str
    counters: dict[str, int]
    total_events: int


@dataclass(frozen=True, slots=True)
class UsageSummary:
    """Sums and averages over snapshots, by limit."""

    snapshot_count: int
    total: dict[str, int]
    average: dict[str, float]
    min_window_start: str | None
    max_window_start: str | None


@dataclass(frozen=True, slots=True)
class UsageFilter:
    """The snapshots to return: of an entity, a resource or both, with windows that start between two times."""

    entity_id: str | None = None
    resource: str | None = None
    window_type: str | None = None
    start_time: str | None = None
    end_time: str | None = None

    def __post_init__(self) -> None:
        """Check the fields.

        Raises:
            ValidationError: Neither entity nor resource is given, or a field is invalid.
        """
        if self.entity_id is None and self.resource is None:
            raise ValidationError("entity_id", None, "pass an entity, a resource, or both")
        if self.entity_id is not None:
            check_entity_id(self.entity_id)
        if self.resource is not None:
            check_resource(self.resource)
        if self.window_type is not None:
            check_window_type(self.window_type)
        for field in ("start_time", "end_time"):
            if getattr(self, field) is not None:
                ms_from_iso(getattr(self, field), field)

    def admits(self, window: Window) -> bool:
        """Return whether the filter includes a window; both times are inclusive."""
        begins_ms = ms_from_iso(window.start)
        return (
            (self.window_type is None or window.type == self.window_type)
            and (self.start_time is None or begins_ms >= ms_from_iso(self.start_time))
            and (self.end_time is None or begins_ms <= ms_from_iso(self.end_time))
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


class UsageTotals:
    """A running sum over snapshots, which are not kept."""

    def __init__(self) -> None:
        self._count = 0
        self._total: Counter[str] = Counter()
        self._first: str | None = None
        self._last: str | None = None

    def add(self, snapshots: Iterable[UsageSnapshot]) -> None:
        """Add snapshots to the sums."""
        for snapshot in snapshots:
            start = snapshot.window_start
            self._count += 1
            self._total.update(snapshot.counters)
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
        )


def summarize(snapshots: Iterable[UsageSnapshot]) -> UsageSummary:
    """Return the summary of snapshots."""
    totals = UsageTotals()
    totals.add(snapshots)
    return totals.summary()


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
