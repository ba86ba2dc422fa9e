"""The commands of the guides run as shown, and print what is shown."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, named
from zae_limiter import SyncRepository

# Those of the DynamoDB page need an engine; another test checks that they can be given.
PAGES = [page for page in sorted((ROOT / "docs" / "guide").glob("*.md")) if page.stem != "dynamodb"]
SHOWN = re.compile(r"```bash\n(zae-limiter .*?)```(?:\n\n```text\n(.*?)```)?", re.DOTALL)
SCRIPTS = [
    pytest.param(*match.groups(default=""), id=f"{named(page)}-{number}")
    for page in PAGES
    for number, match in enumerate(SHOWN.finditer(page.read_text(encoding="utf-8")))
]


@pytest.mark.parametrize(("commands", "shown"), SCRIPTS)
def test_commands_of_a_guide_run_one_after_the_other(commands, shown, tmp_path):
    """A reader pastes them into a shell; output on the page is that of the last command.

    The file exists, as after the programs of the page.
    """
    SyncRepository.open(f"sqlite:///{tmp_path}/limits.db").close()
    environment = {"ZAE_LIMITER_URL": "sqlite:///limits.db", "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin"}
    done = subprocess.run(
        ["sh", "-e", "-c", commands],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith(shown)
