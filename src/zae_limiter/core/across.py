"""Several shards taken as one bucket: what they hold together, and how a request or a debt is shared out over them.

Who takes from several shards does so in one transaction; what is decided here is what of it each shard gives.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from zae_limiter.core.acquire import Standing, standings
from zae_limiter.core.bucket import Baseline, Moment
from zae_limiter.core.composite import Add, Reset, Settling, take
from zae_limiter.core.guess import Bounds, Effort
from zae_limiter.core.limit import Limit
from zae_limiter.core.view import Amounts, Terms, View

Views = Mapping[int, View[Any]]
"""Shards, by their numbers."""

_SURE = Effort(sure=True)


@dataclass(frozen=True, slots=True)
class Combined:
    """One limit of all shards of a bucket together. A shard in debt holds back no other."""

    parts: tuple[Standing, ...]

    @property
    def name(self) -> str:
        """The limit's name."""
        return self.parts[0].name

    @property
    def limit(self) -> Limit:
        """The limit, undivided."""
        return self.parts[0].limit

    def available_milli(self, now: Moment) -> int:
        """Return what is available now; below zero if all that there is are debts."""
        levels = [part.available_milli(now) for part in self.parts]
        return sum(level for level in levels if level > 0) or sum(levels)

    def wait_ms(self, needed_milli: int, now: Moment) -> int:
        """Return how long it takes until ``needed_milli`` are available."""
        if self._at(now[0]) >= needed_milli:
            return 0
        early, late = now[0], max(_full_ms(part) for part in self.parts)
        while late - early > 1:
            middle = (early + late) // 2
            early, late = (early, middle) if self._at(middle) >= needed_milli else (middle, late)
        return max(0, late - now[0])

    def _at(self, at_ms: int) -> int:
        return sum(max(0, part.available_milli((at_ms, at_ms))) for part in self.parts)


def _full_ms(part: Standing) -> int:
    """Return when a shard is full if nobody takes from it."""
    return part.baseline.ready_ms(part.balance_milli, part.baseline.capacity_milli)


def combined(views: Sequence[View[Any]], terms: Terms, now: Moment) -> list[Combined]:
    """Return how each limit in force stands, over all shards."""
    by_shard = [standings(view, terms, now) for view in views]
    return [Combined(parts) for parts in zip(*by_shard, strict=True)]


def share_out(views: Views, amounts: Amounts, now: Moment) -> dict[int, list[tuple[int, int]]] | None:
    """Return what each shard gives of a request, None if together they have too little. Few shards give much."""
    parts: dict[int, list[tuple[int, int]]] = {}
    for position, needed in amounts:
        left = needed
        for shard, level in _fullest_first(views, position, now[0]):
            given = min(left, level)
            if given > 0 or needed == 0:
                parts.setdefault(shard, []).append((position, given))
                left -= given
            if not left:
                break
        if left:
            return None
    return parts


def take_across(views: Views, amounts: Amounts, now: Moment) -> dict[int, list[Bounds]] | None:
    """Return how each shard's part of a request is written, None if together they have too little."""
    parts = share_out(views, amounts, now)
    if parts is None:
        return None
    written: dict[int, list[Bounds]] = {}
    for shard, given in parts.items():
        bounds = take(views[shard], given, now, _SURE)
        if not isinstance(bounds, list):
            return None
        written[shard] = bounds
    return written


def debit_across(views: Views, debits: Sequence[tuple[str, int]], now: Moment) -> dict[int, Settling]:
    """Return how a debt is charged to all shards: first to what they have, the rest to each by its share."""
    charged: dict[int, Settling] = {}
    for name, debt in debits:
        for shard, part in _charges(views, name, debt, now[0]):
            view = views[shard]
            position = view.frame.position(name)
            if position is not None and part:
                charged.setdefault(shard, Settling([], held=True)).parts.append(_charge(view, position, part, now[1]))
    return charged


def _charges(views: Views, name: str, debt: int, at_ms: int) -> list[tuple[int, int]]:
    """Return what of a debt each shard is charged with."""
    having = {shard: view for shard, view in views.items() if view.frame.position(name) is not None}
    levels = {shard: max(0, _level(view, name, at_ms)) for shard, view in having.items()}
    charges = {}
    left = debt
    for shard in sorted(levels, key=lambda one: -levels[one]):
        charges[shard] = min(left, levels[shard])
        left -= charges[shard]
    for number, shard in enumerate(sorted(charges)):
        # What nobody has is owed in equal parts.
        charges[shard] += left // len(charges) + (number < left % len(charges))
    return list(charges.items())


def _charge(view: View[Any], position: int, debt: int, now_ms: int) -> Add | Reset:
    baseline = view.frame.baselines[position]
    ceiling = baseline.capacity_milli - baseline.earned(now_ms)
    if view.numbers[position] <= ceiling:
        return Add(position, debt, -debt, None, ceiling)
    return Reset(position, debt, ceiling - debt, ceiling + 1)


def _fullest_first(views: Views, position: int, at_ms: int) -> list[tuple[int, int]]:
    levels = [(shard, _of(view, position).level(view.numbers[position], at_ms)) for shard, view in views.items()]
    return sorted(levels, key=lambda one: -one[1])


def _level(view: View[Any], name: str, at_ms: int) -> int:
    position = view.frame.position(name)
    assert position is not None, "only shards that have the limit are asked"
    return _of(view, position).level(view.numbers[position], at_ms)


def _of(view: View[Any], position: int) -> Baseline:
    baseline: Baseline = view.frame.baselines[position]
    return baseline
