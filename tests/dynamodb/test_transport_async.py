"""Rules of the async transport only: cancelled tasks, loops that end, and a loop that is never blocked."""

import asyncio
import gc
import random
import warnings
from collections.abc import Iterator
from typing import Any

import pytest

from tests.dynamodb.callers import SkippingClock, account_at
from tests.dynamodb.echo import Echo, ask, number_of
from zae_limiter.clock import ServerClock
from zae_limiter.core.outcome import Unavailable
from zae_limiter.tables.dynamodb.http_parser import HttpResponse
from zae_limiter.transport.aio import Transport

WITHIN_S = 60.0


@pytest.fixture
def echo() -> Iterator[Echo]:
    with Echo() as started:
        yield started


def transport_at(url: str) -> Transport:
    clock = SkippingClock()
    return Transport(account_at(url), clock, ServerClock(clock))


async def asked(transport: Transport, number: int, **wishes: Any) -> int:
    """Return the number in the response."""
    answer = await transport.call(ask(number, **wishes), SkippingClock().monotonic_s() + WITHIN_S)
    assert isinstance(answer, HttpResponse), answer
    return number_of(answer.body)


@pytest.mark.parametrize("seed", range(4))
async def test_cancelled_tasks_never_mix_up_responses(echo: Echo, seed: int):
    """A task may be cancelled while it waits, connects, sends, or receives; others get their own responses."""
    chance, transport = random.Random(seed), transport_at(echo.url)
    tasks = [
        asyncio.create_task(asked(transport, number, delay_ms=chance.choice([0, 0, 1, 5]))) for number in range(400)
    ]
    doomed = chance.sample(range(400), 200)
    for number in doomed:
        if chance.random() < 0.5:
            await asyncio.sleep(chance.choice([0, 0, 0.0005, 0.002]))
        tasks[number].cancel()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    after = [await asked(transport, number) for number in range(1_000, 1_010)]
    pool = transport._pool
    assert pool is not None
    left = (len(pool._lent), len(pool._waiting), pool._open == len(pool._idle))
    await transport.close()

    wrong = [
        (number, result)
        for number, result in enumerate(results)
        if result != number and not (isinstance(result, asyncio.CancelledError) and number in doomed)
    ]
    assert [] == wrong
    assert list(range(1_000, 1_010)) == after
    assert (0, 0, True) == left
    assert echo.counts.most_open <= 64 + len(doomed)


async def test_a_cancelled_call_closes_its_connection(echo: Echo):
    """Its response is still in flight."""
    transport = transport_at(echo.url)
    task = asyncio.create_task(asked(transport, 1, held=True))
    await asyncio.to_thread(echo.wait_for, 1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    found = await asked(transport, 2)
    await transport.close()

    assert (2, 2) == (found, echo.counts.accepted)


async def test_a_cancelled_waiter_passes_its_connection_on(echo: Echo):
    """This holds in the same loop iteration in which it got one."""
    transport = transport_at(echo.url)
    first = [asyncio.create_task(asked(transport, number, delay_ms=50)) for number in range(64)]
    waiting = [asyncio.create_task(asked(transport, 100 + number)) for number in range(128)]
    await asyncio.gather(*first)
    for task in waiting[::2]:
        task.cancel()
    results = await asyncio.gather(*waiting, return_exceptions=True)
    await transport.close()

    assert list(range(101, 228, 2)) == results[1::2]


def test_a_transport_outlives_its_loop(echo: Echo):
    """Each loop opens its own connections, and those of the last loop are closed without the garbage collector."""
    transport = transport_at(echo.url)
    with warnings.catch_warnings():
        # A loop that ends with open connections warns when they are collected, even if the sockets are
        # closed.
        warnings.simplefilter("ignore", ResourceWarning)
        gc.disable()
        found = [asyncio.run(asked(transport, number)) for number in range(5)]
        echo.wait_until_open(1)
        asyncio.run(transport.close())
        echo.wait_until_open(0)
        gc.enable()
        gc.collect()

    assert list(range(5)) == found
    assert 5 == echo.counts.accepted


async def test_closing_while_connections_open_leaves_none(echo: Echo):
    """None stays open or counted."""
    transport = transport_at(echo.url)
    until_s = SkippingClock().monotonic_s() + WITHIN_S
    tasks = [asyncio.create_task(transport.call(ask(number, held=True), until_s)) for number in range(20)]
    await asyncio.sleep(0)
    await transport.close()
    outcomes = await asyncio.gather(*tasks)
    await asyncio.to_thread(echo.wait_until_open, 0)
    later = await transport.call(ask(5), until_s)

    assert {Unavailable} == set(map(type, outcomes))
    assert isinstance(later, Unavailable)
    assert not later.ambiguous


async def test_a_transport_of_an_ended_loop_is_closed_in_another(echo: Echo):
    """A repository may be closed in another loop than it was used in."""
    transport = transport_at(echo.url)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        await asyncio.to_thread(lambda: asyncio.run(asked(transport, 1)))
        await transport.close()
        await asyncio.to_thread(echo.wait_until_open, 0)
        gc.collect()

    assert transport._pool is None
