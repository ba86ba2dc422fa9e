"""Leases with slots that are cancelled at every await of enter, consume, release and exit, with concurrent clients.

No slot is lost beyond its hold, and none is returned twice, whichever await is cancelled.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

import pytest

from tests._async.clients import SettableClock, another
from tests._async.shards import OtherClient
from tests.limiter_async.every_await import (
    CancelledAt,
    Contended,
    HeldFile,
    LossyTable,
    cancelled_everywhere,
    ended,
)
from zae_limiter import Limit, RateLimiter, RateLimiterUnavailable, Repository
from zae_limiter.schema.bucket_item import bucket_key

CAPACITY, HOLD_S = 1_000, 600
LIMITS = [
    Limit.custom("rpy", 100_000, 1, 365 * 86_400),
    Limit.concurrent("slots", CAPACITY, hold_seconds=HOLD_S),
]
CHILD, PARENT = "user-1", "project-1"
ONE = {"rpy": 1, "slots": 1}


async def prepared(url: str, **settings) -> Repository:
    repo = await Repository.open(url, deadline_s=30.0, **settings)
    await repo.set_system_defaults(LIMITS)
    await repo.create_entity(PARENT)
    await repo.create_entity(CHILD, parent_id=PARENT, cascade=True)
    return repo


async def program(limiter: RateLimiter, *, fails: bool) -> None:
    """Acquire, consume, release and exit; with ``fails``, exit by an exception."""
    with suppress(KeyError):
        async with limiter.acquire(CHILD, "gpt-4", {"rpy": 10, "slots": 2}) as lease:
            await lease.consume(slots=2)
            await lease.release(slots=1)
            if fails:
                raise KeyError


class StoredSlots:
    """The slots of both buckets, as they are stored."""

    def __init__(self, repo: Repository) -> None:
        self._repo = repo
        self._limiter = RateLimiter(another(repo))

    async def rival(self) -> None:
        """Take and return a slot as another client."""
        async with self._limiter.acquire(CHILD, "gpt-4", ONE):
            pass

    async def in_use(self) -> dict[str, int]:
        """Return the slots in use of each bucket; fail if free and used slots are not the capacity."""
        found = {}
        for entity_id in (CHILD, PARENT):
            free, cohorts = 0, []
            for item in await self._items(entity_id):
                free += item["b_slots_tk"]
                cohorts += [milli for name, milli in item.items() if name[:9] == "b_slots_h" and name[9:].isdigit()]
            assert CAPACITY * 1000 == free + sum(cohorts)
            assert min(cohorts, default=0) >= 0
            found[entity_id] = sum(cohorts) // 1000
        return found

    async def _items(self, entity_id):
        scope, items, count = self._repo.scope, [], 1
        while len(items) < count:
            key = bucket_key(scope.namespace_id, entity_id, "gpt-4", len(items))
            items.append(await scope.table.get(key, consistent=True))
            count = max(item["shard_count"] for item in items)
        return items

    def checked(self, limiter: RateLimiter, *, fails: bool, again: bool) -> Callable[[int], Awaitable[CancelledAt]]:
        """Return a run of the program with a cancellation, which checks that all slots are free after it."""

        async def run(number: int) -> CancelledAt:
            cancelled = CancelledAt(program(limiter, fails=fails), number, again=again)
            await ended(cancelled)
            assert {CHILD: 0, PARENT: 0} == await self.in_use(), f"cancelled at await {number}"
            return cancelled

        return run


@pytest.fixture(params=["memory", "sqlite"])
async def repo(request, tmp_path):
    made = await prepared("memory://" if request.param == "memory" else f"sqlite:///{tmp_path / 'limiter.db'}")
    yield made
    await made.close()


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("fails", [False, True])
async def test_lease_with_slots_cancelled_at_any_await_among_clients_returns_them_at_once(repo, fails, again):
    """Other clients take and return slots before every call, so writes are refused and retried."""
    slots = StoredSlots(repo)
    await slots.rival()

    async def before() -> None:
        await asyncio.sleep(0)
        await slots.rival()
        await asyncio.sleep(0)

    limiter = RateLimiter(another(repo, lambda table: Contended(table, before)))

    assert 6 <= await cancelled_everywhere(slots.checked(limiter, fails=fails, again=again))


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("fails", [False, True])
async def test_lease_with_slots_cancelled_on_a_busy_file_returns_them_at_once(tmp_path, fails, again):
    """Another connection locks the file before every call, so each call has to wait."""
    path = tmp_path / "busy.db"
    repo = await prepared(f"sqlite:///{path}")
    held, slots = HeldFile(str(path)), StoredSlots(repo)
    await slots.rival()
    limiter = RateLimiter(another(repo, lambda table: Contended(table, held.hold_for_a_moment)))

    try:
        assert 6 <= await cancelled_everywhere(slots.checked(limiter, fails=fails, again=again))
    finally:
        held.close()
        await repo.close()


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("fails", [False, True])
async def test_slots_of_a_sharded_bucket_cancelled_at_any_await_are_returned_at_once(repo, fails, again):
    """They go back to the shard that was charged."""
    slots = StoredSlots(repo)
    await slots.rival()
    await OtherClient(repo).split()

    async def before() -> None:
        await asyncio.sleep(0)

    limiter = RateLimiter(another(repo, lambda table: Contended(table, before)))

    assert 6 <= await cancelled_everywhere(slots.checked(limiter, fails=fails, again=again))


@pytest.mark.parametrize("applied", [False, True])
@pytest.mark.parametrize("fails", [False, True])
async def test_slots_with_a_lost_response_and_a_cancellation_are_free_after_their_hold(applied, fails):
    """A release whose response was lost is given up: its slots are in use until their end, and no longer."""
    clock = SettableClock()
    repo = await prepared("memory://", clock=clock)
    slots = StoredSlots(repo)
    await slots.rival()
    for lost in range(1, 12):
        writes = 0

        async def run(number: int) -> CancelledAt:
            nonlocal writes
            other = another(repo, lambda table: LossyTable(table, lost, applied=applied))  # noqa: B023 - it is called in the same round
            cancelled = CancelledAt(program(RateLimiter(other), fails=fails), number)
            with suppress(RateLimiterUnavailable):
                await ended(cancelled)
            writes = max(writes, other.scope.table.writes)
            used = await slots.in_use()
            # A lease holds at most 4 slots.
            assert all(amount <= 4 for amount in used.values()), f"write {lost} lost, cancelled at {number}: {used}"  # noqa: B023 - it is called in the same round
            clock.advance(2 * HOLD_S * 1000)
            await slots.rival()
            assert {CHILD: 0, PARENT: 0} == await slots.in_use()
            return cancelled

        await cancelled_everywhere(run)
        if writes < lost:
            break
    await repo.close()


async def test_slots_are_returned_at_once_although_settlements_are_put_off(tmp_path):
    """``settle_within`` delays adjustments only."""
    repo = await prepared(f"sqlite:///{tmp_path / 'limiter.db'}", settle_within=60)
    slots = StoredSlots(repo)
    await slots.rival()
    limiter = RateLimiter(repo)
    async with limiter.acquire(CHILD, "gpt-4", ONE) as lease:
        await lease.adjust(rpy=5)
    after_adjusting = await slots.in_use()
    async with limiter.acquire(CHILD, "gpt-4", ONE):
        pass
    after = await slots.in_use()
    with suppress(KeyError):
        async with limiter.acquire(CHILD, "gpt-4", ONE):
            raise KeyError
    after_failing = await slots.in_use()
    await repo.close()

    assert [{CHILD: 0, PARENT: 0}] * 3 == [after_adjusting, after, after_failing]
