"""A new client finds the boundary of the server's second by background reads, which end with the client."""

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from tests.dynamodb.engines import fresh_table_name
from tests.dynamodb.ledgers import quick_engine, table_url
from tests.dynamodb.proxy import Proxy
from tests.dynamodb.test_clocks import burst
from tests.dynamodb.trees import KINDS, LOOK_EVERY_S, MOST_LOOKS, tree
from zae_limiter import Limit

FAST = Limit("rpm", 5, 5, 1)
SLOW = Limit.custom("rpm", 5, 1, 10 * 365 * 86_400)
MOST_READS = 48


@pytest.fixture(params=KINDS)
def opened(request: pytest.FixtureRequest) -> Iterator[tuple[Any, Proxy, ExitStack]]:
    """Open a client behind a proxy; return it with a function that closes it."""
    with Proxy(quick_engine().url) as proxy, tree(str(request.param)) as grown, ExitStack() as stack:
        repo = grown.open(table_url(fresh_table_name(), proxy.url))
        stack.callback(repo.close)
        yield grown.limiter(repo), proxy, stack


def reads(proxy: Proxy) -> int:
    """Return the number of reads that asked only for the time."""
    return sum(seen.target == "GetItem" and "#VERSION" in str(seen.body) for seen in proxy.seen)


def width_ms(limiter: Any) -> int:
    low, high = limiter.repository.scope.table.now()
    return int(high - low)


def test_a_rejection_that_depends_on_the_clock_measures_the_server_time(opened: tuple[Any, Proxy, ExitStack]) -> None:
    """A bounded number of reads narrows the server's time to a fraction of a second."""
    limiter, proxy, _ = opened
    limiter.set_system_defaults([FAST])
    proxy.forget()
    burst(limiter)
    for _ in range(MOST_LOOKS):
        if width_ms(limiter) <= 300 or reads(proxy) >= MOST_READS:
            break
        time.sleep(LOOK_EVERY_S)

    assert width_ms(limiter) <= 300
    assert reads(proxy) <= MOST_READS


def test_a_rejection_by_a_slow_limit_reads_nothing(opened: tuple[Any, Proxy, ExitStack]) -> None:
    """A more precise clock would not admit the request."""
    limiter, proxy, stack = opened
    limiter.set_system_defaults([SLOW])
    proxy.forget()
    admitted = burst(limiter)
    stack.close()

    assert 5 == admitted
    assert 0 == reads(proxy)


def test_clock_reads_end_with_close(opened: tuple[Any, Proxy, ExitStack]) -> None:
    """No task or thread is left, and nothing more is read."""
    limiter, proxy, stack = opened
    background = limiter.repository.scope.table._probe._background
    limiter.set_system_defaults([FAST])
    burst(limiter)
    stack.close()
    proxy.wait_for_connections(0)

    left = getattr(background, "_thread", None) or getattr(background, "_task", None)
    assert left is None or not _alive(left)


def _alive(left: "threading.Thread | asyncio.Task[None]") -> bool:
    return left.is_alive() if isinstance(left, threading.Thread) else not left.done()
