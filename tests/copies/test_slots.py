"""Slots of leases that are open when their process is copied: only the original renews and returns them."""

import asyncio
import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from tests._async.clients import SettableClock
from tests.copies.worker import CHILDREN, RESOURCE, forked
from tests.dynamodb.trees import KINDS
from tests.limiter_sync.test_slot_threads import LIMITS, ONE, SOON_MS, end_of, wait_until, wake
from zae_limiter import RateLimiter, RateLimitExceeded, Repository, SyncRateLimiter, SyncRepository, renew_clients

PATIENCE_S = 120
CAPACITY = 3


class Held:
    """A limiter of either tree with an open lease, behind blocking calls."""

    def __init__(self, kind: str, url: str) -> None:
        self.is_async = kind == "async"
        self.clock = SettableClock(time.time_ns() // 1_000_000)
        self.repo: Any = self.run((Repository if self.is_async else SyncRepository).open(url, clock=self.clock))
        self.run(self.repo.set_system_defaults(LIMITS))
        self.limiter: Any = (RateLimiter if self.is_async else SyncRateLimiter)(self.repo)
        self.lease = self.entered()

    def run(self, result: Any) -> Any:
        """Run a call of the async tree in a loop of its own."""
        return asyncio.run(result) if asyncio.iscoroutine(result) else result

    def entered(self) -> Any:
        lease = self.limiter.acquire("user-1", RESOURCE, ONE)
        self.run(lease.__aenter__() if self.is_async else lease.__enter__())
        return lease

    def leave(self, lease: Any, *failure: Any) -> None:
        failure = failure or (None, None, None)
        self.run(lease.__aexit__(*failure) if self.is_async else lease.__exit__(*failure))

    def free(self) -> int:
        return int(self.run(self.limiter.available("user-1", RESOURCE))["slots"])

    def renewed(self, lease: Any) -> None:
        """Let the thread renew a lease, which it would do in time."""
        before = end_of(lease)
        self.clock.time_ms = before - SOON_MS
        wake(self.limiter)
        wait_until(lambda: end_of(lease) > before)


def in_child(held: Held, number: int) -> list[Any]:
    """Leave the lease of the original in each way, and use an own one."""
    kept = len(held.limiter._client.slots.holds._holds)
    held.leave(held.lease, *((LookupError, LookupError(), None) if number % 2 else ()))
    seen = held.free()
    own = held.entered()
    held.renewed(own)
    taken = held.free()
    held.leave(own)
    return [kept, seen, taken, held.free()]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are not forked here")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
@pytest.mark.parametrize("kind", KINDS)
def test_forked_child_neither_renews_nor_returns_slots_of_its_parent(kind: str, tmp_path: Path):
    """The parent renews and returns them; a child renews its own slots on a thread of its own."""
    held = Held(kind, f"sqlite:///{tmp_path / 'limiter.db'}")
    acts = [lambda number=number: in_child(held, number) for number in range(2)]
    answers = forked(acts, in_turn=True)
    held.renewed(held.lease)
    seen = held.free()
    held.leave(held.lease)
    free = held.free()
    held.run(held.repo.close())

    assert [[0, CAPACITY - 1, CAPACITY - 2, CAPACITY - 1]] * 2 == answers
    assert (CAPACITY - 1, CAPACITY) == (seen, free)


@pytest.mark.parametrize("kind", KINDS)
def test_restored_copy_neither_renews_nor_returns_slots_of_its_original(kind: str, tmp_path: Path):
    """The image may be restored many times, and each copy keeps the thread that renews."""
    held = Held(kind, f"sqlite:///{tmp_path / 'limiter.db'}")
    renew_clients()
    answer = in_child(held, 0)
    held.run(held.repo.close())

    assert [0, CAPACITY - 1, CAPACITY - 2, CAPACITY - 1] == answer


SERVICE = """
import os
from tests.copies.test_slots import granted, preloaded
_limiter, _lease = preloaded(os.environ["ZAE_LIMITER_URL"])

def application(environ, start_response):
    start_response("200 OK", [])
    return [granted(_limiter).encode()]
"""


def preloaded(url: str) -> tuple[Any, Any]:
    """Open a limiter and hold a slot, as a service does that is imported before its workers are forked."""
    repo = SyncRepository.open(url)
    repo.set_system_defaults(LIMITS)
    limiter = SyncRateLimiter(repo)
    lease = limiter.acquire("user-1", RESOURCE, ONE)
    lease.__enter__()
    return limiter, lease


def granted(limiter: Any) -> str:
    """Take slots until there are no more, return them, and say how many there were."""
    leases: list[Any] = []
    try:
        while True:
            leases.append(limiter.acquire("user-1", RESOURCE, ONE))
            leases[-1].__enter__()
    except RateLimitExceeded:
        leases.pop()
    for lease in leases:
        lease.__exit__(None, None, None)
    return json.dumps([os.getpid(), len(leases)])


def test_workers_of_a_preloaded_service_leave_the_slot_of_their_master(tmp_path: Path):
    """Workers that end do not return it."""
    pytest.importorskip("gunicorn", reason="the dev extra installs it")
    from tests.copies.test_gunicorn import preloaded_by

    (tmp_path / "slot_service.py").write_text(SERVICE)
    url = f"sqlite:///{tmp_path / 'limiter.db'}"
    with preloaded_by("slot_service:application", url, tmp_path) as address:
        answers = [json.loads(_get(address)) for _ in range(2 * CHILDREN)]
    with SyncRepository.open(url) as repo:
        free = SyncRateLimiter(repo).available("user-1", RESOURCE)["slots"]

    assert [CAPACITY - 1] * (2 * CHILDREN) == [amount for _, amount in answers]
    assert os.getpid() not in {worker for worker, _ in answers}
    assert CAPACITY - 1 == free


def _get(address: str) -> bytes:
    import urllib.request

    with urllib.request.urlopen(address, timeout=PATIENCE_S) as answer:
        body: bytes = answer.read()
    return body
