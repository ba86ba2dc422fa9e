"""The page on failing seeds shows commands that work and explains every kind of violation."""

import ast
import re
import shlex
import subprocess
import sys

from tests.docs.pages import ROOT

PAGE = (ROOT / "docs" / "contributing" / "debugging-a-seed.md").read_text(encoding="utf-8")
EXAMPLES = [
    line
    for block in re.findall(r"^```bash\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    for line in block.splitlines()
    if line.startswith(".venv/bin/python -m tests.simulation --seed ")
]


def raised_kinds() -> set[str]:
    """Return the kinds of violations that the simulation raises."""
    calls = [
        node
        for path in (ROOT / "tests" / "simulation").glob("*.py")
        if not path.name.startswith("test_")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Violation"
    ]
    return {str(call.args[0].value) for call in calls if isinstance(call.args[0], ast.Constant)}


def test_every_kind_of_violation_is_explained():
    """A reader finds the rule behind the first word of a violation."""
    rows = re.findall(r"^\| (`.*?) \|", PAGE.partition("| kind |")[2].partition("\n\n")[0], re.MULTILINE)
    explained = {kind for row in rows for kind in re.findall(r"`(\w+)`", row)}

    assert raised_kinds() == explained


def test_every_example_fails_with_the_violation_on_the_page():
    """A reader who follows the page sees what it describes."""
    ended = [
        subprocess.run([sys.executable, *shlex.split(line)[1:]], cwd=ROOT, capture_output=True, text=True, check=False)
        for line in EXAMPLES
    ]

    assert 3 == len(ended)
    assert [(1, True)] * 3 == [(one.returncode, "reborn: ('team', 'api') rpm got back" in one.stdout) for one in ended]
    assert "--clients 1 --steps 1 --without" in ended[1].stdout
    assert "BUCKET#team#api#0 changed: b_rpm_tc 0 to -1000" in ended[2].stdout
