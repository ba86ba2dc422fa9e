"""Trace one warm acquire and its exit, and print the modules of zae_limiter that it enters, in order.

    python tools/walk.py                                      four cases beside their targets
    python tools/walk.py --store dynamodb --async --cascade   one case
    python tools/walk.py --store sqlite --sync --changes      one case, with every change of module
    python tools/walk.py --write                              update the cases in docs/architecture.md

A module is entered when a function of it is called. A *change of module* is a call from a function
of one module of zae_limiter to a function of another one. Returns are not counted, and neither is a
coroutine that continues after it has waited. A call from outside the package, such as the event
loop's, is not a change.

A *stored callback* is a change of module by a call that does not name the function, or that calls a
lambda. A bound method that is stored under its own name is not found.

Acquires differ a little, for example when a new second of the server's clock begins. So many are
traced, and the one with the most frequent figures is shown. DynamoDB is the canned responder of
``bench/``, so no engine is needed.
"""

from __future__ import annotations

import argparse
import ast
import asyncio
import dis
import functools
import importlib
import inspect
import linecache
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType
from typing import NamedTuple
from unittest import mock

from zae_limiter import Limit, RateLimiter, Repository, SyncRateLimiter, SyncRepository

DEADLINE_S = 60.0
"""Long, because the trace is slow, and the machine may be slow."""

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "architecture.md"
PACKAGE = "zae_limiter"

WARM_UP, TRACED = 20, 100
LIMITS = [Limit.per_minute("rpm", 1_000_000), Limit.per_minute("tpm", 100_000_000)]
CHILD, PARENT, RESOURCE, CONSUME = "user-1", "team", "gpt-4", {"rpm": 1, "tpm": 500}
CREDENTIALS = {"AWS_ACCESS_KEY_ID": "walk", "AWS_SECRET_ACCESS_KEY": "walk"}


class Case(NamedTuple):
    """One traced case."""

    store: str = "sqlite"
    is_async: bool = False
    cascade: bool = False

    @property
    def title(self) -> str:
        """The name of the case."""
        names = {"memory": "Memory", "sqlite": "SQLite", "dynamodb": "DynamoDB"}
        kind = "async" if self.is_async else "sync"
        return f"{names[self.store]} {kind}" + (", cascading" if self.cascade else "")


class Target(NamedTuple):
    """The maximum number of modules and changes of a case."""

    modules: int
    changes: int


SQLITE, DYNAMODB = Case("sqlite"), Case("dynamodb", is_async=True)
CASES = (SQLITE, SQLITE._replace(cascade=True), DYNAMODB, DYNAMODB._replace(cascade=True))
TARGETS = {SQLITE: Target(15, 20), DYNAMODB: Target(24, 50)}


class Call(NamedTuple):
    """A call of a function of the package; ``caller`` is None if the call comes from outside."""

    caller: str | None
    module: str
    function: str
    callback: str | None


@dataclass(slots=True)
class Walk:
    """The calls of one acquire and its exit, in order."""

    calls: list[Call] = field(default_factory=list)

    @property
    def modules(self) -> list[str]:
        """The distinct modules, in the order in which they are first entered."""
        return list(dict.fromkeys(call.module for call in self.calls))

    @property
    def changes(self) -> list[Call]:
        """The calls from one module to another."""
        return [call for call in self.calls if call.caller not in {None, call.module}]

    @property
    def figures(self) -> tuple[int, int, int]:
        """The numbers of modules, of changes of module and of stored callbacks."""
        return len(self.modules), len(self.changes), len(self.callbacks)

    @property
    def callbacks(self) -> list[str]:
        """The distinct changes of module that go through a stored callback, in order."""
        return list(dict.fromkeys(call.callback for call in self.changes if call.callback is not None))

    def profile(self, frame: FrameType, event: str, _: object) -> None:
        """Record a call; for ``sys.setprofile``."""
        module = _module(frame)
        if event == "call" and module is not None and not _goes_on(frame):
            caller = None if frame.f_back is None else _module(frame.f_back)
            self.calls.append(Call(caller, module, frame.f_code.co_qualname, _callback(frame)))

    @contextmanager
    def traced(self) -> Iterator[None]:
        """Record the calls of this thread until the block ends."""
        sys.setprofile(self.profile)
        try:
            yield
        finally:
            sys.setprofile(None)


