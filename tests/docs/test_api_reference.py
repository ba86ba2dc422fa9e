"""Every public class, method, function and error is in the reference and has a docstring."""

import inspect
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import is_dataclass
from enum import Enum
from pathlib import Path
from typing import Any

import pytest

import zae_limiter
from tests.docs.pages import ROOT
from tests.docs.site import built, inventory
from zae_limiter import bucket
from zae_limiter._async.admin import AdminVerbs
from zae_limiter.core import errors

NAMES = sorted(set(zae_limiter.__all__) - {"__version__"})
PUBLIC = {name: getattr(zae_limiter, name) for name in NAMES}
# An alias of a built-in type has none of its methods on the page.
CLASSES = {name: one for name, one in PUBLIC.items() if inspect.isclass(one) and one.__module__ != "builtins"}
FUNCTIONS = {name: one for name, one in PUBLIC.items() if inspect.isfunction(one)}
TWINS = {name: name.removeprefix("Sync") for name in CLASSES if name.startswith("Sync") and name != "SystemClock"}
# Between repository and limiter; users do not need them.
INTERNAL = {"is_open", "scope"}


@pytest.fixture(scope="module")
def documented() -> set[str]:
    """Return every name that the site documents."""
    return inventory(built())


def members(kind: type) -> Iterator[tuple[str, Any]]:
    """Yield the public methods and properties of a class and of its bases in this package."""
    own = [base for base in kind.__mro__ if base.__module__.startswith(("zae_limiter", "tests"))]
    found = {name: value for base in reversed(own) for name, value in vars(base).items()}
    for name, value in found.items():
        if not name.startswith("_") and name not in INTERNAL and _is_called(value):
            yield name, value


def _is_called(value: object) -> bool:
    return isinstance(value, (property, classmethod, staticmethod)) or inspect.isroutine(value)


def missing(kinds: dict[str, type], documented: set[str]) -> list[str]:
    """Return the methods and properties that no page documents; an async class also covers its sync twin."""
    names = [f"{_page_of(name, member)}.{member}" for name, kind in kinds.items() for member, _ in members(kind)]
    return sorted({name for name in names if f"zae_limiter.{name}" not in documented})


def _page_of(name: str, member: str) -> str:
    """Return the class on whose page a member is: an admin verb is on Repository's, a sync one on its twin's."""
    twin = TWINS.get(name, name)
    return "Repository" if twin == "RateLimiter" and hasattr(AdminVerbs, member) and member not in RENAMED else twin


# The limiter documents these itself.
RENAMED = {"name", "stack_name", "table_name"}


def without_docstring(things: Iterable[tuple[str, Any]]) -> list[str]:
    """Return those that have no docstring of their own."""
    return [name for name, thing in things if not (_docstring(thing) or "").strip()]


def _docstring(thing: Any) -> str | None:
    inner = thing.__func__ if isinstance(thing, (classmethod, staticmethod)) else thing
    text: str | None = inner.__doc__
    # A dataclass without a docstring gets its signature as one.
    return None if inspect.isclass(thing) and text and text.startswith(f"{thing.__name__}(") else text


def public_functions(module: Any) -> list[str]:
    """Return the public functions and classes that a module defines."""
    return [
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and getattr(value, "__module__", None) == module.__name__
    ]


def shown_constructors(page: str, name: str) -> list[list[str]]:
    """Return the parameters of the constructors of a class on a page, in the order in which they are shown."""
    heading = rf'id="zae_limiter\.{name}" class="doc doc-heading">.*?</h\d>'
    signatures = re.findall(rf'{heading}\s*<div class="doc-signature[^>]*>(.*?)</div>', page, re.DOTALL)
    texts = [re.sub(r"<[^>]+>", "", signature) for signature in signatures]
    return [re.findall(r"[(,]\s*(?!lambda:)(\w+):", text) for text in texts]


