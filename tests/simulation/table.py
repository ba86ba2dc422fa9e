"""A simulated DynamoDB table behind the table port: random latency, and partitions that throttle.

Items are kept by the embedded table in memory, so an operation does what ``tables.evaluate`` says. A call travels for a
while, acts at one moment, and its answer travels back. A partition (one PK) accepts a limited number of write units per
second and answers ``Throttled`` beyond. A refused write costs as much as a successful one, and a transaction twice as
much. ``tally`` counts.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import TypeVar

from tests.tables.memory_items import stored
from zae_limiter.clock import Clock
from zae_limiter.core.bucket import TimeBounds
from zae_limiter.core.errors import RateLimiterUnavailable
from zae_limiter.core.outcome import Applied, Item, Refused, Throttled, TransactOutcome, WriteOutcome
from zae_limiter.core.status import BackendCapabilities
from zae_limiter.schema.operations import INDEXES, Key, Operation, Page, Put, Query, Write
from zae_limiter.tables.memory import MemoryTable

T = TypeVar("T")

Costs = Sequence[tuple[str, float]]
"""Partitions, and the units that are requested of each."""

_READ_UNITS = 0.5
_READ_PAUSE_S = 0.02
_READ_DEADLINE_S = 1.0


@dataclass(frozen=True, slots=True)
class Partitions:
    """The capacity of a partition, and the latency of a call.

    ``burst_s``: an idle partition accepts this many seconds of its rate at the same time. ``overdraws``: a call is
    admitted while one unit is left, whatever its cost. DynamoDB does not document whether it does that. If it does not,
    a full partition may keep out what costs more than one unit, such as a split.
    """

    writes_per_s: int = 1_000
    reads_per_s: int = 3_000
    burst_s: float = 0.1
    least_latency_s: float = 0.002
    mean_extra_s: float = 0.003
    overdraws: bool = False


@dataclass(slots=True)
class Tally:
    """Counts so far: single writes by their outcome, transactions, reads, and the units that DynamoDB would bill.

    A throttled call is not billed.
    """

    writes: int = 0
    throttled: int = 0
    refused: int = 0
    transactions: int = 0
    transactions_throttled: int = 0
    reads: int = 0
    reads_throttled: int = 0
    write_units: float = 0.0
    read_units: float = 0.0


@dataclass(slots=True)
class Allowance:
    """Units that refill with time, up to a burst."""

    per_s: int
    most: float
    left: float
    at_s: float

    def lets_in(self, now_s: float, units: float) -> bool:
        self.left = min(self.most, self.left + (now_s - self.at_s) * self.per_s)
        self.at_s = now_s
        return self.left >= units


@dataclass(slots=True)
class Units:
    """The allowances of all partitions, of one kind."""

    per_s: int
    burst_s: float
    overdraws: bool
    of: dict[str, Allowance] = field(default_factory=dict)

    def spend(self, costs: Costs, now_s: float) -> bool:
        """Spend units of several partitions. Return False, and spend none, if one lacks them."""
        most = max(1.0, self.per_s * self.burst_s)
        spent = []
        for pk, units in costs:
            allowance = self.of.setdefault(pk, Allowance(self.per_s, most, most, now_s))
            if not allowance.lets_in(now_s, 1 if self.overdraws else units):
                return False
            spent.append((allowance, units))
        for allowance, units in spent:
            allowance.left -= units
        return True


class SimulatedTable:
    """One table for all clients of a simulated fleet. Deadlines are the callers': no call takes long here."""

    inline = False
    index_lag_s = 0.0
    server_time = None
    log = None
    together = None

    def __init__(self, clock: Clock, random: Random, partitions: Partitions) -> None:
        self.capabilities = BackendCapabilities(partition_writes_per_second=partitions.writes_per_s)
        self.tally = Tally()
        self.spurious_throttles = 0.0
        self.on_change: Callable[[Key, Item | None, Item | None], None] | None = None
        self._clock = clock
        self._random = random
        self._partitions = partitions
        self._items = MemoryTable()
        self._writes = Units(partitions.writes_per_s, partitions.burst_s, partitions.overdraws)
        self._reads = Units(partitions.reads_per_s, partitions.burst_s, partitions.overdraws)

    def now(self) -> TimeBounds:
        """The simulated time, known exactly."""
        now_ms = self._clock.now_ms()
        return now_ms, now_ms

    def items(self) -> list[Item]:
        """Return every stored item, for tests; this takes no simulated time."""
        return list(stored(self._items).values())

    async def get(self, key: Key, *, consistent: bool = False, until_s: float | None = None) -> Item | None:
        (item,) = await self.batch_get([key], consistent=consistent)
        return item

    async def batch_get(
        self, keys: Sequence[Key], *, consistent: bool = False, until_s: float | None = None
    ) -> list[Item | None]:
        costs = [(key.pk, _READ_UNITS * (2 if consistent else 1)) for key in keys]
        return await self._read(costs, lambda: self._items.batch_get(keys), until_s)

    async def query(self, query: Query) -> Page:
        return await self._read([(query.pk, _READ_UNITS)], lambda: self._items.query(query), None)

    async def write(self, operation: Write, until_s: float | None = None) -> WriteOutcome:
        def carry_out() -> WriteOutcome:
            self.tally.writes += 1
            if self.spurious_throttles and self._random.random() < self.spurious_throttles:
                self.tally.throttled += 1
                return Throttled()
            if not self._writes.spend([(operation.key.pk, 1)], self._clock.monotonic_s()):
                self.tally.throttled += 1
                return Throttled(partition=True)
            outcome = self._changing([operation], lambda: self._items.write(operation))
            self.tally.refused += isinstance(outcome, Refused)
            self.tally.write_units += 1 + (_index_entries(operation) if isinstance(outcome, Applied) else 0)
            return outcome

        return await self._carry(carry_out)

    async def transact(
        self, operations: Sequence[Operation], token: str, *, until_s: float | None = None
    ) -> TransactOutcome:
        def carry_out() -> TransactOutcome:
            self.tally.transactions += 1
            costs = [(operation.key.pk, 2.0) for operation in operations]
            if not self._writes.spend(costs, self._clock.monotonic_s()):
                self.tally.transactions_throttled += 1
                return Throttled()
            self.tally.write_units += sum(
                units + _index_entries(one) for (_, units), one in zip(costs, operations, strict=True)
            )
            return self._changing(operations, lambda: self._items.transact(operations))

        return await self._carry(carry_out)

    async def batch_delete(self, keys: Sequence[Key]) -> None:
        await self._carry(lambda: self._items.batch_delete(keys))

    async def close(self) -> None:
        self._items.close()

    def _changing(self, operations: Sequence[Operation], act: Callable[[], T]) -> T:
        """Carry out operations, and report the items that they change, before and after."""
        if self.on_change is None:
            return act()
        keys = [operation.key for operation in operations]
        before = [dict(item) if item is not None else None for item in self._items.batch_get(keys)]
        outcome = act()
        for key, old, new in zip(keys, before, self._items.batch_get(keys), strict=True):
            if old != new:
                self.on_change(key, old, new)
        return outcome

    async def _carry(self, act: Callable[[], T]) -> T:
        """Let a request travel, act, and let its answer travel back."""
        chosen = self._partitions
        await asyncio.sleep(self._half_way(chosen))
        answer = act()
        await asyncio.sleep(self._half_way(chosen))
        return answer

    def _half_way(self, chosen: Partitions) -> float:
        return (chosen.least_latency_s + self._random.expovariate(1) * chosen.mean_extra_s) / 2

    async def _read(self, costs: Costs, read: Callable[[], T], until_s: float | None) -> T:
        """Read, and retry while the partition throttles, as every DynamoDB client does."""
        until_s = self._clock.monotonic_s() + _READ_DEADLINE_S if until_s is None else until_s

        def act() -> list[T]:
            self.tally.reads += 1
            allowed = self._reads.spend(costs, self._clock.monotonic_s())
            self.tally.reads_throttled += not allowed
            self.tally.read_units += sum(units for _, units in costs) if allowed else 0
            return [read()] if allowed else []

        while not (found := await self._carry(act)):
            if self._clock.monotonic_s() >= until_s:
                raise RateLimiterUnavailable(TimeoutError("the partition throttled every read"))
            await asyncio.sleep(_READ_PAUSE_S * self._random.random())
        return found[0]


def _index_entries(operation: Operation) -> int:
    """Return the units of the index entries that a put creates; other writes of buckets change none."""
    return sum(f"{index}PK" in operation.item for index in INDEXES) if isinstance(operation, Put) else 0
