"""Measure programs in new processes that alternate, and return the least of many runs."""

import os
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

RUNS = 20


@dataclass(frozen=True, slots=True)
class Spent:
    """User and system CPU time of one process, and its wall time."""

    cpu_ms: float
    wall_ms: float


def smallest(programs: Mapping[str, Sequence[str]]) -> dict[str, Spent]:
    """Return the least times of each program over all runs; programs that fail are left out, with a printed line."""
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        # The first run of each also writes its bytecode, so that no timed run compiles.
        works = {name: command for name, command in programs.items() if _spent(command, folder)}
        runs = [{name: _spent(command, folder) for name, command in works.items()} for _ in range(RUNS)]
    for name in programs.keys() - works.keys():
        print(f"SKIPPED {name}: it fails here")
    return {name: _least([spent for run in runs if (spent := run[name])]) for name in works}


def print_beside(title: str, found: Mapping[str, Spent], bare: Spent) -> None:
    """Print the cost of each program, and the difference to a bare interpreter."""
    print(f"{title}, milliseconds, minimum of {RUNS} alternating processes")
    print(f"{'':<40}{'CPU':>10}{'wall':>10}{'CPU over bare':>16}{'wall over bare':>16}")
    for name, spent in found.items():
        over = f"{spent.cpu_ms - bare.cpu_ms:>16.1f}{spent.wall_ms - bare.wall_ms:>16.1f}"
        print(f"  {name:<38}{spent.cpu_ms:>10.1f}{spent.wall_ms:>10.1f}{over}")


def _spent(command: Sequence[str], folder: str) -> Spent | None:
    """Run a program in a new process; return its times, None if it fails."""
    began_ns = time.perf_counter_ns()
    process = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    wall_ms = (time.perf_counter_ns() - began_ns) / 1e6
    process.returncode = os.waitstatus_to_exitcode(status)
    return Spent((usage.ru_utime + usage.ru_stime) * 1e3, wall_ms) if process.returncode == 0 else None


def _least(spent: list[Spent]) -> Spent:
    return Spent(min(one.cpu_ms for one in spent), min(one.wall_ms for one in spent))
