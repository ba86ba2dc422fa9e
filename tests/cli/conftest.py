"""A command line on a file of its own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from zae_limiter.cli import main


@pytest.fixture
def database(tmp_path, monkeypatch) -> Path:
    """The file that commands use, named by the environment."""
    path = tmp_path / "limiter.db"
    monkeypatch.setenv("ZAE_LIMITER_URL", f"sqlite:///{path}")
    return path


@pytest.fixture
def run(database):
    """Run a command in this process."""

    def invoke(*arguments: str, answers: str | None = None) -> Result:
        return CliRunner().invoke(main, arguments, input=answers, prog_name="zae-limiter", catch_exceptions=False)

    return invoke


@pytest.fixture
def somebody(monkeypatch):
    """Somebody is there to answer questions."""
    monkeypatch.setattr("zae_limiter.cli._confirm.somebody_is_there", lambda: True)


@pytest.fixture
def shell(database):
    """Run a command as a shell does, in a process of its own."""

    def start(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "zae_limiter", *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ.copy(), timeout=300)

    return start
