"""Requests of threads that wait for their tokens: their order, their bounds, and what they leave behind."""

import subprocess
import sys
import threading
import time
from contextlib import suppress

import pytest

from zae_limiter import Limit, RateLimitExceeded, SyncRateLimiter, SyncRepository


@pytest.fixture
def limiter():
    repo = SyncRepository.open("memory://")
    repo.set_system_defaults([Limit.per_second("rps", 50)])
    limiter = SyncRateLimiter(repo)
    with limiter.acquire("user", "api", {"rps": 50}):
        pass
    yield limiter
    repo.close()


class Threads:
    """Starts requests in threads, one after the other."""

    def __init__(self, limiter):
        self.limiter = limiter
        self.queues = limiter._client.queues()
        self.order = []
        self.failures = []
        self.threads = []

    def start(self, name, amount=1, **options):
        """Start a request, and return once it waits."""
        before = self.queues.waiting(("user", "api"))
        self.threads.append(threading.Thread(target=self._take, args=(name, amount, {"max_wait": 60, **options})))
        self.threads[-1].start()
        while self.queues.waiting(("user", "api")) == before and self.threads[-1].is_alive():
            time.sleep(0.0005)

    def _take(self, name, amount, options):
        try:
            with self.limiter.acquire("user", "api", {"rps": amount}, **options):
                self.order.append(name)
        except Exception as error:  # noqa: BLE001 - the test looks at it
            self.failures.append(error)

    def join(self):
        """Wait until all threads have ended."""
        for thread in self.threads:
            thread.join()


def test_threads_are_admitted_in_order(limiter):
    """A large request that came first blocks those that came later."""
    threads = Threads(limiter)
    threads.start("L", 25)
    for name in "abc":
        threads.start(name)
    threads.join()

    assert ["L", "a", "b", "c"] == threads.order
    assert 0 == len(threads.queues)


def test_release_wakes_a_thread(limiter):
    """Tokens that come back are used without delay."""
    limiter.set_system_defaults([Limit.per_hour("rps", 50)])
    with limiter.acquire("user", "api", {"rps": 0}):
        pass
    threads = Threads(limiter)
    with suppress(KeyError), limiter.acquire("other", "api", {"rps": 50}):
        threads.limiter = limiter
        raise KeyError
    with limiter.acquire("other", "api", {"rps": 50}) as lease:
        waiting = threading.Thread(target=_take_other, args=(limiter, threads))
        waiting.start()
        while not threads.queues.waiting(("other", "api")):
            time.sleep(0.0005)
        lease.release(rps=1)
        waiting.join(5)

    assert ["other"] == threads.order


def _take_other(limiter, threads):
    with limiter.acquire("other", "api", {"rps": 1}, max_wait=1_000):
        threads.order.append("other")


def test_thread_that_cannot_be_admitted_in_time_is_rejected_at_once(limiter):
    """The wait is estimated when the request comes."""
    threads = Threads(limiter)
    threads.start("L", 40)
    with pytest.raises(RateLimitExceeded) as caught:
        limiter.acquire("user", "api", {"rps": 1}, max_wait=0.1).__enter__()
    threads.join()

    assert 2 == caught.value.position
    assert ["L"] == threads.order


def test_close_ends_the_wait_of_threads(limiter):
    """No thread waits for a closed repository."""
    threads = Threads(limiter)
    threads.start("a", 50)
    threads.start("b", 50)
    limiter.close()
    threads.join()

    assert 2 == len(threads.failures)


def test_pace_is_an_iterator(limiter):
    """A job of many calls gets its leases one after the other."""
    seen = []
    for item, lease in zip("abc", limiter.pace("user", "api", {"rps": 1}, progress=seen.append), strict=False):
        seen.append((item, lease.consumed))

    assert [("a", {"rps": 1}), ("b", {"rps": 1}), ("c", {"rps": 1})] == seen[1::2]


GREENLETS = """
from gevent import monkey; monkey.patch_all()
import gevent
from zae_limiter import Limit, SyncRateLimiter, SyncRepository

repo = SyncRepository.open("memory://")
repo.set_system_defaults([Limit.per_second("rps", 100)])
limiter = SyncRateLimiter(repo)
order = []

def take(name, amount):
    with limiter.acquire("user", "api", {"rps": amount}, max_wait=30):
        order.append(name)

take("first", 100)
gevent.joinall([gevent.spawn(take, *one) for one in (("large", 20), ("a", 1), ("b", 1), ("c", 1))])
assert ["first", "large", "a", "b", "c"] == order, order
assert 0 == len(limiter._client.queues())
"""


def test_greenlets_are_admitted_in_order():
    """With gevent, a request that waits lets the other greenlets run."""
    pytest.importorskip("gevent")
    subprocess.run([sys.executable, "-c", GREENLETS], check=True, timeout=60)
