"""Waits of the async runtime that are interrupted at any bytecode: every caller ends, and so do the others."""

import asyncio

import pytest

from tests.interrupts.interrupt_at import Interrupt, KeyInterrupt, every_interrupt
from tests.interrupts.loops import quiet_loop, run, wait_for_all
from zae_limiter.aws.shared_call import SharedCall
from zae_limiter.runtime import tasks
from zae_limiter.runtime.aio import Lock, Parallel, Slot, finish, finish_in_place, shared, within

KINDS = [Interrupt, KeyInterrupt]
TASKS = "runtime/tasks.py"
pytestmark = [
    pytest.mark.filterwarnings("ignore:coroutine:RuntimeWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture(autouse=True)
def short_looks(monkeypatch):
    monkeypatch.setattr(tasks, "_LOOK_S", 0.02)


@pytest.fixture
def loop():
    with quiet_loop() as made:
        yield made


async def waiting():
    """Wait for a turn, for a future, and for a turn again."""
    await asyncio.sleep(0)
    await asyncio.sleep(0.001)
    await asyncio.sleep(0)
    return "done"


class Waiting:
    complete = staticmethod(waiting)


async def set_later():
    slot = Slot()
    asyncio.get_running_loop().call_later(0.001, slot.set, "value")
    await slot.wait(1)


WAITS = {
    "finish": lambda: finish(Waiting()),
    "finish_in_place": lambda: finish_in_place(waiting),
    "run": lambda: Parallel().run([waiting, waiting]),
    "run_to_end": lambda: Parallel().run_to_end([waiting, waiting]),
    "within": lambda: within(1, waiting),
    "slot": set_later,
    "shared": lambda: shared(SharedCall(lambda: "value").begin(), 1),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", WAITS)
def test_wait_interrupted_at_any_bytecode_ends(loop, name, kind):
    """It also ends if the callback is interrupted that was to end it."""
    count = 0
    for _, _ in every_interrupt(lambda: None, lambda _: run(loop, WAITS[name]()), TASKS, kind):
        count += 1
        wait_for_all(loop)

    assert count > 3


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["finish", "finish_in_place", "run_to_end"])
def test_wait_interrupted_at_any_bytecode_lets_its_loop_shut_down(name, kind):
    """Cancelled callers wait for the end of their calls, so these must end."""
    with quiet_loop() as loop:
        for _, _ in every_interrupt(lambda: None, lambda _: run(loop, WAITS[name]()), TASKS, kind):
            for task in asyncio.all_tasks(loop):
                task.cancel()
            wait_for_all(loop)


@pytest.mark.parametrize("kind", KINDS)
def test_lock_whose_holder_is_interrupted_at_any_bytecode_is_released(loop, kind):
    """It is free for a caller that waits already, and for a later one."""

    async def hold(lock):
        async with lock:
            await asyncio.sleep(0)

    async def hold_beside_another(lock):
        await asyncio.gather(*(asyncio.create_task(hold(lock)) for _ in range(3)), return_exceptions=True)

    for lock, where in every_interrupt(Lock, lambda lock: run(loop, hold_beside_another(lock)), TASKS, kind):
        wait_for_all(loop)
        assert run(loop, hold(lock)).done(), where
        assert not lock.locked(), where
