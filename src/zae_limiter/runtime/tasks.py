"""What `runtime.aio` does with the tasks of a loop: concurrent calls, locks, timers, calls that nothing cancels."""

import asyncio
import contextvars
import os
import threading
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from typing import Any, Generic, Protocol, TypeVar, TypeVarTuple, cast, get_args

from zae_limiter.core.errors import RateLimiterUnavailable, ValidationError
from zae_limiter.runtime import Shared
from zae_limiter.runtime.aio import ParallelMode

_LOOK_S = 0.25
"""The seconds between two checks of the detached coroutines, while a caller waits for one of them."""

CANCELLED = (asyncio.CancelledError,)
"""What a caller that is cancelled raises, while it waits."""

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
U = TypeVar("U")
Ts = TypeVarTuple("Ts")


class Completable(Protocol[T_co]):
    """Work that a cancelled caller must not stop."""

    async def complete(self) -> T_co:
        """Do the work."""


class Parallel:
    """Runs several calls at the same time, as tasks of the running loop whatever the mode.

    Raises:
        ValidationError: The mode is unknown.
    """

    def __init__(self, mode: ParallelMode = "auto") -> None:
        if mode not in get_args(ParallelMode):
            raise ValidationError("parallel_mode", mode, f"must be one of {', '.join(get_args(ParallelMode))}")

    async def run(self, calls: Sequence[Callable[[], Awaitable[T]]]) -> list[T]:
        """Run the calls, wait for all to end, and return their results.

        If some fail, the error of the first of them is raised. A caller that is cancelled cancels all calls, still
        waits for all, and their results are lost: calls with effects belong inside `finish`.
        """
        if not calls:
            return []
        tasks = [asyncio.create_task(_awaited(call)) for call in calls]
        try:
            await asyncio.wait(tasks)
        except asyncio.CancelledError:
            await cancel_and_wait(*tasks)
            raise
        failures = [failure for task in tasks if (failure := _failure(task)) is not None]
        for other in failures[1:]:
            failures[0].add_note(f"The concurrent call failed too: {other!r}")
        return [task.result() for task in tasks]

    async def run_to_end(self, calls: Sequence[Callable[[], Awaitable[T]]]) -> list[T]:
        """Run the calls as `run` does, but once and to their ends, even if the caller is cancelled.

        The calls belong to no task. A loop that shuts down cancels its tasks, but not these calls.
        """
        loop = asyncio.get_running_loop()
        detached = [Detached(_awaited(call), loop) for call in calls]
        for one in detached:
            one.start()
        cancellations = [await one.ended() for one in detached]
        for cancellation in cancellations:
            if cancellation is not None:
                failures = [one.failure for one in detached if one.failure is not None]
                raise cancellation from failures[0] if failures else None
        return [one.result() for one in detached]

    def close(self) -> None:
        """Do nothing: there are no threads to end."""


class Lock:
    """A lock for the tasks of one loop; unlike ``asyncio.Lock`` it is free if an interrupt has ended its holder."""

    __slots__ = ("_holder",)

    def __init__(self) -> None:
        # The holding task, and a future that is done once the task has released the lock.
        self._holder: tuple[asyncio.Future[Any], asyncio.Future[None]] | None = None

    def locked(self) -> bool:
        """Return whether a task holds the lock."""
        return self._holder is not None and not any(one.done() for one in self._holder)

    async def __aenter__(self) -> None:
        """Wait until no other task holds the lock, and acquire it."""
        task = asyncio.current_task()
        # Several waiters wake at the same time, and the first one takes the lock: the others check again.
        # A task that finds itself as the holder was interrupted before its release. It must not wait for itself.
        while self._holder is not None and self._holder[0] is not task and self.locked():
            await asyncio.wait(self._holder, return_when=asyncio.FIRST_COMPLETED)
        released = asyncio.get_running_loop().create_future()
        self._holder = (task or released, released)

    async def __aexit__(self, *_: object) -> None:
        """Release the lock."""
        if self._holder is not None:
            _wake(self._holder[1])


class Slot(Generic[T]):
    """A value that another task sets once, with one waiter; ``wait()`` may be called again after a cancellation."""

    __slots__ = ("_future", "filled", "value")

    def __init__(self) -> None:
        self.value: T | None = None
        self.filled = False
        self._future: asyncio.Future[None] | None = None

    def set(self, value: T | None) -> None:
        """Set the value and wake the waiter."""
        self.value = value
        self.filled = True
        _wake(self._future)

    async def wait(self, within_s: float) -> None:
        """Wait until the value is set, but for at most this many seconds."""
        if self.filled:
            return
        loop = asyncio.get_running_loop()
        self._future = future = loop.create_future()
        timer = loop.call_later(max(0.0, within_s), _wake, future)
        try:
            await future
        finally:
            timer.cancel()


def _wake(future: asyncio.Future[None] | None) -> None:
    if future is not None and not future.done():
        future.set_result(None)


