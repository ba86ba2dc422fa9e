"""What a table in memory stores, for tests to look at."""

from operator import itemgetter
from typing import Any

from zae_limiter.tables.memory import MemoryTable


def stored(table: MemoryTable) -> dict[tuple[str, str], dict[str, Any]]:
    """Return all items by key, in the order of their keys, which is the same in every process."""
    parts = (*table._idle.parts, *table._items.parts)
    return dict(sorted((one for part in parts for one in part.items()), key=itemgetter(0)))
