"""Waiting with threads: concurrent calls, locks, promises and background work.

`runtime.aio` has the same names for the asynchronous tree. Both modules are written by hand. Locks are taken from
``threading`` when they are made. If gevent has patched that module, they block the greenlet and not its thread.
"""

import _thread
import atexit
import importlib
import os
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from types import FrameType
from typing import TYPE_CHECKING, Any, Generic, Literal, Protocol, TypeVar, TypeVarTuple, cast, get_args
from weakref import WeakSet

from zae_limiter.core.errors import RateLimiterUnavailable, ValidationError
from zae_limiter.process import renew_in_copies
from zae_limiter.runtime import SIGTERM_WAIT_S, Shared, end_by_sigterm, is_sigterm_unhandled
from zae_limiter.runtime.own_thread import OwnThread as OwnThread
from zae_limiter.runtime.thread_calls import BackgroundCalls as BackgroundCalls
from zae_limiter.runtime.thread_calls import call_back as call_back
from zae_limiter.runtime.thread_pool import ThreadPool
from zae_limiter.runtime.thread_wakeup import Wakeup as Wakeup

ParallelMode = Literal["auto", "gevent", "threadpool", "serial"]

_JOIN_S = 1.0
"""`Background.join` waits at most this many seconds."""

_LOOK_S = 0.5
"""The seconds between two checks whether the thread that makes a result still runs, while a caller waits for it."""

DONE = None
"""Returned by a method whose asynchronous form may be awaited."""

CANCELLED: tuple[type[BaseException], ...] = ()
"""What a caller that is cancelled raises: nothing, because a thread is not cancelled."""

Lock = threading.Lock
Mutex = threading.Lock

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
U = TypeVar("U")
Ts = TypeVarTuple("Ts")


class WithGuard:
    """The base of a lease: `async with` raises an error that shows the correct line."""

    __slots__ = ()

    # Hidden from type checkers, which report the wrong statement by themselves.
    if not TYPE_CHECKING:

        def __aenter__(self) -> None:
            """Raise TypeError."""
            raise TypeError("a SyncLease needs `with`. Write: with limiter.acquire(...) as lease:")

        def __aexit__(self, *error: object) -> None:
            """Do nothing: Python looks this method up before it enters."""


class Promise(Generic[T]):
    """A result that is set once; any number of threads may wait for it."""

    __slots__ = ("_error", "_gate", "_settled", "_value")

    def __init__(self) -> None:
        self._value: T | None = None
        self._error: BaseException | None = None
        self._settled = False
        # Locked until there is a result. A plain lock costs a fraction of an Event.
        self._gate = threading.Lock()
        self._gate.acquire()

    def set(self, value: T) -> None:
        """Set the value and wake every waiter."""
        self._settle(value, None)

    def fail(self, error: BaseException) -> None:
        """Set an error, which every waiter raises."""
        self._settle(None, error)

    def done(self) -> bool:
        """Return whether there is a value or an error."""
        return self._settled

    def wait(self) -> T:
        """Wait for the value and return it, or raise the error."""
        failure = self._failure()
        if failure is not None:
            raise failure
        return cast("T", self._value)

    def _failure(self) -> BaseException | None:
        # An interrupt may end the other thread before it sets the result, or between the result and the release of
        # the lock. So the wait has a timeout, and the loop asks for the result itself.
        while not self._settled:
            if self._gate.acquire(timeout=_LOOK_S):
                # Released again for the next waiter.
                self._gate.release()
            elif self._is_lost():
                return RateLimiterUnavailable(InterruptedError("the thread that made the call was interrupted"))
        return self._error

    def _is_lost(self) -> bool:
        """Return whether no thread is left that could set the result."""
        return False

    def _settle(self, value: T | None, error: BaseException | None) -> None:
        if self._settled:
            raise RuntimeError("The promise already has its result")
        self._value, self._error, self._settled = value, error, True
        self._gate.release()


class Completable(Protocol[T_co]):
    """Work that a cancelled caller must not stop."""

    def complete(self) -> T_co:
        """Do the work."""


_MOST_THREADS = 15
"""Threads for the calls of one client at the same time: with its caller, as many as an acquire has buckets at most."""


