"""The programs of the DynamoDB guide run as they stand there, one after the other, against a local engine."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.dynamodb.engines import running

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "guide" / "dynamodb.md").read_text()
PROGRAMS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
PLACE = "http://localhost:4566"


@pytest.fixture(scope="module")
def run():
    """Runs a program as a reader would, with the engine at another port; the first one makes the table."""

    def run_program(number: int) -> subprocess.CompletedProcess[str]:
        environment = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_CONFIG_FILE": "/dev/null"}
        return subprocess.run(
            [sys.executable, "-W", "error", "-c", PROGRAMS[number].replace(PLACE, running("aws").url)],
            env={**environment, "PATH": str(Path(sys.executable).parent)},
            capture_output=True,
            text=True,
            timeout=180,
            check=False,
        )

    run_program(0)
    return run_program


@pytest.mark.parametrize("number", range(len(PROGRAMS)))
def test_a_program_runs_as_it_stands(run, number):
    """A reader starts the engine, exports keys, and pastes it into a file."""
    done = run(number)

    assert (0, "") == (done.returncode, done.stderr)
    assert done.stdout


@pytest.mark.parametrize("number", range(len(PROGRAMS)))
def test_a_program_names_the_place_where_the_engine_was_started(number):
    """And nobody's table in the cloud."""
    assert PLACE in PROGRAMS[number]
