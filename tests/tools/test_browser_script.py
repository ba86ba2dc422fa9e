"""The script that installs a browser."""

import subprocess
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[2] / "tools" / "browser.sh"


def test_browser_script_without_root_or_network_prints_a_note_and_succeeds(tmp_path):
    """A developer without a browser runs all other tests."""
    done = subprocess.run(
        ["/bin/bash", str(SCRIPT)], env={"PATH": str(tmp_path)}, capture_output=True, text=True, check=False
    )

    assert (0, "") == (done.returncode, done.stdout)
    assert "no apt-get, so no browser; its tests will be skipped\n" == done.stderr


def test_browser_script_with_an_installed_browser_does_nothing(tmp_path):
    """It then needs neither root nor a network."""
    for program in ("chromium", "chromedriver"):
        (tmp_path / program).write_text("#!/bin/sh\n")
        (tmp_path / program).chmod(0o755)
    done = subprocess.run(
        ["/bin/bash", str(SCRIPT)], env={"PATH": str(tmp_path)}, capture_output=True, text=True, check=False
    )

    assert (0, "", "") == (done.returncode, done.stdout, done.stderr)
