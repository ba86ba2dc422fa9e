"""The documented extras exist, and every extra that a text tells users to install can be installed."""

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = {
    name: [Requirement(text) for text in requirements]
    for name, requirements in PROJECT["optional-dependencies"].items()
}
TOLD_IN = ("src", "docs", "examples", "tools", "README.md", "CONTRIBUTING.md", "CHANGELOG.md", "Makefile")
NAMED = re.compile(r"""(?:pip install ["']\.\[|\bextra `|(?:extra_command|missing_extra)\(["'])([a-z]+)\b""")


def files() -> list[Path]:
    """Return every text that may tell a user to install something."""
    return [
        path
        for place in TOLD_IN
        for path in [ROOT / place, *(ROOT / place).rglob("*")]
        if path.suffix in {".md", ".py", ".sh", ".yaml", ".txt", ""} and path.is_file()
    ]


def names(extra: str) -> set[str]:
    """Return the packages of an extra, including those of the extras that it names."""
    found: set[str] = set()
    for requirement in EXTRAS[extra]:
        if requirement.name == PROJECT["name"]:
            found |= set().union(*(names(other) for other in requirement.extras))
        else:
            found.add(requirement.name)
    return found


@pytest.mark.parametrize("extra", sorted(EXTRAS.keys() - {"lambda"}))
def test_documented_extra_exists_and_has_packages(extra):
    """An extra brings something."""
    assert names(extra)


def test_extra_for_deploying_is_empty():
    """Every installation can deploy. The name stays for commands that have it."""
    assert set() == names("lambda")


def test_extra_that_a_text_tells_to_install_exists():
    """Pages, errors and help name only existing extras."""
    named = {(str(path.relative_to(ROOT)), extra) for path in files() for extra in NAMED.findall(path.read_text())}

    assert {("docs/getting-started.md", "plot"), ("src/zae_limiter/infra/cdk.py", "cdk")} <= named
    assert [] == [(path, extra) for path, extra in sorted(named) if extra not in EXTRAS]


def test_load_test_extra_has_what_it_needs():
    """Users on greenlets, and an engine to run workers in."""
    assert {"docker", "gevent", "locust"} == names("bench")


def test_developer_extra_has_no_large_package():
    """The CDK has 450 MB, and tests get it from tools/cdk.sh."""
    assert "aws-cdk-lib" not in names("dev")


def test_developer_extra_includes_the_packages_of_other_extras():
    """No test of them is skipped, except those of the CDK. Mutants are made outside of the tests."""
    for extra in EXTRAS.keys() - {"cdk", "mutants"}:
        assert names(extra) <= names("dev"), extra