class TestReferenceIsComplete:
    """Every public name is on a page of the reference."""

    def test_every_public_name_is_documented(self, documented):
        """Everything that can be imported from the package is on a page."""
        assert [] == [name for name in NAMES if f"zae_limiter.{name}" not in documented]

    def test_every_method_and_property_is_documented(self, documented):
        """For every public class; an admin verb once, on its own page."""
        assert [] == missing(CLASSES, documented)

    def test_every_member_of_an_enumeration_is_documented(self, documented):
        """A user who compares with one can find it."""
        choices = [f"{name}.{one.name}" for name, kind in CLASSES.items() if issubclass(kind, Enum) for one in kind]

        assert choices
        assert [] == [choice for choice in choices if f"zae_limiter.{choice}" not in documented]

    @pytest.mark.parametrize("name", [name for name, kind in CLASSES.items() if is_dataclass(kind)])
    def test_every_constructor_of_a_dataclass_is_shown(self, name):
        """A user who makes a value can see its fields."""
        pages = [page.read_text(encoding="utf-8") for page in (built() / "api").rglob("*.html")]

        assert [list(inspect.signature(CLASSES[name]).parameters)] == [
            parameters for page in pages for parameters in shown_constructors(page, name)
        ]

    def test_every_bucket_function_is_documented(self, documented):
        """The pure functions are public in their module."""
        names = public_functions(bucket)

        assert "try_consume" in names
        assert [] == [name for name in names if f"zae_limiter.bucket.{name}" not in documented]

    def test_every_option_of_open_connect_and_builder_is_in_the_table(self):
        """Except what they open."""
        page = (ROOT / "docs" / "api" / "repository.md").read_text(encoding="utf-8")
        table = re.findall(r"^\| (`.*?) \|", page, re.MULTILINE)
        verbs = (zae_limiter.Repository.open, zae_limiter.Repository.connect, zae_limiter.Repository.builder)
        options = {name for verb in verbs for name in inspect.signature(verb).parameters} - {"url", "name", "region"}

        assert sorted(options) == sorted(re.findall(r"\w+", " ".join(table)))

    def test_every_parameter_of_acquire_is_described(self):
        """In the order of the signature, so that the page reads as the call."""
        docstring = inspect.getdoc(zae_limiter.RateLimiter.acquire) or ""
        arguments = docstring.partition("Args:\n")[2].partition("\n\n")[0]
        names = list(inspect.signature(zae_limiter.RateLimiter.acquire).parameters)

        assert names[1:] == re.findall(r"^    (\w+): ", arguments, re.MULTILINE)

    def test_every_error_is_exported_and_documented(self, documented):
        """Every error of the package can be imported."""
        raised = [
            name for name, kind in vars(errors).items() if inspect.isclass(kind) and issubclass(kind, BaseException)
        ]

        assert [] == [name for name in raised if name not in NAMES or f"zae_limiter.{name}" not in documented]

    def test_tree_of_errors_on_the_page_is_that_of_the_code(self):
        """The page draws every error below its base class."""
        page = (ROOT / "docs" / "api" / "errors.md").read_text(encoding="utf-8")
        kinds = [kind for kind in CLASSES.values() if issubclass(kind, BaseException)]

        assert {kind.__name__: kind.__base__.__name__ for kind in kinds} == drawn(page)


class TestDocstringsAreComplete:
    """Every public name has a docstring."""

    def test_every_public_class_has_a_docstring(self):
        """Of its own, not inherited."""
        assert [] == without_docstring(CLASSES.items())

    def test_every_public_method_and_property_has_a_docstring(self):
        """Otherwise the reference would show only a signature."""
        all_members = [(f"{name}.{member}", value) for name, kind in CLASSES.items() for member, value in members(kind)]

        assert len(all_members) > 100
        assert [] == without_docstring(all_members)

    def test_every_public_function_has_a_docstring(self):
        """Those of the package and of its bucket module."""
        assert [] == without_docstring(
            [*FUNCTIONS.items(), *((name, getattr(bucket, name)) for name in public_functions(bucket))]
        )


class TestTwins:
    """A sync class and its async twin have the same members."""

    @pytest.mark.parametrize("name", TWINS)
    def test_sync_class_has_the_members_of_its_async_twin(self, name):
        """So the page of one covers both."""
        ours, theirs = dict(members(CLASSES[name])), dict(members(CLASSES[TWINS[name]]))

        assert theirs.keys() == ours.keys()


class TestTheCheckCanFail:
    """The checks above notice an incomplete reference."""

    def test_undocumented_method_is_found(self, documented):
        """A class whose method is on no page, and a method that only one of two classes has."""

        class Repository(zae_limiter.Repository):
            def fly(self) -> None:
                """Fly."""

        assert ["Repository.fly"] == missing({"Repository": Repository}, documented)
        assert ["Lease.adjust"] == missing({"Lease": zae_limiter.Lease}, documented - {"zae_limiter.Lease.adjust"})

    def test_missing_docstring_is_found(self):
        """Of a class, a method, a property and a class method."""

        class Undocumented:
            def method(self) -> None: ...

            @property
            def fact(self) -> int:
                return 1

            @classmethod
            def made(cls) -> None: ...

        assert ["Undocumented", "method", "fact", "made"] == without_docstring(
            [("Undocumented", Undocumented), *members(Undocumented)]
        )

    @pytest.mark.parametrize("change", [lambda page: page.replace("│   ├── ", "├── ", 1), lambda page: page[:120]])
    def test_error_in_the_wrong_place_of_the_tree_is_found(self, change: Callable[[str], str]):
        """The tree is compared, not only its names."""
        page = (ROOT / "docs" / "api" / "errors.md").read_text(encoding="utf-8")

        assert drawn(change(page)) != drawn(page)


def drawn(page: str) -> dict[str, str]:
    """Return every error of a drawn tree, and the one above it."""
    above: list[str] = ["Exception"]
    found = {}
    for line in re.findall(r"^[│├└─ ]*[A-Za-z]+$", page.partition("```text")[2].partition("```")[0], re.MULTILINE):
        name = line.lstrip("│├└─ ")
        depth = (len(line) - len(name)) // 4
        above = [*above[: depth + 1], name]
        found[name] = above[depth]
    return found


def test_documented_names_are_those_of_the_site_of_this_tree(documented):
    """The inventory is the site's, and has what the package has."""
    assert "zae_limiter.RateLimiter.acquire" in documented
    assert (built() / "api" / "limiter" / "index.html").exists()
    assert isinstance(built(), Path)
