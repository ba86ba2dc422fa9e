"""How snapshots of usage become text: the form that every formatter has, and the way to use one."""

from collections.abc import Iterable, Sequence
from typing import Protocol, runtime_checkable

from zae_limiter.core.usage import UsageSnapshot
from zae_limiter.visualization.table import TableFormatter


@runtime_checkable
class UsageFormatter(Protocol):
    """Whatever makes text of snapshots; write your own by giving it this one method."""

    def format(self, snapshots: Sequence[UsageSnapshot]) -> str:
        """Return the text, without a line break at its end."""
        ...


def format_usage_snapshots(snapshots: Iterable[UsageSnapshot], formatter: UsageFormatter | None = None) -> str:
    """Write snapshots as text, as a table unless another formatter is given.

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
