"""Write the sync trees from the async ones, line for line; `--check` only compares.

`src/zae_limiter/_sync` is generated from `src/zae_limiter/_async`, and `tests/_sync` from
`tests/_async`. Edits are found with `ast` and made in the text. `async` and `await` are dropped,
and the names in TABLE change. All else stays, so that line N of a generated file is line N of its
source. No code is added. Code without a blocking form is refused, with file and line.
"""

import argparse
import ast
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple

# Every name that changes. An empty name unwraps: Awaitable[T] becomes T. Dotted rows are modules.
# Names that become Sync* also change in docstrings. A row that changes nothing in either tree is an
# error.
TABLE = {
    "RateLimiter": "SyncRateLimiter",
    "Repository": "SyncRepository",
    "RepositoryBuilder": "SyncRepositoryBuilder",
    "RepositoryProtocol": "SyncRepositoryProtocol",
    "Lease": "SyncLease",
    "__aenter__": "__enter__",
    "__aexit__": "__exit__",
    "Awaitable": "",
    "Coroutine": "",
    "AsyncIterator": "Iterator",
    "zae_limiter._async": "zae_limiter._sync",
    "zae_limiter.runtime.aio": "zae_limiter.runtime.threads",
    "zae_limiter.transport.aio": "zae_limiter.transport.threads",
}
TREES = (("src/zae_limiter/_async", "src/zae_limiter/_sync"), ("tests/_async", "tests/_sync"))
ROOT = Path(__file__).parents[1]
MARK = "  # generated from _async by tools/mirror.py; do not edit"

# Names without meaning in blocking code. Without this check, a missing row would not be noticed.
_ASYNC_ONLY = re.compile(
    r"(?:Abstract|Stop)?Async[A-Z]\w+|asynccontextmanager|Awaitable|Coroutine|a(?:close|closing|iter|next)"
    r"|__a(?:enter|exit|iter|next)__"
)
# In prose `await` may be a verb: it is code before a call.
_ASYNC_IN_DOCSTRING = re.compile(r"\basync (?=(?:with|for|def)\b)|\bawait (?=[\w.]+\()")
_KEYWORD = re.compile(r"(?:async|await)[ \t]*(?=[^\s\\#])")
_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


class Mirrored(NamedTuple):
    """The sync text of one file, the rows it used, and what could not be mirrored."""

    text: str
    used: set[str]
    refusals: list[str]


def mirror(source: str, path: str, table: Mapping[str, str] = TABLE) -> Mirrored:
    """Return the sync form of an async source."""
    edits = _Edits(source, path, table)
    tree = ast.parse(source)
    edits.note_contexts(tree)
    for node in ast.walk(tree):
        edits.drop_keyword(node)
        edits.change_name(node)
        edits.change_import(node)
        edits.change_string(node)
    text = edits.apply()
    try:
        ast.parse(text)
    except SyntaxError as error:
        edits.refuse(error.lineno, f"is not valid Python after mirroring: {error.msg}")
    return Mirrored(text, edits.used, edits.refusals)


