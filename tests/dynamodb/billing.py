"""The capacity that DynamoDB bills for a call by its published rules, from the request and the response.

Sizes of items and units of reads and writes:
https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/CapacityUnitCalculations.html

A failed condition is billed by the size of the stored item:
https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/read-write-operations.html

Neither DynamoDB nor an engine reports that capacity.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from zae_limiter.schema.operations import INDEXES
from zae_limiter.tables.dynamodb.requests import DynamoDbCall

READ_UNIT_BYTES = 4096
WRITE_UNIT_BYTES = 1024
_KEYS = ("PK", "SK")
_REFUSED = "ConditionalCheckFailedException"


@dataclass(frozen=True, slots=True)
class Units:
    """Capacity units of one call: reads and writes of the table, and writes of each index."""

    read: float = 0.0
    written: float = 0.0
    indexes: Mapping[str, float] = field(default_factory=dict)


def item_bytes(item: Mapping[str, Any]) -> int:
    """Return the size of an item in typed JSON: its names and its values."""
    return sum(len(name.encode()) + _value_bytes(value) for name, value in item.items())


def read_units(size: int, *, consistent: bool) -> float:
    """Return the units of reading an item of this size; 0 bytes if it does not exist."""
    return max(1, -(-size // READ_UNIT_BYTES)) * (1.0 if consistent else 0.5)


def write_units(size: int) -> float:
    """Return the units of writing or refusing a write to an item of this size; 0 bytes if it does not exist."""
    return float(max(1, -(-size // WRITE_UNIT_BYTES)))


def billed(call: DynamoDbCall, status: int, body: bytes) -> Units:
    """Return the units billed for a call with this response."""
    verb, asked, answer = call.target.rpartition(".")[2], json.loads(call.body), json.loads(body)
    if status != 200:
        refused = str(answer["__type"]).rpartition("#")[2] == _REFUSED
        return Units(written=write_units(item_bytes(answer.get("Item", {})))) if refused else Units()
    match verb:
        case "GetItem":
            size = item_bytes(answer.get("Item", {}))
            return Units(read=read_units(size, consistent=asked.get("ConsistentRead", False)))
        case "BatchGetItem":
            return Units(read=_batch_units(asked, answer))
        case "UpdateItem":
            # No changed attribute is in an index, so no index is written. The engine confirms it.
            return Units(written=write_units(item_bytes(answer["Attributes"])))
        case "PutItem":
            return _put_units(asked["Item"])
        case "TransactWriteItems":
            # Each item costs twice its units. The answer has no sizes; items of these tests are below 1 KB.
            return Units(written=2.0 * len(asked["TransactItems"]))
    raise AssertionError(f"no rule for {verb}")


def reported(consumed: list[dict[str, Any]], verb: str) -> Units:
    """Return the units that an engine reports for a call."""
    # ministack reports only the total of a transaction.
    table = sum(part.get("Table", part)["CapacityUnits"] for part in consumed)
    indexes = {
        name: index["CapacityUnits"]
        for part in consumed
        for name, index in (part.get("GlobalSecondaryIndexes") or {}).items()
    }
    return Units(read=table) if verb in ("GetItem", "BatchGetItem", "Query") else Units(0.0, table, indexes)


def _batch_units(asked: Mapping[str, Any], answer: Mapping[str, Any]) -> float:
    """Round up every item separately; a missing item costs as much as a small one."""
    ((table, wanted),) = asked["RequestItems"].items()
    consistent = wanted["ConsistentRead"]
    found = answer["Responses"].get(table, [])
    absent = len(wanted["Keys"]) - len(found)
    return sum(read_units(item_bytes(item), consistent=consistent) for item in [*found, *[{}] * absent])


def _put_units(item: Mapping[str, Any]) -> Units:
    """Count the write of a new item to the table, and of its keys to every index it is in."""
    indexes = {}
    for index in INDEXES:
        names = (f"{index}PK", f"{index}SK")
        if all(name in item for name in names):
            indexes[index] = write_units(item_bytes({name: item[name] for name in (*_KEYS, *names)}))
    return Units(0.0, write_units(item_bytes(item)), indexes)


def _value_bytes(value: Mapping[str, Any]) -> int:
    ((kind, content),) = value.items()
    match kind:
        case "S":
            return len(content.encode())
        case "N":
            return _number_bytes(content)
        case "BOOL" | "NULL":
            return 1
        case "L":
            return 3 + sum(1 + _value_bytes(part) for part in content)
        case "M":
            return 3 + len(content) + item_bytes(content)
    raise AssertionError(f"no rule for {kind}")


def _number_bytes(text: str) -> int:
    """Count a byte per two significant digits, one more, and one for a sign; outer zeros do not count."""
    sign, digits, _ = Decimal(text).as_tuple()
    significant = "".join(map(str, digits)).strip("0")
    return -(-len(significant) // 2) + 1 + sign
