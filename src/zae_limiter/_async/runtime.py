"""What waiting code needs of asyncio: two calls at once, locks, promises, threads, and work that outlasts cancelling.

Written by hand in both trees under the same names. It knows nothing of limits or tables.
"""

import _thread
import asyncio
import contextvars
import os
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any, Generic, Literal, Protocol, TypeVar, TypeVarTuple, cast, get_args

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

Lock = asyncio.Lock

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
U = TypeVar("U")
Ts = TypeVarTuple("Ts")


class Shared(Protocol[T_co]):
    """A result that a thread sets once, and that many may wait for."""

    def done(self) -> bool:
        """Return whether there is a result."""

    def result(self, within_s: float | None = None) -> T_co:
        """Return the result, or raise the error."""

    def when_done(self, callback: Callable[[], object]) -> None:
        """Call back once there is a result, from any thread."""


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

    async def both_to_end(self, first: Callable[[], Awaitable[T]], second: Callable[[], Awaitable[U]]) -> tuple[T, U]:
        """Run both calls as `both` does, but once and to their ends, whatever is cancelled.

        They belong to no task, so a loop that shuts down does not end them before they have begun.
        """
        loop = asyncio.get_running_loop()
        left, right = _Detached(_awaited(first), loop), _Detached(_awaited(second), loop)
        left.start()
        right.start()
        cancellations = [await left.ended(), await right.ended()]
        for cancellation in cancellations:
            if cancellation is not None:
                raise cancellation from left.failure or right.failure
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


class Background:
    """Optional work beside all callers, one piece at a time; it ends with `stop`, or with its loop."""

    __slots__ = ("_process", "_task")

    def __init__(self) -> None:
        self._task: asyncio.Task[None] | None = None
        self._process = 0

    def start(self, work: Callable[[], Awaitable[None]]) -> None:
        """Starts the work, unless some is running already."""
        task = self._task
        running = task is not None and not task.done() and not task.get_loop().is_closed()
        if not running or self._process != os.getpid():
            self._process = os.getpid()
            self._task = asyncio.get_running_loop().create_task(_awaited(work))

    async def pause(self, seconds: float) -> bool:
        """Waits inside the work; returns False if the work has to end."""
        await asyncio.sleep(seconds)
        return True

    async def stop(self) -> None:
        """Cancels the work, and waits for its end if it runs on this loop."""
        task, self._task = self._task, None
        if task is None or task.done() or task.get_loop().is_closed() or self._process != os.getpid():
            return
        if task.get_loop() is asyncio.get_running_loop():
            task.cancel()
            await _ended(task)
        else:
            task.get_loop().call_soon_threadsafe(task.cancel)

    def join(self) -> None:
        """Does nothing: `stop` has waited for the end."""


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
    # Not by a Thread: if its starter is interrupted, its start may wait for the starter's lock forever.
    with suppress(RuntimeError):
        _thread.start_new_thread(call, args)


async def outlast(call: Callable[[], Awaitable[T]], undo: Callable[[T], Awaitable[object]]) -> T:
    """Run a call once, to its end, even if the caller is cancelled; then undo it.

    A cancelled caller waits for the result, however often it is cancelled again. It undoes the result and is then
    cancelled. An error of the call or of the undo becomes the cause of the cancellation. The call starts in the next
    turn of the loop.
    """
    # Asked for first: where no loop runs any more, no coroutine is made that would never be awaited.
    loop = asyncio.get_running_loop()
    detached = _Detached(_awaited(call), loop)
    detached.start()
    cancellation = await detached.ended()
    if cancellation is None:
        return detached.result()
    failure = detached.failure
    if failure is None:
        undoing = _Detached(_awaited(lambda: undo(detached.result())), loop)
        undoing.start()
        await undoing.ended()
        failure = undoing.failure
    raise cancellation from failure


async def finish(call: Callable[[], Awaitable[T]]) -> T:
    """Run a call once, to its end, even if the caller is cancelled; the caller is cancelled after that.

    The call starts in the next turn of the loop.
    """
    return await outlast(call, _keep)