class Parallel:
    """Runs several calls at the same time, in the way that is chosen here, once.

    ``auto`` uses greenlets if gevent has patched ``threading``, no concurrency on a single CPU, and threads otherwise.
    The threads are started when they are needed.

    Raises:
        ValidationError: The mode is unknown.
    """

    def __init__(self, mode: ParallelMode = "auto", *, workers: int = _MOST_THREADS) -> None:
        if mode not in get_args(ParallelMode):
            raise ValidationError("parallel_mode", mode, f"must be one of {', '.join(get_args(ParallelMode))}")
        self._workers = workers
        self._pool: ThreadPool | None = None
        self._mode = _resolve(mode)

    def run(self, calls: Sequence[Callable[[], T]]) -> list[T]:
        """Run the calls, wait for all to end, and return their results.

        The first runs in place. The others are offered to threads or greenlets. Calls that none of them has begun when
        the first ends run in place too, so nested calls cannot wait for each other. If some fail, the error of the
        first of them is raised. An interrupt of the first keeps calls that have not begun from beginning.
        """
        if not calls:
            return []
        first, *others = calls
        beside = [_Call(call) for call in others]
        for one in beside:
            self._offer(one.run)
        try:
            result = first()
        except Exception as failure:
            for other in _ended(beside):
                failure.add_note(f"The concurrent call failed too: {other!r}")
            raise
        except BaseException:
            for one in beside:
                one.withdraw()
            raise
        # Not only waited for: with nested calls, every thread of the pool could wait for a call in the queue.
        failures = _ended(beside)
        for other in failures[1:]:
            failures[0].add_note(f"The concurrent call failed too: {other!r}")
        if failures:
            raise failures[0]
        return [result, *[one.wait() for one in beside]]

    def run_to_end(self, calls: Sequence[Callable[[], T]]) -> list[T]:
        """Run the calls as `run` does: a thread is not cancelled."""
        return self.run(calls)

    def close(self) -> None:
        """End the threads; a later call of `run` starts new ones."""
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.close()

    def _offer(self, run: Callable[[], None]) -> None:
        if self._mode == "gevent":
            importlib.import_module("gevent").spawn(run)
        elif self._mode == "threadpool":
            pool = self._pool
            # A forked child has none of the threads. Two threads may each make a pool here at the same time. The
            # threads of the pool that is replaced run its calls and end when they are idle.
            if pool is None or pool.process != os.getpid():
                self._pool = pool = ThreadPool(self._workers)
            pool.offer(run)


class _Call(Promise[T]):
    """A call that is made once, by the first thread that claims it, and its result."""

    __slots__ = ("_call", "_claims")

    def __init__(self, call: Callable[[], T]) -> None:
        super().__init__()
        self._call = call
        self._claims: dict[None, object] = {}

    def run(self) -> None:
        """Make the call, unless another thread has begun it."""
        try:
            if self._claim():
                self.set(self._call())
        except BaseException as error:  # noqa: BLE001 - it is raised again where the result is waited for
            if not self.done():
                self.fail(error)

    def withdraw(self) -> BaseException | None:
        """Prevent the call or wait until it has ended; return its error, or None if it raised none."""
        return None if self._claim() else self._failure()

    def _claim(self) -> bool:
        claim = object()
        # `setdefault` is atomic, so exactly one thread gets its own claim back. It needs no lock that an interrupt
        # could leave locked.
        return self._claims.setdefault(None, claim) is claim

    def _is_lost(self) -> bool:
        # The frames of a suspended greenlet belong to no thread, so the search below would not find them.
        if "gevent.monkey" in sys.modules:
            return False
        # The call is lost if no thread is inside its `run`: an interrupt has ended the thread that claimed it.
        tops = sys._current_frames().values()  # noqa: SLF001 - documented, in spite of its underscore
        frames = [frame for top in tops for frame in _stack(top)]
        return not any(frame.f_code is _Call.run.__code__ and frame.f_locals["self"] is self for frame in frames)


def _ended(calls: Sequence[_Call[Any]]) -> list[BaseException]:
    """Run the calls that have not begun, wait for the others, and return what failed."""
    for one in calls:
        one.run()
    return [failure for one in calls if (failure := one.withdraw()) is not None]


