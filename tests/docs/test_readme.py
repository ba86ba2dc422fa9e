"""What the README shows a newcomer works as it stands there."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()
PROGRAMS = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
COMMANDS = re.findall(r"^(zae-limiter (?!demo).*?)(?:\s+#.*)?$", README, re.MULTILINE)
LINKS = re.findall(r"\]\((?!https?:)([^)#]+)\)", README)


def run(command: list[str], where: Path) -> subprocess.CompletedProcess[str]:
    environment = {"ZAE_LIMITER_URL": "sqlite:///limits.db", "PATH": str(Path(sys.executable).parent)}
    return subprocess.run(command, cwd=where, env=environment, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize("program", PROGRAMS, ids=range(len(PROGRAMS)))
def test_a_program_runs_as_it_stands(program, tmp_path):
    """A newcomer pastes it into a file and runs it."""
    (tmp_path / "program.py").write_text(program)
    done = run([sys.executable, "-W", "error", "program.py"], tmp_path)

    assert (0, "") == (done.returncode, done.stderr)
    assert done.stdout


def test_the_commands_run_one_after_the_other(tmp_path):
    """Limits are stored, taken from, and looked at."""
    answers = [run([sys.executable, "-m", "zae_limiter", *command.split()[1:]], tmp_path) for command in COMMANDS]

    assert [0, 0, 0, 0] == [answer.returncode for answer in answers]
    assert "rpm" in answers[2].stdout
    assert "1 snapshot" in answers[3].stdout


def test_the_error_is_as_described(tmp_path):
    """The numbers beside the code are those it prints, less what a slow machine has earned meanwhile."""
    (program,) = [program for program in PROGRAMS if "retry_after_header)     #" in program]
    (tmp_path / "program.py").write_text(program)
    done = run([sys.executable, "program.py"], tmp_path)

    assert re.search(r"\b2[0-4]\d\d available, 4000 requested", done.stdout)
    assert re.search(r"^(12\.0|11\.\d+|10\.\d+|9\.\d+)$", done.stdout, re.MULTILINE)
    assert re.search(r"^(12|11|10)$", done.stdout, re.MULTILINE)


@pytest.mark.parametrize("link", sorted(set(LINKS)))
def test_a_link_leads_somewhere(link):
    """Links within the repository are files."""
    assert (ROOT / link).exists()
