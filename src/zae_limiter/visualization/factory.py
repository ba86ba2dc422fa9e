"""Choose a formatter, which turns usage snapshots into text, and use it."""

from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Protocol, assert_never, runtime_checkable

from zae_limiter.core.errors import ValidationError
from zae_limiter.core.usage import UsageSnapshot
from zae_limiter.visualization.table import CsvFormatter, TableFormatter


class UsageFormatter(StrEnum):
    """The formatters of this package, by name."""

    TABLE = "table"
    PLOT = "plot"
    CSV = "csv"
    HTML = "html"


@runtime_checkable
class SnapshotFormatter(Protocol):
    """The interface of a formatter. Implement this one method to write your own."""

    def format(self, snapshots: Sequence[UsageSnapshot]) -> str:
        """Return the text, without a final line break."""
        ...


def make_formatter(formatter: UsageFormatter | SnapshotFormatter | str) -> SnapshotFormatter:
    """Return a formatter with its default options for a name, or the formatter itself.

    Raises:
        ValidationError: The value is neither the name of a formatter nor a formatter.
    """
    # Names first: a text has a method `format` too, so the protocol accepts it.
    if isinstance(formatter, str):
        return _named(formatter)
    if isinstance(formatter, type) or not isinstance(formatter, SnapshotFormatter):
        raise ValidationError("formatter", formatter, f"must be {_CHOICES}")
    return formatter


def format_usage_snapshots(
    snapshots: Iterable[UsageSnapshot], formatter: UsageFormatter | SnapshotFormatter | str = UsageFormatter.TABLE
) -> str:
    """Format snapshots as text. A formatter is given by its name, or as an object with options.

    Raises:
        ValidationError: The formatter is neither the name of one nor an object that formats.
        MissingExtraError: The formatter needs a package that is not installed.

    Example:
        ```python
        hours, _ = repo.get_usage_snapshots("user-1", window_type="hourly")
        print(format_usage_snapshots(hours, UsageFormatter.CSV))
        print(format_usage_snapshots(hours, PlotFormatter(width=100)))
        ```
    """
    return make_formatter(formatter).format(list(snapshots))


_CHOICES = f"one of {', '.join(UsageFormatter)}, or an object with a method format(snapshots)"


def _named(name: str) -> SnapshotFormatter:
    if name not in set(UsageFormatter):
        raise ValidationError("formatter", name, f"must be {_CHOICES}")
    # Imported here, so that a table does not load charts and pages.
    from zae_limiter.visualization.page import HtmlFormatter
    from zae_limiter.visualization.plot import PlotFormatter

    match UsageFormatter(name):
        case UsageFormatter.TABLE:
            return TableFormatter()
        case UsageFormatter.PLOT:
            return PlotFormatter()
        case UsageFormatter.CSV:
            return CsvFormatter()
        case UsageFormatter.HTML:
            return HtmlFormatter()
        case never:
            assert_never(never)
