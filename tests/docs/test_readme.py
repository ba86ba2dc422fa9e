"""The README and the first steps work as shown."""

import math
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, SHELLS, blocks, programs

README = ROOT / "README.md"
FIRST_STEPS = ROOT / "docs" / "getting-started.md"
# Commands that need no AWS, end soon, and install nothing.
AT_HAND = re.compile(r"^(zae-limiter (?!demo|local|deploy)(?!.*--name)|export |unset )")


def run(command: list[str], where: Path) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin", "HOME": str(where)}
    return subprocess.run(command, cwd=where, env=environment, capture_output=True, text=True, timeout=120, check=False)


def shown_at_hand(page: Path) -> list[str]:
    """Return the script lines of a page that a newcomer can run immediately."""
    lines = [line for block in blocks(page, *SHELLS) for line in block.text.splitlines()]
    return [line for line in lines if AT_HAND.match(line)]


@pytest.mark.parametrize("page", [README, FIRST_STEPS], ids=lambda page: page.name)
def test_readme_commands_run_one_after_the_other(page, tmp_path):
    """Limits are stored, used, and shown; no step is missing."""
    (tmp_path / "limits.sh").write_text("set -ex\n" + "\n".join(shown_at_hand(page)))
    if page is FIRST_STEPS:
        # The page tells the reader to run it before.
        (tmp_path / "first.py").write_text(programs(page)[0].text)
        run([sys.executable, "first.py"], tmp_path)
    done = run(["bash", "limits.sh"], tmp_path)

    assert done.returncode == 0, done.stderr
    assert "rpm" in done.stdout
    assert page is FIRST_STEPS or "1 snapshot" in done.stdout


def test_readme_error_has_the_numbers_beside_it(tmp_path):
    """Less what a slow machine has earned meanwhile."""
    (program,) = [block.text for block in programs(README) if "retry_after_header)   #" in block.text]
    (tmp_path / "program.py").write_text(program)
    began_s = time.monotonic()
    done = run([sys.executable, "program.py"], tmp_path)
    took_s = time.monotonic() - began_s

    message, retry_after_s, header, *_ = done.stdout.splitlines()
    available = int(re.search(r"\b(\d+) available, 4000 requested", message)[1])
    assert 2_000 <= available <= 2_000 + took_s * 10_000 / 60
    # The missing tokens are earned in that time; less than a token is not shown.
    assert -0.001 <= (4_000 - available) * 60 / 10_000 - float(retry_after_s) <= 0.007
    assert math.ceil(float(retry_after_s)) == int(header)


def test_readme_limits_a_web_application_in_at_most_15_lines():
    """Two limits, headers and a stream. The client below, and its import, are there to try it."""
    (shown,) = [block for block in programs(README) if "RateLimitMiddleware" in block.text]
    service, _, client = shown.text.partition("with TestClient")
    lines = [line for line in service.splitlines() if line.strip() and "TestClient" not in line]

    assert client
    assert 2 == service.count("Limit.per_minute")
    assert "StreamingResponse" in service
    assert len(lines) <= 15
