"""Fixtures to run commands on a SQLite file of the test's own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from zae_limiter import SyncRepository
from zae_limiter.cli import main


@pytest.fixture
def database(tmp_path, monkeypatch) -> Path:
    """The SQLite file that commands use, named by the environment."""
    path = tmp_path / "limiter.db"
    monkeypatch.setenv("ZAE_LIMITER_URL", f"sqlite:///{path}")
    return path


@pytest.fixture
def run(database):
    """Run a command in this process. The file exists already and is empty, because reading does not create it."""
    SyncRepository.open(f"sqlite:///{database}").close()

    def invoke(*arguments: str, answers: str | None = None) -> Result:
        return CliRunner().invoke(main, arguments, input=answers, prog_name="zae-limiter", catch_exceptions=False)

    return invoke


@pytest.fixture
def interactive(monkeypatch):
    """Make commands believe that a terminal is attached, so that they ask questions."""
    monkeypatch.setattr("zae_limiter.cli._confirm.somebody_is_there", lambda: True)


@pytest.fixture
def shell(database):
    """Run a command in a process of its own, as a shell does."""

    def start(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "zae_limiter", *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ.copy(), timeout=300)

    return start
