"""From an installed package to a deployed limiter, as the README and the first steps show it."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, SHELLS, blocks
from tests.dynamodb.engines import free_port
from tests.infra.local_servers import always_stopped
from tests.long_waits import LONG_DEADLINE

PAGES = (ROOT / "README.md", ROOT / "docs" / "getting-started.md")


def script(page: Path, port: int) -> str:
    """Return the lines of a page that start a local AWS, deploy and use it, with another port and a long deadline."""
    (text,) = [block.text for block in blocks(page, *SHELLS) if "zae-limiter deploy" in block.text]
    with_long_deadline = "".join(f"{name}={shlex.quote(value)} " for name, value in LONG_DEADLINE.items())
    started = text.rstrip("\n").replace("zae-limiter local up", f"zae-limiter local up --port {port}")
    return (
        "set -e\n"
        + re.sub(r"^(?=zae-limiter acquire)", with_long_deadline, started, count=1, flags=re.MULTILINE)
        + "\n"
    )


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_limiter_is_deployed_as_the_page_shows(page, tmp_path):
    """No step is missing, in a shell without AWS settings."""
    port = free_port()
    known = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "ZAE_", "XDG_"))}
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    with always_stopped(tmp_path / "local") as aws:
        done = subprocess.run(
            ["bash", "-c", script(page, port)],
            cwd=tmp_path,
            env={**known, "PATH": path, "HOME": str(tmp_path), "ZAE_LIMITER_LOCAL_DIR": str(aws.directory)},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )

    assert 0 == done.returncode, done.stderr
    assert f"http://127.0.0.1:{port}" in done.stdout
    assert "my-app is deployed" in done.stderr
    # The admitted requests, and the rest of 60; a slow machine may have earned one again.
    assert re.search(r"rpm +1 +(59|60)", done.stdout)
