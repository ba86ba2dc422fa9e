"""What waiting code needs of asyncio: two calls at once, locks, promises, threads, and work that outlasts cancelling.

Written by hand in both trees under the same names. It knows nothing of limits or tables.
"""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Generic, Literal, TypeVar, TypeVarTuple, get_args

from zae_limiter.core.errors import ValidationError

__all__ = [
    "Lock",
    "Mutex",
    "Parallel",
    "ParallelMode",
    "Promise",
    "Slot",
    "finish",
    "in_background",
    "in_thread",
    "insist",
    "outlast",
    "sleep",
    "within",
]

ParallelMode = Literal["auto", "gevent", "threadpool", "serial"]

Lock = asyncio.Lock

T = TypeVar("T")
U = TypeVar("U")
Ts = TypeVarTuple("Ts")


class Parallel:
    """Runs two calls at once, as tasks of the running loop whatever the mode.

    Raises:
        ValidationError: the mode is not one of the four.
    """

    def __init__(self, mode: ParallelMode = "auto") -> None:
        if mode not in get_args(ParallelMode):
            raise ValidationError("parallel_mode", mode, f"must be one of {', '.join(get_args(ParallelMode))}")

    async def both(self, first: Callable[[], Awaitable[T]], second: Callable[[], Awaitable[U]]) -> tuple[T, U]:
        """Runs both calls, waits for both to end, and returns their results.

        When one fails its error is raised, the first's before the second's. A caller that is cancelled cancels
        both, still waits for both, and their results are lost: calls with effects belong inside `outlast`.
        """
        left, right = asyncio.create_task(_awaited(first)), asyncio.create_task(_awaited(second))
        try:
            await asyncio.wait((left, right))
        except asyncio.CancelledError:
            await _cancelled(left, right)
            raise
        failure, other = _failure(left), _failure(right)
        if failure is not None and other is not None:
            failure.add_note(f"The call beside it failed too: {other!r}")
        return left.result(), right.result()

    def close(self) -> None:
        """Lets go of nothing: tasks belong to their loop."""


class Promise(Generic[T]):
    """A result that is set once and that many may wait for; a waiter's cancellation does not touch it."""

    __slots__ = ("_future",)

    def __init__(self) -> None:
        self._future: asyncio.Future[T] = asyncio.get_running_loop().create_future()

    def set(self, value: T) -> None:
        """Hands the value to every waiter."""
        self._require_open()
        self._future.set_result(value)

    def fail(self, error: BaseException) -> None:
        """Raises the error in every waiter."""
        self._require_open()
        self._future.set_exception(error)
        # Asked for once, so that asyncio does not log the error of a promise nobody waited for.
        self._future.exception()

    def done(self) -> bool:
        """Tells whether the promise was set or failed."""
        return self._future.done()

    async def wait(self) -> T:
        """Waits for the value, or raises the error."""
        if not self._future.done():
            await asyncio.wait((self._future,))
        return self._future.result()

    def _require_open(self) -> None:
        if self._future.done():
            raise RuntimeError("The promise already has its result")


class Slot(Generic[T]):
    """A single-waiter value that another task sets once; ``wait()`` may be called again after a cancellation."""

    __slots__ = ("_future", "filled", "value")

    def __init__(self) -> None:
        self.value: T | None = None
        self.filled = False
        self._future: asyncio.Future[None] | None = None

    def set(self, value: T | None) -> None:
        """Set the value and wake the waiter."""
        self.value = value
        self.filled = True
        if self._future is not None and not self._future.done():
            self._future.set_result(None)

    async def wait(self, within_s: float) -> None:
        """Wait until the value is set, or for this many seconds."""
        if self.filled:
            return
        loop = asyncio.get_running_loop()
        self._future = future = loop.create_future()
        timer = loop.call_later(max(0.0, within_s), _wake, future)
        try:
            await future
        finally:
            timer.cancel()


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