async def finish_in_place(call: Callable[[], Awaitable[T]]) -> T:
    """Run a call as `finish` does, but start it in place: a call that never waits costs no turn of the loop."""
    loop = asyncio.get_running_loop()
    coroutine = _awaited(call)
    try:
        pending = coroutine.send(None)
    except StopIteration as end:
        return cast("T", end.value)
    detached = _Detached(coroutine, loop)
    detached.resume_after(pending)
    cancellation = await detached.ended()
    if cancellation is not None:
        raise cancellation from detached.failure
    return detached.result()


async def shared(result: Shared[T], within_s: float) -> T:
    """Wait for a shared result for this many seconds; the call goes on without this caller.

    Raises:
        TimeoutError: It took longer.
    """
    if not result.done():
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[None] = loop.create_future()

        def wake() -> None:
            # The loop may have ended before the call.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(_wake, ended)

        result.when_done(wake)
        async with asyncio.timeout(within_s):
            await ended
    return result.result(0)


async def within(seconds: float, call: Callable[[], Awaitable[T]]) -> T:
    """Wait for the call for at most this many seconds.

    Raises:
        TimeoutError: The call took longer.
    """
    # A task of its own, because asyncio.timeout() needs one and detached code runs in none.
    task = asyncio.create_task(_awaited(call))
    try:
        await asyncio.wait((task,), timeout=seconds)
    except asyncio.CancelledError:
        task.cancel()
        await _ended(task)
        _failure(task)
        raise
    if not task.done():
        task.cancel()
        await _ended(task)
        failure = _failure(task)
        if isinstance(failure, asyncio.CancelledError):
            raise TimeoutError
    return task.result()


class _Detached(Generic[T]):
    """A coroutine that runs to its end outside of any task.

    Cancelling a task throws into the coroutine that it runs, at whatever it waits for. A settlement that was broken
    off there could only be repeated or lost. This one belongs to no task, so nothing can cancel it, and the loop's
    own shutdown does not either. Its end is bounded by the deadline of what it calls.
    """

    __slots__ = ("_context", "_coroutine", "_loop", "_result", "_waiter", "done", "failure")

    def __init__(self, coroutine: Coroutine[Any, None, T], loop: asyncio.AbstractEventLoop) -> None:
        self._coroutine = coroutine
        self._loop = loop
        self._context = contextvars.copy_context()
        self._waiter: asyncio.Future[None] | None = None
        self._result: T | None = None
        self.done = False
        self.failure: BaseException | None = None

    def start(self) -> None:
        """Run the coroutine from the next turn of the loop on."""
        self._loop.call_soon(self._step, context=self._context)

    def resume_after(self, pending: Any) -> None:
        """Continue the coroutine once the future that it waits for is done; None is a bare turn of the loop."""
        if pending is None:
            self.start()
        else:
            # The mark by which a task recognizes a future that was awaited; a task takes it off again.
            pending._asyncio_future_blocking = False  # noqa: SLF001 - the protocol between futures and what awaits them
            pending.add_done_callback(self._step, context=self._context)

    async def ended(self) -> asyncio.CancelledError | None:
        """Wait for the end; return the first cancellation of the waiter meanwhile, None if there was none."""
        cancellation = None
        while not self.done:
            self._waiter = self._loop.create_future()
            try:
                await self._waiter
            except asyncio.CancelledError as error:
                cancellation = cancellation or error
        return cancellation

    def result(self) -> T:
        """Return what the coroutine returned, or raise what it raised."""
        if self.failure is not None:
            raise self.failure
        return cast("T", self._result)

    def _step(self, _: object = None) -> None:
        try:
            pending = self._coroutine.send(None)
        except StopIteration as end:
            self._end(cast("T", end.value), None)
        except (KeyboardInterrupt, SystemExit) as error:
            self._end(None, error)
            raise
        except BaseException as error:  # noqa: BLE001 - it is raised again where the end is waited for
            self._end(None, error)
        else:
            self.resume_after(pending)

    def _end(self, result: T | None, failure: BaseException | None) -> None:
        self._result, self.failure, self.done = result, failure, True
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


async def _keep(result: object) -> None:
    """Undoes nothing."""


async def _awaited(call: Callable[[], Awaitable[T]]) -> T:
    """Makes the call inside the task, so that a call that fails before it waits fails there too."""
    return await call()


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
