"""Callers of an async transport that are interrupted at any bytecode: their connection slot is not lost."""

import asyncio

import pytest

import zae_limiter.transport.aio as transport_module
from tests.dynamodb.callers import SkippingClock, account_at
from tests.dynamodb.echo import Echo, ask, number_of
from tests.interrupts.interrupt_at import Interrupt, KeyInterrupt, every_interrupt
from tests.interrupts.loops import quiet_loop, run, wait_for_all
from tests.limiter_async.every_await import CancelledAt, cancelled_everywhere, ended
from zae_limiter.clock import ServerClock
from zae_limiter.transport.aio import Transport

DEADLINE_S = 0.2
LONG_S = 60.0
LATE_S = 5.0
"""Seconds after its deadline at which a caller may end on a busy machine."""

KINDS = [Interrupt, KeyInterrupt]
pytestmark = [
    pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"),
    pytest.mark.filterwarnings("ignore:coroutine:RuntimeWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture
def echo():
    with Echo() as started:
        yield started


@pytest.fixture(autouse=True)
def short_grace(monkeypatch):
    monkeypatch.setattr(transport_module, "_GRACE_S", 0.05)
    monkeypatch.setattr(transport_module, "_LOOK_EVERY_S", 0.05)


@pytest.fixture
def loop():
    with quiet_loop() as made:
        yield made


async def asked(transport, number, within_s=LONG_S, **wishes):
    """Return the number in the answer, None if there is no answer."""
    answer = await transport.call(ask(number, **wishes), transport._clock.monotonic_s() + within_s)
    return number_of(answer.body) if hasattr(answer, "body") else None


async def all_asked(transport, *numbers, within_s=LONG_S, **wishes):
    """Return the numbers in the answers of calls at the same time."""
    calls = [asked(transport, number, within_s, **wishes) for number in numbers]
    return await asyncio.gather(*calls, return_exceptions=True)


def check(loop, transport, where, most):
    """Require that every caller ends in time, and that all slots are free after the deadlines of the calls."""
    wait_for_all(loop, DEADLINE_S + LATE_S)
    transport._clock.skipped_s += 2 * LONG_S
    numbers = list(range(10, 10 + 3 * most))
    assert loop.run_until_complete(all_asked(transport, *numbers)) == numbers, where
    pool = transport._pool
    assert pool._open == len(pool._idle) <= most, where
    assert not pool._waiting, where
    loop.run_until_complete(transport.close())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("idle", [True, False])
def test_call_interrupted_at_any_bytecode_frees_its_connection_slot(echo, loop, idle, kind, monkeypatch):
    """There is one slot: the next caller gets it immediately, or after the deadline of the interrupted call."""
    monkeypatch.setattr(transport_module, "_MOST_CONNECTIONS", 1)
    account, clock = account_at(echo.url), SkippingClock()

    def prepare():
        transport = Transport(account, clock, ServerClock(clock))
        if idle:
            loop.run_until_complete(asked(transport, 0))
        return transport

    def act(transport):
        run(loop, asked(transport, 1, DEADLINE_S))

    count = 0
    for transport, where in every_interrupt(prepare, act, "transport/aio.py", kind):
        count += 1
        check(loop, transport, where, most=1)

    assert count > 20


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("then", ["stay", "close"])
def test_queued_callers_interrupted_at_any_bytecode_free_their_slots(echo, loop, then, kind, monkeypatch):
    """Four callers share two connections, which stay open or are made again for each."""
    monkeypatch.setattr(transport_module, "_MOST_CONNECTIONS", 2)
    account, clock = account_at(echo.url), SkippingClock()
    headers = {"Connection": "close"} if then == "close" else {}

    def act(transport):
        run(loop, all_asked(transport, 1, 2, 3, 4, within_s=DEADLINE_S, headers=headers))

    made = lambda: Transport(account, clock, ServerClock(clock))  # noqa: E731 - it is one line
    for transport, where in every_interrupt(made, act, "transport/aio.py", kind):
        check(loop, transport, where, most=2)


@pytest.mark.parametrize("kind", KINDS)
def test_call_to_a_silent_server_interrupted_at_any_bytecode_ends_in_time(echo, loop, kind, monkeypatch):
    """It also ends if the timer is interrupted that ends it."""
    monkeypatch.setattr(transport_module, "_MOST_CONNECTIONS", 1)
    account, clock = account_at(echo.url), SkippingClock()
    made = lambda: Transport(account, clock, ServerClock(clock))  # noqa: E731 - it is one line

    for transport, where in every_interrupt(
        made, lambda transport: run(loop, asked(transport, 1, 0.05, hang=True)), "transport/aio.py", kind
    ):
        check(loop, transport, where, most=1)


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("before", [0, 1, 2, 4])
async def test_caller_cancelled_at_any_await_frees_its_connection_slot(echo, again, before, monkeypatch):
    """Several callers are before it and three behind it, on two connections that some answers close."""
    monkeypatch.setattr(transport_module, "_MOST_CONNECTIONS", 2)
    account, clock = account_at(echo.url), SkippingClock()

    async def program(number):
        transport = Transport(account, clock, ServerClock(clock))
        others = [asyncio.create_task(asked(transport, one, delay_ms=1)) for one in range(before)]
        await asyncio.sleep(0)
        run = CancelledAt(asked(transport, 50), number, again=again)
        cancelled = asyncio.create_task(ended(run))
        await asyncio.sleep(0)
        headers = {"Connection": "close"}
        others += [asyncio.create_task(asked(transport, before + one, headers=headers)) for one in range(3)]
        found = await asyncio.wait_for(asyncio.gather(cancelled, *others), LONG_S)
        held = await asyncio.wait_for(all_asked(transport, 60, 61, 62), LONG_S)
        pool = transport._pool

        assert list(range(before + 3)) == found[1:], number
        assert [60, 61, 62] == held, number
        assert (len(pool._lent), len(pool._waiting), pool._open == len(pool._idle)) == (0, 0, True), number
        await transport.close()
        return run

    assert await cancelled_everywhere(program) > 1