class _Edits:
    """The edits of one file, by position in its text."""

    def __init__(self, source: str, path: str, table: Mapping[str, str]) -> None:
        self.used: set[str] = set()
        self.refusals: list[str] = []
        self._source, self._path, self._table = source, path, table
        self._lines = source.split("\n")
        self._line_starts = [0, *accumulate(len(line) + 1 for line in self._lines)]
        self._edits: dict[tuple[int, int], str] = {}
        self._annotations: set[ast.AST] = set()
        self._in_f_strings: set[ast.AST] = set()
        self._docstrings: set[ast.AST] = set()
        self._unwrapped: set[ast.AST] = set()
        self._modules = [name for name in table if "." in name]

    def apply(self) -> str:
        """Return the text with all edits."""
        pieces, position = [], 0
        for (start, end), replacement in sorted(self._edits.items()):
            pieces += [self._source[position:start], replacement]
            position = end
        return "".join([*pieces, self._source[position:]])

    def refuse(self, place: object, reason: str) -> None:
        """Record what cannot be mirrored, at a node or a line."""
        self.refusals.append(f"{self._path}:{getattr(place, 'lineno', place)}: {reason}")

    def note_contexts(self, tree: ast.Module) -> None:
        """Record which nodes are in an annotation, an f-string or a docstring, and mark the module as generated."""
        for node in ast.walk(tree):
            for annotation in (getattr(node, "annotation", None), getattr(node, "returns", None)):
                self._annotations.update(ast.walk(annotation) if annotation else ())
            if isinstance(node, ast.JoinedStr):
                self._in_f_strings.update(ast.walk(node))
            if isinstance(node, _DOCUMENTED) and ast.get_docstring(node) is not None:
                self._docstrings.update(ast.walk(node.body[0]))
        if tree.body and tree.body[0] not in self._docstrings:
            self.refuse(1, "no module docstring: the mark of a generated file follows it")
        elif tree.body:
            end_of_line = self._line_starts[tree.body[0].end_lineno or 1] - 1
            self._edits[end_of_line, end_of_line] = MARK

    def drop_keyword(self, node: ast.AST) -> None:
        """Drop `async` and `await`."""
        if isinstance(node, ast.comprehension) and node.is_async:
            self.refuse(node.target, "an async comprehension: write the loop out")
        if isinstance(node, ast.AsyncFunctionDef | ast.AsyncWith | ast.AsyncFor | ast.Await):
            keyword = _KEYWORD.match(self._source, self._start(node))
            if keyword is None and node not in self._in_f_strings:
                self.refuse(node, "a line break after async or await")
            else:
                self._replace(node, self._start(node), keyword.end() if keyword else self._start(node), "")

    def change_name(self, node: ast.AST) -> None:
        """Rename the names in the table, and unwrap Awaitable[T]."""
        match node:
            case ast.Name(id="asyncio"):
                self.refuse(node, "a name of asyncio: it belongs in the runtime")
            case ast.Name(id=name) | ast.arg(arg=name) | ast.keyword(arg=str() as name):
                if node not in self._unwrapped:
                    self._rename(node, name, self._start(node))
            case ast.Attribute(attr=name):
                self._rename(node, name, self._end(node) - len(name))
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                self._rename(node, name, self._source.find(name, self._start(node)))
            case ast.Subscript(value=ast.Name(id=name), slice=inner) if self._table.get(name) == "":
                self.used.add(name)
                # Of Coroutine[Any, Any, T] only the T stays.
                result = inner.elts[-1] if isinstance(inner, ast.Tuple) else inner
                self._unwrapped.update(set(ast.walk(node)) - set(ast.walk(result)))
                self._replace(node, self._start(node), self._start(result), "")
                self._replace(node, self._end(result), self._end(node), "")

    def change_import(self, node: ast.AST) -> None:
        """Rename imported modules and names, and drop those that become empty or duplicates."""
        if not isinstance(node, ast.Import | ast.ImportFrom):
            return
        module = (node.module or "") if isinstance(node, ast.ImportFrom) else ""
        if (new_module := self._rename_modules(module)) != module:
            start = self._source.index(module, self._start(node))
            self._replace(node, start, start + len(module), new_module)
        names = [self._new_alias(alias, module) for alias in node.names]
        names = [name if name not in names[:index] else "" for index, name in enumerate(names)]
        first, last = self._start(node.names[0]), self._end(node.names[-1])
        if not any(names):
            self._replace(node, self._start(node), self._end(node), "")
        elif "\n" not in self._source[first:last]:
            self._replace(node, first, last, ", ".join(filter(None, names)))
        else:
            for alias, name in zip(node.names, names, strict=True):
                self._replace(alias, *self._extent(alias, with_comma=not name), name)

    def change_string(self, node: ast.AST) -> None:
        """Rename modules in any string, and names in annotations or if they are the whole string."""
        if not (isinstance(node, ast.Constant) and isinstance(node.value, str)):
            return
        start, end = self._start(node), self._end(node)
        text = self._rename_modules(self._source[start:end])
        if node in self._docstrings:
            documented = {old: new for old, new in self._table.items() if new.startswith("Sync")}
            text = _ASYNC_IN_DOCSTRING.sub("", text)
            self._edits[start, end] = re.sub(r"\w+", lambda word: documented.get(word[0], word[0]), text)
        elif node in self._annotations or (node.value in self._table and node not in self._in_f_strings):
            text = re.sub(r"\w+", lambda word: self._new_name(node, word[0]), text)
            self._replace(node, start, end, text)
        elif text != self._source[start:end]:
            self._replace(node, start, end, text)

    def _new_alias(self, alias: ast.alias, module: str) -> str:
        if "asyncio" in (alias.name.partition(".")[0], module.partition(".")[0]):
            self.refuse(alias, "imports asyncio: it belongs in the runtime")
        name = self._rename_modules(alias.name)
        if f"{module}.{name}" in self._modules or (name != alias.name and not alias.asname):
            self.refuse(alias, "imports a tree by name: import from its modules")
        if self._table.get(alias.name) == "":
            self.used.add(alias.name)
            return ""
        name = self._new_name(alias, name)
        return f"{name} as {self._new_name(alias, alias.asname)}" if alias.asname else name

    def _extent(self, alias: ast.alias, *, with_comma: bool) -> tuple[int, int]:
        start, end = self._start(alias), self._end(alias)
        if not with_comma:
            return start, end
        # On its own line it leaves an empty line, so that no other line moves.
        alone = re.compile(r"[ \t]*\w+,?[ \t]*$", re.MULTILINE).match(self._source, self._line_starts[alias.lineno - 1])
        return alone.span() if alone else (start, end + len(re.split(r"[^, \t]", self._source[end:], maxsplit=1)[0]))

    def _rename(self, node: ast.AST, name: str, start: int) -> None:
        new = self._new_name(node, name)
        if new != name:
            self._replace(node, start, start + len(name), new)

    def _new_name(self, node: ast.AST, name: str) -> str:
        new = self._table.get(name)
        if new == "":
            self.refuse(node, f"{name} without its type in brackets, or quoted")
        elif new is not None:
            self.used.add(name)
        elif _ASYNC_ONLY.fullmatch(name):
            self.refuse(node, f"{name} has no row in TABLE of tools/mirror.py")
        return new or name

    def _rename_modules(self, text: str) -> str:
        for module in self._modules:
            text, count = re.subn(rf"\b{re.escape(module)}\b", self._table[module], text)
            self.used.update([module] if count else [])
        return text

    def _replace(self, node: ast.AST, start: int, end: int, new: str) -> None:
        if node in self._in_f_strings:
            # Before Python 3.12 the positions of nodes in f-strings are wrong.
            self.refuse(node, "a change inside an f-string: give the value a name first")
        elif "\n" in self._source[start:end] and "\n" not in new:
            self.refuse(node, "a line break inside removed text")
        else:
            self._edits[start, end] = new

    def _start(self, node: ast.AST) -> int:
        return self._position(getattr(node, "lineno", 1), getattr(node, "col_offset", 0))

    def _end(self, node: ast.AST) -> int:
        return self._position(getattr(node, "end_lineno", 1), getattr(node, "end_col_offset", 0))

    def _position(self, line: int, byte_column: int) -> int:
        """Convert a position of `ast`, which counts bytes, to one of the text."""
        return self._line_starts[line - 1] + len(self._lines[line - 1].encode()[:byte_column].decode(errors="ignore"))


