"""Rank entities or resources by what they have used of a limit."""

from collections import Counter
from collections.abc import Iterable
from typing import Literal, NamedTuple

from zae_limiter.core.usage import UsageSnapshot

RankedBy = Literal["entity", "resource"]
"""What is ranked."""


class Ranked(NamedTuple):
    """An entity or a resource, what it has used of a limit, and its share of the total, from 0 to 1."""

    name: str
    amount: int
    share: float


class LimitRanking(NamedTuple):
    """The usage of a limit: the total of all, and the names with the largest amounts."""

    limit_name: str
    total: int
    top: list[Ranked]


class UsageRanking:
    """A running sum over snapshots by limit and name; the snapshots are not kept."""

    def __init__(self, by: RankedBy) -> None:
        self._by = by
        self._amounts: dict[str, Counter[str]] = {}

    def add(self, snapshots: Iterable[UsageSnapshot]) -> None:
        """Add snapshots to the sums."""
        for snapshot in snapshots:
            name = snapshot.entity_id if self._by == "entity" else snapshot.resource
            for limit_name, amount in snapshot.counters.items():
                self._amounts.setdefault(limit_name, Counter())[name] += amount

    def of(self, limit_name: str | None, top: int) -> list[LimitRanking]:
        """Return the rankings so far: of one limit, or of all if the name is None, sorted by the name of the limit.

        Each has at most ``top`` names. Names with the same amount are in alphabetical order.
        """
        wanted = sorted(self._amounts) if limit_name is None else [limit_name]
        return [self._ranking(name, top) for name in wanted if name in self._amounts]

    def _ranking(self, limit_name: str, top: int) -> LimitRanking:
        amounts = self._amounts[limit_name]
        total = sum(amounts.values())
        largest = sorted(amounts.items(), key=lambda one: (-one[1], one[0]))[:top]
        # A window has a negative amount if more was credited than taken. Then there may be no shares.
        shares = [(name, amount, amount / total if total > 0 else 0.0) for name, amount in largest]
        return LimitRanking(limit_name, total, [Ranked(*one) for one in shares])
