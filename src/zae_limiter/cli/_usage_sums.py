"""Leave out of sums what is counted twice: the usage of limits across resources."""

from collections.abc import Iterable

from zae_limiter.cli._usage_options import Asked
from zae_limiter.core.names import ALL_RESOURCES
from zae_limiter.core.usage import UsageFilter, UsageSnapshot


class SummedUsage:
    """The snapshots that sums and charts include, and the limits that they lack."""

    def __init__(self, asked: Asked) -> None:
        self._wanted = UsageFilter(**asked.filters)
        self._included: set[str] = set()
        self._left_out: set[str] = set()

    def of(self, snapshots: Iterable[UsageSnapshot]) -> list[UsageSnapshot]:
        """Return the snapshots that count, without those that count the tokens of each resource again."""
        found = []
        for one in snapshots:
            if self._wanted.adds_up(one.resource):
                found.append(one)
                self._included.update(one.counters)
            else:
                self._left_out.update(one.counters)
        return found

    def note(self) -> str | None:
        """Describe the limits that only ``_all_`` has, and so the sums lack; None if there are none."""
        lacking = sorted(self._left_out - self._included)
        if not lacking:
            return None
        return (
            f"Not included: {', '.join(lacking)}, which apply across resources. Show them: --resource {ALL_RESOURCES}"
        )