class Background:
    """Optional work in a task of its own, one at a time; it ends on `stop`, or with its loop."""

    __slots__ = ("_process", "_task")

    def __init__(self) -> None:
        self._task: asyncio.Task[None] | None = None
        self._process = 0

    def start(self, work: Callable[[], Awaitable[None]]) -> None:
        """Start the work, unless earlier work is still running."""
        task = self._task
        running = task is not None and not task.done() and not task.get_loop().is_closed()
        # In a forked child, the task of the parent looks as if it were still running.
        if not running or self._process != os.getpid():
            self._process = os.getpid()
            self._task = asyncio.get_running_loop().create_task(_awaited(work))

    async def pause(self, seconds: float) -> bool:
        """Wait inside the work for this many seconds; always return True, because `stop` cancels the work."""
        await asyncio.sleep(seconds)
        return True

    async def stop(self) -> None:
        """Cancel the work, and wait until it has ended if it runs on this loop."""
        task, self._task = self._task, None
        if task is None or task.done() or task.get_loop().is_closed() or self._process != os.getpid():
            return
        if task.get_loop() is asyncio.get_running_loop():
            task.cancel()
            await _ended(task)
        else:
            task.get_loop().call_soon_threadsafe(task.cancel)

    def join(self) -> None:
        """Do nothing: `stop` has waited for the end."""


async def sleep(seconds: float) -> None:
    """Wait for this many seconds."""
    await asyncio.sleep(seconds)


async def in_thread(call: Callable[[*Ts], T], *args: *Ts) -> T:
    """Run a blocking call on a worker thread and wait for it; if the caller is cancelled, the call continues."""
    return await asyncio.to_thread(call, *args)


def notifier(callback: Callable[[T], object], argument: T) -> Callable[[], None]:
    """Return a function for another thread that calls ``callback`` in the running loop, unless the loop has ended."""
    loop = asyncio.get_running_loop()

    def notify() -> None:
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(callback, argument)

    return notify


async def finish(work: Completable[T]) -> T:
    """Complete work once, to its end, even if the caller is cancelled; the caller is cancelled after that.

    The work starts in the next iteration of the loop.
    """
    # Requested first: if no loop runs any more, no coroutine is made that would never be awaited.
    loop = asyncio.get_running_loop()
    detached = Detached(_completed(work), loop)
    detached.start()
    return detached.result(await detached.ended())


async def finish_in_place(call: Callable[[], Awaitable[T]]) -> T:
    """Run a call of an async function to its end as `finish` does, but start it immediately.

    A call that never waits needs no iteration of the loop.
    """
    loop = asyncio.get_running_loop()
    coroutine: Any = call()
    # The first step runs in the caller's task. A coroutine that has to wait continues outside of it.
    try:
        pending = coroutine.send(None)
    except StopIteration as end:
        return cast("T", end.value)
    detached: Detached[T] = Detached(coroutine, loop)
    detached.resume_after(pending)
    return detached.result(await detached.ended())


async def shared(result: Shared[T], within_s: float) -> T:
    """Wait for a shared result for at most this many seconds; after that the call continues without this caller.

    Raises:
        TimeoutError: There was no result in time.
    """
    if not result.done():
        loop = asyncio.get_running_loop()
        ended: Slot[None] = Slot()

        def wake() -> None:
            # Raises RuntimeError if the loop was closed before the call ended.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(ended.set, None)

        result.when_done(wake)
        # asyncio.timeout() works only inside a task, and the caller may be a detached coroutine.
        await ended.wait(within_s)
        if not result.done():
            raise TimeoutError(f"no result within {within_s} s")
    return result.result(0)


async def within(seconds: float, call: Callable[[], Awaitable[T]]) -> T:
    """Run a call for at most this many seconds, then cancel it.

    Raises:
        TimeoutError: The call took longer, or the loop shuts down.
    """
    # asyncio.timeout() works only inside a task, and the caller may be a detached coroutine.
    task = asyncio.create_task(_awaited(call))
    try:
        await asyncio.wait((task,), timeout=seconds)
    except asyncio.CancelledError:
        await cancel_and_wait(task)
        raise
    if not task.done():
        await cancel_and_wait(task)
    if task.cancelled():
        raise TimeoutError
    return task.result()


async def _awaited(call: Callable[[], Awaitable[T]]) -> T:
    """Make the call inside the task, so that an error raised before the first `await` is raised there too."""
    return await call()


async def _completed(work: Completable[T]) -> T:
    return await work.complete()


async def cancel_and_wait(*tasks: asyncio.Task[Any]) -> None:
    """Cancel tasks and wait until all have ended."""
    for task in tasks:
        task.cancel()
    for task in tasks:
        await _ended(task)
        # asyncio logs an exception that is never retrieved, and the cancellation replaces this one.
        _failure(task)


async def _ended(task: asyncio.Task[T]) -> None:
    """Wait until the task has ended, even if the waiter is cancelled."""
    while not task.done():
        with suppress(asyncio.CancelledError):
            await asyncio.wait((task,))


def _failure(task: asyncio.Task[T]) -> BaseException | None:
    """Return the error of a task that has ended, None if it has succeeded."""
    return asyncio.CancelledError() if task.cancelled() else task.exception()


