"""What blocking code needs of threads: two calls at once, locks, promises, and background work.

Written by hand in both trees under the same names. It knows nothing of limits or tables. Locks are looked up when they
are made, so that under gevent's monkey patching they park the greenlet and not its thread.
"""

import importlib
import os
import sys
import threading
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Generic, Literal, Protocol, TypeVar, TypeVarTuple, cast, get_args

from zae_limiter.core.errors import ValidationError

__all__ = [
    "Background",
    "Lock",
    "Mutex",
    "Parallel",
    "ParallelMode",
    "Promise",
    "Slot",
    "finish",
    "finish_in_place",
    "in_background",
    "in_thread",
    "outlast",
    "shared",
    "sleep",
    "within",
]

ParallelMode = Literal["auto", "gevent", "threadpool", "serial"]

_JOIN_S = 1.0
"""How long a close waits for background work whose connections were closed."""

Lock = threading.Lock
Mutex = threading.Lock

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
U = TypeVar("U")
Ts = TypeVarTuple("Ts")


class Promise(Generic[T]):
    """A result that is set once and that many may wait for."""

    __slots__ = ("_error", "_gate", "_settled", "_value")

    def __init__(self) -> None:
        self._value: T | None = None
        self._error: BaseException | None = None
        self._settled = False
        # Held until there is a result. A bare lock costs a fraction of an Event.
        self._gate = threading.Lock()
        self._gate.acquire()

    def set(self, value: T) -> None:
        """Hands the value to every waiter."""
        self._settle(value, None)

    def fail(self, error: BaseException) -> None:
        """Raises the error in every waiter."""
        self._settle(None, error)

    def done(self) -> bool:
        """Tells whether the promise was set or failed."""
        return self._settled

    def wait(self) -> T:
        """Waits for the value, or raises the error."""
        failure = self._failure()
        if failure is not None:
            raise failure
        return cast("T", self._value)

    def _failure(self) -> BaseException | None:
        if not self._settled:
            with self._gate:
                pass
        return self._error

    def _settle(self, value: T | None, error: BaseException | None) -> None:
        if self._settled:
            raise RuntimeError("The promise already has its result")
        self._value, self._error, self._settled = value, error, True
        self._gate.release()


class Shared(Protocol[T_co]):
    """A result that a thread sets once, and that many may wait for."""

    def done(self) -> bool:
        """Return whether there is a result."""

    def result(self, within_s: float | None = None) -> T_co:
        """Return the result, or raise the error."""

    def when_done(self, callback: Callable[[], object]) -> None:
        """Call back once there is a result, from any thread."""


class Parallel:
    """Runs two calls at once in the way that is chosen here, once.

    `auto` takes greenlets where gevent has patched threads, nothing on a single CPU, else a lazy pool of threads.

    Raises:
        ValidationError: the mode is not one of the four.
    """

    def __init__(self, mode: ParallelMode = "auto", *, workers: int = 2) -> None:
        if mode not in get_args(ParallelMode):
            raise ValidationError("parallel_mode", mode, f"must be one of {', '.join(get_args(ParallelMode))}")
        self._workers = workers
        self._pool: tuple[ThreadPoolExecutor | None, int] = None, 0  # and the process that made it
        self._way = _resolve(mode)

    def both(self, first: Callable[[], T], second: Callable[[], U]) -> tuple[T, U]:
        """Runs both calls, waits for both to end, and returns their results.

        The first runs in place. The second is offered to a thread or greenlet; if none has begun it when the first
        ends it runs in place too, so nested pairs cannot wait for each other. When one fails its error is raised, the
        first's before the second's. An interrupt of the first keeps a second that has not begun from beginning.
        """
        beside = _Errand(second)
        self._offer(beside.run)
        try:
            result = first()
        except Exception as failure:
            beside.run()
            other = beside.withdraw()
            if other is not None:
                failure.add_note(f"The call beside it failed too: {other!r}")
            raise
        except BaseException:
            beside.withdraw()
            raise
        beside.run()
        return result, beside.wait()

    def close(self) -> None:
        """Lets the threads go; a later pair makes new ones."""
        (pool, _), self._pool = self._pool, (None, 0)
        if pool is not None:
            pool.shutdown(wait=False)

    def _offer(self, run: Callable[[], None]) -> None:
        if self._way == "gevent":
            importlib.import_module("gevent").spawn(run)
        elif self._way == "threadpool":
            pool, owner = self._pool
            # Threads do not survive a fork. Of two pools made at once, the one that is dropped ends itself.
            if pool is None or owner != os.getpid():
                pool = ThreadPoolExecutor(self._workers, "zae-limiter")
                self._pool = pool, os.getpid()
            # No thread can be had while the interpreter exits or the pool closes: then the caller runs it.
            with suppress(RuntimeError):
                pool.submit(run)


