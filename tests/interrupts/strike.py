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

_LIBRARY = str(Path(zae_limiter.__file__).parent)


class Interrupt(BaseException):
    """What the signal handler of a worker raises."""


class Strike:
    """Traces the calling thread, and raises at the bytecode of this number; ``struck`` is where that was."""

    def __init__(self, number: int, within: str = "") -> None:
        self.struck: str | None = None
        self._left = number
        self._within = within

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
        if event == "opcode" and self.struck is None and frame.f_lasti not in _never_struck(frame.f_code):
            self._left -= 1
            if self._left == 0:
                self.struck = f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno} {frame.f_code.co_qualname}"
                raise Interrupt(self.struck)
        return self._step


@functools.cache
def _never_struck(code: CodeType) -> frozenset[int]:
    """Return the offsets between the end of a with block and its exit.

    CPython delivers no signal there, and a lock is only as safe as that.
    """
    found: set[int] = set()
    instructions = list(dis.get_instructions(code))
    for index in range(len(instructions) - 4):
        nones = instructions[index : index + 3]
        if not all(one.opname == "LOAD_CONST" and one.argval is None for one in nones):
            continue
        calls = [one for one in instructions[index + 3 : index + 5] if one.opname in ("PRECALL", "CALL")]
        if calls and calls[0] is instructions[index + 3]:
            found.update(one.offset for one in (*nones, *calls))
            before = instructions[index - 1]
            if before.opname == "SWAP":
                found.add(before.offset)
    return frozenset(found)


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
