"""Run every check that CI runs, each to its end, and name those that failed.

    python tools/check.py               all checks
    python tools/check.py lint types    the named checks only
    python tools/check.py --list        list the checks

The quick checks run two at a time and print only failures. The tests run last, alone and with their
output, so that their closing line ends the output of a clean run.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
WORKERS = 2


@dataclass(frozen=True, slots=True)
class Check:
    """The name of a check, and its command."""

    name: str
    command: str

    @property
    def arguments(self) -> list[str]:
        """The command as a list, with the program of the environment that runs this script."""
        program, *rest = self.command.split()
        return [str(Path(sys.executable).with_name(program)), *rest]


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a check."""

    check: Check
    passed: bool
    seconds: float
    output: str = ""


QUICK = (
    # The tests of core and schema must cover them fully, so they run alone. -qq suppresses their
    # closing line.
    Check(
        "coverage",
        "pytest -qq -p no:cacheprovider tests/core tests/schema "
        "--cov --cov-report=term-missing:skip-covered --cov-fail-under=100",
    ),
    Check("types", "mypy --strict src tools tests/typing examples"),
    Check("lint", "ruff check ."),
    Check("format", "ruff format --check ."),
    Check("layers", "lint-imports"),
    Check("mirror", "python tools/mirror.py --check"),
    Check("prose", "python tools/prose.py"),
    Check("docs", "mkdocs build --strict"),
)
# The coverage check has run the tests of core and schema, so they are not run again. There is one
# more worker than cores, because many tests wait for engines, processes and a browser.
TESTS = Check("tests", f"pytest -n {WORKERS + 1} --dist worksteal --ignore tests/core --ignore tests/schema")
CHECKS = (*QUICK, TESTS)


def environment() -> dict[str, str]:
    """Return the environment of the checks, in which Python keeps bytecode.

    Tests start hundreds of processes, and each would compile the package again.
    """
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def run_quietly(check: Check) -> Result:
    """Run a check and keep its output."""
    started = time.monotonic()
    done = subprocess.run(
        check.arguments,
        cwd=ROOT,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    result = Result(check, done.returncode == 0, time.monotonic() - started, done.stdout)
    report(result)
    return result


def run_aloud(check: Check) -> Result:
    """Run a check and show its output."""
    started = time.monotonic()
    done = subprocess.run(check.arguments, cwd=ROOT, env=environment(), check=False)
    return Result(check, done.returncode == 0, time.monotonic() - started)


def report(result: Result) -> None:
    """Print the result of a quiet check in one piece, because another may end at the same time."""
    lines = [f"{'ok    ' if result.passed else 'FAILED'} {result.check.name} ({result.seconds:.1f} s)"]
    if not result.passed:
        lines += [f"       {result.check.command}", result.output.rstrip()]
    print("\n".join(lines), flush=True)


def run(checks: Iterable[Check]) -> list[Result]:
    """Run the quick checks in parallel, then the tests."""
    chosen = list(checks)
    with ThreadPoolExecutor(WORKERS) as pool:
        results = list(pool.map(run_quietly, [check for check in chosen if check is not TESTS]))
    if TESTS in chosen:
        results.append(run_aloud(TESTS))
    return results


def main(arguments: Sequence[str]) -> int:
    """Run the named checks, or all, and return the exit code."""
    names = [check.name for check in CHECKS]
    if "--list" in arguments:
        print("\n".join(names))
        return 0
    unknown = set(arguments) - set(names)
    if unknown:
        print(f"unknown check: {', '.join(sorted(unknown))}; choose from {', '.join(names)}", file=sys.stderr)
        return 2
    results = run(check for check in CHECKS if not arguments or check.name in arguments)
    failed = [result.check.name for result in results if not result.passed]
    if failed:
        print(f"\nfailed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
