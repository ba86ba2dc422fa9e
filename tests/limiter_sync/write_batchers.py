"""A convoy of threads whose carrier can be held up, fails on demand, and remembers what it carried."""

import threading
import time
from concurrent.futures import Future

from zae_limiter._sync.limiter.write_batcher import WriteBatcher, _Batch, _Waiter
from zae_limiter.core.errors import RateLimiterUnavailable

PATIENCE_S = 300


class Number(int):
    """A request."""

    until_s = float(2**31)


class Carrier(WriteBatcher):
    """Carries numbers; what came of a number is its text."""

    def __init__(self, most_under_way=1, most_together=1_000):
        self.most_under_way = most_under_way
        self.most_together = most_together
        self.carried = []
        self.undone = []
        self.under_way = 0
        self.most_seen = 0
        self.failing = {}
        self.held = threading.Event()
        self.held.set()
        self.lock = threading.Lock()
        super().__init__(time.monotonic)

    def room(self, requests, under_way):
        return min(len(requests), self.most_together) if under_way < self.most_under_way else 0

    def carry(self, requests):
        with self.lock:
            self.carried.append(list(requests))
            self.under_way += 1
            self.most_seen = max(self.most_seen, self.under_way)
        try:
            assert self.held.wait(PATIENCE_S)
            for number in requests:
                if number in self.failing:
                    raise self.failing[number]
        finally:
            with self.lock:
                self.under_way -= 1
        return [str(number) for number in requests]

    def undo(self, request, outcome):
        self.undone.append(outcome)

    def send(self, number):
        """Let a thread join with a number."""
        return in_thread(lambda: self.join(Number(number)))

    def sent(self, *numbers):
        """Let threads join, one after the other, each once the one before has set out or waits."""
        results = []
        for number in numbers:
            before = self.present()
            results.append(self.send(number))
            until(lambda before=before: self.present() > before)
        return results

    def present(self):
        """Return how many have set out or wait."""
        with self.lock:
            return sum(map(len, self.carried)) + len(self._queue)

    def rests(self):
        """Say whether nobody is left behind."""
        return not self.busy and not self._departing and not self._in_flight and not self.under_way


def departing(batcher, number):
    """Let a number be about to set out, and return its batch; nothing leads it yet."""
    batch = _Batch([_Waiter(Number(number))])
    batcher._in_flight[batch] = None
    batcher._departing = batch
    return batch


def in_thread(call):
    """Make a call in a thread of its own."""
    result = Future()

    def run():
        try:
            result.set_result(call())
        except BaseException as error:  # noqa: BLE001 - it is raised again in the thread that waits
            result.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return result


def outcomes(results):
    """Return what came of all of them, errors too."""
    return [result.exception(PATIENCE_S) or result.result() for result in results]


def until(condition):
    """Wait until something holds."""
    end = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end, "it never came to hold"
        time.sleep(0.0005)


def away():
    return RateLimiterUnavailable(ConnectionError("away"))
