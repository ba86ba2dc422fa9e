"""Callers of a sync transport that are interrupted at any bytecode: their connection slot is not lost."""

from random import Random

import pytest

import zae_limiter.transport.threads as transport_module
from tests.dynamodb.callers import SkippingClock, account_at
from tests.dynamodb.echo import Echo, ask, number_of
from tests.interrupts.interrupt_at import every_interrupt
from tests.interrupts.test_memory_table import in_another_thread
from zae_limiter.aws.shared_call import SharedCall
from zae_limiter.clock import ServerClock
from zae_limiter.transport.threads import Transport

DEADLINE_S = 60.0


@pytest.fixture
def echo():
    with Echo() as started:
        yield started


def asked(transport, number):
    """Return the number in the answer."""
    answer = transport.call(ask(number), transport._clock.monotonic_s() + DEADLINE_S)
    return number_of(answer.body)


@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("idle", [True, False])
def test_call_interrupted_at_any_bytecode_frees_its_connection_slot(echo, idle, monkeypatch):
    """There is one slot: the next caller gets it immediately, or after the deadline of the interrupted call."""
    monkeypatch.setattr(transport_module, "_MOST_CONNECTIONS", 1)
    account, clock = account_at(echo.url), SkippingClock()

    def prepare():
        transport = Transport(account, clock, ServerClock(clock))
        if idle:
            asked(transport, 0)
        return transport

    count = 0
    for transport, where in every_interrupt(
        prepare, lambda transport: asked(transport, 1), within="transport/threads.py"
    ):
        count += 1
        clock.skipped_s += 2 * DEADLINE_S
        assert in_another_thread(lambda transport=transport: asked(transport, 2)) == 2, where
        assert transport._pool._open == 1, where
        transport.close()

    assert count > 20


def test_shared_call_whose_caller_is_interrupted_at_any_bytecode_ends():
    """Other callers get its result, or that of another call."""
    random = Random(1)

    def prepare():
        return SharedCall(lambda: random.random())

    for call, where in every_interrupt(prepare, lambda call: call.begin().result(DEADLINE_S), within="shared_call.py"):
        assert in_another_thread(lambda call=call: call.begin().result(DEADLINE_S)) is not None, where
