"""A write batcher for threads that can be held up, fails on demand, and records what it sent."""

import threading
import time
from concurrent.futures import Future

from zae_limiter._sync.limiter.write_batcher import WriteBatcher, _Batch, _Waiter
from zae_limiter.core.errors import RateLimiterUnavailable

PATIENCE_S = 300


class Number(int):
    """A request."""

    until_s = float(2**31)


class NumberBatcher(WriteBatcher):
    """Sends numbers; the outcome of a number is its text."""

    def __init__(self, max_in_flight=1, most_together=1_000):
        self.max_in_flight = max_in_flight
        self.most_together = most_together
        self.batches = []
        self.undone = []
        self.in_flight = 0
        self.most_seen = 0
        self.failing = {}
        self.held = threading.Event()
        self.held.set()
        self.lock = threading.Lock()
        super().__init__(time.monotonic)

    def room(self, requests, in_flight):
        return min(len(requests), self.most_together) if in_flight < self.max_in_flight else 0

    def send_all(self, requests):
        with self.lock:
            self.batches.append(list(requests))
            self.in_flight += 1
            self.most_seen = max(self.most_seen, self.in_flight)
        try:
            assert self.held.wait(PATIENCE_S)
            for number in requests:
                if number in self.failing:
                    raise self.failing[number]
        finally:
            with self.lock:
                self.in_flight -= 1
        return [str(number) for number in requests]

    def undo(self, request, outcome):
        self.undone.append(outcome)

    def send(self, number):
        """Start a thread that joins with a number."""
        return in_thread(lambda: self.join(Number(number)))

    def sent(self, *numbers):
        """Start threads that join one after the other, each once the one before is sent or waits."""
        results = []
        for number in numbers:
            before = self.present()
            results.append(self.send(number))
            until(lambda before=before: self.present() > before)
        return results

    def present(self):
        """Return how many requests are sent or waiting."""
        with self.lock:
            return sum(map(len, self.batches)) + len(self._queue)

    def rests(self):
        """Return whether no request is waiting or in flight."""
        return not self._queue and not self._collecting and not self._in_flight and not self.in_flight


def collecting(batcher, number):
    """Let a number be about to be sent, and return its batch, which has no leader yet."""
    batch = _Batch(batcher, [_Waiter(Number(number))])
    batcher._in_flight[batch] = None
    batcher._collecting = batch
    return batch


def in_thread(call):
    """Make a call in its own thread."""
    result = Future()

    def run():
        try:
            result.set_result(call())
        except BaseException as error:  # noqa: BLE001 - it is raised again in the thread that waits
            result.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return result


def outcomes(results):
    """Return results and errors of all calls."""
    return [result.exception(PATIENCE_S) or result.result() for result in results]


def until(condition):
    """Wait until a condition holds."""
    end = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end, "the condition never held"
        time.sleep(0.0005)


def unavailable():
    return RateLimiterUnavailable(ConnectionError("unavailable"))
