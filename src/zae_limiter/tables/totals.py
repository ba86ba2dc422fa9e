"""What a bucket has used since it was last counted: the difference between its totals then and now. Pure.

Totals only grow and sink by what was used, so no write needs to be logged by itself: a table remembers of each bucket
the hour it was *opened* in and its totals before the first write of that hour, and logs the difference when the
bucket is *closed*, by the first write of another hour, by its end, or because somebody wants to know.
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
"""What nobody has asked for by then is forgotten; so would be what was made of it."""


class Opened(NamedTuple):
    """The hour a bucket was opened in, counted from the epoch, and the item, or its totals, as of then."""

    hour: int
    totals: Item


class Logged(NamedTuple):
    """A difference to be logged, and what the bucket is opened with after it, None if it ends."""

    hour: int
    added: dict[str, int]
    opened: Opened | None


def logged(opened: Opened | None, old: Item, new: Item, hour: int) -> Logged | None:
    """Say what a write that leaves ``new`` of ``old`` does to the log, None if it leaves it as it is.

    A bucket that was never opened is opened with what it has: what was used before was never to be known.
    """
    if opened is None:
        return Logged(hour, {}, Opened(hour, old)) if new else None
    dropped = [name for name in old if attributes.is_total(name) and name not in new]
    if opened.hour == hour and new and not dropped:
        return None
    # A total that is dropped starts from nothing should it ever come back.
    kept = {name: value for name, value in old.items() if name not in dropped} if dropped else old
    return Logged(opened.hour, added(opened.totals, old), Opened(hour, kept) if new else None)


def added(before: Item, now: Item) -> dict[str, int]:
    """What was added to each total that is not as it was."""
    known = _counted(before)
    grown = {name: value - known.get(name, 0) for name, value in _counted(now).items()}
    return {name: amount for name, amount in grown.items() if amount}


def text_of(item: Item) -> str:
    """The totals of an item, as text."""
    return json.dumps(_counted(item))


def totals_of(text: str) -> Mapping[str, int]:
    """The totals that a text holds."""
    found: dict[str, int] = json.loads(text)
    return found


def change(sequence: int, key: Key, hour: int, amounts: Mapping[str, int]) -> Change:
    """A row of the log."""
    return Change(sequence, Key(*key), hour * HOUR_MS, amounts)


def _counted(item: Item) -> dict[str, int]:
    return {name: value for name, value in item.items() if attributes.is_total(name) and type(value) is int}
