"""Delete and recreate buckets while leases on them are open, and copy clients in the middle of a run."""

import asyncio
from collections.abc import Callable
from copy import copy
from dataclasses import replace
from random import Random

from tests.simulation.fleet import NAMESPACE, Fleet, Process, Users, opened
from tests.simulation.plan import COPY, DELETE
from zae_limiter import RateLimiter, RateLimiterUnavailable, Repository
from zae_limiter._async.limiter.deferred import DeferringClient
from zae_limiter._async.store.scope import Nonces, PutOff
from zae_limiter._async.store.sharded_buckets import ShardedBuckets
from zae_limiter.clock import ServerClock
from zae_limiter.core.settings import make_settings
from zae_limiter.schema.keys import BucketKey

_OF_THE_MACHINE = ("_clock", "_monotonic_s")
_REQUESTS = 40


async def remove(process: Process) -> None:
    """Delete buckets now and then, with all their shards, as the deletion of their entity does."""
    fleet, random = process.fleet, process.random
    if DELETE not in fleet.plan.faults:
        return
    limiter = await opened(process, make_settings())
    scope = limiter._client._scope
    removing = ShardedBuckets(scope.client)
    for _ in range(random.randint(3, 30)):
        await asyncio.sleep(fleet.scenario.seconds / 15 * random.random())
        buckets = [bucket for bucket in fleet.invariants.buckets.values() if bucket.shards]
        if not buckets:
            continue
        chosen = random.choice(buckets)
        try:
            await removing.remove(BucketKey(scope.namespace_id, *chosen.id, 0), max(chosen.shards))
            fleet.tally["deleted"] += 1
        except RateLimiterUnavailable:
            fleet.tally["not deleted"] += 1


def copied(original: Process, name: str) -> Process:
    """Return a copy of a process, as a fork makes it.

    Clock, caches and random state are the same at first; the copy then renews what a forked child renews.
    """
    assert original.limiter is not None, "it is open"
    fleet = original.fleet
    process = Process(fleet, name, fleet.network, like=original)
    before = original.limiter._client._scope
    system: Callable[[int], bytes] = Random(f"system's chance of {name} of {fleet.plan.seed}").randbytes
    nonces = Nonces(process.random, system)
    nonces.current = copy(before.client.nonces.current)
    process.random.setstate(original.random.getstate())
    _copy_time(original, process)
    mine_only = {
        "table": process.port,
        "clock": process.clock,
        "random": process.random,
        "nonces": nonces,
        "own_thread": process.slot_timer,
    }
    client = replace(before.client, **mine_only, caches={}, put_off=PutOff())
    scope = client.scope(NAMESPACE, before.namespace_id)
    for bucket, known in before.caches.buckets.items():
        mine = scope.caches.of(bucket)
        mine.limits, mine.view = known.limits, known.view
        mine.shards = None if known.shards is None else dict(known.shards)
    process.limiter = RateLimiter(Repository(scope, owns_table=False))
    process.limiter._reserves = original.limiter._reserves
    if original.name in fleet.invariants.reserved:
        fleet.invariants.reserved[name] = fleet.invariants.reserved[original.name]
    _copy_put_off(original.limiter, process.limiter)
    process.limiter._client.renew(restored=False)
    return process


def _copy_time(original: Process, process: Process) -> None:
    """Give the copy the same knowledge of the server's clock."""
    for name in ServerClock.__slots__:
        if name not in _OF_THE_MACHINE:
            setattr(process.port._server_clock, name, getattr(original.port._server_clock, name))


def _copy_put_off(original: RateLimiter, made: RateLimiter) -> None:
    """Give the copy the settlements that the original has put off."""
    before, after = original._client, made._client
    if isinstance(before, DeferringClient) and isinstance(after, DeferringClient):
        after._deferred._owed = {bucket: dict(kinds) for bucket, kinds in before._deferred._owed.items()}


async def copy_some(fleet: Fleet, running: Callable[[], list[Process]]) -> list[Process]:
    """Copy clients at random times, let the copies run, and return them."""
    random = fleet.plan.part("copies")
    copies: list[Process] = []
    if COPY not in fleet.plan.faults:
        return copies
    for number in range(random.randint(1, 3)):
        await asyncio.sleep(fleet.scenario.seconds / 4 * random.random())
        originals = [one for one in running() if one.limiter is not None and one.loop.alive]
        if not originals:
            continue
        process = copied(random.choice(originals), f"copy {number}")
        process.start(Users(process, min(_REQUESTS, fleet.plan.requests // 4), process.limiter).work)
        copies.append(process)
        fleet.tally["copied"] += 1
    return copies
