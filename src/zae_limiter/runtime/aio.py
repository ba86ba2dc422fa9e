"""Waiting with asyncio: concurrent calls, locks, threads, and calls that a cancellation does not stop.

`runtime.threads` has the same names for the synchronous tree. Both modules are written by hand.

The names that need asyncio are in `runtime.tasks` and `runtime.later`. They are imported on first use, as the public
names are. Otherwise asyncio would be a third of the CPU time of importing the async limiter, which a process may import
without running it.
"""

import _thread
import threading
from collections.abc import Callable, Generator
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal, TypeVarTuple

if TYPE_CHECKING:
    from zae_limiter.runtime.later import Later as Later
    from zae_limiter.runtime.own_loop import OwnThread as OwnThread
    from zae_limiter.runtime.task_calls import BackgroundCalls as BackgroundCalls
    from zae_limiter.runtime.task_calls import call_back as call_back
    from zae_limiter.runtime.tasks import CANCELLED as CANCELLED
    from zae_limiter.runtime.tasks import Answer as Answer
    from zae_limiter.runtime.tasks import Background as Background
    from zae_limiter.runtime.tasks import Completable as Completable
    from zae_limiter.runtime.tasks import Lock as Lock
    from zae_limiter.runtime.tasks import Parallel as Parallel
    from zae_limiter.runtime.tasks import Slot as Slot
    from zae_limiter.runtime.tasks import finish as finish
    from zae_limiter.runtime.tasks import finish_in_place as finish_in_place
    from zae_limiter.runtime.tasks import in_thread as in_thread
    from zae_limiter.runtime.tasks import notifier as notifier
    from zae_limiter.runtime.tasks import shared as shared
    from zae_limiter.runtime.tasks import sleep as sleep
    from zae_limiter.runtime.tasks import within as within
    from zae_limiter.runtime.wakeup import Wakeup as Wakeup

ParallelMode = Literal["auto", "gevent", "threadpool", "serial"]

_MODULES = {
    "Later": "later",
    "OwnThread": "own_loop",
    "Wakeup": "wakeup",
    **dict.fromkeys(("BackgroundCalls", "call_back"), "task_calls"),
    **dict.fromkeys(
        (
            "Answer",
            "Background",
            "CANCELLED",
            "Completable",
            "Lock",
            "Parallel",
            "Slot",
            "finish",
            "finish_in_place",
            "in_thread",
            "notifier",
            "shared",
            "sleep",
            "within",
        ),
        "tasks",
    ),
}
"""The modules of the names that need asyncio."""

Ts = TypeVarTuple("Ts")

Mutex = threading.RLock
"""Never blocks code of one loop, which runs in one thread. Reentrant: an interrupt may leave it held."""


class Done:
    """The awaitable result of a call that has already taken effect."""

    __slots__ = ()

    def __await__(self) -> Generator[None, None, None]:
        """Return at once."""
        yield from ()


DONE = Done()
"""Returned by a method that never waits but may be awaited, so that a forgotten ``await`` loses nothing."""


class WithGuard:
    """The base of a lease: `with` raises an error that shows the correct line."""

    __slots__ = ()

    # Hidden from type checkers, which report the wrong statement by themselves.
    if not TYPE_CHECKING:

        def __enter__(self) -> None:
            """Raise TypeError."""
            raise TypeError("a Lease needs `async with`. Write: async with limiter.acquire(...) as lease:")

        def __exit__(self, *error: object) -> None:
            """Do nothing: Python looks this method up before it enters."""


def in_background(call: Callable[[*Ts], object], *args: *Ts) -> None:
    """Start a blocking call on a daemon thread and do not wait for it.

    The call must be optional. It is not made if no thread can be started, and the exit of the interpreter cuts it off.
    """
    # Thread.start() waits for the new thread. An interrupt of that wait may keep a lock that the new thread needs.
    with suppress(RuntimeError):
        _thread.start_new_thread(call, args)


if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        """Import a name that needs asyncio on first use."""
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(import_module(f"zae_limiter.runtime.{_MODULES[name]}"), name)
        # Python calls this function only for missing names, so a stored name is looked up once.
        globals()[name] = value
        return value
