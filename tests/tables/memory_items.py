"""The items that a table in memory stores, for tests to inspect."""

from operator import itemgetter
from typing import Any

from zae_limiter.tables.memory import MemoryTable


def stored(table: MemoryTable) -> dict[tuple[str, str], dict[str, Any]]:
    """Return all items by key, ordered by key, so that every process has the same order."""
    parts = (*table._idle.parts, *table._items.parts)
    return dict(sorted((one for part in parts for one in part.items()), key=itemgetter(0)))
