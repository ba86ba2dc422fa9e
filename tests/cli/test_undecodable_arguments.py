"""Arguments that are not valid text are refused in one line."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ODD = b"\x80"
LIMITER = [os.fsencode(sys.executable), b"-c", b"from zae_limiter.cli import main; main()"]


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ([b"system", b"get-defaults", b"--url", b"sqlite:///" + ODD + b".db"], "url"),
        ([b"list", b"--region", ODD], "region"),
        ([b"list", b"--region", b"us-east-1", b"--endpoint-url", b"http://" + ODD], "endpoint_url"),
    ],
    ids=repr,
)
def test_an_argument_that_is_not_valid_text_is_refused(arguments: list[bytes], named: str, tmp_path: Path) -> None:
    """The exit code is 2 and one line names the argument. There is no traceback, and no file is created."""
    done = subprocess.run([*LIMITER, *arguments], cwd=tmp_path, capture_output=True, check=False, timeout=120)
    printed = done.stderr.decode()

    assert 2 == done.returncode, printed
    assert f"Error: Invalid {named} " in printed
    assert "Traceback" not in printed
    assert [] == list(tmp_path.iterdir())
