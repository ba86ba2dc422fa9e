"""The stored content of buckets, read directly from the engine without any proxy."""

import functools
from collections import Counter
from typing import Any

from tests.dynamodb import raw
from tests.dynamodb.engines import Engine, EngineAbsentError, running
from zae_limiter.schema.bucket_item import bucket_key

RESOURCE = "api"


@functools.cache
def quick_engine() -> Engine:
    """Return the fastest engine that is installed."""
    try:
        return running("dynoxide")
    except EngineAbsentError:
        return running()


def table_url(name: str, endpoint_url: str) -> str:
    """Return the URL of a table, which is created if it does not exist."""
    return f"dynamodb://{name}?region=us-east-1&endpoint_url={endpoint_url}&create=true"


class Ledger:
    """Read the buckets of one namespace, for the resource that the tests use."""

    def __init__(self, engine_url: str, table: str, namespace_id: str) -> None:
        self._engine_url = engine_url
        self._table = table
        self._namespace_id = namespace_id

    def shards(self, entity_id: str) -> list[dict[str, int]]:
        """Return the numeric attributes of each shard of an entity's bucket; a throttle may have split it."""
        found = [self._shard(entity_id, 0)]
        while len(found) < max(numbers.get("shard_count", 1) for numbers in found):
            found.append(self._shard(entity_id, len(found)))
        return [numbers for numbers in found if numbers]

    def used(self, entity_id: str) -> dict[str, int]:
        """Return the tokens counted for each limit, over all shards; empty if there is no bucket."""
        total: Counter[str] = Counter()
        for numbers in self.shards(entity_id):
            total.update({name[2:-3]: milli for name, milli in numbers.items() if _is_use(name)})
        return {name: milli // 1000 for name, milli in total.items()}

    def remove(self, entity_id: str) -> None:
        """Delete the bucket of an entity directly."""
        key = bucket_key(self._namespace_id, entity_id, RESOURCE)
        named = {"PK": {"S": key.pk}, "SK": {"S": key.sk}}
        raw.call(self._engine_url, "DeleteItem", {"TableName": self._table, "Key": named})

    def _shard(self, entity_id: str, number: int) -> dict[str, int]:
        key = bucket_key(self._namespace_id, entity_id, RESOURCE, number)
        named = {"PK": {"S": key.pk}, "SK": {"S": key.sk}}
        asked = {"TableName": self._table, "Key": named, "ConsistentRead": True}
        answer: Any = raw.call(self._engine_url, "GetItem", asked).json
        return {name: int(value["N"]) for name, value in answer.get("Item", {}).items() if "N" in value}


def _is_use(attribute: str) -> bool:
    return attribute.startswith("b_") and attribute.endswith("_tc") and attribute != "b_wcu_tc"
