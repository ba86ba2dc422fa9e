"""A table in memory that answers the aggregator's requests, and the stream of writes to it."""

from collections.abc import Callable, Iterable, Mapping
from itertools import count
from typing import Any, TypeVar

from zae_limiter.core.namespace import Namespace, NamespaceStatus
from zae_limiter.core.outcome import Item
from zae_limiter.schema import namespace_item, usage_item
from zae_limiter.schema.keys import BucketKey
from zae_limiter.schema.operations import Key, Operation, Put, Query
from zae_limiter.tables.dynamodb.codec import encode_item
from zae_limiter.tables.memory import MemoryTable
from zae_limiter_aggregator.apply import (
    ApplyContext,
    Pause,
    Read,
    TableAnswer,
    TableDialogue,
    TableRequest,
    Transaction,
    drive,
)
from zae_limiter_aggregator.records import BucketChange

T = TypeVar("T")

NAMESPACE_ID = "ns000000000"
START_MS = 1_704_067_200_000
HOUR_MS = 3_600_000
BUCKETS = [BucketKey(NAMESPACE_ID, entity, "gpt-4", shard) for entity in ("user-1", "user-2") for shard in (0, 1)]


def namespace(status: NamespaceStatus = NamespaceStatus.ACTIVE, namespace_id: str = NAMESPACE_ID) -> Put:
    """Return the write that gives a namespace a status."""
    return Put(namespace_item.reverse_item(Namespace(namespace_id, "default", status, "2024-01-01T00:00:00Z")))


class SimulatedTable:
    """A table and its time. ``before`` is called with every request before it is answered."""

    def __init__(self, now_ms: int = START_MS, before: Callable[[TableRequest], None] | None = None) -> None:
        self.table = MemoryTable()
        self.table.write(namespace())
        self.now_ms = now_ms
        self.before = before
        self.asked: list[TableRequest] = []
        self.context = ApplyContext(count(1), lambda: (self.now_ms, self.now_ms))

    def answer(self, ask: TableRequest) -> TableAnswer:
        """Carry out a request and return its answer."""
        self.asked.append(ask)
        if self.before is not None:
            self.before(ask)
        match ask:
            case Read(keys, _):
                return self.table.batch_get(keys)
            case Transaction(operations, _):
                return self.table.transact(operations)
            case Pause(seconds):
                self.now_ms += int(seconds * 1000)
                return None
            case write:
                return self.table.write(write)

    def run(self, dialogue: TableDialogue[T]) -> T:
        """Run a dialogue to its end."""
        return drive(dialogue, self.answer)

    def put(self, items: Iterable[Item]) -> None:
        """Put items unchanged."""
        for item in items:
            self.table.write(Put(item))

    def buckets(self, entity_id: str = "user-1") -> dict[int, dict[str, Any]]:
        """Return the shards of a bucket by number."""
        keys = [Key(f"{NAMESPACE_ID}/BUCKET#{entity_id}#gpt-4#{shard}", "#STATE") for shard in range(64)]
        return {shard: dict(item) for shard, item in enumerate(self.table.batch_get(keys)) if item is not None}

    def usage(self) -> dict[tuple[str, str], tuple[int, int]]:
        """Return the counted ``rpm`` of every snapshot of the two entities, and the number of writes."""
        found = {}
        for entity in ("user-1", "user-2"):
            for item in self.table.query(Query(f"{NAMESPACE_ID}/ENTITY#{entity}", prefix="#USAGE#")).items:
                snapshot = usage_item.from_item(item)
                found[(entity, item["SK"])] = (snapshot.counters.get("rpm", 0), snapshot.total_events)
        return found


def change(number: int, bucket: BucketKey, hours: int, amount: int) -> BucketChange:
    """Return a change that took tokens of ``rpm`` in an hour."""
    sequence = usage_item.pad_sequence(str(number))
    return BucketChange(bucket, sequence, START_MS + hours * HOUR_MS, {"rpm": amount * 1000}, 1)


class Stream:
    """The stream records of writes to items."""

    def __init__(self) -> None:
        self.records: list[dict[str, Any]] = []

    def add(self, at_ms: int, old: Item | None, new: Item | None, **more: Any) -> dict[str, Any]:
        """Add the record of a created, changed or removed item."""
        known: Mapping[str, Any] = new or old or {}
        images = {"OldImage": old, "NewImage": new}
        data = {
            "Keys": encode_item({"PK": known["PK"], "SK": known["SK"]}),
            "SequenceNumber": str(100 + len(self.records)),
            "ApproximateCreationDateTime": at_ms / 1000,
            **{name: encode_item(image) for name, image in images.items() if image is not None},
        }
        name = "MODIFY" if old and new else "INSERT" if new else "REMOVE"
        self.records.append({"eventName": name, "dynamodb": data, **more})
        return self.records[-1]

    def write(self, simulated: SimulatedTable, operation: Operation) -> None:
        """Carry out an operation, which has to succeed, and add its record."""
        old = simulated.table.get(operation.key)
        simulated.table.transact([operation])
        self.add(simulated.now_ms, old, simulated.table.get(operation.key))
