"""Counts what a bucket has used: the difference between two states of its totals. Pure.

The totals of a bucket change only by what was used. So the embedded tables log one change per bucket and hour, and not
every write. A bucket is *opened* by the first write of an hour: the table stores the hour and the totals before that
write. The difference is logged by the first write of another hour, by the deletion of the bucket, or on request.

Beside the totals, an opening has the most slots that were in use at a time in its hour. A write that raises this number
stores the opening again. Slots in use only become more by a take, and a take removes those whose end has passed. So the
largest sum of cohorts in an hour is the highest number in use.
"""

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

from zae_limiter.core.outcome import Item
from zae_limiter.schema import attributes, keys
from zae_limiter.schema.direct_writes import BucketMixedTake
from zae_limiter.schema.operations import Change, Key, Operation, Update
from zae_limiter.schema.prepared_takes import PreparedTake

BUCKET = keys.sk_state()
HOUR_MS = 3_600_000
HOUR_S = 3_600
RETENTION_HOURS = 90 * 24
"""Logged changes are deleted after this many hours; usage snapshots made from them expire too."""

_MARK = attributes.IN_USE_MARK
_SHAPES = 1024
_REMEMBERED = 4096


class Opened(NamedTuple):
    """The hour in which a bucket was opened, in hours since the epoch, and its item or totals at that time.

    The totals of a bucket with limits of concurrent use also have the most slots in use since then: ``~`` and the
    limit.
    """

    hour: int
    totals: Item


class Logged(NamedTuple):
    """A difference to log, its hour, and the new opening of the bucket; None if the bucket was deleted.

    ``in_use`` are the most slots in use in that hour.
    """

    hour: int
    added: dict[str, int]
    opened: Opened | None
    in_use: Mapping[str, int] = {}


def logged(opened: Opened | None, old: Item, new: Item, hour: int) -> Logged | None:
    """Return what to log for a write that replaces ``old`` by ``new``, None if there is nothing to log.

    A bucket that was never opened is opened with its current totals. What it used before is not logged.
    """
    if opened is None:
        return Logged(hour, {}, open_at(hour, old, new)) if new else None
    dropped = [name for name in old if attributes.is_total(name) and name not in new]
    if opened.hour == hour and new and not dropped:
        higher = raised(opened.totals, new, hour)
        return Logged(hour, {}, Opened(hour, {**opened.totals, **higher})) if higher else None
    # A total that was removed starts from 0 if it is added again, so the new opening must not contain it.
    kept = {name: value for name, value in old.items() if name not in dropped} if dropped else old
    amounts = added(opened.totals, old)
    return Logged(opened.hour, amounts, open_at(hour, kept, old, new) if new else None, in_use_of(opened.totals))


def open_at(hour: int, totals: Item, *states: Item) -> Opened:
    """Return an opening with these totals, and the most slots in use in any of these states of the item."""
    marks: dict[str, int] = {}
    for item in states:
        marks |= raised(marks, item, hour)
    return Opened(hour, {**totals, **marks} if marks else totals)


def raised(totals: Mapping[str, int], item: Item, hour: int) -> dict[str, int]:
    """Return the numbers of slots in use of an item that are higher than those of an opening in this hour."""
    sums: dict[str, int] = {}
    for mark, end_s, name in _cohorts(tuple(item)):
        if end_s > hour * HOUR_S and type(item[name]) is int:
            sums[mark] = sums.get(mark, 0) + item[name]
    return {mark: milli for mark, milli in sums.items() if milli > totals.get(mark, 0)}


def takes_more_slots(take: PreparedTake, totals: Mapping[str, int], new: Item) -> bool:
    """Return whether after a take more slots may be in use than ever since an opening with these totals.

    All slots that are not free count as in use. So only the free ones are looked at.
    """
    joined = take.prepared.joined
    more: bool = joined.capacity_milli - new[joined.balance] > totals.get(joined.mark, 0)
    return more


def takes_slots(operation: Operation) -> bool:
    """Return whether a write adds to cohorts, so that more slots may be in use than before."""
    kind = type(operation)
    if kind is PreparedTake or kind is BucketMixedTake:
        return True
    # Most updates have no slots, so that a parser would be too slow here.
    return kind is Update and any("_h" in name and attributes.parse_cohort_attribute(name) for name in operation.add)  # type: ignore[union-attr] # mypy does not narrow on type()


class KnownInUse:
    """The highest numbers of slots in use, as far as this process knows. Stored openings have these, or higher ones."""

    def __init__(self) -> None:
        self._known: dict[Key, tuple[int, dict[str, int]]] = {}

    def raises(self, update: Update, new: Item, hour: int) -> bool:
        """Return whether after an update more slots may be in use than ever in this hour."""
        known = self._of(update.key, hour)
        if type(update) is PreparedTake and not takes_more_slots(update, known, new):
            return False
        return takes_slots(update) and bool(raised(known, new, hour))

    def remember(self, key: Key, new: Item, hour: int) -> None:
        """Remember how many slots of a bucket are in use, which the file has now."""
        before = self._of(key, hour)
        higher = raised(before, new, hour)
        if higher:
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            self._known[key] = hour, {**before, **higher}

    def _of(self, key: Key, hour: int) -> dict[str, int]:
        known_hour, known = self._known.get(key, (hour, {}))
        return known if known_hour == hour else {}


def in_use_of(totals: Mapping[str, int]) -> dict[str, int]:
    """Return the most slots in use among the totals of an opening, by limit."""
    return {name[1:]: milli for name, milli in totals.items() if name[:1] == _MARK}


def added(before: Item, now: Item) -> dict[str, int]:
    """Return what was added to each total that has changed."""
    known = _counted(before)
    grown = {name: value - known.get(name, 0) for name, value in _counted(now).items()}
    return {name: amount for name, amount in grown.items() if amount}


def text_of(item: Item) -> str:
    """Return the totals of an item or an opening as JSON."""
    return json.dumps(_counted(item) | {name: item[name] for name in item if name[:1] == _MARK})


def logged_text(amounts: Mapping[str, int], in_use: Mapping[str, int]) -> str:
    """Return a difference to log as JSON."""
    return json.dumps({**amounts, **{_MARK + name: milli for name, milli in in_use.items()}})


def totals_of(text: str) -> Mapping[str, int]:
    """Return the totals from their JSON."""
    found: dict[str, int] = json.loads(text)
    return found


def change_of_text(sequence: int, key: Key, hour: int, text: str) -> Change:
    """Return a row of the log from its ``logged_text``."""
    found = totals_of(text)
    in_use = in_use_of(found)
    amounts = {name: amount for name, amount in found.items() if name[:1] != _MARK} if in_use else found
    return change(sequence, key, (hour, amounts), in_use)


def change(sequence: int, key: Key, amounts: tuple[int, Mapping[str, int]], in_use: Mapping[str, int]) -> Change:
    """Return a row of the log; ``amounts`` are those of an hour."""
    hour, added_in_hour = amounts
    return Change(sequence, Key(*key), hour * HOUR_MS, added_in_hour, in_use)


@lru_cache(_SHAPES)
def _cohorts(attribute_names: tuple[str, ...]) -> tuple[tuple[str, int, str], ...]:
    """Return the cohorts of an item with these attributes: the mark of the limit, the end, and the attribute."""
    parsed = [(attributes.parse_cohort_attribute(name), name) for name in attribute_names if "_h" in name]
    return tuple([(_MARK + one.limit_name, one.end_s, name) for one, name in parsed if one is not None])


def _counted(item: Item) -> dict[str, int]:
    return {name: value for name, value in item.items() if attributes.is_total(name) and type(value) is int}
