"""Measure what group commit saves for concurrent acquires of one bucket, and of many children of one parent.

    .venv/bin/python bench/group.py [--calls 4096]

The table is in memory with 5 ms of simulated latency, and 1 to 256 acquires run at the same time.
The output is writes per acquire, acquires per CPU second, and the duration of an acquire. Then the
DynamoDB transport is measured against a canned responder.
"""

import argparse
import asyncio
import os
import statistics
import time
from dataclasses import dataclass, replace

import canned
import responder

from zae_limiter import Limit, RateLimiter, Repository

LATENCY_S = 0.005
AT_ONCE = (1, 4, 16, 64, 256)
WIDEST = 256
CONSUME = {"rpm": 1, "tpm": 500}


class FarTable:
    """A table with 5 ms latency per call, which counts its writes by bucket."""

    inline = False

    def __init__(self, table):
        self._table = table
        self.writes = {}

    def __getattr__(self, name):
        return getattr(self._table, name)

    async def get(self, key, **options):
        await asyncio.sleep(LATENCY_S)
        return await self._table.get(key, **options)

    async def batch_get(self, keys, **options):
        await asyncio.sleep(LATENCY_S)
        return await self._table.batch_get(keys, **options)

    async def write(self, operation, until_s=None):
        self.writes[operation.key.pk] = self.writes.get(operation.key.pk, 0) + 1
        await asyncio.sleep(LATENCY_S)
        return await self._table.write(operation, until_s)


@dataclass
class Figures:
    """The results of a run."""

    per_cpu_s: float
    writes: float
    p50_ms: float


async def far_limiter(repository: Repository, *, together: bool) -> tuple[RateLimiter, FarTable]:
    client = repository.scope.client
    table = FarTable(client.table)
    other = replace(client, table=table, caches={}, settings=replace(client.settings, deadline_s=10.0))
    scope = other.scope(repository.scope.namespace, repository.scope.namespace_id)
    return RateLimiter(Repository(scope, owns_table=False), group_commit=together), table


async def run(limiter: RateLimiter, entities: list[str], calls: int) -> tuple[float, list[float]]:
    """Let one task per entity acquire repeatedly; return CPU seconds and the duration of each acquire in ms."""
    took_ms: list[float] = []

    async def worker(entity: str, count: int) -> None:
        for _ in range(count):
            began_s = time.perf_counter()
            async with limiter.acquire(entity, canned.RESOURCE, CONSUME):
                took_ms.append((time.perf_counter() - began_s) * 1_000)

    await asyncio.gather(*(worker(entity, 2) for entity in entities))
    took_ms.clear()
    began_s = time.process_time()
    await asyncio.gather(*(worker(entity, calls // len(entities)) for entity in entities))
    return time.process_time() - began_s, took_ms


async def on_memory(width: int, calls: int, *, together: bool, children: bool) -> Figures:
    async with await Repository.open("memory://") as repository:
        await repository.set_system_defaults([Limit.per_minute("rpm", 10**9), Limit.per_minute("tpm", 10**12)])
        entities = ["user-1"] * width
        if children:
            await repository.create_entity("user-1")
            entities = [f"child-{number}" for number in range(width)]
            for entity in entities:
                await repository.create_entity(entity, parent_id="user-1", cascade=True)
        limiter, table = await far_limiter(repository, together=together)
        before = dict(table.writes)
        cpu_s, took_ms = await run(limiter, entities, calls)
        shared = sum(count - before.get(pk, 0) for pk, count in table.writes.items() if "#user-1#" in pk)
        made = len(took_ms) + 2 * width
        return Figures(len(took_ms) / cpu_s, shared / made, statistics.median(took_ms))


async def through_transport(url: str, calls: int, *, together: bool) -> Figures:
    async with await Repository.open(canned.location(url), deadline_s=10.0) as repository:
        limiter = RateLimiter(repository, group_commit=together)
        before = responder.calls(url)["UpdateItem"]
        cpu_s, took_ms = await run(limiter, [canned.ENTITY] * WIDEST, calls)
        writes = responder.calls(url)["UpdateItem"] - before
        return Figures(len(took_ms) / cpu_s, writes / (len(took_ms) + 2 * WIDEST), statistics.median(took_ms))


def show(title: str, alone: Figures, grouped: Figures) -> None:
    print(
        f"{title:<44}{alone.writes:>9.3f}{grouped.writes:>9.3f}{alone.writes / grouped.writes:>8.1f}x"
        f"{alone.per_cpu_s:>10.0f}{grouped.per_cpu_s:>10.0f}{grouped.per_cpu_s / alone.per_cpu_s:>8.2f}x"
        f"{alone.p50_ms:>9.2f}{grouped.p50_ms:>9.2f}{grouped.p50_ms / alone.p50_ms:>8.2f}x"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=4096, help="acquires per measurement (4096)")
    calls = parser.parse_args().calls
    os.environ |= {"AWS_ACCESS_KEY_ID": "bench", "AWS_SECRET_ACCESS_KEY": "bench"}
    print(f"{'':<44}{'writes per acquire':>26}{'acquires per CPU s':>28}{'p50 ms':>26}")
    print(f"{'':<44}" + f"{'alone':>9}{'grouped':>9}{'saved':>9}" + f"{'alone':>10}{'grouped':>10}{'gain':>9}"
          + f"{'alone':>9}{'grouped':>9}{'ratio':>9}")  # fmt: skip
    for width in AT_ONCE:
        some = calls if width >= 64 else max(64 * width, 256)
        both = [asyncio.run(on_memory(width, some, together=flag, children=False)) for flag in (False, True)]
        show(f"memory, one bucket, {width} at once", *both)
    both = [asyncio.run(on_memory(WIDEST, calls, together=flag, children=True)) for flag in (False, True)]
    show(f"memory, {WIDEST} children of one parent (its writes)", *both)
    with responder.running(canned.bodies(), latency_ms=LATENCY_S * 1_000) as url:
        both = [asyncio.run(through_transport(url, calls, together=flag)) for flag in (False, True)]
    show(f"DynamoDB transport, one bucket, {WIDEST} at once", *both)


if __name__ == "__main__":
    main()
