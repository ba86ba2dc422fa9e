"""Format snapshots in rows: aligned columns for people, comma-separated values for programs."""

import csv
import io
from collections.abc import Mapping, Sequence

from zae_limiter.core.lazy_dataclass import dataclass, field
from zae_limiter.core.usage import UsageSnapshot
from zae_limiter.visualization.series import UnitsByName, limits_of, slots_of
from zae_limiter.visualization.wording import number_of, whole_number, window_name

NOTHING = "There is no usage."
"""Shown if there are no snapshots."""

_NAMED = ("window (UTC)", "entity", "resource")
_FACTS = ("entity_id", "resource", "window_type", "window_start", "window_end")


@dataclass(frozen=True, slots=True)
class Rows:
    """Titles and rows; the first ``named`` cells of a row are names, the others numbers.

    Those before ``counted`` are limits. Then follow the highest numbers of slots in use, and the writes.
    """

    titles: Sequence[str]
    cells: Sequence[Sequence[str]]
    counted: int
    named: int = len(_NAMED)


@dataclass(frozen=True, slots=True)
class TableFormatter:
    """Columns two spaces apart, one row for each snapshot, one column for each limit.

    Snapshots do not contain units: pass them as ``units``, such as ``{"spend": "USD"}``, to show money as money.
    """

    units: UnitsByName = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"TableFormatter({dict(self.units) or ''})"

    def format(self, snapshots: Sequence[UsageSnapshot]) -> str:
        """Return the table."""
        if not snapshots:
            return NOTHING
        rows = rows_of(snapshots, self.units)
        lines = [
            [title.upper() if place < rows.named else title for place, title in enumerate(rows.titles)],
            *rows.cells,
        ]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        return "\n".join(_aligned(line, widths, rows.named) for line in lines)


class CsvFormatter:
    """Comma-separated values with a header; the usage of a limit is in the column ``used_`` plus its name.

    Of limits of concurrent use, ``highest_in_use_`` plus the name has the highest number of slots in use.
    """

    def __repr__(self) -> str:
        return "CsvFormatter()"

    def format(self, snapshots: Sequence[UsageSnapshot]) -> str:
        """Return the lines; only the header if there are no snapshots."""
        limits, slots = limits_of(snapshots), slots_of(snapshots)
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        counted = [*(f"used_{name}" for name in limits), *(f"highest_in_use_{name}" for name in slots)]
        writer.writerow([*_FACTS, *counted, "total_events"])
        for one in snapshots:
            facts = [one.entity_id, one.resource, one.window_type, one.window_start, one.window_end]
            highest = (one.highest_in_use.get(name, "") for name in slots)
            writer.writerow([*facts, *(one.counters.get(name, "") for name in limits), *highest, one.total_events])
        return text.getvalue().removesuffix("\n")


def rows_of(snapshots: Sequence[UsageSnapshot], units: UnitsByName | None = None) -> Rows:
    """Return snapshots as rows of text; a missing limit is a dash. ``units`` are those of limits by name."""
    limits, slots, units = limits_of(snapshots), slots_of(snapshots), units or {}
    named = [f"{name} ({units[name]})" if name in units else name for name in limits]
    titles = [*_NAMED, *named, *(f"{name} highest in use" for name in slots), "writes"]
    shown = {name: units.get(name) for name in limits}
    cells = [_row(snapshot, shown, slots) for snapshot in snapshots]
    return Rows(titles, cells, len(_NAMED) + len(limits))


def _row(snapshot: UsageSnapshot, limits: Mapping[str, str | None], slots: Sequence[str]) -> list[str]:
    counters, highest = snapshot.counters, snapshot.highest_in_use
    used = [number_of(counters[name], unit) if name in counters else "-" for name, unit in limits.items()]
    used += [whole_number(highest[name]) if name in highest else "-" for name in slots]
    named = [window_name(snapshot.window_type, snapshot.window_start), snapshot.entity_id, snapshot.resource]
    return [*named, *used, whole_number(snapshot.total_events)]


def _aligned(cells: Sequence[str], widths: Sequence[int], named: int) -> str:
    padded = [
        cell.ljust(width) if place < named else cell.rjust(width)
        for place, (cell, width) in enumerate(zip(cells, widths, strict=True))
    ]
    return "  ".join(padded).rstrip()