def _module(frame: FrameType) -> str | None:
    """Return the module of a frame as a path in the package; None for other packages."""
    package, _, name = str(frame.f_globals.get("__name__", "")).partition(".")
    return f"{name.replace('.', '/') or '__init__'}.py" if package == PACKAGE else None


def _goes_on(frame: FrameType) -> bool:
    """Return whether a coroutine or a generator was entered before."""
    return frame.f_lasti > _first_instruction(frame.f_code)


@functools.cache
def _first_instruction(code: CodeType) -> int:
    """Return the offset of the instruction at which a coroutine, a generator or a function begins."""
    starts = (one.offset for one in dis.get_instructions(code) if one.opname == "RESUME" and one.arg == 0)
    return next(starts, 0)


def _callback(frame: FrameType) -> str | None:
    """Describe a call whose text does not name the function that it enters; None for all other calls."""
    code, caller = frame.f_code, frame.f_back
    hidden = code.co_name.startswith("__") or (code.co_name.startswith("<") and code.co_name != "<lambda>")
    if caller is None or _module(caller) is None or hidden or code.co_flags & inspect.CO_GENERATOR:
        return None
    text = _calling_text(caller.f_code, caller.f_lasti)
    if text is None or code.co_name in _names(text):
        return None
    shown = " ".join(text.split())
    shown = shown if len(shown) <= 60 else f"{shown[:57]}..."
    return f"{_module(caller)}: {shown} -> {_module(frame)}: {code.co_qualname}"