class Mutex:
    """Keeps nobody out: what does not wait is not interrupted by others of its loop."""

    __slots__ = ()

    def __enter__(self) -> None:
        """Go in."""

    def __exit__(self, *_: object) -> None:
        """Go out."""


async def sleep(seconds: float) -> None:
    """Waits for a while."""
    await asyncio.sleep(seconds)


async def in_thread(call: Callable[[*Ts], T], *args: *Ts) -> T:
    """Runs a blocking call on a worker thread and waits for it; a cancelled caller leaves it running."""
    return await asyncio.to_thread(call, *args)


def in_background(call: Callable[[*Ts], object], *args: *Ts) -> None:
    """Starts a blocking call on a daemon thread and never waits for it.

    The work is optional: it is cut off when the interpreter exits, and not begun when no thread can be started.
    """
    with suppress(RuntimeError):
        threading.Thread(target=call, args=args, daemon=True).start()


async def outlast(call: Callable[[], Awaitable[T]], undo: Callable[[T], Awaitable[object]]) -> T:
    """Runs the call to its end even though the caller is cancelled, and then undoes it.

    A cancelled caller waits for the result, however often it is cancelled again, undoes it and is then cancelled;
    an error of the call or of the undoing is the cancellation's cause.
    """
    loop = asyncio.get_running_loop()
    # Waited for in place of the task: a cancelled caller cancels what it waits for, and a task tells a turn later.
    ended: asyncio.Future[None] = loop.create_future()
    task = loop.create_task(_told(call, ended))
    try:
        await ended
    except asyncio.CancelledError as cancellation:
        await _ended(task)
        failure = _failure(task)
        raise cancellation from (await _undone(task.result(), undo) if failure is None else failure)
    return task.result()


async def finish(call: Callable[[], Awaitable[T]]) -> T:
    """Runs the call to its end even though the caller is cancelled, and only then is the caller cancelled."""
    return await outlast(call, _keep)


async def insist(call: Callable[[], Awaitable[T]]) -> T:
    """Makes a call that, when it is cancelled, has done nothing; a cancelled caller makes it once more, to its end."""
    try:
        return await call()
    except asyncio.CancelledError as cancellation:
        task = asyncio.create_task(_awaited(call))
        await _ended(task)
        raise cancellation from _failure(task)


async def within(seconds: float, call: Callable[[], Awaitable[T]]) -> T:
    """Waits for the call so long and no longer.

    Raises:
        TimeoutError: it took longer.
    """
    async with asyncio.timeout(seconds):
        return await call()


async def _keep(result: object) -> None:
    """Undoes nothing."""


async def _awaited(call: Callable[[], Awaitable[T]]) -> T:
    """Makes the call inside the task, so that a call that fails before it waits fails there too."""
    return await call()


async def _told(call: Callable[[], Awaitable[T]], ended: asyncio.Future[None]) -> T:
    """Makes the call inside the task, and tells of its end at once."""
    try:
        return await call()
    finally:
        if not ended.done():
            ended.set_result(None)


async def _undone(result: T, undo: Callable[[T], Awaitable[object]]) -> BaseException | None:
    """Undoes the result to the end and returns what went wrong."""
    undoing = asyncio.create_task(_awaited(lambda: undo(result)))
    await _ended(undoing)
    return _failure(undoing)


async def _cancelled(left: asyncio.Task[T], right: asyncio.Task[U]) -> None:
    """Cancels both tasks and waits until both have ended."""
    left.cancel()
    right.cancel()
    await _ended(left)
    await _ended(right)
    # Asked for, so that asyncio does not log errors that the cancellation outranks.
    _failure(left)
    _failure(right)


async def _ended(task: asyncio.Task[T]) -> None:
    """Waits until the task has ended, however often the waiter is cancelled meanwhile."""
    while not task.done():
        with suppress(asyncio.CancelledError):
            await asyncio.wait((task,))


def _failure(task: asyncio.Task[T]) -> BaseException | None:
    """Returns what the ended task raised."""
    return asyncio.CancelledError() if task.cancelled() else task.exception()
