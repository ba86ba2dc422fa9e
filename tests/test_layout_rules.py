"""The rules of tools/layout.py find what they are for, and accept what is allowed."""

import textwrap

import pytest

from tools import layout

VALUE = """
    from dataclasses import dataclass

    @dataclass(slots=True)
    class Taking:
        amount_milli: int
        now_ms: int
"""


def changes(snippet: str) -> list[str]:
    source = textwrap.dedent(VALUE) + textwrap.dedent(snippet)
    known = {value.name: value for value in layout.value_classes(source)}
    return [finding.problem for finding in layout.changed_values(source, known)]


class TestChangedValues:
    @pytest.mark.parametrize(
        "statement",
        [
            "taking.amount_milli = 1",
            "taking.amount_milli += 1",
            "taking.amount_milli: int = 1",
            "taking.now_ms, other = 1, 2",
            "for taking.now_ms in range(3): pass",
            "del taking.now_ms",
            "self.taking.now_ms = 1",
            "takings[0].now_ms = 1",
            "setattr(taking, 'now_ms', 1)",
            "object.__setattr__(taking, 'now_ms', 1)",
        ],
    )
    def test_every_form_of_assignment_to_a_value_is_found(self, statement):
        """No spelling of an assignment is missed."""
        snippet = f"""
            class Limiter:
                def carry_out(self, taking, takings):
                    {statement}
        """

        assert 1 == len(changes(snippet))

    def test_assignment_to_a_value_in_a_module_level_function_is_found(self):
        """The rule is about values, not about the place of the code."""
        assert ["assigns to a field of a value: taking.now_ms"] == changes("def late(taking):\n    taking.now_ms = 0\n")

    def test_assignment_to_self_in_a_value_is_found(self):
        """A value's own methods may not change it either."""
        snippet = """
            @dataclass(slots=True)
            class View:
                level: int

                def spend(self, amount):
                    self.level -= amount
        """

        assert ["View is a value and changes itself: self.level"] == changes(snippet)

    def test_assignment_to_self_in_a_subclass_of_a_value_is_found(self):
        """A subclass of a value is a value."""
        snippet = """
            class Later(Taking):
                def delay(self):
                    self.now_ms = 5
        """

        assert ["Taking is a value and changes itself: self.now_ms"] == changes(snippet)

    @pytest.mark.parametrize(
        "snippet",
        [
            "class Clock:\n    def step(self):\n        self.now_ms = 5\n",
            "def elsewhere(node):\n    node.colour = 5\n",
            "@dataclass(slots=True)\nclass Bound:\n    low: int\n    def __post_init__(self):\n        self.low = 0\n",
            "def look(taking):\n    now_ms = taking.now_ms\n    return now_ms\n",
        ],
    )
    def test_code_that_changes_no_value_is_accepted(self, snippet):
        """Other objects change themselves, constructors assign, and reading is allowed."""
        assert [] == changes(snippet)

    def test_frozen_and_slotless_dataclasses_are_not_checked(self):
        """Python guards the frozen ones; the others are no values."""
        source = "@dataclass(frozen=True, slots=True)\nclass A:\n    x: int\n@dataclass\nclass B:\n    x: int\n"

        assert [] == layout.value_classes(source)


