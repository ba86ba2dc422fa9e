"""Track which limits a bucket lacks although it had them before.

A settlement that finds a bucket without a limit drops the charge of that limit. Only a settlement that was in flight
while the limit was absent may do so.
"""

from collections.abc import Iterable


class Absences:
    """The absent limits of one bucket. A bucket that does not exist lacks no limit, because a charge creates it."""

    __slots__ = ("_absent", "_had", "_until")

    def __init__(self) -> None:
        self._had: set[str] = set()
        self._absent: set[str] = set()
        self._until: dict[str, int] = {}

    def stored(self, shards: Iterable[Iterable[str]], step: int) -> None:
        """Record the limits that each shard has from this step on; without shards the bucket does not exist."""
        each = [set(names) for names in shards]
        has = set().union(*each)
        absent = self._had - has if each else set()
        self._until.update(dict.fromkeys(self._absent - absent, step))
        self._absent = absent
        self._had |= has

    def lacked(self, name: str, since: int) -> bool:
        """Return whether the bucket existed without a limit at some time after a step."""
        return name in self._absent or self._until.get(name, -1) > since