def main(arguments: Sequence[str] = (), root: Path = ROOT, table: Mapping[str, str] = TABLE) -> int:
    """Write or check the sync trees, and return the exit status."""
    parser = argparse.ArgumentParser(description="Write the sync trees from the async ones.")
    parser.add_argument("--check", action="store_true", help="compare only, and exit 1 if a file differs")
    check = parser.parse_args(arguments).check
    mirrored = {
        target: mirror(source.read_text("utf-8"), str(source.relative_to(root)), table)
        for source, target in _twins(root, 0, 1)
    }
    problems = [refusal for file in mirrored.values() for refusal in file.refusals]
    if not problems and not check:
        _write(root, mirrored)
    problems += _differences(root, mirrored)
    used = set().union(*(file.used for file in mirrored.values()))
    problems += [f"unused row in TABLE of tools/mirror.py: {name}" for name in table if name not in used]
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if problems else 0


def _twins(root: Path, side: int, other: int) -> Iterator[tuple[Path, Path]]:
    """Yield every file on one side with the path of its twin."""
    for tree in TREES:
        for file in sorted((root / tree[side]).rglob("*.py")):
            yield file, root / tree[other] / file.relative_to(root / tree[side])


def _write(root: Path, mirrored: Mapping[Path, Mirrored]) -> None:
    for target, file in mirrored.items():
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(file.text, "utf-8", newline="\n")
    for target, _ in _twins(root, 1, 0):
        if target not in mirrored:
            target.unlink()


def _differences(root: Path, mirrored: Mapping[Path, Mirrored]) -> Iterator[str]:
    for target, file in mirrored.items():
        if not target.exists():
            yield f"missing: {target.relative_to(root)}"
        elif target.read_text("utf-8") != file.text:
            yield f"stale: {target.relative_to(root)}"
    for target, _ in _twins(root, 1, 0):
        if target not in mirrored:
            yield f"extra: {target.relative_to(root)}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
