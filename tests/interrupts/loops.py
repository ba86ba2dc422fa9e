"""An event loop whose callers are interrupted, and that runs on afterwards, as in a notebook or a worker."""

import asyncio
import gc
import time
import warnings
from collections.abc import Coroutine
from contextlib import contextmanager, suppress
from typing import Any

from tests.interrupts.interrupt_at import Interrupt

PATIENCE_S = 60.0
"""Seconds after which a caller without a deadline of its own counts as hanging."""


@contextmanager
def quiet_loop():
    """Return a loop that does not log errors of callbacks, because some are interrupted."""
    loop = asyncio.new_event_loop()
    loop.set_exception_handler(lambda *_: None)
    asyncio.set_event_loop(loop)
    try:
        yield loop
    finally:
        asyncio.set_event_loop(None)
        loop.run_until_complete(asyncio.sleep(0))
        loop.close()
        with warnings.catch_warnings():
            # A socket that was interrupted right after its creation is closed by the garbage collector.
            warnings.simplefilter("ignore")
            gc.collect()


def run(loop: asyncio.AbstractEventLoop, call: Coroutine[Any, Any, Any]) -> "asyncio.Task[Any]":
    """Run a call to its end, unless an interrupt ends the run, and return its task."""
    task = loop.create_task(call)
    with suppress(Interrupt):
        loop.run_until_complete(asyncio.wait((task,), timeout=PATIENCE_S))
    return task


def wait_for_all(loop: asyncio.AbstractEventLoop, within_s: float = PATIENCE_S) -> float:
    """Let every task of a loop end, and return how many seconds that took.

    Raises:
        AssertionError: One of them did not end within this many seconds.
    """
    started_s = time.monotonic()
    while tasks := asyncio.all_tasks(loop):
        left_s = started_s + within_s - time.monotonic()
        assert left_s > 0, f"these hang: {tasks}"
        with suppress(Interrupt):
            loop.run_until_complete(asyncio.wait(tasks, timeout=left_s))
    return time.monotonic() - started_s
