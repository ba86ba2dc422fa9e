"""Check rules of this project that no linter knows. Each function takes source text and returns its problems.

Nothing here reads a file. `tests/test_layout.py` runs the rules over the repository, and over bad
snippets.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass

MAX_FILE_LINES = 500
MAX_FUNCTION_LINES = 50
MAX_PARAMETERS = 7
MAX_SHARED_LINES = 9

FORBIDDEN_MODULE_NAMES = frozenset({"utils", "helpers", "manager", "common", "base"})

# A type alias has capital and small letters. A type variable is one capital, or ends in _co.
_ALIAS = re.compile(r"_?[A-Z][a-z]\w*[a-z](?<!_co)")

_FUNCTION = (ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass(frozen=True, slots=True)
class Finding:
    """A problem, and its line."""

    line: int
    problem: str


@dataclass(frozen=True, slots=True)
class Function:
    """A function, with the names of the classes and functions around it."""

    qualified_name: str
    node: ast.FunctionDef | ast.AsyncFunctionDef


def functions(tree: ast.AST, prefix: str = "") -> Iterator[Function]:
    """Yield every function of a module, nested ones included."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, _FUNCTION):
            yield Function(prefix + node.name, node)
        inner = f"{prefix}{node.name}." if isinstance(node, (*_FUNCTION, ast.ClassDef)) else prefix
        yield from functions(node, inner)


def long_files(source: str) -> list[Finding]:
    """Find a file with too many lines."""
    count = len(source.splitlines())
    return [Finding(count, f"{count} lines, at most {MAX_FILE_LINES}")] if count > MAX_FILE_LINES else []


def long_functions(source: str) -> list[Finding]:
    """Find functions with too many lines, docstring included."""
    found = []
    for function in functions(ast.parse(source)):
        count = (function.node.end_lineno or 0) - function.node.lineno + 1
        if count > MAX_FUNCTION_LINES:
            found.append(
                Finding(function.node.lineno, f"{function.qualified_name}: {count} lines, at most {MAX_FUNCTION_LINES}")
            )
    return found


def shared_lines(sources: Mapping[str, str]) -> list[str]:
    """Find places that share too many lines in a row, as pairs of `name:line`.

    Indentation, empty lines, comments, imports and lines of punctuation alone are passed over.
    """
    first: dict[tuple[str, ...], tuple[str, int]] = {}
    found: dict[tuple[str, str], str] = {}
    for name, source in sources.items():
        lines = list(_lines_of_code(source))
        for end in range(MAX_SHARED_LINES + 1, len(lines) + 1):
            run = lines[end - MAX_SHARED_LINES - 1 : end]
            other, line = first.setdefault(tuple(text for _, text in run), (name, run[0][0]))
            if (other, line) != (name, run[0][0]):
                found.setdefault((other, name), f"{other}:{line} and {name}:{run[0][0]}")
    return sorted(found.values())


def _lines_of_code(source: str) -> Iterator[tuple[int, str]]:
    imports: set[int] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            imports.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    for line, text in enumerate(source.splitlines(), 1):
        if line not in imports and re.search(r"\w", text) and not text.lstrip().startswith("#"):
            yield line, text.strip()


def many_parameters(source: str, exempt: Container[str] = ()) -> list[Finding]:
    """Find functions with too many parameters, which should be grouped in a named value."""
    found = []
    for function in functions(ast.parse(source)):
        count = _parameter_count(function.node.args)
        if count > MAX_PARAMETERS and function.qualified_name not in exempt:
            problem = f"{function.qualified_name}: {count} parameters, at most {MAX_PARAMETERS}"
            found.append(Finding(function.node.lineno, problem))
    return found


