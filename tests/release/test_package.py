"""What is built has all that it needs and nothing else, and its checks notice when it is otherwise."""

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
    """A copy that may be spoilt."""
    original = package.one(dist, "*.whl")
    return Path(shutil.copy(original, tmp_path / original.name))


def test_the_wheel_holds_both_packages_and_nothing_else(dist, known):
    """Every module, both markers of types, the template; no test, no cache."""
    wheel = package.one(dist, "*.whl")

    assert [] == list(package.wheel_problems(wheel, known))
    assert {
        "zae_limiter/py.typed",
        "zae_limiter_aggregator/py.typed",
        "zae_limiter/infra/templates/limiter.yaml",
    } <= package.contents(wheel).keys()


def test_the_source_archive_is_the_clone(dist, known):
    """Whoever packs it for a distribution has the tests, the documentation and the examples."""
    assert [] == list(package.archive_problems(package.one(dist, "*.tar.gz"), known))


def test_the_source_archive_builds_the_same_wheel(dist):
    """Without git, to the last byte, version included."""
    assert [] == list(package.rebuilding_problems(package.one(dist, "*.tar.gz"), package.one(dist, "*.whl")))


def test_the_version_is_that_of_the_tag(dist, tmp_path):
    """There is no other place to change; beyond it, it is a development version of the next."""
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


def test_an_index_accepts_the_metadata(dist):
    """Every field is valid."""
    assert [] == list(package.metadata_problems(package.one(dist, "*.whl")))


def test_the_page_on_an_index_is_the_readme_for_those_without_a_clone(dist):
    """The same programs; no link that leads nowhere, no make, and the package is installed by its name."""
    contents = package.contents(package.one(dist, "*.whl"))
    (metadata,) = [message_from_string(body.decode()) for name, body in contents.items() if name.endswith("METADATA")]
    page, readme = str(metadata.get_payload()), (package.ROOT / "README.md").read_text()

    assert "text/markdown" == metadata["Description-Content-Type"]
    assert re.findall("^#.*", readme, re.MULTILINE) == re.findall("^#.*", page, re.MULTILINE)
    assert PROGRAM.findall(readme) == PROGRAM.findall(page)
    assert [] == [link for link in re.findall(r"\]\(([^)]*)\)", page) if not link.startswith("https://")]
    assert not re.search(r"^make |pip install \S*\.", page, re.MULTILINE)
    assert "\npip install zae-limiter\n" in page


def test_a_foreign_file_is_noticed(wheel, known):
    """A database, a cache or a key that lay in the sources."""
    with zipfile.ZipFile(wheel, "a") as opened:
        opened.writestr("zae_limiter/limits.db", "")

    assert ["foreign: zae_limiter/limits.db"] == list(package.wheel_problems(wheel, known))


def test_a_missing_file_is_noticed(wheel, known):
    """A template that a pattern forgot."""
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
def test_metadata_that_an_index_would_refuse_are_noticed(metadata, problem, tmp_path):
    """Before anything is tagged, not after."""
    spoilt = tmp_path / "x-1-py3-none-any.whl"
    with zipfile.ZipFile(spoilt, "w") as opened:
        opened.writestr("x-1.dist-info/METADATA", metadata)

    (found,) = package.metadata_problems(spoilt)
    assert problem in found.lower()


def test_a_wheel_that_is_built_otherwise_is_noticed(dist, wheel):
    """A file that only the wheel has is one that no distribution could build."""
    with zipfile.ZipFile(wheel, "a") as opened:
        opened.writestr("zae_limiter/made.py", "")

    assert ["missing: zae_limiter/made.py"] == list(package.rebuilding_problems(package.one(dist, "*.tar.gz"), wheel))
