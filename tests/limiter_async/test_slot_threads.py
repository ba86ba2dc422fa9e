"""Slots of leases in event loops: a loop that is busy, several loops, and a loop that has ended."""

import asyncio
import gc
import os
import subprocess
import sys
import threading
import time

import pytest

from tests._async.clients import SettableClock, Wrapped, another
from tests.limiter_sync.test_slot_threads import HOLD_MS, LIMITS, ONE, PATIENCE_S, SOON_MS, end_of, wait_until, wake
from zae_limiter import RateLimiter, Repository
from zae_limiter.runtime.own_loop import OwnThread


@pytest.fixture
def clock():
    return SettableClock()


@pytest.fixture
async def limiter(clock):
    async with await Repository.open("memory://", clock=clock) as repo:
        await repo.set_system_defaults(LIMITS)
        yield RateLimiter(repo)


async def entered(limiter, **options):
    lease = limiter.acquire("user-1", "gpt-4", ONE, **options)
    await lease.__aenter__()
    return lease


async def test_loop_that_is_blocked_for_longer_than_the_hold_keeps_its_slots(limiter, clock):
    """The loop runs nothing meanwhile, and the thread renews."""
    lease = await entered(limiter)
    for _ in range(4):
        before = end_of(lease)
        clock.time_ms = before - SOON_MS
        wake(limiter)
        # Blocks the loop.
        wait_until(lambda: end_of(lease) > before)  # noqa: B023 - it is called in the same round

    assert not lease.lost
    assert 2 == (await limiter.available("user-1", "gpt-4"))["slots"]


async def test_lost_lease_calls_its_callback_in_its_own_loop(limiter, clock):
    """The callback may use the lease and the loop's objects without a lock."""
    told = asyncio.Event()
    where = []

    def lose(lease):
        where.append((threading.current_thread(), asyncio.get_running_loop(), lease))
        told.set()

    lease = await entered(limiter, on_lost=lose)
    clock.advance(2 * HOLD_MS)
    wake(limiter)
    await asyncio.wait_for(told.wait(), PATIENCE_S)

    assert [(threading.current_thread(), asyncio.get_running_loop(), lease)] == where


def test_several_loops_of_one_limiter_keep_their_slots_and_the_ended_one_stops_nothing():
    """A callback of a loop that has ended is not called, and the others are still renewed."""
    clock, called = SettableClock(), []
    repo = asyncio.run(Repository.open("memory://", clock=clock))
    asyncio.run(repo.set_system_defaults(LIMITS))
    limiter = RateLimiter(repo)
    asyncio.run(entered(limiter, on_lost=called.append))
    clock.advance(2 * HOLD_MS)
    wake(limiter)
    leases, may_end = [], threading.Event()

    async def hold() -> None:
        async with limiter.acquire("user-1", "gpt-4", ONE) as lease:
            leases.append(lease)
            await asyncio.to_thread(may_end.wait, PATIENCE_S)

    loops = [threading.Thread(target=asyncio.run, args=(hold(),)) for _ in range(3)]
    for loop in loops:
        loop.start()
    wait_until(lambda: len(leases) == 3)
    before = max(end_of(lease) for lease in leases)
    clock.time_ms = before - SOON_MS
    wake(limiter)
    wait_until(lambda: min(end_of(lease) for lease in leases) > before)
    may_end.set()
    for loop in loops:
        loop.join()

    assert [] == called
    assert 3 == asyncio.run(limiter.available("user-1", "gpt-4"))["slots"]
    asyncio.run(repo.close())


class ClosedMeanwhile(Wrapped):
    """A table whose repository is closed while slots are renewed."""

    repo: Repository | None = None

    async def transact(self, operations, token, *, until_s=None):
        if self.repo is not None:
            await self.repo.close()
        return await super().transact(operations, token, until_s=until_s)


async def test_repository_closed_during_a_renewal_logs_nothing(clock, caplog):
    """Its slots end by themselves."""
    repo = await Repository.open("memory://", clock=clock)
    await repo.set_system_defaults(LIMITS)
    other = another(repo, ClosedMeanwhile)
    limiter = RateLimiter(other)
    lease = await entered(limiter)
    other.scope.table.repo = repo
    clock.time_ms = end_of(lease) - SOON_MS
    await limiter._client.slots.renew_due()

    assert [] == caplog.messages


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are not forked here")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
def test_forked_child_leaves_the_loop_of_the_original_usable():
    """Both share the kernel's selector, so a child that closed the loop would make it deaf in the original."""
    loops = []

    async def due() -> float:
        loops.append(asyncio.get_running_loop())
        return float("inf")

    async def ended() -> None:
        """Do nothing."""

    thread = OwnThread(due, ended)
    thread.wake_in(0)
    wait_until(lambda: loops and not loops[0].is_running())
    child = os.fork()
    if not child:
        # The child starts a loop of its own, and nothing else refers to the inherited one.
        loops.clear()
        thread.wake_in(0)
        end_s = time.monotonic() + PATIENCE_S
        while not loops and time.monotonic() < end_s:
            time.sleep(0.005)
        gc.collect()
        os._exit(0 if loops else 1)
    assert 0 == os.waitpid(child, 0)[1]
    (loop,) = loops
    woken = threading.Event()

    async def wait_for_another_thread() -> float:
        waiting = loop.create_future()
        threading.Timer(0.05, loop.call_soon_threadsafe, (waiting.set_result, None)).start()
        # Without a timeout: its timer would wake the loop too.
        await waiting
        woken.set()
        return float("inf")

    thread._due_async = wait_for_another_thread
    thread.wake_in(0)
    wait_until(woken.is_set)
    thread.stop()


EXITS = """
import asyncio, sys
from zae_limiter import Limit, RateLimiter, Repository

async def main():
    repo = await Repository.open(sys.argv[1])
    await repo.set_system_defaults([Limit.concurrent("slots", 3, hold_seconds=5)])
    limiter = RateLimiter(repo)
    lease = limiter.acquire("user-1", "gpt-4", {"slots": 1})
    await lease.__aenter__()
    await limiter._client.slots.renew_due()
    limiter._client.slots._thread.wake_in(0)
    if sys.argv[2] == "close":
        await repo.close()

asyncio.run(main(), debug=False)
"""


@pytest.mark.parametrize("way", ["open", "close"])
@pytest.mark.parametrize("store", ["memory", "sqlite"])
def test_program_with_open_leases_ends_silently(way, store, tmp_path):
    """No task is pending and no loop is left open, whether or not the repository is closed."""
    url = "memory://" if store == "memory" else f"sqlite:///{tmp_path / 'limiter.db'}"
    done = subprocess.run(
        [sys.executable, "-X", "dev", "-W", "error", "-c", EXITS, url, way],
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )

    assert (0, "", "") == (done.returncode, done.stdout, done.stderr)
