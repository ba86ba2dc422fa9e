"""The script that sets up a clone installs the AWS CDK only for the targets that test with it."""

import os
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
RECIPES = dict(
    re.findall(r"^([a-z-]+):.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
)
WITH_CDK = {"test", "test-cdk"}


@pytest.fixture
def clone(tmp_path) -> Path:
    """Return a clone that is set up, and in which installing the CDK only adds a line to a file."""
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools" / "setup.sh").write_text((ROOT / "tools" / "setup.sh").read_text(encoding="utf-8"))
    cdk = tmp_path / "tools" / "cdk.sh"
    cdk.write_text("#!/bin/sh\necho installed >> cdk.txt\n")
    cdk.chmod(0o755)
    (tmp_path / "pyproject.toml").write_text("")
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    (tmp_path / ".venv" / "bin" / "python").write_text("#!/bin/sh\n")
    (tmp_path / ".venv" / "bin" / "python").chmod(0o755)
    (tmp_path / ".venv" / ".installed-dev").write_text("")
    return tmp_path


def installed(clone: Path, *words: str) -> int:
    """Run the script, and return how often the CDK has been installed."""
    environment = {name: value for name, value in os.environ.items() if name != "VENV"}
    subprocess.run(["/bin/bash", "tools/setup.sh", *words], cwd=clone, env=environment, check=True)
    found = clone / "cdk.txt"
    return len(found.read_text().splitlines()) if found.exists() else 0


def test_setup_script_installs_the_cdk_once_and_only_if_asked(clone):
    """It has 450 MB."""
    assert [0, 0, 1, 1] == [installed(clone, *words) for words in ([], ["dev"], ["dev", "cdk"], ["dev", "cdk"])]


def test_only_targets_that_test_with_the_cdk_install_it():
    """`make docs` and `make lint` do without it."""
    asked = {target for target, recipe in RECIPES.items() if "cdk" in recipe}

    assert "docs" in RECIPES
    assert WITH_CDK == asked


@pytest.mark.parametrize(("demo_code", "make_code"), [(0, 0), (130, 0), (1, 2)])
def test_make_demo_that_is_interrupted_is_no_error(clone, demo_code, make_code):
    """The screen of the demo offers Ctrl-C, which ends it with code 130. Other failures stay failures."""
    (clone / "Makefile").write_text((ROOT / "Makefile").read_text(encoding="utf-8"))
    (clone / "tools" / "setup.sh").chmod(0o755)
    demo = clone / ".venv" / "bin" / "zae-limiter"
    demo.write_text(f"#!/bin/sh\nexit {demo_code}\n")
    demo.chmod(0o755)
    environment = {name: value for name, value in os.environ.items() if name not in {"VENV", "MAKEFLAGS"}}
    done = subprocess.run(["make", "demo"], cwd=clone, env=environment, capture_output=True, text=True, check=False)

    assert (make_code, bool(make_code)) == (done.returncode, "Error" in done.stderr)
