"""The extras: those that are promised are there, and whoever is told to install one can."""

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
NAMED = re.compile(r"zae-limiter\[([\w,\- ]+)\]")


def files() -> list[Path]:
    """Every text that a user may be told to install something by."""
    return [
        path
        for place in TOLD_IN
        for path in [ROOT / place, *(ROOT / place).rglob("*")]
        if path.suffix in {".md", ".py", ".sh", ".yaml", ".txt", ""} and path.is_file()
    ]


def names(extra: str) -> set[str]:
    """What an extra brings, with the extras that it names."""
    found: set[str] = set()
    for requirement in EXTRAS[extra]:
        if requirement.name == PROJECT["name"]:
            found |= set().union(*(names(other) for other in requirement.extras))
        else:
            found.add(requirement.name)
    return found


@pytest.mark.parametrize("extra", ["plot", "docs", "cdk", "lambda", "local", "bench", "dev"])
def test_an_extra_that_is_promised_is_there(extra):
    """And brings something."""
    assert names(extra)


def test_whoever_is_told_to_install_an_extra_can():
    """Pages, errors and help name only extras that there are."""
    told = {
        (str(path.relative_to(ROOT)), extra.strip())
        for path in files()
        for extras in NAMED.findall(path.read_text())
        for extra in extras.split(",")
    }

    assert {("docs/contributing/localstack.md", "local"), ("src/zae_limiter/infra/cdk.py", "cdk")} <= told
    assert [] == [(path, extra) for path, extra in sorted(told) if extra not in EXTRAS]


def test_load_tests_have_what_they_need():
    """Users on greenlets, and an engine to run workers in."""
    assert {"docker", "gevent", "locust"} == names("bench")


def test_a_developer_installs_nothing_large():
    """The CDK has 450 MB, and tests have it from tools/cdk.sh; a load test is nothing that CI runs."""
    assert not {"aws-cdk-lib", "locust"} & names("dev")


def test_a_developer_has_what_users_of_other_extras_have():
    """So that no test of them is skipped, but for those of the CDK and of load tests."""
    for extra in ("plot", "docs", "lambda", "local"):
        assert names(extra) <= names("dev"), extra
