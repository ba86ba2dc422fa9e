"""Waiting, locks, threads and concurrent calls: one module for asyncio, and one for threads with the same names."""

from collections.abc import Callable
from typing import Protocol, TypeVar

T_co = TypeVar("T_co", covariant=True)


class Shared(Protocol[T_co]):
    """A result that a thread sets once; any number of callers may wait for it."""

    def done(self) -> bool:
        """Return whether there is a result."""

    def result(self, within_s: float | None = None) -> T_co:
        """Return the result, or raise the error."""

    def when_done(self, callback: Callable[[], object]) -> None:
        """Call ``callback`` once there is a result, from any thread."""
