"""All items and views of the model, each stored once under a number, and how they are made relative to the time.

Times repeat. After ``fold_ms`` all limits are at the same position in their grids. So a state in which everything is
that much later is the same state. A baseline in the distant past is moved forward, with the balances that count from
it. Totals are dropped after they were checked. Attributes that no code reads are dropped from views. Generations are
replaced by their order, and birth numbers by the order of their first occurrence.
"""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from tests.many_shards import level, offered
from tests.model.config import BASE_MS, Config
from tests.model.state import ABSENT
from zae_limiter.schema.bucket_item import BucketView, view_of
from zae_limiter.tables.evaluate import NO_ITEM

Item = dict[str, Any]
_PAST_S = BASE_MS // 1000 - 100_000
"""Represents every expiry time in the past."""

_HELD = ("rf", "gn", "cv", "ld", "shard_count")
"""The attributes that the hold requires, besides the birth number."""

Place = tuple[int, int, int]
"""A baseline, a generation and a birth number."""


class Renumbering(NamedTuple):
    """The new form of baselines, generations and birth numbers."""

    places: dict[Place, Place]
    births: dict[int, int]


class Pool:
    """The items of one exploration."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.items: list[Item] = [NO_ITEM]
        self.places: list[Place] = [(0, 0, 0)]
        self.layouts: list[tuple[Any, ...]] = [()]
        self._numbers: dict[tuple[tuple[str, Any], ...], int] = {}
        self._views: dict[tuple[int, int], BucketView] = {}
        self._seen: dict[int, int] = {ABSENT: ABSENT}
        self._trimmed: dict[tuple[int, int, bool], int] = {}
        self._counted: dict[tuple[int, int], int] = {}
        self._moved: dict[tuple[int, Place], int] = {}
        self._folds: dict[tuple[int, tuple[Place, ...], tuple[int, ...]], Renumbering | None] = {}
        # No bound of any write is this far above the capacity, however long ago it was decided.
        most = {name: max(caps) + 1_000 for name, caps in zip(config.names, config.capacities, strict=True)}
        self._brim = {name: milli + config.most_earned(name, config.deadline_ticks) for name, milli in most.items()}

    def number(self, item: Item) -> int:
        """Return the number of an item."""
        if not item:
            return ABSENT
        key = tuple(sorted(item.items()))
        found = self._numbers.get(key)
        if found is None:
            found = self._numbers[key] = len(self.items)
            self.items.append(item)
            self.places.append((item["rf"], item["gn"], item.get("bi", 0)))
            self.layouts.append((item.get("bi", 0), *(item[name] for name in _HELD)))
        return found

    def view(self, number: int, terms: int) -> BucketView | None:
        """Return the view that an actor with these limits has of an item."""
        if number == ABSENT:
            return None
        key = number, terms
        if key not in self._views:
            self._views[key] = view_of(self.items[number], BASE_MS, None, self.config.terms[terms])
        return self._views[key]

    def seen(self, number: int) -> int:
        """Return an item as a view keeps it."""
        if number not in self._seen:
            item = {name: value for name, value in self.items[number].items() if name != "ttl"}
            self._seen[number] = self.number({**item, "op": 0})
        return self._seen[number]

    def unsigned(self, number: int, nonce: int) -> int:
        """Return an item without a nonce that no client will compare any more."""
        item = self.items[number]
        return self.number({**item, "op": 0}) if item and item["op"] == nonce else number

    def stored(self, item: Item, phase: int) -> int:
        """Return the number of an item just written, without its totals unless top-ups depend on them."""
        number = self.number(item)
        return self.trimmed(number if self.config.unsure else self.counted(number, 0), phase)

    def counted(self, number: int, most: int) -> int:
        """Return an item with its totals and its write counter up to ``most`` writes, and only the counter beyond."""
        item = self.items[number]
        if not item or 0 < item["b_wcu_tc"] < most:
            return number
        key = number, most
        if key not in self._counted:
            totals = {name: 0 for name in item if name.endswith("_tc")}
            self._counted[key] = self.number({**item, **totals, "b_wcu_tc": most})
        return self._counted[key]

    def trimmed(self, number: int, phase: int, *, turned: bool = False) -> int:
        """Return an item without what no longer matters at a phase; ``turned``: times have just repeated."""
        key = number, phase, turned
        if number != ABSENT and key not in self._trimmed:
            self._trimmed[key] = self.number(self._trim(self.items[number], phase, turned))
        return self._trimmed[key] if number != ABSENT else ABSENT

    def _trim(self, item: Item, phase: int, turned: bool) -> Item:
        now_ms, back_ms = self.config.now_ms(phase), self.config.fold_ms if turned else 0
        changed: Item = {"rf": item["rf"] - back_ms}
        if "ttl" in item:
            ttl = item["ttl"] - back_ms // 1000
            changed["ttl"] = _PAST_S if ttl * 1000 < now_ms - 1000 else ttl
        item = {**item, **changed}
        for name in self.names(item):
            over = offered(item, name, now_ms) - self._brim[name]
            if over > 0:
                item[f"b_{name}_tk"] -= over
        return item

    @staticmethod
    def names(item: Item) -> list[str]:
        """Return the limits of an item."""
        return [name[2:-3] for name in item if name.startswith("b_") and name.endswith("_tk")]

    def fold(self, phase: int, numbers: Sequence[int], held: tuple[int, ...]) -> Renumbering | None:
        """Return the renumbering of a state's items, views and leases, None if nothing changes."""
        places = tuple([self.places[number] for number in numbers])
        key = phase, places, held
        if key not in self._folds:
            # Birth numbers are only compared for equality, so the order of their first occurrence is enough.
            births = dict.fromkeys([*(place[2] for place in places if place[0]), *filter(None, held)])
            names = {birth: rank for rank, birth in enumerate(births, start=1)} | {0: 0}
            renumbered = self._renumbered({place for place in places if place[0]}, names)
            changed = any(place != new for place, new in renumbered.items()) or any(a != b for a, b in names.items())
            self._folds[key] = Renumbering(renumbered, names) if changed else None
        return self._folds[key]

    def _renumbered(self, places: Iterable[Place], names: dict[int, int]) -> dict[Place, Place]:
        baselines = sorted({start for start, _, _ in places}, reverse=True)
        ranks = {generation: rank for rank, generation in enumerate(sorted({gn for _, gn, _ in places}), start=1)}
        fold_ms = self.config.fold_ms
        reach_ms = -(-(self.config.deadline_ticks + 1) * self.config.tick_ms // fold_ms) * fold_ms
        floor, renumbered = BASE_MS - reach_ms, {}
        for start in baselines:
            if start >= floor:
                renumbered[start] = start
            else:
                # Each older one gets a window of its own, so that different ones stay different.
                floor -= fold_ms
                renumbered[start] = floor + (start - floor) % fold_ms
        return {place: (renumbered[place[0]], ranks[place[1]], names[place[2]]) for place in places}

    def moved(self, number: int, renumbered: dict[Place, Place]) -> int:
        """Return an item or view with its renumbered baseline, generation and birth number."""
        place = self.places[number]
        if number == ABSENT or renumbered[place] == place:
            return number
        key = number, renumbered[place]
        if key not in self._moved:
            start, generation, birth = renumbered[place]
            item = {**self.items[number], "rf": start, "gn": generation} | ({"bi": birth} if birth else {})
            earlier, later = sorted((start, place[0]))
            sign = 1 if start > place[0] else -1
            for name in self.names(item):
                earned = offered({**item, "rf": earlier, f"b_{name}_tk": 0}, name, later)
                item[f"b_{name}_tk"] += sign * earned
            self._moved[key] = self.number(item)
        return self._moved[key]

    def level(self, number: int, name: str, phase: int) -> int:
        """Return what a shard has available; negative if it is in debt, 0 of a limit that it lacks."""
        item = self.items[number]
        return level(item, name, self.config.now_ms(phase)) if f"b_{name}_tk" in item else 0

    def offered(self, number: int, name: str, phase: int) -> int:
        """Return balance and earnings of a shard, even if that is above its share of the capacity."""
        return offered(self.items[number], name, self.config.now_ms(phase))