def _stack(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


def _resolve(mode: ParallelMode) -> Literal["gevent", "threadpool", "serial"]:
    """Choose how concurrent calls run, and warn if the requested mode has little effect here."""
    # Patched sockets are not enough: waiting for an unpatched lock would block all greenlets.
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
    """A value that another thread sets once, with one waiter; ``wait()`` may be called again after an interrupt."""

    __slots__ = ("_gate", "filled", "value")

    def __init__(self) -> None:
        self.value: T | None = None
        self.filled = False
        # Locked until there is a value.
        self._gate = threading.Lock()
        self._gate.acquire()

    def set(self, value: T | None) -> None:
        """Set the value and wake the waiter; a second call wakes a waiter that an interrupted first call did not."""
        self.value = value
        self.filled = True
        try:
            self._gate.release()
        except RuntimeError:
            # It was released before, and the waiter has not acquired it yet.
            return

    def wait(self, within_s: float) -> None:
        """Wait until the value is set, but for at most this many seconds."""
        if not self.filled:
            self._gate.acquire(timeout=min(max(0.0, within_s), threading.TIMEOUT_MAX))


class Background:
    """Optional work on a daemon thread, one at a time; it ends on `stop`."""

    __slots__ = ("__weakref__", "_starting", "_stop", "_thread")

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()
        self._stop = threading.Event()
        renew_in_copies(self)

    def renew(self, *, restored: bool) -> None:
        """Replace the locks in a forked child, where a thread of the parent may hold them forever."""
        if restored:
            return
        stopped, self._starting, self._stop = self._stop.is_set(), threading.Lock(), threading.Event()
        if stopped:
            self._stop.set()

    def start(self, work: Callable[[], None]) -> None:
        """Start the work, unless earlier work is still running or `stop` was called."""
        thread = self._thread
        # In a forked child, a thread of the parent is not alive. A thread that holds the lock is starting the work.
        if (thread is not None and thread.is_alive()) or not self._starting.acquire(blocking=False):
            return
        try:
            if not self._stop.is_set():
                self._thread = threading.Thread(target=work, daemon=True)
                # No thread can be started while the interpreter exits, and the work is optional.
                with suppress(RuntimeError):
                    self._thread.start()
        finally:
            self._starting.release()

    def pause(self, seconds: float) -> bool:
        """Wait inside the work for this many seconds; return False if the work has to end."""
        return not self._stop.wait(seconds)

    def stop(self) -> None:
        """End the work at its next pause, and start no other."""
        self._stop.set()

    def join(self) -> None:
        """Wait at most a second until the work has ended; call it after closing what the work waits for."""
        thread = self._thread
        if thread is not None and thread.is_alive() and thread is not threading.current_thread():
            thread.join(_JOIN_S)


class Later:
    """Work that runs after delays, on a thread. It runs earlier at the exit, or if SIGTERM ends the process.

    ``due`` does what is due, and returns the seconds until it is to run again, None if nothing is left. ``everything``
    runs instead if the end comes early.
    """

    __slots__ = ("__weakref__", "_due", "_everything", "_stop")

    def __init__(self, due: Callable[[], float | None], everything: Callable[[], None]) -> None:
        self._due = due
        self._everything = everything
        self._stop = threading.Event()
        _laters.add(self)
        _run_before_exit()
        renew_in_copies(self)

    def renew(self, *, restored: bool) -> None:
        """Forget the waits of the original in a forked child, which has none of its threads."""
        if not restored:
            self._stop = threading.Event()

    def start(self, delay_s: float) -> None:
        """Run the work after this many seconds, and then as often as it asks for."""
        try:
            _thread.start_new_thread(self._run, (delay_s,))
        except RuntimeError:
            # No thread can be started while the interpreter exits.
            self._run(0)

    def stop(self) -> None:
        """Run the work of all waits now, and any later work without a delay."""
        self._stop.set()
        # Also if no wait is left: its thread may be in the middle of the work, and the exit would cut it off. The work
        # itself waits for a run that has begun.
        self._everything()

    def _run(self, delay_s: float | None) -> None:
        while delay_s is not None:
            if self._stop.wait(delay_s):
                return self._everything()
            delay_s = self._due()
        return None


_laters: "WeakSet[Later]" = WeakSet()
_hooks = {"exit": False}


def _run_before_exit() -> None:
    """Run waiting work at the exit of the interpreter, and before a SIGTERM that the program does not handle."""
    if not _hooks["exit"]:
        _hooks["exit"] = True
        atexit.register(_stop_all)
    # A greenlet cannot wait inside a signal handler of gevent.
    if "gevent.monkey" not in sys.modules and is_sigterm_unhandled():
        signal.signal(signal.SIGTERM, _on_sigterm)


def _stop_all() -> None:
    for later in list(_laters):
        later.stop()


def _on_sigterm(_number: int, _frame: FrameType | None) -> None:
    # On another thread, with a timeout: the interrupted code of this thread may hold a lock that the work needs.
    ended = threading.Event()

    def run() -> None:
        _stop_all()
        ended.set()

    with suppress(RuntimeError):
        _thread.start_new_thread(run, ())
        ended.wait(SIGTERM_WAIT_S)
    end_by_sigterm()


def sleep(seconds: float) -> None:
    """Wait for this many seconds."""
    time.sleep(seconds)


def in_thread(call: Callable[[*Ts], T], *args: *Ts) -> T:
    """Make a blocking call in this thread."""
    return call(*args)


def in_background(call: Callable[[*Ts], object], *args: *Ts) -> None:
    """Start a blocking call on a daemon thread and do not wait for it.

    The call must be optional. It is not made if no thread can be started, and the exit of the interpreter cuts it off.
    """
    # Thread.start() waits for the new thread. An interrupt of that wait may keep a lock that the new thread needs.
    with suppress(RuntimeError):
        _thread.start_new_thread(call, args)


def notifier(callback: Callable[[T], object], argument: T) -> Callable[[], None]:
    """Return a function that calls ``callback`` on a thread of its own: it may wait, and it may fail."""

    def notify() -> None:
        # No thread can be started while the interpreter exits.
        with suppress(RuntimeError):
            threading.Thread(target=callback, args=(argument,), daemon=True, name="zae-limiter-on-lost").start()

    return notify


def finish(work: Completable[T]) -> T:
    """Complete work; a thread cannot be cancelled."""
    return work.complete()


def finish_in_place(call: Callable[[], T]) -> T:
    """Make the call; a thread cannot be cancelled."""
    return call()


def shared(result: Shared[T], within_s: float) -> T:
    """Wait for a shared result for at most this many seconds; after that the call continues without this caller.

    Raises:
        TimeoutError: There was no result in time.
    """
    return result.result(within_s)


def within(seconds: float, call: Callable[[], T]) -> T:
    """Wait for a call for at most this many seconds; after that it continues in the background, and is ignored.

    Raises:
        TimeoutError: The call took longer.
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
