"""What the table itself says of its buckets: asked of the engine, past every proxy."""

import functools
from typing import Any

from tests.dynamodb import raw
from tests.dynamodb.engines import Engine, EngineAbsentError, running


@functools.cache
def quick_engine() -> Engine:
    """The engine that answers soonest of those that are installed here."""
    try:
        return running("dynoxide")
    except EngineAbsentError:
        return running()


def table_url(name: str, endpoint_url: str) -> str:
    """The URL of a table, which is made where there is none."""
    return f"dynamodb://{name}?region=us-east-1&endpoint_url={endpoint_url}&create=true"


class Ledger:
    """Reads the buckets of one table."""

    def __init__(self, engine_url: str, table: str) -> None:
        self._engine_url = engine_url
        self._table = table

    def bucket(self, entity_id: str) -> dict[str, int]:
        """The numbers of an entity's only bucket, by attribute; empty if there is none."""
        found = [item for item in self._items() if f"BUCKET#{entity_id}#" in item["PK"]["S"]]
        assert len(found) <= 1
        return {name: int(value["N"]) for item in found for name, value in item.items() if "N" in value}

    def used(self, entity_id: str) -> dict[str, int]:
        """What the bucket has counted of each limit, in tokens; empty if there is none."""
        numbers = self.bucket(entity_id)
        named = {name[2:-3]: milli for name, milli in numbers.items() if name.startswith("b_") and name.endswith("_tc")}
        return {name: milli // 1000 for name, milli in named.items() if name != "wcu"}

    def _items(self) -> list[dict[str, Any]]:
        asked = {"TableName": self._table, "ConsistentRead": True}
        answer: Any = raw.call(self._engine_url, "Scan", asked).json
        assert "LastEvaluatedKey" not in answer
        return list(answer["Items"])