def class_names(source: str) -> list[str]:
    """Return the names of the classes and type aliases that a module defines."""
    tree = ast.parse(source)
    classes = [node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    assigned = [node.targets[0] for node in tree.body if isinstance(node, ast.Assign) and len(node.targets) == 1]
    named = [target.id for target in assigned if isinstance(target, ast.Name)]
    return classes + [name for name in named if _ALIAS.fullmatch(name)]


def _parameter_count(arguments: ast.arguments) -> int:
    positional = [*arguments.posonlyargs, *arguments.args]
    if positional and positional[0].arg in {"self", "cls"}:
        positional = positional[1:]
    variable = [argument for argument in (arguments.vararg, arguments.kwarg) if argument]
    return len(positional) + len(arguments.kwonlyargs) + len(variable)


# A comment that silences a tool, followed by a dash or a second # and the reason.
_SUPPRESSION = re.compile(
    r"#\s*(?P<kind>noqa|type:\s*ignore|pragma:\s*no\s*(?:cover|branch))"
    r"(?P<codes>\s*:\s*[A-Z]+[0-9]+(?:[,\s]+[A-Z]+[0-9]+)*|\[[^\]]*\])?"
    r"(?P<reason>.*)",
    re.IGNORECASE,
)
_REASON = re.compile(r"^\s*(?:-|#|:|,|\()\s*\w+.*\s+\w+")


def unexplained_suppressions(source: str) -> list[Finding]:
    """Find comments that silence a tool without the rule, or without a reason of at least two words."""
    found = []
    for line, comment in _comments(source):
        match = _SUPPRESSION.search(comment)
        if match is None:
            continue
        if not match["kind"].lower().startswith("pragma") and not match["codes"]:
            found.append(Finding(line, f"names no rule: {comment}"))
        elif not _REASON.match(match["reason"]):
            found.append(Finding(line, f"names no reason: {comment}"))
    return found


# A key such as BUCKET#gpt-4#0 is not a ticket: its # follows a word or a brace.
_HISTORY = re.compile(
    r"(?<![\w#}>/])#\d+\b|\bADR[-\s]?\d+|\b(?:issue|ticket|PR|pull request)s?\s+#?\d+|\bGH-\d+|\bv\d+\.\d+",
    re.IGNORECASE,
)


def told_history(source: str) -> list[Finding]:
    """Find comments and docstrings with the number of an issue, a decision record or a version."""
    texts = [(line, comment.lstrip("#")) for line, comment in _comments(source)]
    texts += _docstrings(ast.parse(source))
    return [Finding(line, f"history: {match[0]}") for line, text in texts for match in _HISTORY.finditer(text)]


def _comments(source: str) -> Iterator[tuple[int, str]]:
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string


def _docstrings(tree: ast.Module) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, (*_FUNCTION, ast.ClassDef, ast.Module)):
            text = ast.get_docstring(node, clean=False)
            if text is not None:
                yield node.body[0].lineno, text


@dataclass(frozen=True, slots=True)
class ValueClass:
    """A dataclass with slots that is not frozen: cheap to make, and never changed by convention."""

    name: str
    fields: frozenset[str]


def value_classes(source: str) -> list[ValueClass]:
    """Return the value classes that a module defines."""
    return [
        ValueClass(node.name, frozenset(_fields(node)))
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.ClassDef) and _is_value_class(node)
    ]


def _fields(node: ast.ClassDef) -> Iterator[str]:
    for statement in node.body:
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            yield statement.target.id


def _is_value_class(node: ast.ClassDef) -> bool:
    for decorator in node.decorator_list:
        if isinstance(decorator, ast.Call) and ast.unparse(decorator.func) in {"dataclass", "dataclasses.dataclass"}:
            options = {keyword.arg: ast.unparse(keyword.value) for keyword in decorator.keywords}
            return options.get("slots") == "True" and options.get("frozen", "False") == "False"
    return False


def changed_values(source: str, known: Mapping[str, ValueClass]) -> list[Finding]:
    """Find values that are assigned to after their construction.

    `known` are the value classes of the whole package by name. A value has slots. So it can only
    change by an assignment to an attribute with the name of one of their fields. An object may
    assign to its own attributes (`self`), unless it is itself a value. Assignments to such an
    attribute of another object are found, and so are calls of `setattr`.
    """
    return list(_Changes(known).found_in(ast.parse(source)))


class _Changes:
    def __init__(self, known: Mapping[str, ValueClass]) -> None:
        self._known = known
        self._fields = frozenset().union(*(value.fields for value in known.values()))

    def found_in(self, node: ast.AST, owner: str | None = None, making: bool = False) -> Iterator[Finding]:
        """Walk the tree; `owner` is the value class around, `making` is True inside its constructor."""
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.ClassDef):
                yield from self.found_in(child, self._as_value(child), False)
                continue
            if isinstance(child, _FUNCTION) and isinstance(node, ast.ClassDef):
                yield from self.found_in(child, owner, child.name in {"__init__", "__post_init__"})
                continue
            if problem := self._problem(child, owner, making):
                yield Finding(getattr(child, "lineno", 0), problem)
            yield from self.found_in(child, owner, making)

    def _as_value(self, node: ast.ClassDef) -> str | None:
        """Return the value class that a class is or inherits from, or None."""
        bases = {ast.unparse(base).rpartition(".")[2] for base in node.bases}
        names = [name for name in (node.name, *sorted(bases)) if name in self._known]
        return names[0] if names else None

    def _problem(self, node: ast.AST, owner: str | None, making: bool) -> str | None:
        if isinstance(node, ast.Call) and not making:
            called = ast.unparse(node.func)
            if called in {"setattr", "delattr"} or called.endswith((".__setattr__", ".__delattr__")):
                return f"changes an object behind its back: {ast.unparse(node)}"
        if not isinstance(node, ast.Attribute) or isinstance(node.ctx, ast.Load):
            return None
        target = ast.unparse(node)
        if isinstance(node.value, ast.Name) and node.value.id == "self":
            return f"{owner} is a value and changes itself: {target}" if owner and not making else None
        return f"assigns to a field of a value: {target}" if node.attr in self._fields else None


def root_imports(source: str, package: str) -> list[Finding]:
    """Find imports of the package's root inside the package, which would be circular."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = ["." * node.level + (node.module or "")]
        else:
            continue
        found += [Finding(node.lineno, f"imports {name}") for name in names if name == package or name.startswith(".")]
    return found