class TestSizes:
    def test_file_of_501_lines_is_found(self):
        """500 lines are allowed."""
        assert [] == layout.long_files("x = 1\n" * 500)
        assert ["501 lines, at most 500"] == [finding.problem for finding in layout.long_files("x = 1\n" * 501)]

    def test_method_of_51_lines_is_found_with_its_qualified_name(self):
        """The finding names the function."""
        source = "class A:\n    def b(self):\n" + "        pass\n" * 50

        assert ["A.b: 51 lines, at most 50"] == [finding.problem for finding in layout.long_functions(source)]

    @pytest.mark.parametrize(
        ("signature", "count"),
        [
            ("self, a, b, c, d, e, f, g", 0),
            ("cls, a, *, b, c, d, e, f, g", 0),
            ("a, b, c, d, e, f, g, h", 1),
            ("a, b, c, d, e, f, *g, **h", 1),
        ],
    )
    def test_parameter_count_excludes_self_and_cls(self, signature, count):
        """Keyword-only and variable parameters count."""
        assert count == len(layout.many_parameters(f"def f({signature}): pass"))

    def test_class_names_include_classes_and_type_aliases(self):
        """Constants, type variables and functions are left out."""
        source = "Place = tuple[str, int]\nT = TypeVar('T')\nT_co = 1\nMOST = 1\nclass Walk:\n    class _Step: ...\n"

        assert ["Walk", "_Step", "Place"] == layout.class_names(source)

    def test_exempt_signature_is_accepted(self):
        """Exemptions are by qualified name."""
        source = "class Repository:\n    def open(self, a, b, c, d, e, f, g, h): pass\n"

        assert [] == layout.many_parameters(source, {"Repository.open"})


class TestComments:
    @pytest.mark.parametrize(
        "comment",
        ["# noqa", "# noqa: F401", "# type: ignore", "# type: ignore[misc]", "# pragma: no cover", "# noqa: F401 - x"],
    )
    def test_suppression_without_rule_and_reason_is_found(self, comment):
        """Both are required."""
        assert 1 == len(layout.unexplained_suppressions(f"x = 1  {comment}\n"))

    @pytest.mark.parametrize(
        "comment",
        [
            "# noqa: BLE001 - the outermost frame",
            "# noqa: F401, E402  # re-exported for users",
            "# type: ignore[misc]  # the stub is wrong",
            "# pragma: no cover - only on Windows",
        ],
    )
    def test_suppression_with_rule_and_reason_is_accepted(self, comment):
        """Both are given."""
        assert [] == layout.unexplained_suppressions(f"x = 1  {comment}\n")

    @pytest.mark.parametrize(
        "text", ["see #12", "as decided in ADR-7", "ADR 0007", "fixes issue 3", "GH-44", "since v0.2", "(#9)"]
    )
    def test_ticket_decision_and_version_numbers_are_found(self, text):
        """They are found in comments and docstrings."""
        assert 1 == len(layout.told_history(f"x = 1  # {text}\n"))
        assert 1 == len(layout.told_history(f'"""A module, {text}."""\n'))

    @pytest.mark.parametrize("text", ["BUCKET#gpt-4#0 is shard 0", "{ns}/BUCKET#{id}#0", "128 shards", "#RESOURCES"])
    def test_keys_and_plain_numbers_are_accepted(self, text):
        """A sort key with a # in it is not a ticket."""
        assert [] == layout.told_history(f"x = 1  # {text}\n")


class TestSharedLines:
    SHARED = "".join(f"x{number} = {number}\n" for number in range(10))

    def test_ten_lines_in_two_files_are_found(self):
        """Indentation, empty lines, comments and imports make no difference."""
        indented = self.SHARED.replace("x", "    x").replace("x4", "# four\n\n    x4")
        sources = {"a.py": "import os\n" + self.SHARED, "b.py": "if True:\n    import re\n" + indented}

        assert ["a.py:2 and b.py:3"] == layout.shared_lines(sources)

    def test_ten_lines_twice_in_one_file_are_found(self):
        """A file must not repeat itself."""
        assert ["a.py:1 and a.py:12"] == layout.shared_lines({"a.py": self.SHARED + "y = 0\n" + self.SHARED})

    def test_nine_lines_in_two_files_are_accepted(self):
        """The rule begins at ten."""
        assert [] == layout.shared_lines({"a.py": self.SHARED, "b.py": self.SHARED.replace("x9", "y9")})


def test_internal_import_of_the_package_root_is_found():
    """It would create a cycle; relative imports are found, too."""
    source = "import zae_limiter\nfrom zae_limiter import Limit\nfrom . import x\nfrom zae_limiter.core import limit\n"

    assert [1, 2, 3] == [finding.line for finding in layout.root_imports(source, "zae_limiter")]
