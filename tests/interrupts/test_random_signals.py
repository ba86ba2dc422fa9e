"""Some hundreds of real interrupts: every thread ends, the limiter works afterwards, and nothing is admitted twice.

Each test runs in a process of its own, because timers and handlers belong to the main thread.
``tests.interrupts.random_signals`` runs longer ones.
"""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.dynamodb.engines import fresh_table_name, running
from tests.dynamodb.ledgers import table_url

ROOT = Path(__file__).resolve().parents[2]
INTERRUPTS = 600


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="there are no timers here")
@pytest.mark.parametrize("kind", ["memory", "sqlite", "dynamodb"])
def test_random_interrupts_leave_a_client_that_works(kind, tmp_path):
    """Signals in the main thread and exceptions set in workers, on every table."""
    urls = {
        "memory": lambda: "memory://",
        "sqlite": lambda: f"sqlite:///{tmp_path / 'limiter.db'}",
        "dynamodb": lambda: table_url(fresh_table_name(), running().url),
    }
    arguments = ["--interrupts", str(INTERRUPTS), "--deadline", "2", "--url", urls[kind]()]
    finished = subprocess.run(
        [sys.executable, "-m", "tests.interrupts.random_signals", *arguments],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT / "src"), str(ROOT)))},
    )

    assert 0 == finished.returncode, finished.stderr
    assert "all threads ended" in finished.stdout
