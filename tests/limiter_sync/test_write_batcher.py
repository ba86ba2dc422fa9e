"""Threads and greenlets that share a write: when each is sent, with which others, and what an interrupt does."""

import subprocess
import sys
import textwrap
import threading
from random import Random

import pytest

from tests.limiter_sync.write_batchers import (
    PATIENCE_S,
    Number,
    NumberBatcher,
    collecting,
    in_thread,
    outcomes,
    unavailable,
    until,
)
from zae_limiter._sync.limiter.write_batcher import _Batch, _Waiter
from zae_limiter.core.errors import RateLimiterUnavailable
from zae_limiter.runtime.threads import Slot


@pytest.fixture
def batcher():
    return NumberBatcher()


class TestBatching:
    def test_request_to_an_idle_batcher_is_sent_immediately_by_its_thread(self, batcher):
        """No other thread is involved."""
        threads = []
        send_all = batcher.send_all
        batcher.send_all = lambda requests: (threads.append(threading.get_ident()), send_all(requests))[1]

        assert "1" == batcher.join(Number(1))
        assert [threading.get_ident()] == threads
        assert batcher.rests()

    def test_waiting_requests_of_threads_are_sent_as_one_batch_in_order(self, batcher):
        """Each gets its own outcome."""
        batcher.held.clear()
        results = batcher.sent(1, 2, 3, 4)
        batcher.held.set()

        assert ["1", "2", "3", "4"] == outcomes(results)
        assert [[1], [2, 3, 4]] == batcher.batches
        until(batcher.rests)

    @pytest.mark.parametrize("room", [1, 2, 3])
    def test_batches_of_threads_in_flight_never_exceed_the_maximum(self, room):
        """The number of requests makes no difference."""
        batcher = NumberBatcher(max_in_flight=room, most_together=2)
        batcher.held.clear()
        results = batcher.sent(*range(12))
        sent_at_first = [list(some) for some in batcher.batches]
        batcher.held.set()

        assert [str(number) for number in range(12)] == outcomes(results)
        assert [[number] for number in range(room)] == sent_at_first
        assert room == batcher.most_seen
        until(batcher.rests)

    def test_batch_that_is_about_to_be_sent_takes_in_later_requests(self, batcher):
        """Only its own leader sends it."""
        batch = collecting(batcher, 1)
        results = batcher.sent(2, 3)
        batch.complete()

        assert ["2", "3"] == outcomes(results)
        assert ([[1, 2, 3]], "1") == (batcher.batches, batch.waiters[0].outcome)

    def test_request_that_looks_for_lost_batches_allows_a_delivery_at_the_same_time(self, batcher):
        """A delivery in another thread removes its batch at any moment of the search."""
        first, second = (_Batch(batcher, [_Waiter(Number(number))]) for number in (1, 2))

        class DeliveredWhenSeen:
            @property
            def until_s(self):
                batcher._in_flight.pop(first, None)
                batcher._in_flight.pop(second, None)
                return 0.0

        seen = DeliveredWhenSeen()
        batcher._in_flight.update(dict.fromkeys([first, seen, second]))

        assert "3" == batcher.join(Number(3))
        assert [[3]] == batcher.batches
        assert batcher.rests()


class TestFailures:
    def test_failed_batch_raises_for_its_threads_and_no_others(self, batcher):
        """Batches before and after it succeed."""
        batcher.held.clear()
        batcher.failing[3] = error = unavailable()
        batcher.most_together = 2
        results = batcher.sent(1, 2, 3, 4)
        batcher.held.set()

        assert ["1", error, error, "4"] == outcomes(results)
        assert ([[1], [2, 3], [4]], []) == (batcher.batches, batcher.undone)
        until(batcher.rests)

    @pytest.mark.parametrize("interrupt", [KeyboardInterrupt, SystemExit, GeneratorExit, ZeroDivisionError])
    def test_interrupted_leader_raises_unavailable_for_its_batch(self, batcher, interrupt):
        """The outcome of the other requests is unknown; the next batch is sent."""
        batcher.held.clear()
        batcher.failing[2] = interrupt()
        batcher.most_together = 2
        results = batcher.sent(1, 2, 3, 4)
        batcher.held.set()

        assert [str, interrupt, RateLimiterUnavailable, str] == [type(one) for one in outcomes(results)]
        until(batcher.rests)

    def test_waiting_thread_that_is_interrupted_leaves_the_queue(self, batcher):
        """Its request is not sent."""
        batcher.held.clear()
        results = batcher.sent(1)
        with interrupted_waits():
            results.append(in_thread(lambda: batcher.join(Number(2))))
            assert isinstance(results[1].exception(PATIENCE_S), KeyboardInterrupt)
        results += batcher.sent(3)
        batcher.held.set()

        assert ["1", "3"] == outcomes([results[0], results[2]])
        assert ([[1], [3]], []) == (batcher.batches, batcher.undone)

    def test_thread_interrupted_in_flight_undoes_its_request(self, batcher):
        """It does so itself, once it has the outcome."""
        batch = collecting(batcher, 1)
        entered, go_on = threading.Event(), threading.Event()
        with interrupted_waits(entered, go_on):
            result = in_thread(lambda: batcher.join(Number(2)))
            assert entered.wait(PATIENCE_S)
            batcher.held.clear()
            leading = in_thread(batch.complete)
            until(lambda: batcher.batches)
            go_on.set()
            waits = not result.done()
            batcher.held.set()
            assert isinstance(result.exception(PATIENCE_S), KeyboardInterrupt)
        leading.result(PATIENCE_S)

        assert waits
        assert ([[1, 2]], ["2"]) == (batcher.batches, batcher.undone)
        until(batcher.rests)