class _Errand(Promise[T]):
    """A call that is made once, by whoever comes first, and its result."""

    __slots__ = ("_call", "_claim")

    def __init__(self, call: Callable[[], T]) -> None:
        super().__init__()
        self._call = call
        self._claim = threading.Lock()

    def run(self) -> None:
        """Makes the call unless someone has begun it."""
        if self._claim.acquire(blocking=False):
            try:
                self.set(self._call())
            except BaseException as error:  # noqa: BLE001 - it is raised again where the result is waited for
                self.fail(error)

    def withdraw(self) -> BaseException | None:
        """Keeps the call from being begun, or waits until it has ended, and returns what it raised."""
        return None if self._claim.acquire(blocking=False) else self._failure()


def _resolve(mode: ParallelMode) -> Literal["gevent", "threadpool", "serial"]:
    """Chooses how pairs run, and warns when the mode asked for does little good here."""
    # Patched sockets alone do not do: waiting on an unpatched lock would stop all greenlets.
    monkey = sys.modules.get("gevent.monkey")
    patched = monkey is not None and monkey.is_module_patched("threading")
    single_cpu = (len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count()) == 1
    if mode == "auto":
        return "gevent" if patched else "serial" if single_cpu else "threadpool"
    if mode == "gevent" and not patched:
        warnings.warn("parallel_mode='gevent' without monkey patching runs calls one by one", stacklevel=3)
        return "serial"
    if mode == "threadpool" and single_cpu:
        warnings.warn("parallel_mode='threadpool' on a single CPU: its threads contend for the GIL", stacklevel=3)
    return mode


class Slot(Generic[T]):
    """A single-waiter value that another thread sets once; ``wait()`` may be called again after an interrupt."""

    __slots__ = ("_gate", "filled", "value")

    def __init__(self) -> None:
        self.value: T | None = None
        self.filled = False
        # Locked until there is a value.
        self._gate = threading.Lock()
        self._gate.acquire()

    def set(self, value: T | None) -> None:
        """Set the value and wake the waiter; setting it again wakes a waiter that an interrupt left asleep."""
        self.value = value
        self.filled = True
        try:
            self._gate.release()
        except RuntimeError:
            # It was released before.
            return

    def wait(self, within_s: float) -> None:
        """Wait until the value is set, or for this many seconds."""
        if not self.filled:
            self._gate.acquire(timeout=min(max(0.0, within_s), threading.TIMEOUT_MAX))


class Background:
    """Optional work beside all callers, one piece at a time, on a daemon thread; it ends with `stop`."""

    __slots__ = ("_starting", "_stop", "_thread")

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()
        self._stop = threading.Event()

    def start(self, work: Callable[[], None]) -> None:
        """Starts the work, unless some is running already."""
        thread = self._thread
        # A thread of the parent process counts as ended in a forked child.
        if (thread is not None and thread.is_alive()) or not self._starting.acquire(blocking=False):
            return
        try:
            if not self._stop.is_set():
                self._thread = threading.Thread(target=work, daemon=True)
                # No thread can be started while the interpreter exits: the work is optional.
                with suppress(RuntimeError):
                    self._thread.start()
        finally:
            self._starting.release()

    def pause(self, seconds: float) -> bool:
        """Waits inside the work; returns False if the work has to end."""
        return not self._stop.wait(seconds)

    def stop(self) -> None:
        """Lets the work end at its next pause, and no other begin."""
        self._stop.set()

    def join(self) -> None:
        """Waits for the end of the work for a while, once everything that it waits for was closed."""
        thread = self._thread
        if thread is not None and thread.is_alive() and thread is not threading.current_thread():
            thread.join(_JOIN_S)


def sleep(seconds: float) -> None:
    """Waits for a while."""
    time.sleep(seconds)


def in_thread(call: Callable[[*Ts], T], *args: *Ts) -> T:
    """Makes a blocking call in place."""
    return call(*args)


def in_background(call: Callable[[*Ts], object], *args: *Ts) -> None:
    """Starts a blocking call on a daemon thread and never waits for it.

    The work is optional: it is cut off when the interpreter exits, and not begun when no thread can be started.
    """
    with suppress(RuntimeError):
        threading.Thread(target=call, args=args, daemon=True).start()


def outlast(call: Callable[[], T], undo: Callable[[T], object]) -> T:
    """Makes the call: a thread is not cancelled."""
    return call()


def finish(call: Callable[[], T]) -> T:
    """Makes the call: a thread is not cancelled."""
    return call()


def finish_in_place(call: Callable[[], T]) -> T:
    """Run the call: a thread is not cancelled."""
    return call()


def shared(result: Shared[T], within_s: float) -> T:
    """Wait for a shared result for this many seconds; the call goes on without this caller.

    Raises:
        TimeoutError: It took longer.
    """
    return result.result(within_s)


def within(seconds: float, call: Callable[[], T]) -> T:
    """Waits for the call so long and no longer; one that takes longer is left to itself.

    Raises:
        TimeoutError: it took longer.
    """
    answer: list[T] = []
    failure: list[BaseException] = []

    def make() -> None:
        try:
            answer.append(call())
        except BaseException as error:  # noqa: BLE001 - it is raised again in the thread that waits
            failure.append(error)

    thread = threading.Thread(target=make, daemon=True)
    thread.start()
    thread.join(seconds)
    if failure:
        raise failure[0]
    if not answer:
        raise TimeoutError(f"no answer within {seconds} s")
    return answer[0]
