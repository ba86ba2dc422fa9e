"""Callers of a write batcher that are interrupted at any bytecode: no other caller hangs, and nothing is sent twice."""

import time
from collections import Counter

import pytest

from tests.interrupts.interrupt_at import Interrupt, every_interrupt
from tests.limiter_sync.write_batchers import PATIENCE_S, NumberBatcher, in_thread, until
from zae_limiter._sync.limiter import write_batcher as batcher_module
from zae_limiter.core.errors import RateLimiterUnavailable

DEADLINE_S = 0.05


class ShortDeadline(int):
    """A request with a short deadline."""

    def __new__(cls, number):
        made = super().__new__(cls, number)
        made.until_s = time.monotonic() + DEADLINE_S
        return made


@pytest.fixture(autouse=True)
def short_grace(monkeypatch):
    monkeypatch.setattr(batcher_module, "_GRACE_S", 0.01)


def join(batcher, number):
    """Send a number, and return its result."""
    try:
        return batcher.join(ShortDeadline(number))
    except (RateLimiterUnavailable, Interrupt) as error:
        return type(error)


def check(batcher, where, others=()):
    """Require that every other caller ends, that nothing is sent twice, and that the batcher still works."""
    for other in others:
        assert other.result(PATIENCE_S) is not None, where
    until(lambda: join(batcher, 99) == "99")
    sent = Counter(number for some in batcher.batches for number in some if number != 99)

    assert not [number for number, times in sent.items() if times > 1], where
    assert len(batcher.undone) == len(set(batcher.undone)), where
    assert not batcher._queue, where


def test_leader_interrupted_at_any_bytecode_leaves_a_batcher_that_works():
    """It is alone, from joining to the answer; what it took is undone or stays charged."""
    count = 0
    for batcher, where in every_interrupt(NumberBatcher, lambda batcher: join(batcher, 1), within="write_batcher.py"):
        count += 1
        check(batcher, where)

    assert count > 30


def test_leader_interrupted_at_any_bytecode_leaves_no_follower_waiting():
    """Another leader sends them, or they end with their deadline."""

    def prepare():
        batcher = NumberBatcher()
        batcher.others = []
        send_all = batcher.send_all

        def send_with_followers(requests):
            if 1 in requests:
                batcher.others += [in_thread(lambda n=n: join(batcher, n)) for n in (2, 3)]
                until(lambda: len(batcher._queue) == 2 or all(one.done() for one in batcher.others))
            return send_all(requests)

        batcher.send_all = send_with_followers
        return batcher

    for batcher, where in every_interrupt(prepare, lambda batcher: join(batcher, 1), within="write_batcher.py"):
        check(batcher, where, batcher.others)


def test_follower_interrupted_at_any_bytecode_leaves_a_batcher_that_works():
    """It leaves the queue, or waits for the answer and undoes it."""

    def prepare():
        batcher = NumberBatcher()
        batcher.held.clear()
        batcher.others = [*batcher.sent(1), in_thread(lambda: release(batcher))]
        return batcher

    def release(batcher):
        ends_s = time.monotonic() + DEADLINE_S
        while not batcher._queue and time.monotonic() < ends_s:
            time.sleep(0.0005)
        batcher.held.set()
        return "released"

    for batcher, where in every_interrupt(prepare, lambda batcher: join(batcher, 2), within="write_batcher.py"):
        check(batcher, where, batcher.others)