class interrupted_waits:  # noqa: N801 - it reads as a verb
    """Interrupts the first wait of a Slot, once it may continue; later waits are normal."""

    def __init__(self, entered=None, go_on=None):
        self._entered, self._go_on = entered, go_on
        self._wait, self._done = Slot.wait, False

    def __enter__(self):
        def wait(slot, within_s):
            if self._done or slot.filled:
                return self._wait(slot, within_s)
            self._done = True
            if self._entered is not None:
                self._entered.set()
                assert self._go_on.wait(PATIENCE_S)
            raise KeyboardInterrupt

        Slot.wait = wait

    def __exit__(self, *_):
        Slot.wait = self._wait


@pytest.mark.parametrize("seed", range(6))
def test_random_requests_of_threads_are_sent_exactly_once(seed):
    """Many threads send repeatedly, and some batches fail."""
    random = Random(seed)
    batcher = NumberBatcher(max_in_flight=random.choice((1, 2, 8)), most_together=random.choice((1, 3, 1_000)))
    batcher.failing = {number: random.choice((unavailable(), SystemExit())) for number in random.sample(range(640), 40)}

    def work(first):
        came = []
        for number in range(first, first + 40):
            try:
                came.append(batcher.join(Number(number)))
            except (RateLimiterUnavailable, SystemExit):
                came.append(None)
        return came

    came = [result.result(PATIENCE_S) for result in [in_thread(lambda n=n: work(n * 40)) for n in range(16)]]

    failed = {number for some in batcher.batches if set(some) & set(batcher.failing) for number in some}
    assert list(range(640)) == sorted(number for some in batcher.batches for number in some)
    assert [None if n in failed else str(n) for n in range(640)] == [one for some in came for one in some]
    assert batcher.rests()
    assert batcher.most_seen <= batcher.max_in_flight


class TestSlot:
    def test_slot_wait_in_another_thread_returns_when_the_value_is_set(self):
        """The waiting thread is woken."""
        slot = Slot()
        waiting = in_thread(lambda: slot.wait(PATIENCE_S))
        slot.set("value")
        waiting.result(PATIENCE_S)

        assert "value" == slot.value

    def test_slot_wait_may_be_called_again_once_the_value_is_set(self):
        """A thread that was interrupted at that moment waits again."""
        slot = Slot()
        slot.set(None)
        slot.wait(PATIENCE_S)
        slot.wait(PATIENCE_S)

        assert (True, None) == (slot.filled, slot.value)

    def test_slot_wait_in_a_thread_returns_without_a_value_after_its_timeout(self):
        """A negative timeout returns immediately."""
        slot = Slot()
        slot.wait(0.001)
        slot.wait(-1)

        assert not slot.filled


GREENLETS = """
    from gevent import monkey
    monkey.patch_all()
    import gevent, random
    from tests.limiter_sync.write_batchers import NumberBatcher, Number, unavailable, collecting

    batcher, chance = NumberBatcher(2, 5), random.Random(3)
    send_all = batcher.send_all
    def slow_send(requests):
        gevent.sleep(chance.random() / 1000)
        outcomes = send_all(requests)
        gevent.sleep(chance.random() / 1000)
        return outcomes
    batcher.send_all = slow_send
    batcher.failing = {number: unavailable() for number in chance.sample(range(300), 10)}
    arrived = []
    def work(number):
        arrived.append(int(batcher.join(Number(number))))
    def quiet(number):
        try:
            work(number)
        except Exception:
            pass
    greenlets = []
    for number in range(300):
        greenlets.append(gevent.spawn(quiet, number))
        if number % 3 == 0:
            gevent.sleep(0)
        if number % 4 == 0:
            greenlets[chance.randrange(len(greenlets))].kill(block=False)
    print(len(gevent.joinall(greenlets, timeout=300)))
    sent = [number for some in batcher.batches for number in some]
    undone = {int(number) for number in batcher.undone}
    print(len(sent) == len(set(sent)), len(undone) == len(batcher.undone), bool(undone & set(arrived)))
    print(batcher.rests())

    batcher = NumberBatcher()
    batcher.held.clear()
    batch = collecting(batcher, 1)
    led = gevent.spawn(batcher.join, Number(2))
    gevent.sleep(0)
    leads = gevent.spawn(batch.complete)
    gevent.sleep(0)
    led.kill(block=False)
    gevent.sleep(0)
    batcher.held.set()
    print(len(gevent.joinall([led, leads], timeout=300)), batcher.batches, batcher.undone, batch.waiters[0].outcome)
"""


def test_greenlets_killed_at_any_moment_are_sent_at_most_once_and_undone():
    """Under gevent a wait may end by a kill; an outcome that no greenlet receives is undone once."""
    finished = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(GREENLETS)], capture_output=True, text=True, timeout=600, check=False
    )

    assert "" == finished.stderr
    assert ["300", "True True False", "True", "2 [[1, 2]] ['2'] 1"] == finished.stdout.splitlines()
