"""Decide which distributions a package for another Python and platform needs. Pure.

An installer evaluates the conditions of requirements for the Python that runs it. Here they are
evaluated for the Python that will run the package.
"""

import ast
import operator
import re
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

_REQUIREMENT = re.compile(r"\s*([A-Za-z0-9][A-Za-z0-9._-]*)\s*(?:\[([^\]]*)\])?\s*([^;]*?)\s*(?:;\s*(.*))?$")
_CONTAINING = (ast.In, ast.NotIn)
_COMPARING: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
_VERSIONS = ("python_version", "python_full_version", "implementation_version", "platform_release")


@dataclass(frozen=True, slots=True)
class Requirement:
    """A requirement of a distribution; the condition is empty if it always applies."""

    name: str
    extras: tuple[str, ...] = ()
    versions: str = ""
    condition: str = ""

    def __str__(self) -> str:
        return f"{self.name}{self.versions}"


@dataclass(frozen=True, slots=True)
class RequiredDistribution:
    """A distribution that is needed, and its version; without one, the versions that a requirement allows."""

    name: str
    version: str | None
    versions: str = ""

    def __str__(self) -> str:
        return f"{self.name}{self.versions}" if self.version is None else f"{self.name}=={self.version}"


@dataclass(frozen=True, slots=True)
class DistributionMetadata:
    """The version of a distribution, and its requirements as its metadata has them."""

    version: str
    requirements: tuple[str, ...]


MetadataSource = Callable[[str], DistributionMetadata | None]
"""A function that returns the metadata of a distribution by its normalized name, None if that is unknown."""


def markers_of(python: str, machine: str = "x86_64") -> dict[str, str]:
    """Return the variables of conditions for a version of CPython on Linux."""
    return {
        "python_version": python,
        "python_full_version": f"{python}.0",
        "implementation_name": "cpython",
        "implementation_version": f"{python}.0",
        "platform_python_implementation": "CPython",
        "os_name": "posix",
        "sys_platform": "linux",
        "platform_system": "Linux",
        "platform_machine": machine,
        "platform_release": "",
        "platform_version": "",
    }


def parse_requirement(text: str) -> Requirement:
    """Return a requirement from the text in metadata.

    Raises:
        ValueError: The text is not a requirement.
    """
    found = _REQUIREMENT.match(text)
    if found is None:
        raise ValueError(f"not a requirement: {text!r}")
    name, extras, versions, condition = found.groups(default="")
    chosen = tuple(normalized(one.strip()) for one in extras.split(",") if one.strip())
    return Requirement(normalized(name), chosen, versions.strip("()").replace(" ", ""), condition.strip())


def normalized(name: str) -> str:
    """Return the name of a distribution in the form by which names are compared."""
    return re.sub(r"[-_.]+", "-", name).lower()


def required(
    roots: Iterable[Requirement], known: MetadataSource, markers: Mapping[str, str]
) -> dict[str, RequiredDistribution]:
    """Return all distributions that the roots need, by name; those with unknown metadata have no version."""
    found: dict[str, RequiredDistribution] = {}
    seen: set[tuple[str, str]] = set()
    waiting = deque(roots)
    while waiting:
        one = waiting.popleft()
        metadata = known(one.name)
        version = None if metadata is None else metadata.version
        found.setdefault(one.name, RequiredDistribution(one.name, version, one.versions))
        for extra in ("", *one.extras):
            if metadata is None or (one.name, extra) in seen:
                continue
            seen.add((one.name, extra))
            needed = [parse_requirement(text) for text in metadata.requirements]
            waiting.extend(need for need in needed if applies(need.condition, {**markers, "extra": extra}))
    return found


def applies(condition: str, markers: Mapping[str, str]) -> bool:
    """Return whether a condition of a requirement is true; an empty one is.

    Raises:
        ValueError: The condition has another form than conditions of requirements.
    """
    if not condition:
        return True
    try:
        return _holds(ast.parse(condition, mode="eval").body, markers)
    except SyntaxError as error:
        raise ValueError(f"not a condition: {condition!r}") from error


def _holds(node: ast.expr, markers: Mapping[str, str]) -> bool:
    match node:
        case ast.BoolOp(op=ast.And(), values=values):
            return all(_holds(value, markers) for value in values)
        case ast.BoolOp(values=values):
            return any(_holds(value, markers) for value in values)
        case ast.Compare(left=left, ops=[comparison], comparators=[right]):
            return _compared(left, comparison, right, markers)
        case _:
            raise ValueError(f"not a condition: {ast.unparse(node)!r}")


def _compared(left: ast.expr, comparison: ast.cmpop, right: ast.expr, markers: Mapping[str, str]) -> bool:
    one, other = _value(left, markers), _value(right, markers)
    if type(comparison) in _CONTAINING:
        return (one in other) is isinstance(comparison, ast.In)
    if type(comparison) not in _COMPARING:
        raise ValueError(f"not a comparison of conditions: {type(comparison).__name__}")
    is_version = any(isinstance(side, ast.Name) and side.id in _VERSIONS for side in (left, right))
    return bool(_COMPARING[type(comparison)](_key(one, is_version), _key(other, is_version)))


def _value(node: ast.expr, markers: Mapping[str, str]) -> str:
    match node:
        case ast.Name(id=name) if name in markers:
            return markers[name]
        case ast.Constant(value=str(text)):
            return text
        case _:
            raise ValueError(f"not a value of conditions: {ast.unparse(node)!r}")


def _key(text: str, is_version: bool) -> tuple[tuple[int, str], ...]:
    """Return what is compared: the numbers of a version without trailing zeros, or the text."""
    if not is_version:
        return ((0, text),)
    numbers = [int(part) for part in re.findall(r"\d+", text)]
    while numbers and numbers[-1] == 0:
        numbers.pop()
    return tuple((number, "") for number in numbers)
