"""The script that installs a browser."""

import subprocess
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[2] / "tools" / "browser.sh"


def test_where_nothing_can_be_installed_it_says_so_and_does_not_fail(tmp_path):
    """A developer without it runs all other tests."""
    done = subprocess.run(
        ["/bin/bash", str(SCRIPT)], env={"PATH": str(tmp_path)}, capture_output=True, text=True, check=False
    )

    assert (0, "") == (done.returncode, done.stdout)
    assert "no apt-get, so no browser; its tests will be skipped\n" == done.stderr


def test_where_it_is_installed_nothing_is_done(tmp_path):
    """Neither root nor a network is needed then."""
    for program in ("chromium", "chromedriver"):
        (tmp_path / program).write_text("#!/bin/sh\n")
        (tmp_path / program).chmod(0o755)
    done = subprocess.run(
        ["/bin/bash", str(SCRIPT)], env={"PATH": str(tmp_path)}, capture_output=True, text=True, check=False
    )

    assert (0, "", "") == (done.returncode, done.stdout, done.stderr)
