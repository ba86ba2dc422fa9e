"""Callers of an async write batcher that are interrupted at any bytecode: none hangs, and nothing is sent twice."""

import asyncio
import time
from collections import Counter

import pytest

from tests.interrupts.interrupt_at import Interrupt, KeyInterrupt, every_interrupt
from tests.interrupts.loops import quiet_loop, run, wait_for_all
from tests.limiter_async.every_await import CancelledAt, cancelled_everywhere, ended
from tests.limiter_async.write_batchers import Number, NumberBatcher
from zae_limiter._async.limiter import write_batcher as batcher_module
from zae_limiter.core.errors import RateLimiterUnavailable
from zae_limiter.runtime import tasks

DEADLINE_S = 0.2
TRIES = 20
KINDS = [Interrupt, KeyInterrupt]
FILES = ["_async/limiter/write_batcher.py", "runtime/tasks.py"]
pytestmark = [
    pytest.mark.filterwarnings("ignore:coroutine:RuntimeWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


class ShortDeadline(Number):
    """A request with a short deadline."""

    def __new__(cls, number):
        made = super().__new__(cls, number)
        made.until_s = time.monotonic() + DEADLINE_S
        return made


@pytest.fixture(autouse=True)
def short_grace(monkeypatch):
    monkeypatch.setattr(batcher_module, "_GRACE_S", 0.05)
    monkeypatch.setattr(tasks, "_LOOK_S", 0.02)


@pytest.fixture
def loop():
    with quiet_loop() as made:
        yield made


async def join(batcher, number, kind=ShortDeadline):
    """Send a number, and return its result."""
    try:
        return await batcher.join(kind(number))
    except RateLimiterUnavailable as error:
        return error


async def join_all(batcher, *numbers):
    """Send numbers from tasks of their own; all but the first queue."""
    await asyncio.gather(*(asyncio.create_task(join(batcher, one)) for one in numbers), return_exceptions=True)


async def works(batcher):
    """Send until no interrupted batch blocks the queue; return whether that happens."""
    for _ in range(TRIES):
        if await join(batcher, 99) == "99":
            return True
    return False


def check(loop, batcher, where):
    """Require that every caller ends, that nothing is sent twice, and that the batcher still works."""
    wait_for_all(loop)
    assert run(loop, works(batcher)).result(), where
    sent = Counter(number for some in batcher.batches for number in some if number != 99)

    assert not [number for number, times in sent.items() if times > 1], where
    assert len(batcher.undone) == len(set(batcher.undone)), where
    assert not batcher._queue, where


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("callers", [1, 4])
def test_callers_interrupted_at_any_bytecode_leave_a_batcher_that_works(loop, callers, kind, file):
    """The leader, a follower or the sending itself is interrupted."""
    numbers = range(callers)

    def prepare():
        return NumberBatcher(most_together=2)

    count = 0
    for batcher, where in every_interrupt(prepare, lambda batcher: run(loop, join_all(batcher, *numbers)), file, kind):
        count += 1
        check(loop, batcher, where)

    assert count > 20


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("before", [0, 1, 3])
async def test_caller_cancelled_at_any_await_leaves_a_batcher_that_works(before, again):
    """Several callers are before it and two behind it."""

    async def program(number):
        batcher = NumberBatcher(most_together=2)
        others = [asyncio.create_task(join(batcher, one, Number)) for one in range(before)]
        await asyncio.sleep(0)
        run = CancelledAt(join(batcher, 50, Number), number, again=again)
        cancelled = asyncio.create_task(ended(run))
        await asyncio.sleep(0)
        others += [asyncio.create_task(join(batcher, before + one, Number)) for one in range(2)]
        found = await asyncio.wait_for(asyncio.gather(*others, cancelled), 60)

        assert [str(one) for one in range(before + 2)] == found[:-1], number
        assert batcher.rests(), number
        return run

    assert await cancelled_everywhere(program) > 0
