"""The house as a whole: sizes, signatures, suppressions, values that stay as made, exports, a fresh mirror."""

import ast
import importlib.metadata
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import zae_limiter
from tools import layout
from tools.layout import Finding
from zae_limiter.core.version import UNKNOWN, parse_version

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "zae_limiter"

# Written by tools/mirror.py; what is said of the async tree holds for these.
GENERATED = (PACKAGE / "_sync", ROOT / "tests" / "_sync")

# Signatures that users write, as the public API names them.
EXEMPT_FROM_PARAMETER_COUNT = {
    "Repository.open": "the options of an embedded store, all keyword-only with defaults",
    "Repository.connect": "the options of a deployed store, all keyword-only with defaults",
}

# What `import zae_limiter` must leave unloaded: whoever only limits pays for no command line, database or client.
HEAVY = ("click", "rich", "sqlite3", "boto3", "botocore", "httptools", "orjson")


def written_by_hand(*folders: str) -> list[Path]:
    return [path for path in python_files(*folders) if not is_generated(path)]


def python_files(*folders: str) -> list[Path]:
    found = (path for folder in folders for path in (ROOT / folder).rglob("*.py"))
    # Hidden folders are environments that tools make.
    return sorted(path for path in found if not any(part.startswith(".") for part in path.relative_to(ROOT).parts))


def is_generated(path: Path) -> bool:
    return any(path.is_relative_to(folder) for folder in GENERATED)


def findings(rule: Callable[[str], list[Finding]], paths: list[Path]) -> list[str]:
    """What a rule finds, as `file:line: problem`."""
    return [
        f"{path.relative_to(ROOT)}:{finding.line}: {finding.problem}"
        for path in paths
        for finding in rule(path.read_text(encoding="utf-8"))
    ]


class TestSizes:
    def test_files_are_short(self):
        """No hand-written file has more than 500 lines."""
        assert [] == findings(layout.long_files, written_by_hand("src", "tools", "tests", "examples"))

    def test_functions_are_short(self):
        """No hand-written function has more than 50 lines."""
        assert [] == findings(layout.long_functions, written_by_hand("src", "tools", "tests", "examples"))

    def test_signatures_are_short(self):
        """At most seven parameters; more are a value with a name."""

        def rule(source: str) -> list[Finding]:
            return layout.many_parameters(source, EXEMPT_FROM_PARAMETER_COUNT)

        assert [] == findings(rule, written_by_hand("src", "tools", "tests", "examples"))

    @pytest.mark.parametrize("name", EXEMPT_FROM_PARAMETER_COUNT)
    def test_an_exemption_from_the_parameter_count_is_used(self, name):
        """An exemption that nothing needs any more hides the next long signature."""
        sources = [path.read_text(encoding="utf-8") for path in written_by_hand("src")]

        assert any(name in finding.problem for source in sources for finding in layout.many_parameters(source))

    def test_a_class_name_has_one_meaning(self):
        """No name of a class or a type alias occurs twice in src; the forms for async and sync have the same names."""
        places = defaultdict(set)
        for path in written_by_hand("src"):
            twins = path.parent if path.parent.name in ("runtime", "transport") else path
            for name in layout.class_names(path.read_text(encoding="utf-8")):
                places[name].add(str(twins.relative_to(ROOT)))

        assert {} == {name: sorted(found) for name, found in places.items() if len(found) > 1}

    def test_modules_are_named_for_what_they_hold(self):
        """Modules are nouns of the domain; utils, helpers and their kin hold anything."""
        found = [path.name for path in python_files("src", "tools") if path.stem in layout.FORBIDDEN_MODULE_NAMES]

        assert [] == found


class TestComments:
    def test_every_suppression_names_its_reason(self):
        """A noqa, type: ignore or pragma: no cover says why."""
        assert [] == findings(
            layout.unexplained_suppressions, written_by_hand("src", "tools", "tests", "bench", "examples")
        )

    def test_comments_tell_no_history(self):
        """No issue, version or decision number in source: history is in git and in ADRs."""
        assert [] == findings(layout.told_history, written_by_hand("src", "tools", "bench", "examples"))


class TestImports:
    def test_nobody_inside_imports_the_root(self):
        """The root re-exports for users; inside, modules import each other by their full names."""
        inside = [path for path in python_files("src") if "cli" not in path.parts and path != PACKAGE / "__init__.py"]

        assert [] == findings(lambda source: layout.root_imports(source, "zae_limiter"), inside)

    def test_importing_the_package_loads_nothing_heavy(self):
        """`import zae_limiter` loads no client library, no command line and no database."""
        script = f"import sys, zae_limiter; print(*[name for name in {HEAVY!r} if name in sys.modules])"
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)

        assert "" == done.stdout.strip()


class TestExports:
    @pytest.mark.parametrize("name", sorted(getattr(zae_limiter, "__all__", ())))
    def test_every_public_name_is_importable(self, name):
        """What __all__ promises is there."""
        assert getattr(zae_limiter, name) is not None

    def test_all_lists_every_public_name(self):
        """What type checkers see at the root is what __all__ lists, once."""
        assert sorted(names_seen_by_type_checkers()) == sorted(zae_limiter.__all__)

    def test_a_misspelt_name_is_an_attribute_error(self):
        """A name that is not public fails as on any module."""
        with pytest.raises(AttributeError, match="RateLimitr"):
            _ = zae_limiter.RateLimitr

    def test_every_async_class_has_its_twin(self):
        """All four public classes that wait exist in both trees."""
        twins = {"RateLimiter", "Repository", "RepositoryBuilder", "Lease"} & set(zae_limiter.__all__)

        assert {f"Sync{name}" for name in twins} <= set(zae_limiter.__all__)

    def test_the_package_is_typed(self):
        """The marker that tells type checkers to read the annotations is shipped."""
        assert (PACKAGE / "py.typed").exists()

    def test_the_version_can_be_compared(self):
        """It has three numbers also where no tag says which, so that client and aggregator can be told apart."""
        version = importlib.metadata.version("zae-limiter")

        assert version == zae_limiter.__version__
        assert parse_version(version) > UNKNOWN


def names_seen_by_type_checkers() -> Iterator[str]:
    """Public names that the root imports or defines, wherever in it."""
    for node in ast.walk(ast.parse((PACKAGE / "__init__.py").read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("zae_limiter"):
            yield from (alias.asname or alias.name for alias in node.names)
        if isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            yield from (target.id for target in targets if isinstance(target, ast.Name) and target.id == "__version__")


class TestMirror:
    def test_the_sync_tree_is_fresh(self):
        """What is committed is what the mirror would write."""
        command = [sys.executable, "tools/mirror.py", "--check"]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)

        assert (0, "") == (done.returncode, done.stderr), done.stdout


class TestValues:
    def test_values_stay_as_they_were_made(self):
        """A dataclass with slots that is not frozen is never assigned to after construction."""
        paths = python_files("src")
        known = {value.name: value for path in paths for value in layout.value_classes(path.read_text("utf-8"))}

        assert [] == findings(lambda source: layout.changed_values(source, known), paths)
