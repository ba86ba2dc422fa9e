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
        works = {name: command for name, command in programs.items() if spent(command, folder)}
        runs = [{name: spent(command, folder) for name, command in works.items()} for _ in range(RUNS)]
    for name in programs.keys() - works.keys():
        print(f"SKIPPED {name}: it fails here")
    return {name: _least([times for run in runs if (times := run[name])]) for name in works}


def print_beside(title: str, found: Mapping[str, Spent], bare: Spent) -> None:
    """Print the cost of each program, and the difference to a bare interpreter."""
    print(f"{title}, milliseconds, minimum of {RUNS} alternating processes")
    print(f"{'':<40}{'CPU':>10}{'wall':>10}{'CPU over bare':>16}{'wall over bare':>16}")
    for name, times in found.items():
        over = f"{times.cpu_ms - bare.cpu_ms:>16.1f}{times.wall_ms - bare.wall_ms:>16.1f}"
        print(f"  {name:<38}{times.cpu_ms:>10.1f}{times.wall_ms:>10.1f}{over}")


def spent(command: Sequence[str], folder: str, *, drop: Sequence[str] = ()) -> Spent | None:
    """Run a program in a new process, without some variables; return its times, None if it fails."""
    # With PYTHONDONTWRITEBYTECODE, every run would compile the modules of this tree again.
    dropped = {"PYTHONDONTWRITEBYTECODE", *drop}
    environment = {name: value for name, value in os.environ.items() if name not in dropped}
    silent = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    began_ns = time.perf_counter_ns()
    process = subprocess.Popen(command, cwd=folder, env=environment, **silent)
    _, status, usage = os.wait4(process.pid, 0)
    wall_ms = (time.perf_counter_ns() - began_ns) / 1e6
    process.returncode = os.waitstatus_to_exitcode(status)
    return Spent((usage.ru_utime + usage.ru_stime) * 1e3, wall_ms) if process.returncode == 0 else None


def _least(runs: list[Spent]) -> Spent:
    return Spent(min(one.cpu_ms for one in runs), min(one.wall_ms for one in runs))
