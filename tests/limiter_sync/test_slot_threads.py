"""The thread that renews slots: it survives failures of others, ends when it is not needed, and is started again."""

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from tests._async.clients import SettableClock
from zae_limiter import Limit, SyncRateLimiter, SyncRepository
from zae_limiter.runtime import own_thread
from zae_limiter.runtime.own_thread import OwnThread

HOLD_MS = 60_000
SOON_MS = 10_000
"""Slots that end in ten seconds are renewed, whatever their jitter is."""

LIMITS = [Limit.per_minute("rpm", 1_000), Limit.concurrent("slots", 3, hold_seconds=60)]
PATIENCE_S = 60.0
ONE = {"rpm": 1, "slots": 1}


def wait_until(condition: Callable[[], object]) -> None:
    """Wait until something has happened, for a minute at most."""
    end_s = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end_s, "it never happened"
        time.sleep(0.005)


@pytest.fixture
def clock() -> SettableClock:
    return SettableClock()


@pytest.fixture
def repo(clock: SettableClock) -> Iterator[SyncRepository]:
    with SyncRepository.open("memory://", clock=clock) as made:
        made.set_system_defaults(LIMITS)
        yield made


def entered(limiter: SyncRateLimiter, **options):
    lease = limiter.acquire("user-1", "gpt-4", ONE, **options)
    lease.__enter__()
    return lease


def end_of(lease) -> int:
    (hold,) = lease._slots.values()
    return hold.end_ms


def wake(limiter: SyncRateLimiter) -> None:
    """Run what is due on the thread, because a settable clock does not wake it."""
    limiter._client.slots._thread.wake_in(0)


def renewal_threads() -> int:
    return sum(thread.name == "zae-limiter-renewals" for thread in threading.enumerate())


def test_thread_renews_slots_of_open_leases(repo, clock):
    """No call of the application is needed."""
    limiter = SyncRateLimiter(repo)
    lease = entered(limiter)
    before = end_of(lease)
    clock.time_ms = before - SOON_MS
    wake(limiter)
    wait_until(lambda: end_of(lease) > before)

    assert not lease.lost


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_callback_of_a_lost_lease_that_raises_does_not_end_renewals(repo, clock):
    """Slots of other leases stay in use."""
    limiter, called = SyncRateLimiter(repo), threading.Event()

    def fail(lease):
        called.set()
        raise LookupError

    lost = entered(limiter, on_lost=fail)
    clock.advance(2 * HOLD_MS)
    wake(limiter)
    wait_until(called.is_set)
    other = entered(limiter)
    before = end_of(other)
    clock.time_ms = before - SOON_MS
    wake(limiter)
    wait_until(lambda: end_of(other) > before)

    assert (True, False) == (lost.lost, other.lost)
    # Its error must not be reported by the next test.
    wait_until(lambda: not any(thread.name == "zae-limiter-on-lost" for thread in threading.enumerate()))


def test_callback_of_a_lost_lease_that_waits_does_not_delay_renewals(repo, clock):
    """It may settle, or wait for the work that it stops."""
    limiter, called, may_end = SyncRateLimiter(repo), threading.Event(), threading.Event()

    def wait(lease):
        called.set()
        may_end.wait()

    entered(limiter, on_lost=wait)
    clock.advance(2 * HOLD_MS)
    wake(limiter)
    try:
        wait_until(called.is_set)
        other = entered(limiter)
        before = end_of(other)
        clock.time_ms = before - SOON_MS
        wake(limiter)
        wait_until(lambda: end_of(other) > before)
    finally:
        may_end.set()


def test_closed_repository_ends_the_threads_of_all_its_limiters(repo):
    """Leases may still be open. A thread that has just been started ends too."""
    before = renewal_threads()
    for _ in range(30):
        entered(SyncRateLimiter(repo)).__exit__(None, None, None)
    entered(SyncRateLimiter(repo))
    repo.close()
    wait_until(lambda: renewal_threads() <= before)


