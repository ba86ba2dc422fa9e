"""Measure writes per acquire near the full level, with clients that estimate whether a bucket is full.

    python bench/full_mark.py [--clients 1 8 64] [--seconds 10]

Time is simulated. Every client has its own view of one bucket with two limits, on one table in
memory, and takes at random times. A load of 1 is all that the first limit offers; the second offers
twice what is requested. Goal: 1.0 writes for a single client. With 8 clients, a mean of at most
1.15 over the loads and never above 1.3. No request that could have been served is rejected.
"""

import argparse
import heapq
from dataclasses import dataclass, field
from random import Random

from zae_limiter import Limit, RateLimitExceeded, SyncRateLimiter, SyncRepository
from zae_limiter._sync.embedded_table import EmbeddedTable
from zae_limiter._sync.store.namespaces import NamespaceStore
from zae_limiter._sync.store.scope import Client, nonces
from zae_limiter.core.outcome import Applied
from zae_limiter.core.settings import Settings
from zae_limiter.runtime.threads import Parallel
from zae_limiter.tables.memory import MemoryTable

LOADS = (0.02, 0.1, 0.3, 0.5, 0.7, 0.9, 0.95, 1.0, 1.05, 1.2)
RATE_PER_S = 500
MEAN_SIZE = 300
LIMITS = [Limit.per_second("rps", RATE_PER_S), Limit.per_second("tps", RATE_PER_S * MEAN_SIZE * 2)]


class SimulatedClock:
    """A clock whose time is set."""

    def __init__(self) -> None:
        self.time_ms = 1_700_000_000_000.0

    def now_ms(self) -> int:
        """Return the time that was set."""
        return int(self.time_ms)

    def monotonic_s(self) -> float:
        """Return the time that was set."""
        return self.time_ms / 1000


class CountingTable:
    """A table that counts its reads and writes."""

    def __init__(self, table) -> None:
        self._table = table
        self.reads = self.writes = self.refused = 0

    def __getattr__(self, name):
        return getattr(self._table, name)

    def get(self, key, *, consistent=False, until_s=None):
        """Count a read."""
        self.reads += 1
        return self._table.get(key, consistent=consistent)

    def write(self, operation, until_s=None):
        """Count a write."""
        outcome = self._table.write(operation, until_s)
        self.writes += 1
        self.refused += not isinstance(outcome, Applied)
        return outcome


@dataclass
class Tally:
    """The results of a run."""

    admitted: int = 0
    rejected: int = 0
    rejected_falsely: int = 0
    tables: list[CountingTable] = field(default_factory=list)

    def per_acquire(self, what: str) -> float:
        """Return reads, writes or refused writes per admitted request."""
        return sum(getattr(table, what) for table in self.tables) / max(1, self.admitted)


def open_clients(
    count: int, clock: SimulatedClock, random: Random
) -> tuple[list[SyncRateLimiter], list[CountingTable]]:
    """Return limiters that share only the table."""
    memory, limiters, tables = MemoryTable(), [], []
    settings = Settings(config_cache_ttl_ms=10**9)
    for _ in range(count):
        table = CountingTable(EmbeddedTable(memory, clock, 1.0, random.random))
        client = Client(table, clock, random, settings, Parallel("serial"), "memory://", nonces(random))
        namespace = NamespaceStore(client).register("default")
        repository = SyncRepository(client.scope("default", namespace.id), owns_table=False)
        if not limiters:
            repository.set_system_defaults(LIMITS)
        limiters.append(SyncRateLimiter(repository))
        tables.append(table)
    for limiter, table in zip(limiters, tables, strict=True):
        with limiter.acquire("user", "api", {"rps": 1, "tps": 1}):
            pass
        table.reads = table.writes = table.refused = 0
    return limiters, tables


def run(count: int, load: float, seconds: float) -> Tally:
    """Let clients take at random times."""
    random, clock = Random(1), SimulatedClock()
    limiters, tables = open_clients(count, clock, random)
    pace = load * RATE_PER_S / count / 1000
    end = clock.time_ms + seconds * 1000
    moments = [(clock.time_ms + random.expovariate(pace), client) for client in range(count)]
    heapq.heapify(moments)
    tally = Tally(tables=tables)
    while moments[0][0] < end:
        clock.time_ms, client = moments[0]
        heapq.heapreplace(moments, (clock.time_ms + random.expovariate(pace), client))
        request = {"rps": 1, "tps": random.randint(1, 2 * MEAN_SIZE)}
        try:
            with limiters[client].acquire("user", "api", request):
                tally.admitted += 1
        except RateLimitExceeded:
            tally.rejected += 1
            reads = tables[0].reads
            left = limiters[0].available("user", "api")
            tables[0].reads = reads
            tally.rejected_falsely += all(left[name] >= amount for name, amount in request.items())
    return tally


def main() -> None:
    """Print a table for every number of clients."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 8, 64], help="numbers of clients (1 8 64)")
    parser.add_argument("--seconds", type=float, default=10, help="simulated seconds per run (10)")
    chosen = parser.parse_args()
    for count in chosen.clients:
        print(f"{count} clients\n  load  admitted  rejected  falsely  writes/acquire  reads/acquire")
        writes = []
        for load in LOADS:
            tally = run(count, load, chosen.seconds)
            writes.append(tally.per_acquire("writes"))
            print(
                f"  {load:4.2f}  {tally.admitted:8,}  {tally.rejected:8,}  {tally.rejected_falsely:7,}"
                f"  {writes[-1]:14.3f}  {tally.per_acquire('reads'):13.3f}"
            )
        print(f"  mean {sum(writes) / len(writes):.3f}, most {max(writes):.3f}\n")


if __name__ == "__main__":
    main()
