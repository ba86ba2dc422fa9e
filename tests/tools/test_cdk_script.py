"""The script that installs the AWS CDK."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.infra import cdk

SCRIPT = Path(__file__).resolve().parents[2] / "tools" / "cdk.sh"
# No index is asked.
HERE = os.environ | {"VENV": sys.prefix, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": "", "UV_NO_INDEX": "1"}


def run(script: Path, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["/bin/bash", str(script)], env=environment, capture_output=True, text=True, check=False)


def wanting(folder: Path, requirement: str) -> Path:
    """The script in a project of its own, the extra of which is this."""
    (folder / "pyproject.toml").write_text(f'[project.optional-dependencies]\ncdk = ["{requirement}"]\n')
    (folder / "tools").mkdir()
    script = folder / "tools" / "cdk.sh"
    script.write_text(SCRIPT.read_text())
    # Nothing is to be installed for a test of the script.
    (folder / "bin").mkdir()
    (folder / "bin" / "node").write_text("#!/bin/sh\n")
    (folder / "bin" / "node").chmod(0o755)
    return script


def with_node(folder: Path) -> dict[str, str]:
    return HERE | {"PATH": f"{folder / 'bin'}{os.pathsep}{HERE['PATH']}"}


def test_without_node_it_says_so_and_does_not_fail(tmp_path):
    """A developer without it runs all other tests."""
    done = run(SCRIPT, {"PATH": str(tmp_path)})

    assert (0, "") == (done.returncode, done.stdout)
    assert "no node and no apt-get, so no AWS CDK; its tests will be skipped\n" == done.stderr


def test_without_an_index_that_has_it_it_says_so_and_does_not_fail(tmp_path):
    """The same holds where there is no network."""
    done = run(wanting(tmp_path, "zae-limiter-of-nowhere"), with_node(tmp_path))

    assert 0 == done.returncode, done.stderr
    assert done.stderr.endswith("\nno index that has it, so no AWS CDK; its tests will be skipped\n")
    assert not (tmp_path / ".engines" / "cdk").exists()


def test_what_else_goes_wrong_is_a_failure(tmp_path):
    """CI must not leave the tests out because of a mistake."""
    done = run(wanting(tmp_path, "aws-cdk-lib=>2"), with_node(tmp_path))

    _, _, told = done.stderr.partition("\n")
    assert 1 == done.returncode
    assert "aws-cdk-lib=>2" in told
    assert not (tmp_path / ".engines" / "cdk").exists()


def test_where_it_is_installed_nothing_is_done():
    """No network is needed then."""
    if cdk.missing():
        pytest.skip(cdk.missing())
    done = run(SCRIPT, HERE)

    assert (0, "", "") == (done.returncode, done.stdout, done.stderr)