def test_thread_without_slots_ends_and_is_started_again(repo, clock, monkeypatch):
    """A limiter that holds no slots has no thread, and its repository does not keep it alive."""
    monkeypatch.setattr(own_thread, "_IDLE_S", 0.01)
    limiter = SyncRateLimiter(repo)
    before = renewal_threads()
    entered(limiter).__exit__(None, None, None)
    wake(limiter)
    wait_until(lambda: renewal_threads() == before and not repo.scope.client.put_off._limiters)
    lease = entered(limiter)
    seen = end_of(lease)
    clock.time_ms = seen - SOON_MS
    wake(limiter)
    wait_until(lambda: end_of(lease) > seen)

    assert [limiter._client.slots] == list(repo.scope.client.put_off._limiters)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_work_that_fails_runs_again_on_another_thread(monkeypatch):
    """A failure does not end all later renewals."""
    monkeypatch.setattr(own_thread, "_AFTER_FAILURE_S", 0.01)
    runs, ends = [], []

    def due() -> float:
        runs.append(threading.current_thread())
        if len(runs) == 1:
            raise LookupError
        return float("inf")

    thread = OwnThread(due, lambda: ends.append(threading.current_thread()))
    assert thread.wake_in(0)
    wait_until(lambda: len(runs) == 2)
    thread.stop()
    wait_until(lambda: len(ends) == 2)

    assert runs == ends
    assert runs[0] is not runs[1]


def test_thread_that_cannot_be_started_is_started_by_the_next_lease(repo, clock, monkeypatch):
    """The system may have had too many threads for a moment."""
    limiter = SyncRateLimiter(repo)

    def refuse(thread):
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        first = entered(limiter)
    assert limiter._client.slots._thread._thread is None
    before = end_of(first)
    entered(limiter)
    clock.time_ms = before - SOON_MS
    wake(limiter)
    wait_until(lambda: end_of(first) > before)


EXITS = """
import sys, threading
from zae_limiter import Limit, SyncRateLimiter, SyncRepository
repo = SyncRepository.open(sys.argv[1])
repo.set_system_defaults([Limit.concurrent("slots", 3, hold_seconds=5)])
lease = SyncRateLimiter(repo).acquire("user-1", "gpt-4", {"slots": 1})
lease.__enter__()
if sys.argv[2] == "close":
    repo.close()
if sys.argv[2] == "kept":
    import atexit
    atexit.register(lambda: lease.__exit__(None, None, None))
"""


@pytest.mark.parametrize("way", ["open", "close", "kept"])
@pytest.mark.parametrize("store", ["memory", "sqlite"])
def test_interpreter_exits_silently_with_open_leases(way, store, tmp_path):
    """The thread neither delays the exit nor prints anything."""
    url = "memory://" if store == "memory" else f"sqlite:///{tmp_path / 'limiter.db'}"
    done = subprocess.run(
        [sys.executable, "-X", "dev", "-W", "error", "-c", EXITS, url, way],
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )

    assert (0, "", "") == (done.returncode, done.stdout, done.stderr)


def test_slots_of_many_threads_are_renewed_and_returned(repo, clock):
    """Each thread has a lease of its own, and all of them share the thread that renews."""
    limiter, inside, may_leave = SyncRateLimiter(repo), threading.Barrier(4), threading.Event()
    leases = []

    def work() -> None:
        with limiter.acquire("user-1", "gpt-4", ONE) as lease:
            leases.append(lease)
            inside.wait()
            may_leave.wait(PATIENCE_S)

    workers = [threading.Thread(target=work) for _ in range(3)]
    for worker in workers:
        worker.start()
    inside.wait()
    before = max(end_of(lease) for lease in leases)
    clock.time_ms = before - SOON_MS
    wake(limiter)
    wait_until(lambda: min(end_of(lease) for lease in leases) > before)
    seen = limiter.available("user-1", "gpt-4")["slots"]
    may_leave.set()
    for worker in workers:
        worker.join()

    assert (0, 3) == (seen, limiter.available("user-1", "gpt-4")["slots"])