class Answer(asyncio.Future[T]):
    """A future that may resume a detached coroutine in place, without another iteration of the loop.

    An iteration costs more than the step that it would run. A task that waits for the future is resumed as usual.
    ``detached`` is the coroutine that waits, None if there is none: set it to None after making the future.
    """

    __slots__ = ("detached",)

    detached: "Detached[Any] | None"

    def deliver(self, result: T) -> None:
        """Set the result, and run the detached coroutine that waits up to its next wait. Make this call last."""
        detached, self.detached = self.detached, None
        if detached is None:
            self.set_result(result)
        else:
            detached.resume_with(self, result)


class Detached(Generic[T]):
    """A coroutine that runs to its end outside of any task.

    Cancelling a task raises CancelledError inside its coroutine, wherever it waits. A write that is cut off there has
    an unknown result. This coroutine belongs to no task, so neither a caller nor the shutdown of the loop can cancel
    it. The deadlines of the calls inside it bound its duration.

    If an interrupt leaves a coroutine that nothing resumes, the watch of the loop ends it with RateLimiterUnavailable.
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
        """Schedule the first or next step for the next iteration of the loop."""
        self._loop.call_soon(self._step, context=self._context)

    def resume_after(self, pending: Any) -> None:
        """Continue the coroutine once a future is done, or in the next iteration of the loop if it is None."""
        if pending is None:
            self.start()
        else:
            # `await` sets this flag on the future. The code that drives the coroutine has to clear it, as a task does.
            self._pending = pending
            pending._asyncio_future_blocking = False  # noqa: SLF001 - the protocol between futures and what awaits them
            pending.add_done_callback(self._step, context=self._context)
            if type(pending) is Answer:
                pending.detached = self

    def resume_with(self, pending: Answer[U], result: U) -> None:
        """Set the result of the future that the coroutine waits for, and make the next step now.

        An interrupt may come between these lines. The watch of the loop then ends the coroutine, as for any step that
        was lost.
        """
        pending.remove_done_callback(self._step)
        pending.set_result(result)
        self._context.run(self._step)

    async def ended(self) -> asyncio.CancelledError | None:
        """Wait for the end; return the first cancellation of the waiter, or None if it was not cancelled."""
        cancellation = None
        watch = _watch_of(self._loop)
        watch.seen[self] = -1
        # The next check is overdue if none was scheduled, or if an interrupt removed it.
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

    def result(self, cancellation: asyncio.CancelledError | None = None) -> T:
        """Return the result of the coroutine, or raise its error; the cancellation of a waiter is raised instead."""
        if cancellation is not None:
            raise cancellation from self.failure
        if self.failure is not None:
            raise self.failure
        return cast("T", self._result)

    def look(self, seen: int) -> int:
        """End the coroutine if nothing will resume it; return the number of steps made, or -1 if it waits.

        ``seen`` is the result of the last check. A future that is done resumes the coroutine in the next iteration of
        the loop. So the same number at two checks means that the resumption was lost.
        """
        if self.done:
            # An interrupt may have come after the end was noted and before the waiter was woken.
            _wake(self._waiter)
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
            # The waiter must not wait forever, and the loop must stop as it does for an error of a task.
            self._end(None, error)
            raise
        except BaseException as error:  # noqa: BLE001 - it is raised again where the end is waited for
            self._end(None, error)
        else:
            self.resume_after(pending)

    def _end(self, result: T | None, failure: BaseException | None) -> None:
        self._result, self.failure, self.done = result, failure, True
        _wake(self._waiter)


class _Watch:
    """Checks the detached coroutines of one loop while callers wait for them."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        # The number of steps each had made at the last check; -1 if it waited then, or was not checked yet.
        self.seen: dict[Detached[Any], int] = {}
        self.look_at_s = 0.0
        self._timers: list[asyncio.TimerHandle] = []

    def look_later(self) -> None:
        """Schedule the next check, and a second one in case that an interrupt ends the first before it begins."""
        # Cleared first: an interrupt between the next lines must not leave a due time without a timer.
        self.look_at_s = 0.0
        old = self._timers
        # Before the old ones are cancelled: at no moment may there be none, because callers wait already.
        self._timers = [self.loop.call_later(delay_s, self._look) for delay_s in (_LOOK_S, 2 * _LOOK_S)]
        for timer in old:
            timer.cancel()
        self.look_at_s = self.loop.time() + 3 * _LOOK_S

    def _look(self) -> None:
        self.look_at_s = 0.0
        if self.seen:
            self.look_later()
        for detached, seen in list(self.seen.items()):
            self.seen[detached] = detached.look(seen)
            if detached.done:
                del self.seen[detached]


class _Watches(threading.local):
    """The watch of the loop of this thread, None before its first detached coroutine."""

    watch: _Watch | None = None


_watches = _Watches()


def _watch_of(loop: asyncio.AbstractEventLoop) -> _Watch:
    watch = _watches.watch
    if watch is None or watch.loop is not loop:
        _watches.watch = watch = _Watch(loop)
    return watch
