"""Run a blocking call on its own thread, at most one at a time, and share it among all callers.

A credential provider or a name lookup may hang for any time. A caller waits until its own deadline.
The call continues, and later callers use it. The thread is a daemon: it delays neither an executor
of the caller nor the exit of the process.

No event, condition or future of the standard library is used. A signal handler that interrupts a
caller inside one could leave its lock locked for all other callers.
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
    """The result of a call that many callers may wait for; ``begun`` is False if its thread was not started."""

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
        """Return the result, or raise the error. Wait at most ``within_s`` seconds, without limit if that is None.

        Raises:
            TimeoutError: It took longer.
        """
        if not self._done:
            # Each waiter has its own lock, so an interrupted waiter blocks no other.
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
        """Call back once there is a result, from any thread. The callback must not block or raise."""
        # Append first, then check: a result that is set in between is seen by one of the two
        # threads.
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
    """A call without arguments. All callers that need it while it is in flight share its result."""

    __slots__ = ("_call", "_in_flight", "_lock", "_process")

    def __init__(self, call: Callable[[], T]) -> None:
        self._call = call
        self._start_again()

    def _start_again(self) -> None:
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._in_flight: SharedResult[T] | None = None

    def first(self) -> SharedResult[T]:
        """Return the result of the last call, in flight or not; start one if there was none."""
        result = self._in_flight
        return result if result is not None and result.begun and self._process == os.getpid() else self.begin()

    def begin(self) -> SharedResult[T]:
        """Start the call unless it is in flight, and return its result. It cannot be cancelled."""
        if self._process != os.getpid():
            # A fork left the thread behind, and possibly the owner of the lock.
            self._start_again()
        with self._lock:
            result = self._in_flight
            if result is None or result.done() or not result.begun:
                self._in_flight = result = SharedResult()
                self._start(result)
        return result

    def _start(self, result: SharedResult[T]) -> None:
        try:
            # Not threading.Thread: its start() waits for an event, which a signal handler may
            # interrupt.
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
    """Return a result that is already set, for callers with nothing to do."""
    result: SharedResult[None] = SharedResult()
    result.set(None)
    return result
