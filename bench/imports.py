"""How long `import zae_limiter` takes beside a bare interpreter, in alternating fresh processes. Asserts nothing."""

import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass

from report import verdict

_RUNS = 20
_GOAL_MS = 50.0
_BARE = "bare interpreter"
_IMPORT = "import zae_limiter"
_PROGRAMS = {
    _BARE: "pass",
    _IMPORT: "import zae_limiter",
    # Public names are imported on first use, so this is what a program that limits pays.
    "... and its sync limiter": "from zae_limiter import Limit, SyncRateLimiter, SyncRepository",
    "... and its async limiter": "from zae_limiter import Limit, RateLimiter, Repository",
}


@dataclass(frozen=True, slots=True)
class Spent:
    """User and system CPU of one process, and the time it took from outside."""

    cpu_ms: float
    wall_ms: float


def _spent(program: str, folder: str) -> Spent | None:
    """Runs a program in a fresh interpreter; None when it fails."""
    began_ns = time.perf_counter_ns()
    process = subprocess.Popen([sys.executable, "-c", program], cwd=folder, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    wall_ms = (time.perf_counter_ns() - began_ns) / 1e6
    process.returncode = os.waitstatus_to_exitcode(status)
    return Spent((usage.ru_utime + usage.ru_stime) * 1e3, wall_ms) if process.returncode == 0 else None


def _smallest() -> dict[str, Spent]:
    """The least of each program over all runs; programs that fail are left out, with a line."""
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        # The first run of each also writes its byte code, so that none of the timed ones compiles.
        works = {name: code for name, code in _PROGRAMS.items() if _spent(code, folder)}
        runs = [{name: _spent(code, folder) for name, code in works.items()} for _ in range(_RUNS)]
    for name in _PROGRAMS.keys() - works.keys():
        print(f"SKIPPED {name}: it fails here")
    return {name: _least([spent for run in runs if (spent := run[name])]) for name in works}


def _least(spent: list[Spent]) -> Spent:
    return Spent(min(one.cpu_ms for one in spent), min(one.wall_ms for one in spent))


def main() -> None:
    smallest = _smallest()
    print(f"Import, milliseconds, minimum of {_RUNS} alternating processes")
    print(f"{'':<40}{'CPU':>10}{'wall':>10}{'CPU over bare':>16}{'wall over bare':>16}")
    bare = smallest[_BARE]
    for name, spent in smallest.items():
        over = f"{spent.cpu_ms - bare.cpu_ms:>16.1f}{spent.wall_ms - bare.wall_ms:>16.1f}"
        print(f"  {name:<38}{spent.cpu_ms:>10.1f}{spent.wall_ms:>10.1f}{over}")
    if _IMPORT in smallest:
        added_ms = smallest[_IMPORT].wall_ms - bare.wall_ms
        reached = verdict(added_ms, _GOAL_MS)
        print(f"{_IMPORT}: {added_ms:.1f} ms over a bare interpreter, goal under {_GOAL_MS:.0f}: {reached}")


if __name__ == "__main__":
    main()
