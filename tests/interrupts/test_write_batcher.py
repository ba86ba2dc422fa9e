"""Callers of a write batcher that are interrupted at any bytecode: no other caller hangs, and nothing is sent twice."""

import time
from collections import Counter

import pytest

from tests.interrupts.interrupt_at import Interrupt, every_interrupt
from tests.limiter_sync.write_batchers import PATIENCE_S, Carrier, in_thread, until
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


def join(carrier, number):
    """Send a number, and return its result."""
    try:
        return carrier.join(ShortDeadline(number))
    except (RateLimiterUnavailable, Interrupt) as error:
        return type(error)


def check(carrier, where, others=()):
    """Require that every other caller ends, that nothing is sent twice, and that the batcher still works."""
    for other in others:
        assert other.result(PATIENCE_S) is not None, where
    until(lambda: join(carrier, 99) == "99")
    carried = Counter(number for some in carrier.carried for number in some if number != 99)

    assert not [number for number, times in carried.items() if times > 1], where
    assert len(carrier.undone) == len(set(carrier.undone)), where
    assert not carrier._queue, where


def test_leader_interrupted_at_any_bytecode_leaves_a_batcher_that_works():
    """It is alone, from joining to the answer; what it took is undone or stays charged."""
    count = 0
    for carrier, where in every_interrupt(Carrier, lambda carrier: join(carrier, 1), within="write_batcher.py"):
        count += 1
        check(carrier, where)

    assert count > 30


def test_leader_interrupted_at_any_bytecode_leaves_no_follower_waiting():
    """Another leader sends them, or they end with their deadline."""

    def prepare():
        carrier = Carrier()
        carrier.others = []
        carry = carrier.carry

        def carry_with_followers(requests):
            if 1 in requests:
                carrier.others += [in_thread(lambda n=n: join(carrier, n)) for n in (2, 3)]
                until(lambda: len(carrier._queue) == 2 or all(one.done() for one in carrier.others))
            return carry(requests)

        carrier.carry = carry_with_followers
        return carrier

    for carrier, where in every_interrupt(prepare, lambda carrier: join(carrier, 1), within="write_batcher.py"):
        check(carrier, where, carrier.others)


def test_follower_interrupted_at_any_bytecode_leaves_a_batcher_that_works():
    """It leaves the queue, or waits for the answer and undoes it."""

    def prepare():
        carrier = Carrier()
        carrier.held.clear()
        carrier.others = [*carrier.sent(1), in_thread(lambda: release(carrier))]
        return carrier

    def release(carrier):
        ends_s = time.monotonic() + DEADLINE_S
        while not carrier._queue and time.monotonic() < ends_s:
            time.sleep(0.0005)
        carrier.held.set()
        return "released"

    for carrier, where in every_interrupt(prepare, lambda carrier: join(carrier, 2), within="write_batcher.py"):
        check(carrier, where, carrier.others)
