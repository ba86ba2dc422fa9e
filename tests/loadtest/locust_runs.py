"""Run programs that import Locust, each in a process of its own."""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.long_waits import LONG_DEADLINE

ROOT = Path(__file__).resolve().parents[2]
LOCUSTFILES = ROOT / "examples" / "locust" / "locustfiles"
PATIENCE_S = 600

# What a developer's shell may have, and what would select another limiter.
_TARGETS = ("ZAE_LIMITER_URL", "ZAE_LOADTEST_URL", "TARGET_STACK_NAME", "TARGET_REGION")


def environment(**variables: str) -> dict[str, str]:
    """Return an environment without a selected limiter, whose programs have long deadlines."""
    kept = {name: value for name, value in os.environ.items() if name not in _TARGETS}
    paths = [LONG_DEADLINE["PYTHONPATH"], str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**kept, "PYTHONPATH": os.pathsep.join(paths), "PYTHONDONTWRITEBYTECODE": "1", **variables}


def python(*arguments: str, variables: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run Python to its end."""
    return subprocess.run(
        [sys.executable, *arguments],
        env=environment(**(variables or {})),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
