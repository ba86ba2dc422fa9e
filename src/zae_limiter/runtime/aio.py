"""What waiting code needs of asyncio: two calls at once, locks, threads, and work that outlasts cancelling.

Written by hand in both trees under the same names. It knows nothing of limits or tables.
"""

import _thread
import asyncio
import contextvars
import os
import threading
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from typing import Any, Generic, Literal, Protocol, TypeVar, TypeVarTuple, cast, get_args

from zae_limiter.core.errors import RateLimiterUnavailable, ValidationError

__all__ = [
    "Background",
    "Lock",
    "Mutex",
    "Parallel",
    "ParallelMode",
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

_LOOK_S = 0.25
"""How often detached coroutines are looked after while any is waited for."""

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
    """Runs several calls at the same time, as tasks of the running loop whatever the mode.

    Raises:
        ValidationError: the mode is not one of the four.
    """

    def __init__(self, mode: ParallelMode = "auto") -> None:
        if mode not in get_args(ParallelMode):
            raise ValidationError("parallel_mode", mode, f"must be one of {', '.join(get_args(ParallelMode))}")

    async def run(self, calls: Sequence[Callable[[], Awaitable[T]]]) -> list[T]:
        """Run the calls, wait for all to end, and return their results.

        If some fail, the error of the first of them is raised. A caller that is cancelled cancels all calls, still
        waits for all, and their results are lost: calls with effects belong inside `outlast`.
        """
        if not calls:
            return []
        tasks = [asyncio.create_task(_awaited(call)) for call in calls]
        try:
            await asyncio.wait(tasks)
        except asyncio.CancelledError:
            await _cancelled(*tasks)
            raise
        failures = [failure for task in tasks if (failure := _failure(task)) is not None]
        for other in failures[1:]:
            failures[0].add_note(f"The call beside it failed too: {other!r}")
        return [task.result() for task in tasks]

    async def run_to_end(self, calls: Sequence[Callable[[], Awaitable[T]]]) -> list[T]:
        """Run the calls as `run` does, but once and to their ends, even if the caller is cancelled.

        They belong to no task, so a loop that shuts down does not end them before they have begun.
        """
        loop = asyncio.get_running_loop()
        detached = [_Detached(_awaited(call), loop) for call in calls]
        for one in detached:
            one.start()
        cancellations = [await one.ended() for one in detached]
        for cancellation in cancellations:
            if cancellation is not None:
                failures = [one.failure for one in detached if one.failure is not None]
                raise cancellation from failures[0] if failures else None
        return [one.result() for one in detached]

    def close(self) -> None:
        """Lets go of nothing: tasks belong to their loop."""


class Lock:
    """A lock for tasks of one loop. It is free if its holder has ended, even if that was interrupted in between."""

    __slots__ = ("_holder",)

    def __init__(self) -> None:
        self._holder: tuple[asyncio.Future[Any], asyncio.Future[None]] | None = None

    def locked(self) -> bool:
        """Return whether a task holds the lock."""
        return self._holder is not None and not any(one.done() for one in self._holder)

    async def __aenter__(self) -> None:
        """Wait until no other task holds the lock, and hold it."""
        task = asyncio.current_task()
        while self._holder is not None and self._holder[0] is not task and self.locked():
            await asyncio.wait(self._holder, return_when=asyncio.FIRST_COMPLETED)
        released = asyncio.get_running_loop().create_future()
        self._holder = (task or released, released)

    async def __aexit__(self, *_: object) -> None:
        """Release the lock."""
        if self._holder is not None:
            _wake(self._holder[1])


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


Mutex = threading.RLock
"""Never blocks code of one loop, which runs in one thread. Reentrant: an interrupt may leave it held."""


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


async def finish(call: Callable[[*Ts], Awaitable[T]], *args: *Ts) -> T:
    """Run a call once, to its end, even if the caller is cancelled; the caller is cancelled after that.

    The call starts in the next turn of the loop.
    """
    # Requested first: if no loop runs any more, no coroutine is made that would never be awaited.
    loop = asyncio.get_running_loop()
    detached = _Detached(_awaited(call, *args), loop)
    detached.start()
    cancellation = await detached.ended()
    if cancellation is not None:
        raise cancellation from detached.failure
    return detached.result()


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
        TimeoutError: The call took longer, or the loop shuts down.
    """
    # A task of its own, because asyncio.timeout() needs one and detached code runs in none.
    task = asyncio.create_task(_awaited(call))
    try:
        await asyncio.wait((task,), timeout=seconds)
    except asyncio.CancelledError:
        await _cancelled(task)
        raise
    if not task.done():
        await _cancelled(task)
    if task.cancelled():
        raise TimeoutError
    return task.result()


class _Detached(Generic[T]):
    """A coroutine that runs to its end outside of any task.

    Cancelling a task throws into the coroutine that it runs, at whatever it waits for. A settlement that was broken
    off there could only be repeated or lost. This one belongs to no task, so nothing can cancel it, and the loop's
    own shutdown does not either. Its end is bounded by the deadline of what it calls.

    An interrupt between two steps may leave a coroutine that nothing resumes. It is found by the watch of its loop,
    and ends in RateLimiterUnavailable.
    """

    __slots__ = ("_context", "_coroutine", "_loop", "_pending", "_result", "_steps", "_waiter", "done", "failure")

    def __init__(self, coroutine: Coroutine[Any, None, T], loop: asyncio.AbstractEventLoop) -> None:
        self._coroutine = coroutine
        self._loop = loop
        self._context = contextvars.copy_context()
        self._waiter: asyncio.Future[None] | None = None
        self._pending: asyncio.Future[Any] | None = None
        self._steps = 0
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
            self._pending = pending
            pending._asyncio_future_blocking = False  # noqa: SLF001 - the protocol between futures and what awaits them
            pending.add_done_callback(self._step, context=self._context)

    async def ended(self) -> asyncio.CancelledError | None:
        """Wait for the end; return the first cancellation of the waiter meanwhile, None if there was none."""
        cancellation = None
        watch = _watch_of(self._loop)
        watch.seen[self] = -1
        if self._loop.time() >= watch.look_at_s:
            watch.look_later()
        while not self.done:
            self._waiter = self._loop.create_future()
            try:
                await self._waiter
            except asyncio.CancelledError as error:
                cancellation = cancellation or error
        watch.seen.pop(self, None)
        return cancellation

    def result(self) -> T:
        """Return what the coroutine returned, or raise what it raised."""
        if self.failure is not None:
            raise self.failure
        return cast("T", self._result)

    def look(self, seen: int) -> int:
        """Return the number of steps; a coroutine that has gone no further than last seen is ended if nothing will.

        A future that is done resumes the coroutine in the next turn of the loop, long before the next look.
        """
        if self.done:
            self._wake()
        elif self._pending is not None and not self._pending.done():
            return -1
        elif seen == self._steps:
            lost = RateLimiterUnavailable(InterruptedError("the call was interrupted"))
            self._loop.call_soon(self._step, None, lost, context=self._context)
        return self._steps

    def _step(self, _: object = None, lost: RateLimiterUnavailable | None = None) -> None:
        self._steps += 1
        try:
            pending = self._coroutine.send(None) if lost is None else self._coroutine.throw(lost)
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
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class _Watch:
    """Looks after the detached coroutines of one loop that callers wait for."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        # How many steps each had made at the last look, -1 if it waited or there was none.
        self.seen: dict[_Detached[Any], int] = {}
        self.look_at_s = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def look_later(self) -> None:
        """Look after a while; a look that is overdue was interrupted, and is made up for."""
        # First: an interrupt between the two timers must not leave a look that is expected but never comes.
        self.look_at_s = 0.0
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self.loop.call_later(_LOOK_S, self._look)
        self.look_at_s = self.loop.time() + 2 * _LOOK_S

    def _look(self) -> None:
        self.look_at_s = 0.0
        if self.seen:
            self.look_later()
        for detached, seen in list(self.seen.items()):
            self.seen[detached] = detached.look(seen)
            if detached.done:
                del self.seen[detached]


class _Watches(threading.local):
    """The watch of the loop that runs in this thread."""

    watch: _Watch | None = None


_watches = _Watches()


def _watch_of(loop: asyncio.AbstractEventLoop) -> _Watch:
    watch = _watches.watch
    if watch is None or watch.loop is not loop:
        _watches.watch = watch = _Watch(loop)
    return watch


async def _awaited(call: Callable[[*Ts], Awaitable[T]], *args: *Ts) -> T:
    """Makes the call inside the task, so that a call that fails before it waits fails there too."""
    return await call(*args)


async def _cancelled(*tasks: asyncio.Task[Any]) -> None:
    """Cancels tasks and waits until all have ended."""
    for task in tasks:
        task.cancel()
    for task in tasks:
        await _ended(task)
        # Asked for, so that asyncio does not log errors that the cancellation outranks.
        _failure(task)


async def _ended(task: asyncio.Task[T]) -> None:
    """Waits until the task has ended, however often the waiter is cancelled meanwhile."""
    while not task.done():
        with suppress(asyncio.CancelledError):
            await asyncio.wait((task,))


def _failure(task: asyncio.Task[T]) -> BaseException | None:
    """Returns what the ended task raised."""
    return asyncio.CancelledError() if task.cancelled() else task.exception()
