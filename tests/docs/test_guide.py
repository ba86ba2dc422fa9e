"""Every program and every link of the guide works as it stands there."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "guide"
PAGES = sorted(GUIDE.glob("*.md"))
# Those of the others need an engine, and run in a test of their own.
EMBEDDED = [page for page in PAGES if page.stem != "dynamodb"]


SHELL = r"```bash\n(zae-limiter .*?)```(?:\n\n```text\n(.*?)```)?"


def found(pattern: str, pages: list[Path]) -> list[object]:
    """What pages have of a pattern, named by page and number."""
    return [
        pytest.param(page, *match.groups(default=""), id=f"{page.stem}-{number}")
        for page in pages
        for number, match in enumerate(re.finditer(pattern, page.read_text(), re.DOTALL))
    ]


def run(command: list[str], where: Path) -> subprocess.CompletedProcess[str]:
    """Run a command as a reader would who has nothing but a new directory."""
    environment = {"ZAE_LIMITER_URL": "sqlite:///limits.db", "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin"}
    return subprocess.run(command, cwd=where, env=environment, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize(
    ("page", "program", "shown"), found(r"```python\n((?:(?!```).)*)```(?:\n\n```text\n(.*?)```)?", EMBEDDED)
)
def test_a_program_runs_as_it_stands(page, program, shown, tmp_path):
    """A reader pastes it into a file and runs it; where its output is shown, that is it."""
    (tmp_path / "program.py").write_text(program)
    done = run([sys.executable, "-W", "error", "program.py"], tmp_path)

    assert (0, "") == (done.returncode, done.stderr)
    assert done.stdout
    assert shown in ("", done.stdout)


@pytest.mark.parametrize(("page", "commands", "shown"), found(SHELL, EMBEDDED))
def test_commands_run_one_after_the_other(page, commands, shown, tmp_path):
    """A reader pastes them into a shell; where output is shown, it is that of the last."""
    done = run(["sh", "-e", "-c", commands], tmp_path)

    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith(shown)


@pytest.mark.parametrize(("page", "link"), found(r"\]\((?!https?:)([^)#]+)[^)]*\)", PAGES))
def test_a_link_leads_somewhere(page, link):
    """Links within the repository are files."""
    assert (page.parent / link).exists()
