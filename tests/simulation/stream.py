"""The table's stream and the aggregator that counts it: in order, delivered at least once, in batches of any size.

The aggregator is the real one. Its plans are made and carried out in simulated time, by a process that may crash. The
position in a lane survives the crash, as in Lambda: the next process begins there, and records that were already
counted are delivered again.
"""

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple
from zlib import crc32

from tests.simulation.invariants import Violation
from tests.simulation.server import Change, Sent
from zae_limiter import RateLimiterUnavailable
from zae_limiter._async.store.scope import Nonces
from zae_limiter.core.outcome import Item
from zae_limiter.core.usage import WINDOW_TYPES, window_at
from zae_limiter.schema import keys, usage_item
from zae_limiter.schema.operations import Key
from zae_limiter_aggregator.apply import ApplyContext, Pause, Read, TableDialogue, Transaction, count, merge, split
from zae_limiter_aggregator.plan import BatchPlan, Memories, Rules, Survey, plan
from zae_limiter_aggregator.records import read_all

if TYPE_CHECKING:
    from tests.simulation.fleet import Fleet, Process

LANES = 2

_STATE = "#STATE"
_LARGEST_BATCH = 80
_REPEATED = 0.1
_LONGEST_DRAIN_S = 600.0


class Row(NamedTuple):
    """One change of a bucket, as the stream keeps it."""

    sequence: int
    at_s: int
    key: Key
    old: Item | None
    new: Item | None

    def record(self) -> dict[str, Any]:
        """Return the row as a stream record, with the attributes that the aggregator reads."""
        record: dict[str, Any] = {
            "Keys": {"PK": {"S": self.key.pk}, "SK": {"S": self.key.sk}},
            "SequenceNumber": str(self.sequence),
            "ApproximateCreationDateTime": self.at_s,
        }
        for name, item in (("OldImage", self.old), ("NewImage", self.new)):
            if item is not None:
                record[name] = {one: {"N": str(value)} for one, value in item.items() if _is_read(one)}
        return {"eventName": "MODIFY", "dynamodb": record}


class Lane:
    """A part of the stream that is processed in order; a shard in DynamoDB's terms."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.done = 0


class Stream:
    """Every change of every bucket. All changes of one item are in one lane."""

    def __init__(self) -> None:
        self.lanes = [Lane() for _ in range(LANES)]
        self._sequence = 10**20

    def watch(self, now_ms: int, changes: Sequence[Change], sent: Sent | None = None) -> None:
        """Append the changes of a step."""
        for change in changes:
            if change.key.sk == _STATE:
                self._sequence += 7
                row = Row(self._sequence, now_ms // 1000, change.key, change.old, change.new)
                self.lanes[crc32(change.key.pk.encode()) % LANES].rows.append(row)

    def expected(self) -> dict[Key, Counter[str]]:
        """Return the right content of every snapshot, in millitokens by limit; ``wcu`` is the number of writes."""
        found: dict[Key, Counter[str]] = {}
        for row in (row for lane in self.lanes for row in lane.rows if row.new is not None):
            bucket = keys.parse_bucket_pk(row.key.pk)
            assert bucket is not None, "the stream has only buckets"
            used = {
                one[2:-3]: row.new[one] - (row.old or {}).get(one, 0) for one in row.new or {} if one.endswith("_tc")
            }
            for window_type in WINDOW_TYPES:
                key = usage_item.snapshot_key(bucket, window_at(window_type, row.at_s * 1000))
                found.setdefault(key, Counter()).update(used)
        return found


class Counting:
    """The aggregator of one lane, from one crash to the next."""

    def __init__(self, fleet: "Fleet", lane: Lane) -> None:
        self._fleet = fleet
        self._lane = lane

    async def work(self, process: "Process") -> None:
        """Count until all other processes have ended and every record is counted."""
        fleet, lane, random = self._fleet, self._lane, process.random
        context = ApplyContext(Nonces(random), process.port.now)
        rules = Rules(writes_per_s=fleet.scenario.partition_writes_per_s)
        memories = Memories()
        until_s = float("inf")
        while not fleet.over or lane.done < len(lane.rows):
            if fleet.over and until_s == float("inf"):
                until_s = fleet.timeline.now_s + _LONGEST_DRAIN_S
            if fleet.timeline.now_s > until_s:
                raise Violation("usage", "not counted in time:", len(lane.rows) - lane.done, "records")
            if lane.done == len(lane.rows):
                await asyncio.sleep(0.2 + random.random())
                continue
            some = lane.rows[lane.done : lane.done + random.randint(1, _LARGEST_BATCH)]
            batch = read_all([row.record() for row in some])
            planned = plan(batch, memories, rules, process.port.now()[1])
            counted = await self._carry_out(process, planned, (memories, rules, context))
            if counted and random.random() >= _REPEATED:
                lane.done += len(some)
            else:
                fleet.tally["delivered again"] += len(some)

    async def _carry_out(
        self, process: "Process", planned: BatchPlan, by: tuple[Memories, Rules, ApplyContext]
    ) -> bool:
        """Carry out a plan. Return False if something was not counted."""
        memories, rules, context = by
        for one in planned.splits:
            self._fleet.tally["splits"] += await carry_out(process, split(one, context)) or 0
        counted = True
        for group in planned.counts:
            done = await carry_out(process, count(group, rules, context))
            counted = counted and done is not None and not done.left
        for merging in planned.merges:
            surveyed = await carry_out(process, merge(merging, rules, context))
            seen = {} if surveyed is None else surveyed.shards
            memories.surveys.keep(merging.bucket, Survey(process.port.now()[0], seen))
            self._fleet.tally["merges"] += 0 if surveyed is None else surveyed.merged
        return counted


async def carry_out(process: "Process", request: TableDialogue[Any]) -> Any:
    """Carry out a dialogue to its end. Return None if the table is unavailable."""
    port, answer = process.port, None
    try:
        while True:
            try:
                ask = request.send(answer)
            except StopIteration as end:
                return end.value
            if isinstance(ask, Read):
                answer = await port.batch_get(ask.keys, consistent=ask.consistent)
            elif isinstance(ask, Transaction):
                answer = await port.transact(ask.operations, ask.token)
            elif isinstance(ask, Pause):
                answer = await asyncio.sleep(ask.seconds)
            else:
                answer = await port.write(ask)
    except RateLimiterUnavailable:
        return None


def check_usage(stream: Stream, items: Sequence[Item]) -> None:
    """Check that every change was counted once, in every window it belongs to.

    Raises:
        Violation: A snapshot has other numbers.
    """
    expected = stream.expected()
    for item in items:
        if not item["SK"].startswith(keys.SK_USAGE_PREFIX):
            continue
        wanted = expected.pop(Key(item["PK"], item["SK"]), Counter())
        found = {name: item.get(name, 0) * 1000 + item.get(f"~{name}", 0) for name in wanted if name != "wcu"}
        found["wcu"] = item["total_events"]
        if found != {"wcu": 0, **wanted}:
            raise Violation("usage", item["PK"], item["SK"], "has", found, "instead of", dict(wanted))
    if expected:
        raise Violation("usage", "never counted:", list(expected.items())[:3])


def _is_read(attribute: str) -> bool:
    return attribute.endswith("_tc") or attribute == "shard_count"
