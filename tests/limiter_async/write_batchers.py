"""A write batcher that can be held up, fails on demand, and records what it sent."""

import asyncio
import time

from zae_limiter._async.limiter.write_batcher import WriteBatcher
from zae_limiter.core.errors import RateLimiterUnavailable


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
        self.failing = None
        self.held = asyncio.Event()
        self.held.set()
        super().__init__(time.monotonic)

    def room(self, requests, in_flight):
        return min(len(requests), self.most_together) if in_flight < self.max_in_flight else 0

    async def send_all(self, requests):
        self.batches.append(list(requests))
        self.in_flight += 1
        self.most_seen = max(self.most_seen, self.in_flight)
        failing = self.failing
        try:
            await self.held.wait()
            if failing is not None:
                raise failing
        finally:
            self.in_flight -= 1
        return [str(number) for number in requests]

    async def undo(self, request, outcome):
        await asyncio.sleep(0)
        self.undone.append(outcome)

    def send(self, number):
        """Start a task that joins with a number."""
        return asyncio.create_task(self.join(Number(number)))

    async def sent(self, *numbers):
        """Start tasks that join one after the other, until each is sent or waits."""
        tasks = [self.send(number) for number in numbers]
        await ticks(5)
        return tasks

    def rests(self):
        """Return whether no request is waiting or in flight."""
        return not self._queue and not self._collecting and not self._in_flight and not self.in_flight


async def ticks(count):
    """Yield to other tasks this many times."""
    for _ in range(count):
        await asyncio.sleep(0)


def unavailable():
    return RateLimiterUnavailable(ConnectionError("unavailable"))
