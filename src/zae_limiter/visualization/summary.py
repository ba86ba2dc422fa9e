"""Add up snapshots, for people and for programs. Window types are kept apart: each counts all usage."""

import csv
import io
from collections.abc import Sequence

from zae_limiter.core.lazy_dataclass import dataclass, field
from zae_limiter.core.money import is_currency
from zae_limiter.core.usage import WINDOW_TYPES, UsageSnapshot, UsageSummary, summarize
from zae_limiter.visualization.series import UnitsByName
from zae_limiter.visualization.wording import counted, number_of, rounded, whole_number, window_name

_FACTS = ("limit", "total", "average", "window_type", "snapshot_count", "min_window_start", "max_window_start")


@dataclass(frozen=True, slots=True)
class Sums:
    """The sums over all windows of one type; there is at least one. ``units`` are those of limits by name."""

    window_type: str
    summary: UsageSummary
    units: UnitsByName = field(default_factory=dict)

    @property
    def titles(self) -> list[str]:
        """The titles of the rows; the last one only if a limit has slots."""
        return ["limit", "total", "mean", *(["highest in use"] if self.summary.highest_in_use else [])]

    @property
    def rows(self) -> list[tuple[str, ...]]:
        """Each limit with its total and mean, and with the highest number of slots in use, formatted."""
        total, average, highest = self.summary.total, self.summary.average, self.summary.highest_in_use
        rows: list[tuple[str, ...]] = []
        for name in sorted(total):
            slots = [whole_number(highest[name]) if name in highest else "-"] if highest else []
            unit = self.units.get(name)
            mean = number_of(rounded(average[name], unit), unit) if is_currency(unit) else f"{average[name]:,.1f}"
            rows.append((name, number_of(total[name], unit), mean, *slots))
        return rows

    @property
    def of_what(self) -> str:
        """The scope of the sums: ``Of 2 daily snapshots, 2026-01-12 to 2026-01-13 UTC.``."""
        ends = (self.summary.min_window_start, self.summary.max_window_start)
        first, last = (window_name(self.window_type, str(start)) for start in ends)
        span = first if first == last else f"{first} to {last}"
        return f"Of {counted(self.summary.snapshot_count, f'{self.window_type} snapshot')}, {span} UTC."


def sums_of(snapshots: Sequence[UsageSnapshot], units: UnitsByName | None = None) -> list[Sums]:
    """Add up snapshots, by window type. ``units`` are those of limits by name."""
    by_kind = {kind: [one for one in snapshots if one.window_type == kind] for kind in WINDOW_TYPES}
    return [Sums(kind, summarize(found), units or {}) for kind, found in by_kind.items() if found]


def sums_as_csv(snapshots: Sequence[UsageSnapshot]) -> str:
    """Return comma-separated values, one row per limit; only the header if there are no snapshots."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    all_sums = sums_of(snapshots)
    has_slots = any(sums.summary.highest_in_use for sums in all_sums)
    writer.writerow([*_FACTS, *(["highest_in_use"] if has_slots else [])])
    for sums in all_sums:
        summary = sums.summary
        of_what = [sums.window_type, summary.snapshot_count, summary.min_window_start, summary.max_window_start]
        for name in sorted(summary.total):
            highest = [summary.highest_in_use.get(name, "")] if has_slots else []
            writer.writerow([name, summary.total[name], summary.average[name], *of_what, *highest])
    return text.getvalue().removesuffix("\n")
