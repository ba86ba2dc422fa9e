"""Raise an exception at a chosen bytecode of the library, as a signal handler may."""

import dis
import functools
import itertools
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, TypeVar

import zae_limiter

T = TypeVar("T")

_DELIVERING = ("CALL", "CALL_KW", "CALL_FUNCTION_EX", "JUMP_BACKWARD", "RESUME", "SEND")
_AFTER_YIELD_FROM = 2
"""The smallest argument of a RESUME that runs no signal handlers: after a yield from, or an await."""
_LIBRARY = str(Path(zae_limiter.__file__).parent)


class Interrupt(BaseException):
    """Raised by the signal handler of a worker."""


class KeyInterrupt(Interrupt, KeyboardInterrupt):
    """Raised by Ctrl-C: unlike other exceptions, it ends the run of an event loop."""


class InterruptAt:
    """Trace the calling thread, and raise at the bytecode of this number; ``place`` is where that was.

    It raises where CPython runs signal handlers: at the start of a function, after a call, and at the end of a loop's
    round.
    """

    def __init__(self, number: int, within: str = "", kind: type[Interrupt] = Interrupt) -> None:
        self.place: str | None = None
        self._left = number
        self._within = within
        self._kind = kind
        self._last: dict[FrameType, int] = {}

    def __enter__(self) -> "InterruptAt":
        self._before = sys.gettrace()
        sys.settrace(self._enter_frame)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(self._before)

    def _enter_frame(self, frame: FrameType, event: str, argument: Any) -> Any:
        path = frame.f_code.co_filename
        if self.place or not path.startswith(_LIBRARY) or self._within not in path:
            return None
        frame.f_trace_opcodes = True
        frame.f_trace_lines = False
        return self._step

    def _step(self, frame: FrameType, event: str, argument: Any) -> Any:
        if event == "return":
            self._last.pop(frame, None)
        if event == "opcode" and self.place is None:
            before, self._last[frame] = self._last.get(frame), frame.f_lasti
            if _may_raise(frame.f_code, before, frame.f_lasti):
                self._left -= 1
                if self._left == 0:
                    self.place = f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno} {frame.f_code.co_name}"
                    self._last.clear()
                    raise self._kind(self.place)
        return self._step


@functools.cache
def _may_raise(code: CodeType, before: int | None, now: int) -> bool:
    """Return whether a signal handler may run after one bytecode, and its exception can be raised at the next.

    No handler runs before the first bytecode of a function. CPython raises the exception at the call itself. If that is
    in another try or with statement than the next bytecode, it cannot be imitated. No handler runs where a coroutine
    begins to wait or continues.
    """
    if before is None:
        return now in _starts(code)
    names, handlers = _names(code), dis._parse_exception_table(code)  # type: ignore[attr-defined] # there is no other
    targets = [[one.target for one in handlers if one.start <= offset < one.end] for offset in (before, now)]
    return names[before] in _DELIVERING and names[now] != "YIELD_VALUE" and targets[0] == targets[1]


@functools.cache
def _names(code: CodeType) -> dict[int, str]:
    return {one.offset: one.opname for one in dis.get_instructions(code)}


@functools.cache
def _starts(code: CodeType) -> set[int]:
    """Return where a function starts, or continues after a yield; some versions do not trace the RESUME itself."""
    resumed = [
        (one.offset, after.offset)
        for one, after in itertools.pairwise(dis.get_instructions(code))
        if one.opname == "RESUME" and (one.arg or 0) & 3 < _AFTER_YIELD_FROM
    ]
    return {offset for pair in resumed for offset in pair}


def every_interrupt(
    prepare: Callable[[], T],
    act: Callable[[T], object],
    within: str = "",
    kind: type[Interrupt] = Interrupt,
) -> Iterator[tuple[T, str]]:
    """Make a call again and again, interrupted at its first bytecode, its second and so on, until none is left.

    Each call gets a new argument. Yields that argument, and where the call was interrupted, after the exception has
    left it.
    """
    for number in itertools.count(1):
        prepared = prepare()
        interrupt = InterruptAt(number, within, kind)
        with interrupt, suppress(Interrupt):
            act(prepared)
        yield prepared, interrupt.place or "not interrupted"
        if interrupt.place is None:
            return
