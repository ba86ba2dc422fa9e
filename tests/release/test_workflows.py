"""The GitHub workflows and docker-compose.yml are valid, and the workflows run what developers run."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
WORKFLOWS = {path.stem: yaml.safe_load(path.read_text()) for path in (ROOT / ".github" / "workflows").glob("*.yml")}
PINNED = re.compile(r"[\w-]+/[\w-]+@(v\d+|release/v\d+)")


def steps(workflow: dict[str, Any]) -> list[dict[str, Any]]:
    return [step for job in workflow["jobs"].values() for step in job.get("steps", [])]


def validated(schema: str, *files: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", f"vendor.{schema}", *map(str, files)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("schema", "pattern"),
    [
        ("github-workflows", ".github/workflows/*.yml"),
        ("dependabot", ".github/dependabot.yml"),
        ("compose-spec", "docker-compose.yml"),
    ],
)
def test_workflow_or_compose_file_fits_its_schema(schema, pattern):
    """Otherwise the error shows only after a push."""
    files = sorted(ROOT.glob(pattern))
    done = validated(schema, *files)

    assert files
    assert 0 == done.returncode, done.stdout


def test_invalid_workflow_is_noticed(tmp_path):
    """The schema of workflows knows what a job needs."""
    (tmp_path / "bad.yml").write_text("on: push\njobs: {tests: {steps: [{run: make test}]}}\n")

    assert "runs-on" in validated("github-workflows", tmp_path / "bad.yml").stdout


def test_workflows_are_those_for_tests_site_and_releases():
    """There is no other that is not maintained."""
    assert {"tests", "docs", "release"} == WORKFLOWS.keys()


def test_every_supported_python_version_is_tested():
    """The matrix is that of the classifiers."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    promised = [found[1] for one in project["classifiers"] if (found := re.search(r":: (3\.\d+)$", one))]

    assert promised == WORKFLOWS["tests"]["jobs"]["tests"]["strategy"]["matrix"]["python"]
    assert [".ci/run"] == [step["run"] for step in steps(WORKFLOWS["tests"]) if "run" in step]


def test_release_is_tested_then_built_then_published():
    """Nothing is published untested, and nothing is announced unpublished."""
    jobs = WORKFLOWS["release"]["jobs"]

    assert "./.github/workflows/tests.yml" == jobs["tests"]["uses"]
    assert ["tests", "build", "pypi"] == [jobs[name]["needs"] for name in ("build", "pypi", "github")]


def test_job_has_only_the_permissions_that_it_needs():
    """Only one may publish to PyPI, only one may write a release, and no secret is stored."""
    jobs = WORKFLOWS["release"]["jobs"]
    read = {"contents": "read"}

    assert {} == WORKFLOWS["release"]["permissions"]
    assert {
        "tests": read,
        "build": read,
        "pypi": {"id-token": "write"},
        "github": {"contents": "write"},
    } == {name: job["permissions"] for name, job in jobs.items()}
    assert "pypi" == jobs["pypi"]["environment"]["name"]
    assert [read, read] == [WORKFLOWS[name]["permissions"] for name in ("tests", "docs")]
    assert not any("secrets." in path.read_text() for path in (ROOT / ".github").rglob("*.yml"))


def test_every_action_is_pinned():
    """To a major version, which dependabot raises."""
    used = [step["uses"] for workflow in WORKFLOWS.values() for step in steps(workflow) if "uses" in step]

    assert used
    assert [] == [one for one in used if not PINNED.fullmatch(one)]


def test_every_job_has_a_timeout():
    """A job that hangs is stopped; a called workflow has its own timeout."""
    jobs = [job for workflow in WORKFLOWS.values() for job in workflow["jobs"].values() if "uses" not in job]

    assert all(job["timeout-minutes"] <= 30 for job in jobs)


def test_every_target_and_tool_that_a_workflow_runs_exists():
    """A developer can run what a workflow runs."""
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    scripts = "\n".join(step["run"] for workflow in WORKFLOWS.values() for step in steps(workflow) if "run" in step)

    assert {"build", "docs"} == set(re.findall(r"^make ([a-z-]+)", scripts, re.MULTILINE)) & targets
    assert all((ROOT / tool).exists() for tool in re.findall(r"\btools/\w+\.py\b|\.ci/\w+", scripts))
