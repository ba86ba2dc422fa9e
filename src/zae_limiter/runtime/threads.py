"""What blocking code needs of threads: two calls at once, locks, promises, and background work.

Written by hand in both trees under the same names. It knows nothing of limits or tables. Locks are looked up when they
are made, so that under gevent's monkey patching they park the greenlet and not its thread.
"""

import _thread
import importlib
import os
import queue
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from types import FrameType
from typing import Any, Generic, Literal, Protocol, TypeVar, TypeVarTuple, cast, get_args

from zae_limiter.core.errors import RateLimiterUnavailable, ValidationError
from zae_limiter.process import renew_in_copies

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

_LOOK_S = 0.5
"""How often a caller that waits for a call looks whether its thread is still there."""
_IDLE_S = 30.0
"""How long an idle thread waits for the next call before it ends."""

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
        # An interrupt may end the thread that sets the result, before or after it has.
        while not self._settled:
            if self._gate.acquire(timeout=_LOOK_S):
                self._gate.release()
            elif self._is_lost():
                return RateLimiterUnavailable(InterruptedError("the thread that made the call was interrupted"))
        return self._error

    def _is_lost(self) -> bool:
        """Return whether nothing is left that could set the result."""
        return False

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
    """Runs several calls at the same time, in the way that is chosen here, once.

    `auto` takes greenlets where gevent has patched threads, nothing on a single CPU, else a lazy pool of threads.

    Raises:
        ValidationError: the mode is not one of the four.
    """

    def __init__(self, mode: ParallelMode = "auto", *, workers: int = 2) -> None:
        if mode not in get_args(ParallelMode):
            raise ValidationError("parallel_mode", mode, f"must be one of {', '.join(get_args(ParallelMode))}")
        self._workers = workers
        self._crew: _Crew | None = None
        self._way = _resolve(mode)

    def run(self, calls: Sequence[Callable[[], T]]) -> list[T]:
        """Run the calls, wait for all to end, and return their results.

        The first runs in place. The others are offered to threads or greenlets; those that none has begun when the
        first ends run in place too, so nested calls cannot wait for each other. If some fail, the error of the first
        of them is raised. An interrupt of the first keeps calls that have not begun from beginning.
        """
        if not calls:
            return []
        first, *others = calls
        beside = [_OfferedCall(call) for call in others]
        for one in beside:
            self._offer(one.run)
        try:
            result = first()
        except Exception as failure:
            for other in _ended(beside):
                failure.add_note(f"The call beside it failed too: {other!r}")
            raise
        except BaseException:
            for one in beside:
                one.withdraw()
            raise
        failures = _ended(beside)
        for other in failures[1:]:
            failures[0].add_note(f"The call beside it failed too: {other!r}")
        if failures:
            raise failures[0]
        return [result, *[one.wait() for one in beside]]

    def run_to_end(self, calls: Sequence[Callable[[], T]]) -> list[T]:
        """Run the calls as `run` does: a thread is not cancelled."""
        return self.run(calls)

    def close(self) -> None:
        """Lets the threads go; a later pair makes new ones."""
        crew, self._crew = self._crew, None
        if crew is not None:
            crew.dismiss()

    def _offer(self, run: Callable[[], None]) -> None:
        if self._way == "gevent":
            importlib.import_module("gevent").spawn(run)
        elif self._way == "threadpool":
            crew = self._crew
            # Threads do not survive a fork. Of two crews made at the same time, the one that is dropped ends itself.
            if crew is None or crew.process != os.getpid():
                self._crew = crew = _Crew(self._workers)
            crew.offer(run)


class _Crew:
    """Threads that run calls, at most this many, started when they are needed and ended when they are idle.

    It uses no executor: one whose caller is interrupted may stay locked for all others.
    """

    def __init__(self, most: int) -> None:
        self.process = os.getpid()
        self._most = most
        self._calls: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._members: dict[int, None] = {}

    def offer(self, run: Callable[[], None]) -> None:
        """Let a thread run the call, unless its caller is faster."""
        self._calls.put(run)
        if len(self._members) < self._most:
            # No thread can be started while the interpreter exits: then the caller runs it.
            with suppress(RuntimeError):
                _thread.start_new_thread(self._work, ())

    def dismiss(self) -> None:
        """Let the threads end."""
        for _ in range(self._most):
            self._calls.put(None)

    def _work(self) -> None:
        member = threading.get_ident()
        if len(self._members) >= self._most:
            return
        self._members[member] = None
        try:
            while True:
                run = self._calls.get(timeout=_IDLE_S)
                if run is None:
                    return
                run()
        except queue.Empty:
            return
        finally:
            self._members.pop(member, None)


class _OfferedCall(Promise[T]):
    """A call that is made once, by the thread that claims it first, and its result."""

    __slots__ = ("_call", "_claims")

    def __init__(self, call: Callable[[], T]) -> None:
        super().__init__()
        self._call = call
        self._claims: dict[None, object] = {}

    def run(self) -> None:
        """Makes the call unless a thread has begun it."""
        try:
            if self._claim():
                self.set(self._call())
        except BaseException as error:  # noqa: BLE001 - it is raised again where the result is waited for
            if not self.done():
                self.fail(error)

    def withdraw(self) -> BaseException | None:
        """Keeps the call from being begun, or waits until it has ended, and returns what it raised."""
        return None if self._claim() else self._failure()

    def _claim(self) -> bool:
        claim = object()
        # One atomic step.
        return self._claims.setdefault(None, claim) is claim

    def _is_lost(self) -> bool:
        # Greenlets have no thread of their own, and are not interrupted between two bytecodes.
        if "gevent.monkey" in sys.modules:
            return False
        tops = sys._current_frames().values()  # noqa: SLF001 - documented, for all its underscore
        frames = [frame for top in tops for frame in _stack(top)]
        return not any(frame.f_code is _OfferedCall.run.__code__ and frame.f_locals["self"] is self for frame in frames)


def _ended(calls: Sequence[_OfferedCall[Any]]) -> list[BaseException]:
    """Run the calls that have not begun, wait for the others, and return what failed."""
    for one in calls:
        one.run()
    return [failure for one in calls if (failure := one.withdraw()) is not None]


def _stack(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


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

    __slots__ = ("__weakref__", "_starting", "_stop", "_thread")

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()
        self._stop = threading.Event()
        renew_in_copies(self)

    def renew(self, *, restored: bool) -> None:
        """Have locks, in a forked child, that no thread of the parent holds."""
        if restored:
            return
        stopped, self._starting, self._stop = self._stop.is_set(), threading.Lock(), threading.Event()
        if stopped:
            self._stop.set()

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
    # Not by a Thread: if its starter is interrupted, its start may wait for the starter's lock forever.
    with suppress(RuntimeError):
        _thread.start_new_thread(call, args)


def outlast(call: Callable[[], T], undo: Callable[[T], object]) -> T:
    """Makes the call: a thread is not cancelled."""
    return call()


def finish(call: Callable[[*Ts], T], *args: *Ts) -> T:
    """Makes the call: a thread is not cancelled."""
    return call(*args)


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
    slot: Slot[tuple[T | None, BaseException | None]] = Slot()

    def make() -> None:
        try:
            slot.set((call(), None))
        except BaseException as error:  # noqa: BLE001 - it is raised again in the thread that waits
            slot.set((None, error))

    _thread.start_new_thread(make, ())
    slot.wait(seconds)
    if slot.value is None:
        raise TimeoutError(f"no answer within {seconds} s")
    answer, failure = slot.value
    if failure is not None:
        raise failure
    return cast("T", answer)
