"""The built packages contain all that they need and nothing else, and the checks notice if they do not."""

import re
import shutil
import subprocess
import sys
import zipfile
from email import message_from_string
from pathlib import Path

import pytest

from tools import package

PROGRAM = re.compile(r"```python\n(.*?)```", re.DOTALL)


@pytest.fixture
def wheel(dist, tmp_path) -> Path:
    """Return a copy that may be modified."""
    original = package.one(dist, "*.whl")
    return Path(shutil.copy(original, tmp_path / original.name))


def test_wheel_contains_both_packages_and_nothing_else(dist, known):
    """Every module, both markers of types, the template; no test, no cache."""
    wheel = package.one(dist, "*.whl")

    assert [] == list(package.wheel_problems(wheel, known))
    assert {
        "zae_limiter/py.typed",
        "zae_limiter_aggregator/py.typed",
        "zae_limiter/infra/templates/limiter.yaml",
    } <= package.contents(wheel).keys()


def test_source_archive_contains_the_clone(dist, known):
    """A distribution gets the tests, the documentation and the examples."""
    assert [] == list(package.archive_problems(package.one(dist, "*.tar.gz"), known))


def test_source_archive_builds_the_same_wheel(dist):
    """Without git, byte for byte, including the version."""
    assert [] == list(package.rebuilding_problems(package.one(dist, "*.tar.gz"), package.one(dist, "*.whl")))


def test_version_is_that_of_the_git_tag(dist, tmp_path):
    """The version is stored nowhere else; after the tag it is a development version of the next."""
    clone, commit = tmp_path / "clone", ["commit", "--quiet", "--allow-empty", "--message", "More"]
    git(tmp_path, "clone", "--quiet", "--no-tags", str(package.ROOT), str(clone))
    git(clone, "tag", "v7.8.9")
    tagged = version(clone)
    git(clone, "-c", "user.name=A", "-c", "user.email=a@example.org", *commit)

    assert ("7.8.9", "7.9.0.dev1") == (tagged, version(clone))


def git(where: Path, *arguments: str) -> None:
    subprocess.run(["git", *arguments], cwd=where, check=True, capture_output=True)


def version(clone: Path) -> str:
    command = [sys.executable, "-m", "hatchling", "version"]
    return subprocess.run(command, cwd=clone, check=True, capture_output=True, text=True).stdout.strip()


def test_metadata_is_accepted_by_an_index(dist):
    """Every field is valid."""
    assert [] == list(package.metadata_problems(package.one(dist, "*.whl")))


def test_page_on_an_index_is_the_readme_without_clone_commands(dist):
    """The same programs and the same installation; no dead link, no make."""
    contents = package.contents(package.one(dist, "*.whl"))
    (metadata,) = [message_from_string(body.decode()) for name, body in contents.items() if name.endswith("METADATA")]
    page, readme = str(metadata.get_payload()), (package.ROOT / "README.md").read_text()

    assert "text/markdown" == metadata["Description-Content-Type"]
    assert re.findall("^#.*", readme, re.MULTILINE) == re.findall("^#.*", page, re.MULTILINE)
    assert PROGRAM.findall(readme) == PROGRAM.findall(page)
    assert [] == [link for link in re.findall(r"\]\(([^)]*)\)", page) if not link.startswith("https://")]
    assert not re.search(r"^make ", page, re.MULTILINE)
    assert re.findall("^pip install.*", readme, re.MULTILINE) == re.findall("^pip install.*", page, re.MULTILINE)


def test_wheel_with_a_foreign_file_is_noticed(wheel, known):
    """A database, a cache or a key that was in the sources."""
    with zipfile.ZipFile(wheel, "a") as opened:
        opened.writestr("zae_limiter/limits.db", "")

    assert ["foreign: zae_limiter/limits.db"] == list(package.wheel_problems(wheel, known))


def test_wheel_without_a_file_is_noticed(wheel, known):
    """A template that a pattern misses."""
    added = "src/zae_limiter/infra/templates/another.yaml"

    assert ["missing: zae_limiter/infra/templates/another.yaml"] == list(package.wheel_problems(wheel, known | {added}))


@pytest.mark.parametrize(
    ("metadata", "problem"),
    [
        ("Metadata-Version: 2.4\nName: x\nVersion: 1\n\n", "no description"),
        ("Metadata-Version: 2.4\nName: x\nVersion: one\n\nA page.", "version"),
        ("Metadata-Version: 2.4\nName: x\nVersion: 1\nRequires-Dist: y >>> 2\n\nA page.", "requires-dist"),
    ],
)
def test_metadata_that_an_index_would_refuse_is_noticed(metadata, problem, tmp_path):
    """Before a tag is created, not after."""
    invalid = tmp_path / "x-1-py3-none-any.whl"
    with zipfile.ZipFile(invalid, "w") as opened:
        opened.writestr("x-1.dist-info/METADATA", metadata)

    (found,) = package.metadata_problems(invalid)
    assert problem in found.lower()


def test_wheel_that_differs_from_the_archive_is_noticed(dist, wheel):
    """No distribution could build a file that only the wheel has."""
    with zipfile.ZipFile(wheel, "a") as opened:
        opened.writestr("zae_limiter/made.py", "")

    assert ["missing: zae_limiter/made.py"] == list(package.rebuilding_problems(package.one(dist, "*.tar.gz"), wheel))