@functools.cache
def _calling_text(code: CodeType, instruction: int) -> str | None:
    """Return the text of the expression of an instruction; None if the code does not have it."""
    line, last, start, end = list(code.co_positions())[instruction // 2]
    if line is None or last is None or start is None or end is None:
        return None
    lines = [linecache.getline(code.co_filename, number) for number in range(line, last + 1)]
    lines[-1] = lines[-1].encode()[:end].decode()
    lines[0] = lines[0].encode()[start:].decode()
    return "".join(lines)


@functools.cache
def _names(text: str) -> frozenset[str]:
    """Return every name and attribute in an expression."""
    try:
        tree = ast.parse(f"async def _():\n ({text})")
    except SyntaxError:
        return frozenset()
    nodes = list(ast.walk(tree))
    return frozenset(
        [node.id for node in nodes if isinstance(node, ast.Name)]
        + [node.attr for node in nodes if isinstance(node, ast.Attribute)]
    )


def walk(case: Case) -> Walk:
    """Trace a case and return a walk with the figures that most acquires have."""
    with mock.patch.dict(os.environ, CREDENTIALS), _location(case) as location:
        walks = asyncio.run(_async_walks(location, case)) if case.is_async else _sync_walks(location, case)
    usual = Counter(one.figures for one in walks).most_common(1)[0][0]
    return next(one for one in walks if one.figures == usual)


@contextmanager
def _location(case: Case) -> Iterator[str]:
    """Yield the URL of an empty store, or of a responder that answers as if the bucket was used before."""
    if case.store == "dynamodb":
        sys.path[:0] = [] if str(ROOT) in sys.path else [str(ROOT)]
        canned, responder = (importlib.import_module(f"bench.{name}") for name in ("canned", "responder"))
        bodies = canned.cascading_bodies(CHILD, PARENT) if case.cascade else canned.bodies()
        running: AbstractContextManager[str] = responder.running(bodies)
        with running as url:
            yield canned.location(url)
        return
    folder = tempfile.TemporaryDirectory(prefix="walk-") if case.store == "sqlite" else nullcontext("")
    with folder as path:
        yield f"sqlite:///{path}/walk.db" if path else "memory://"


def _sync_walks(location: str, case: Case) -> list[Walk]:
    with SyncRepository.open(location, deadline_s=DEADLINE_S) as repository:
        if case.store != "dynamodb":
            repository.set_system_defaults(LIMITS)
            repository.create_entity(PARENT)
            repository.create_entity(CHILD, parent_id=PARENT, cascade=case.cascade)
        acquire = SyncRateLimiter(repository).acquire
        walks = []
        for _ in range(WARM_UP + TRACED):
            walks.append(Walk())
            with walks[-1].traced(), acquire(CHILD, RESOURCE, CONSUME):
                pass
    return walks[WARM_UP:]


async def _async_walks(location: str, case: Case) -> list[Walk]:
    async with await Repository.open(location, deadline_s=DEADLINE_S) as repository:
        if case.store != "dynamodb":
            await repository.set_system_defaults(LIMITS)
            await repository.create_entity(PARENT)
            await repository.create_entity(CHILD, parent_id=PARENT, cascade=case.cascade)
        acquire = RateLimiter(repository).acquire
        walks = []
        for _ in range(WARM_UP + TRACED):
            walks.append(Walk())
            with walks[-1].traced():
                async with acquire(CHILD, RESOURCE, CONSUME):
                    pass
    return walks[WARM_UP:]


def summary(case: Case, found: Walk) -> str:
    """Return the figures of a case beside its targets."""
    modules, changes, callbacks = (str(figure) for figure in found.figures)
    target = TARGETS.get(case)
    if target is not None:
        modules, changes = f"{modules} (target {target.modules})", f"{changes} (target {target.changes})"
    return f"{case.title}: modules {modules}, changes of module {changes}, stored callbacks {callbacks}"


def report(case: Case, found: Walk) -> str:
    """Return the figures, the modules in the order of their first call, and the stored callbacks."""
    calls = Counter(call.module for call in found.calls)
    first = {call.module: call.function for call in reversed(found.calls)}
    lines = [summary(case, found)]
    lines += [
        f"{number:4}  {module:36} {calls[module]:3} calls, first {_short(first[module])}"
        for number, module in enumerate(found.modules, 1)
    ]
    lines += [f"  callback  {callback}" for callback in found.callbacks]
    return "\n".join(lines)


def _short(function: str) -> str:
    """Return a qualified name without the functions around it."""
    return function.rpartition("<locals>.")[2]


def changes(found: Walk) -> str:
    """Return every change of module, one per line."""
    return "\n".join(f"  {call.caller} -> {call.module}: {_short(call.function)}" for call in found.changes)


def shown(text: str) -> dict[str, str]:
    """Return the reports on a page, by the title of their case."""
    blocks = [block.partition("\n```")[0] for block in text.split("```text\n")[1:]]
    titles = {case.title for case in CASES}
    return {title: block for block in blocks if (title := block.partition(":")[0]) in titles}


def write() -> None:
    """Replace the reports on the page with new ones."""
    text = PAGE.read_text(encoding="utf-8")
    old = shown(text)
    for case in CASES:
        if case.title in old:
            text = text.replace(old[case.title], report(case, walk(case)))
    PAGE.write_text(text, encoding="utf-8")


def arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--store", choices=("memory", "sqlite", "dynamodb"), help="default: the four cases of the docs")
    parser.add_argument("--async", dest="is_async", action="store_true", help="trace RateLimiter")
    parser.add_argument("--sync", dest="is_async", action="store_false", help="trace SyncRateLimiter (default)")
    parser.add_argument("--cascade", action="store_true", help="take from a child and its parent")
    parser.add_argument("--changes", action="store_true", help="also print every change of module")
    parser.add_argument("--write", action="store_true", help="write the reports into docs/architecture.md")
    return parser.parse_args()


def main() -> None:
    """Print the requested cases."""
    options = arguments()
    if options.write:
        write()
        return
    cases = CASES if options.store is None else (Case(options.store, options.is_async, options.cascade),)
    for case in cases:
        found = walk(case)
        print(report(case, found))
        if options.changes:
            print(changes(found))
        print()


if __name__ == "__main__":
    main()
