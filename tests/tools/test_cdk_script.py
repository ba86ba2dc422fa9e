"""The script that installs the AWS CDK."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.infra import cdk

SCRIPT = Path(__file__).resolve().parents[2] / "tools" / "cdk.sh"
# No index is used.
HERE = os.environ | {"VENV": sys.prefix, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": "", "UV_NO_INDEX": "1"}


def run(script: Path, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["/bin/bash", str(script)], env=environment, capture_output=True, text=True, check=False)


def wanting(folder: Path, requirement: str) -> Path:
    """Return the script in a project of its own, with this extra."""
    (folder / "pyproject.toml").write_text(f'[project.optional-dependencies]\ncdk = ["{requirement}"]\n')
    (folder / "tools").mkdir()
    script = folder / "tools" / "cdk.sh"
    script.write_text(SCRIPT.read_text())
    # A test of the script installs nothing.
    (folder / "bin").mkdir()
    (folder / "bin" / "node").write_text("#!/bin/sh\n")
    (folder / "bin" / "node").chmod(0o755)
    return script


def with_node(folder: Path) -> dict[str, str]:
    return HERE | {"PATH": f"{folder / 'bin'}{os.pathsep}{HERE['PATH']}"}


def test_cdk_script_without_node_prints_a_note_and_succeeds(tmp_path):
    """A developer without node runs all other tests."""
    done = run(SCRIPT, {"PATH": str(tmp_path)})

    assert (0, "") == (done.returncode, done.stdout)
    assert "no node and no apt-get, so no AWS CDK; its tests will be skipped\n" == done.stderr


def test_cdk_script_without_an_index_prints_a_note_and_succeeds(tmp_path):
    """The same holds without a network."""
    done = run(wanting(tmp_path, "zae-limiter-of-nowhere"), with_node(tmp_path))

    assert 0 == done.returncode, done.stderr
    assert done.stderr.endswith("\nno index that has it, so no AWS CDK; its tests will be skipped\n")
    assert not (tmp_path / ".engines" / "cdk").exists()


def test_cdk_script_with_any_other_error_fails(tmp_path):
    """CI must not skip the tests because of a mistake."""
    done = run(wanting(tmp_path, "aws-cdk-lib=>2"), with_node(tmp_path))

    _, _, message = done.stderr.partition("\n")
    assert 1 == done.returncode
    assert "aws-cdk-lib=>2" in message
    assert not (tmp_path / ".engines" / "cdk").exists()


def test_cdk_script_with_an_installed_cdk_does_nothing():
    """It then needs no network."""
    if cdk.missing():
        pytest.skip(cdk.missing())
    done = run(SCRIPT, HERE)

    assert (0, "", "") == (done.returncode, done.stdout, done.stderr)
