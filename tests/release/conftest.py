"""The built packages, once for all tests of a process."""

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.release.empty import Environment, environment_of_clone, new_environment
from tools import package


@pytest.fixture(scope="session")
def dist(tmp_path_factory) -> Path:
    """Return a folder with the wheel and the source archive of this clone."""
    if shutil.which("git") is None or not (package.ROOT / ".git").exists():
        pytest.skip("the version of a build is that of its tag: this needs git, and a clone")
    folder = tmp_path_factory.mktemp("dist")
    package.build(package.ROOT, folder)
    return folder


@pytest.fixture(scope="session")
def known() -> set[str]:
    """Return the files that may be in a build: tracked ones, and new ones that are not ignored."""
    command = ["git", "ls-files", "-z", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=package.ROOT, capture_output=True, text=True, check=True).stdout
    return package.tracked() | set(filter(None, listed.split("\0")))


@pytest.fixture(scope="session")
def bare(dist, tmp_path_factory) -> Environment:
    """Return an environment with the wheel and its requirements, and nothing else."""
    return new_environment(tmp_path_factory.mktemp("bare"), package.one(dist, "*.whl"))


@pytest.fixture(scope="session")
def plain(tmp_path_factory) -> Environment:
    """Return an environment with this directory installed, without extras, as a user installs a clone."""
    if shutil.which("git") is None or not (package.ROOT / ".git").exists():
        pytest.skip("the version of a build is that of its tag: this needs git, and a clone")
    return environment_of_clone(tmp_path_factory.mktemp("plain"), package.ROOT)
