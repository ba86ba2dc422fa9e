"""Define the interface of formatters, which turn usage snapshots into text, and a function that uses one."""

from collections.abc import Iterable, Sequence
from typing import Protocol, runtime_checkable

from zae_limiter.core.usage import UsageSnapshot
from zae_limiter.visualization.table import TableFormatter


@runtime_checkable
class UsageFormatter(Protocol):
    """The interface of a formatter. Implement this one method to write your own."""

    def format(self, snapshots: Sequence[UsageSnapshot]) -> str:
        """Return the text, without a final line break."""
        ...


def format_usage_snapshots(snapshots: Iterable[UsageSnapshot], formatter: UsageFormatter | None = None) -> str:
    """Format snapshots as text, as a table unless another formatter is given.

    Raises:
        MissingExtraError: The formatter needs a package that is not installed.

    Example:
        ```python
        hours, _ = repo.get_usage_snapshots("user-1", window_type="hourly")
        print(format_usage_snapshots(hours, PlotFormatter(width=100)))
        ```
    """
    chosen = TableFormatter() if formatter is None else formatter
    return chosen.format(list(snapshots))
