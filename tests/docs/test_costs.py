"""The figures of the costs page are those that the command prints."""

import json
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "operations" / "costs.md").read_text()


def command(*options: str) -> str:
    """Run the command that the page names, and return its output."""
    (line,) = re.findall(r"^\.venv/bin/python (bench/\S+)", PAGE, re.MULTILINE)
    done = subprocess.run(
        [sys.executable, "-W", "error", line, *options],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    return done.stdout


def rows(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith("|")]


def test_cost_table_is_what_the_command_prints():
    """No figure is typed by hand."""
    printed = rows(command())

    assert printed == rows(PAGE)[: len(printed)]


def test_cost_json_has_the_same_cases():
    """Programs can read it."""
    titles = [row.split("|")[1].strip() for row in rows(command())[2:]]

    assert titles == [case["case"] for case in json.loads(command("--json"))["cases"]]
