"""A blocking call on a thread of its own, of which one at a time is in flight; all callers that need it share it.

A provider of keys or a resolver of names may hang for any time. A caller waits until its own deadline; the call goes on
and is used by later callers. The thread is a daemon: it delays neither a pool of the caller nor the end of the process.

No event, condition or future of the standard library is used: a caller that a signal handler interrupts inside one may
leave its lock locked, for all others.
"""

import _thread
import os
import threading
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar, cast

__all__ = ["SharedCall", "SharedResult", "done"]

T = TypeVar("T")


class SharedResult(Generic[T]):
    """The result of a call that many may wait for; ``begun`` is False if its thread was not started."""

    def __init__(self) -> None:
        self.begun = False
        self._done = False
        self._value: T | None = None
        self._error: BaseException | None = None
        self._callbacks: deque[Callable[[], object]] = deque()

    def done(self) -> bool:
        """Return whether there is a result."""
        return self._done

    def set(self, value: T | None, error: BaseException | None = None) -> None:
        """Set the result, or the error, and wake every waiter."""
        self._value = value
        self._error = error
        self._done = True
        self._call_back()

    def result(self, within_s: float | None = None) -> T:
        """Return the result, or raise the error; wait for it for this many seconds, None for any time.

        Raises:
            TimeoutError: It took longer.
        """
        if not self._done:
            # Each waiter has a lock of its own, so one that is interrupted takes it along.
            gate = threading.Lock()
            gate.acquire()
            self.when_done(gate.release)
            gate.acquire(True, -1 if within_s is None else min(max(0.0, within_s), threading.TIMEOUT_MAX))
        if not self._done:
            raise TimeoutError(f"no result within {within_s} s")
        if self._error is not None:
            raise self._error
        return cast("T", self._value)

    def when_done(self, callback: Callable[[], object]) -> None:
        """Call back once there is a result, from any thread; the callback must not wait or raise."""
        self._callbacks.append(callback)
        if self._done:
            self._call_back()

    def _call_back(self) -> None:
        while self._callbacks:
            try:
                callback = self._callbacks.popleft()
            except IndexError:  # another thread was faster
                return
            callback()


class SharedCall(Generic[T]):
    """A call without arguments, whose result is shared by all that ask for it while it is in flight."""

    __slots__ = ("_call", "_in_flight", "_lock", "_process")

    def __init__(self, call: Callable[[], T]) -> None:
        self._call = call
        self._start_again()

    def _start_again(self) -> None:
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._in_flight: SharedResult[T] | None = None

    def first(self) -> SharedResult[T]:
        """Return the result of the last call, in flight or not; begin one if there was none."""
        result = self._in_flight
        return result if result is not None and result.begun and self._process == os.getpid() else self.begin()

    def begin(self) -> SharedResult[T]:
        """Begin the call unless it is in flight, and return what will hold its result; it cannot be cancelled."""
        if self._process != os.getpid():
            # The thread that was in flight, and maybe the holder of the lock, were left behind by a fork.
            self._start_again()
        with self._lock:
            result = self._in_flight
            if result is None or result.done() or not result.begun:
                self._in_flight = result = SharedResult()
                self._start(result)
        return result

    def _start(self, result: SharedResult[T]) -> None:
        try:
            _thread.start_new_thread(self._run, (result,))
        except RuntimeError as error:  # no thread can be started, as while the interpreter exits
            result.set(None, error)
        result.begun = True

    def _run(self, result: SharedResult[T]) -> None:
        try:
            value = self._call()
        except BaseException as error:  # noqa: BLE001 - it is raised again in every waiter
            result.set(None, error)
        else:
            result.set(value)


def done() -> SharedResult[None]:
    """Return a result that is there already: nothing was to be done."""
    result: SharedResult[None] = SharedResult()
    result.set(None)
    return result
