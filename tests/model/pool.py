"""Every item and view of the model, each kept once under a number, and how they are told relative to the time.

Times fold: after ``fold_ms`` all limits are at the same place in their grids again, so a state in which everything is
that much later is the same state. A baseline long past is moved forward, with the balances counted from it. Totals
are left out once they were checked, what no reader of a view looks at is left out of views, generations are told by
their order, and birth numbers by where they occur first.
"""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from tests.many_shards import level, offered
from tests.model.configs import BASE_MS, Config
from tests.model.state import ABSENT
from zae_limiter.schema.bucket_item import BucketView, view_of
from zae_limiter.tables.evaluate import NO_ITEM

Item = dict[str, Any]
_PAST_S = BASE_MS // 1000 - 100_000
"""Stands for every time of expiry that is past."""

_HELD = ("rf", "gn", "cv", "ld", "shard_count")
"""What a write holds on to, beside the birth number."""

Place = tuple[int, int, int]
"""A baseline, a generation and a birth number."""


class Told(NamedTuple):
    """How places are told now, and birth numbers."""

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
        self._folds: dict[tuple[int, tuple[Place, ...], tuple[int, ...]], Told | None] = {}
        # No bound of any write reaches this far above the capacity, however long ago it was decided.
        most = {name: max(caps) + 1_000 for name, caps in zip(config.names, config.capacities, strict=True)}
        self._brim = {name: milli + config.most_earned(name, config.deadline_ticks) for name, milli in most.items()}

    def number(self, item: Item) -> int:
        """The number of an item."""
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
        """What an actor that goes by these terms makes of an item it saw."""
        if number == ABSENT:
            return None
        key = number, terms
        if key not in self._views:
            self._views[key] = view_of(self.items[number], BASE_MS, None, self.config.terms[terms])
        return self._views[key]

    def seen(self, number: int) -> int:
        """An item as it is remembered by who saw it."""
        if number not in self._seen:
            item = {name: value for name, value in self.items[number].items() if name != "ttl"}
            self._seen[number] = self.number({**item, "op": 0})
        return self._seen[number]

    def unsigned(self, number: int, nonce: int) -> int:
        """An item without a nonce that nobody will ask for any more."""
        item = self.items[number]
        return self.number({**item, "op": 0}) if item and item["op"] == nonce else number

    def stored(self, item: Item, phase: int) -> int:
        """The number of an item just written, without its totals unless top-ups depend on them."""
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
        """An item without what makes no difference any more at a phase; ``turned``: times have just folded."""
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
        """The limits of an item."""
        return [name[2:-3] for name in item if name.startswith("b_") and name.endswith("_tk")]

    def fold(self, phase: int, numbers: Sequence[int], held: tuple[int, ...]) -> Told | None:
        """How items and views of a state are told, and the birth numbers that leases have; None if as they are."""
        places = tuple([self.places[number] for number in numbers])
        key = phase, places, held
        if key not in self._folds:
            # Birth numbers only compare equal or not: they are told by where they occur first.
            births = dict.fromkeys([*(place[2] for place in places if place[0]), *filter(None, held)])
            names = {birth: rank for rank, birth in enumerate(births, start=1)} | {0: 0}
            told = self._told({place for place in places if place[0]}, names)
            changed = any(place != new for place, new in told.items()) or any(a != b for a, b in names.items())
            self._folds[key] = Told(told, names) if changed else None
        return self._folds[key]

    def _told(self, places: Iterable[Place], names: dict[int, int]) -> dict[Place, Place]:
        baselines = sorted({start for start, _, _ in places}, reverse=True)
        ranks = {generation: rank for rank, generation in enumerate(sorted({gn for _, gn, _ in places}), start=1)}
        fold_ms = self.config.fold_ms
        reach_ms = -(-(self.config.deadline_ticks + 1) * self.config.tick_ms // fold_ms) * fold_ms
        floor, told = BASE_MS - reach_ms, {}
        for start in baselines:
            if start >= floor:
                told[start] = start
            else:
                # Each older one goes to a window of its own, so that no two that differ become the same.
                floor -= fold_ms
                told[start] = floor + (start - floor) % fold_ms
        return {place: (told[place[0]], ranks[place[1]], names[place[2]]) for place in places}

    def moved(self, number: int, told: dict[Place, Place]) -> int:
        """An item or view on the baseline, generation and birth number as they are told now."""
        place = self.places[number]
        if number == ABSENT or told[place] == place:
            return number
        key = number, told[place]
        if key not in self._moved:
            start, generation, birth = told[place]
            item = {**self.items[number], "rf": start, "gn": generation} | ({"bi": birth} if birth else {})
            earlier, later = sorted((start, place[0]))
            sign = 1 if start > place[0] else -1
            for name in self.names(item):
                earned = offered({**item, "rf": earlier, f"b_{name}_tk": 0}, name, later)
                item[f"b_{name}_tk"] += sign * earned
            self._moved[key] = self.number(item)
        return self._moved[key]

    def level(self, number: int, name: str, phase: int) -> int:
        """What a shard has available, below zero what it owes; nothing of a limit it lacks."""
        item = self.items[number]
        return level(item, name, self.config.now_ms(phase)) if f"b_{name}_tk" in item else 0

    def offered(self, number: int, name: str, phase: int) -> int:
        """Balance and earnings of a shard, whether or not its share of the capacity holds them."""
        return offered(self.items[number], name, self.config.now_ms(phase))
