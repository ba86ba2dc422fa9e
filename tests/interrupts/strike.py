"""Raises an exception at a chosen bytecode of the library, as a signal handler may."""

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
_LIBRARY = str(Path(zae_limiter.__file__).parent)


class Interrupt(BaseException):
    """What the signal handler of a worker raises."""


class Strike:
    """Traces the calling thread, and raises at the bytecode of this number; ``struck`` is where that was.

    It raises where CPython runs signal handlers: at the start of a function, after a call, and at the end of a loop's
    round.
    """

    def __init__(self, number: int, within: str = "") -> None:
        self.struck: str | None = None
        self._left = number
        self._within = within
        self._last: dict[FrameType, int] = {}

    def __enter__(self) -> "Strike":
        self._before = sys.gettrace()
        sys.settrace(self._enter_frame)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(self._before)

    def _enter_frame(self, frame: FrameType, event: str, argument: Any) -> Any:
        path = frame.f_code.co_filename
        if self.struck or not path.startswith(_LIBRARY) or self._within not in path:
            return None
        frame.f_trace_opcodes = True
        frame.f_trace_lines = False
        return self._step

    def _step(self, frame: FrameType, event: str, argument: Any) -> Any:
        if event == "return":
            self._last.pop(frame, None)
        if event == "opcode" and self.struck is None:
            before, self._last[frame] = self._last.get(frame), frame.f_lasti
            if before is None or _may_raise(frame.f_code, before, frame.f_lasti):
                self._left -= 1
                if self._left == 0:
                    self.struck = f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno} {frame.f_code.co_name}"
                    self._last.clear()
                    raise Interrupt(self.struck)
        return self._step


@functools.cache
def _may_raise(code: CodeType, before: int, now: int) -> bool:
    """Return whether a signal handler may run after one bytecode, and its exception can be raised at the next.

    CPython raises it at the call itself. Where that is in another try or with statement than the next bytecode, it
    cannot be imitated.
    """
    names, handlers = _names(code), dis._parse_exception_table(code)  # type: ignore[attr-defined] # there is no other
    targets = [[one.target for one in handlers if one.start <= offset < one.end] for offset in (before, now)]
    return names[before] in _DELIVERING and targets[0] == targets[1]


@functools.cache
def _names(code: CodeType) -> dict[int, str]:
    return {one.offset: one.opname for one in dis.get_instructions(code)}


def strikes(
    prepare: Callable[[], T], act: Callable[[T], object], within: str = "", step: int = 1
) -> Iterator[tuple[T, str]]:
    """Make a call again and again, struck at its first bytecode, its second and so on, until it ends unstruck.

    Each call gets something new. Yields that, and where the call was struck, once the exception has left it.
    """
    for number in itertools.count(1, step):
        prepared = prepare()
        strike = Strike(number, within)
        with strike, suppress(Interrupt):
            act(prepared)
        yield prepared, strike.struck or "not struck"
        if strike.struck is None:
            return
