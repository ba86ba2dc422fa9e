"""Mutate the modules of core that decide, one small change at a time, and show the changes that no test notices.

    python tools/mutants.py                   all modules that decide
    python tools/mutants.py bucket batch      the named ones
    python tools/mutants.py --again bucket    only the mutants that survived the last run

mutmut makes the mutants and runs them; it does not mutate module constants and properties. A mutant
of a module must be killed by the tests of that module or of the promise. These run with fewer
examples than usual, the same in every run. A mutant with an endless loop also counts as killed. The
exit code is 1 if less than 90 % of a module's mutants are killed.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
WORKSPACE = ROOT / "build" / "mutants"
WORKERS = 2
LEAST_KILLED = 0.9

PROMISE = ("promise/test_promise.py", "promise/test_found_faults.py")
SHARDS = ("promise/test_shard_promise.py",)

MODULES: Mapping[str, tuple[str, ...]] = {
    "bucket": ("core/test_bucket.py", *PROMISE, *SHARDS),
    "bucket_changes": ("core/test_bucket_changes.py", "core/test_expiry.py", *PROMISE),
    "sharding": ("core/test_sharding.py", "core/test_relief.py", *SHARDS),
    "acquire": ("core/test_acquire.py", "core/test_batch.py", "core/test_expiry.py", *PROMISE),
    "cascade": ("core/test_cascade.py",),
    "batch": ("core/test_batch.py",),
    "multi_shard": ("core/test_multi_shard.py", "core/test_batch.py", *SHARDS),
    "add_or_set": ("core/test_add_or_set.py", "core/test_acquire.py", *PROMISE),
    "rebase": ("core/test_rebase.py", "core/test_expiry.py", *PROMISE),
    "splitting": ("core/test_splitting.py", *SHARDS),
    "view": ("core/test_view.py", *PROMISE),
}
"""The modules that decide, and the test files that state their rules."""

_SPINNER = re.compile(r"^. (Generating mutants|Running stats|Running clean tests)\s*\n", re.MULTILINE)

KILLED = frozenset({"killed", "timeout"})

CONFIGURATION = """
[tool.mutmut]
source_paths = ["src"]
only_mutate = ["src/zae_limiter/core/{module}.py"]
pytest_add_cli_args = ["-p", "no:cacheprovider", "-k", "not found_out"]
pytest_add_cli_args_test_selection = {tests}
timeout_constant = 10.0
timeout_multiplier = 60.0
use_git_change_detection = false
also_copy = ["conftest.py"]
"""

CONFTEST = """import os
import signal

import pytest

# mutmut asks a test for a name that newer releases of pytest no longer keep there.
if not hasattr(pytest.Item, "_nodeid"):
    pytest.Item._nodeid = property(lambda item: item.nodeid)

# Detect endless loops by CPU time, because the machine may be busy. mutmut reads exit code 36 as a timeout.
signal.signal(signal.SIGPROF, lambda *_: os._exit(36))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call():
    signal.setitimer(signal.ITIMER_PROF, 20.0)
    try:
        return (yield)
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0.0)
"""


@dataclass(frozen=True, slots=True)
class Tally:
    """The mutants of a module and their statuses, by name."""

    module: str
    statuses: Mapping[str, str]

    @property
    def killed(self) -> int:
        """The number of mutants that a test noticed."""
        return sum(status in KILLED for status in self.statuses.values())

    @property
    def alive(self) -> list[str]:
        """The names of the mutants that no test noticed."""
        return [name for name, status in self.statuses.items() if status not in KILLED]

    @property
    def rate(self) -> float:
        """The part of the mutants that a test noticed."""
        return self.killed / len(self.statuses) if self.statuses else 1.0

    def line(self) -> str:
        """Return the tally in one line."""
        counts = Counter(self.statuses.values())
        told = ", ".join(f"{count} {status}" for status, count in counts.most_common())
        return f"{self.module:10} {self.rate:6.1%} of {len(self.statuses):4}: {told}"


def parse_results(module: str, text: str) -> Tally:
    """Parse the output of the tool, which has a mutant and its status on each line."""
    pairs = (line.strip().rsplit(": ", 1) for line in text.splitlines() if "__mutmut_" in line)
    return Tally(module, dict(pairs))


def prepare(module: str) -> Path:
    """Make the folder in which the tool works on a module, and return it."""
    place = WORKSPACE / module
    place.mkdir(parents=True, exist_ok=True)
    for name in ("src", "tests"):
        link = place / name
        if not link.is_symlink():
            link.symlink_to(ROOT / name, target_is_directory=True)
    settings = (ROOT / "pyproject.toml").read_text("utf-8")
    settings += CONFIGURATION.format(module=module, tests=[f"tests/{name}" for name in MODULES[module]])
    (place / "pyproject.toml").write_text(settings, "utf-8")
    (place / "conftest.py").write_text(CONFTEST, "utf-8")
    return place


def mutmut(place: Path, *arguments: str) -> str:
    """Run the tool in a folder and return its output; a failure ends the run."""
    environment = os.environ | {"HYPOTHESIS_PROFILE": "lean", "PYTHONDONTWRITEBYTECODE": "1"}
    command = [str(Path(sys.executable).with_name("mutmut")), *arguments]
    done = subprocess.run(
        command, cwd=place, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    if done.returncode:
        sys.exit(f"{_SPINNER.sub('', done.stdout)}\n{' '.join(command)} failed in {place}")
    return done.stdout


def examine(module: str, *, again: bool) -> Tally:
    """Run the mutants of a module, with ``again`` only the survivors, and print the results."""
    started = time.monotonic()
    place = prepare(module)
    names: list[str] = []
    if again and (place / "mutants").exists():
        names = parse_results(module, mutmut(place, "results", "--all", "true")).alive
    else:
        shutil.rmtree(place / "mutants", ignore_errors=True)
    mutmut(place, "run", "--max-children", str(WORKERS), *names)
    tally = parse_results(module, mutmut(place, "results", "--all", "true"))
    if names and "not checked" in tally.statuses.values():
        # Mutants of functions that have changed since are new, so they were not among the names.
        mutmut(place, "run", "--max-children", str(WORKERS))
        tally = parse_results(module, mutmut(place, "results", "--all", "true"))
    print(f"{tally.line()} ({time.monotonic() - started:.0f} s)", flush=True)
    for name in tally.alive:
        print(mutmut(place, "show", name), flush=True)
    return tally


def main(arguments: Sequence[str]) -> int:
    """Examine the named modules, or all, and return the exit code."""
    again = "--again" in arguments
    named = [argument for argument in arguments if argument != "--again"]
    unknown = [name for name in named if name not in MODULES]
    if unknown:
        print(f"unknown module: {', '.join(unknown)}; choose from {', '.join(MODULES)}", file=sys.stderr)
        return 2
    tallies = [examine(module, again=again) for module in named or MODULES]
    print("\n".join(tally.line() for tally in tallies))
    return int(any(tally.rate < LEAST_KILLED for tally in tallies))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
