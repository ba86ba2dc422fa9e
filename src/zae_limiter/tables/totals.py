"""Counts what a bucket has used: the difference between two states of its totals. Pure.

The totals of a bucket change only by what was used. So the embedded tables log one change per bucket and hour, and not
every write. A bucket is *opened* by the first write of an hour: the table stores the hour and the totals before that
write. The difference is logged by the first write of another hour, by the deletion of the bucket, or on request.
"""

import json
from collections.abc import Mapping
from typing import NamedTuple

from zae_limiter.core.outcome import Item
from zae_limiter.schema import attributes, keys
from zae_limiter.schema.operations import Change, Key

BUCKET = keys.sk_state()
HOUR_MS = 3_600_000
RETENTION_HOURS = 90 * 24
"""Logged changes are deleted after this many hours; usage snapshots made from them expire too."""


class Opened(NamedTuple):
    """The hour in which a bucket was opened, in hours since the epoch, and its item or totals at that time."""

    hour: int
    totals: Item


class Logged(NamedTuple):
    """A difference to log, its hour, and the new opening of the bucket; None if the bucket was deleted."""

    hour: int
    added: dict[str, int]
    opened: Opened | None


def logged(opened: Opened | None, old: Item, new: Item, hour: int) -> Logged | None:
    """Return what to log for a write that replaces ``old`` by ``new``, None if there is nothing to log.

    A bucket that was never opened is opened with its current totals. What it used before is not logged.
    """
    if opened is None:
        return Logged(hour, {}, Opened(hour, old)) if new else None
    dropped = [name for name in old if attributes.is_total(name) and name not in new]
    if opened.hour == hour and new and not dropped:
        return None
    # A total that was removed starts from 0 if it is added again, so the new opening must not contain it.
    kept = {name: value for name, value in old.items() if name not in dropped} if dropped else old
    return Logged(opened.hour, added(opened.totals, old), Opened(hour, kept) if new else None)


def added(before: Item, now: Item) -> dict[str, int]:
    """Return what was added to each total that has changed."""
    known = _counted(before)
    grown = {name: value - known.get(name, 0) for name, value in _counted(now).items()}
    return {name: amount for name, amount in grown.items() if amount}


def text_of(item: Item) -> str:
    """Return the totals of an item as JSON."""
    return json.dumps(_counted(item))


def totals_of(text: str) -> Mapping[str, int]:
    """Return the totals from their JSON."""
    found: dict[str, int] = json.loads(text)
    return found


def change(sequence: int, key: Key, hour: int, amounts: Mapping[str, int]) -> Change:
    """Return a row of the log."""
    return Change(sequence, Key(*key), hour * HOUR_MS, amounts)


def _counted(item: Item) -> dict[str, int]:
    return {name: value for name, value in item.items() if attributes.is_total(name) and type(value) is int}
