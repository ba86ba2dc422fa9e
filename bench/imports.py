"""Measure imports and the start of the command line, in alternating new processes. Asserts nothing.

    bench/run                                        this tree beside a bare interpreter, among all benchmarks
    python3 bench/imports.py --against 5e29d6b       beside another revision: ratios of CPU time

With ``--against`` both revisions are installed, as by ``against.py``. Each round runs every program
once per revision. Its ratio includes the interpreter itself. The first acquire is measured too, so
that a cost which has only moved out of the import shows up there.
"""

import argparse
import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from against import LEAST_ROUNDS, Interval, Times, both_installed, interval_of, ratios_of
from processes import print_beside, smallest, spent
from report import verdict

_GOAL_MS = 50.0
_ASYNC_GOAL = 0.47
_BARE = "bare interpreter"
_IMPORT = "import zae_limiter"
_ASYNC = "... and its async limiter"
_IMPORTS = {
    _BARE: "pass",
    _IMPORT: "import zae_limiter",
    # Public names are imported on first use, so this is the cost of a program that limits.
    "... and its sync limiter": "from zae_limiter import Limit, SyncRateLimiter, SyncRepository",
    _ASYNC: "from zae_limiter import Limit, RateLimiter, Repository",
}
_SYNC_ACQUIRE = """
from zae_limiter import Limit, SyncRateLimiter, SyncRepository

with SyncRepository.open({url!r}) as repository:
    repository.set_system_defaults([Limit.per_minute("rpm", 100)])
    with SyncRateLimiter(repository).acquire("user", "gpt-4", {{"rpm": 1}}):
        pass
"""
_ASYNC_ACQUIRE = """
import asyncio
from zae_limiter import Limit, RateLimiter, Repository

async def main():
    async with await Repository.open({url!r}) as repository:
        await repository.set_system_defaults([Limit.per_minute("rpm", 100)])
        async with RateLimiter(repository).acquire("user", "gpt-4", {{"rpm": 1}}):
            pass

asyncio.run(main())
"""
_FIRST_ACQUIRES = {
    "first acquire, memory sync": _SYNC_ACQUIRE.format(url="memory://"),
    "first acquire, memory async": _ASYNC_ACQUIRE.format(url="memory://"),
    "first acquire, SQLite async": _ASYNC_ACQUIRE.format(url="sqlite:///bench.db"),
}
_HELP = {
    "zae-limiter --help": ["-m", "zae_limiter", "--help"],
    "zae-limiter deploy --help": ["-m", "zae_limiter", "deploy", "--help"],
}
_ARGUMENTS = {name: ["-c", code] for name, code in (_IMPORTS | _FIRST_ACQUIRES).items()} | _HELP


def _beside_bare() -> None:
    """Measure this tree, in the environment of this interpreter."""
    found = smallest({name: [sys.executable, "-c", code] for name, code in _IMPORTS.items()})
    bare = found[_BARE]
    print_beside("Import", found, bare)
    if _IMPORT in found:
        added_ms = found[_IMPORT].wall_ms - bare.wall_ms
        reached = verdict(added_ms, _GOAL_MS)
        print(f"{_IMPORT}: {added_ms:.1f} ms over a bare interpreter, goal under {_GOAL_MS:.0f}: {reached}")


def _measured(python: Path) -> Times:
    """Return the CPU milliseconds of each program, once, in new processes."""
    found: Times = {}
    for name, arguments in _ARGUMENTS.items():
        # In a new folder, so that every SQLite file is new.
        with tempfile.TemporaryDirectory(prefix="bench-") as folder:
            times = spent([str(python), *arguments], folder, drop=["PYTHONPATH"])
        if times:
            found[name] = times.cpu_ms
    return found


def _table(rounds: Sequence[tuple[Times, Times]]) -> str:
    """Return one line per program: the least CPU time of both, and three ratios."""
    lines = [f"{'':<34}{'this':>8}{'other':>8}{'minima':>9}{'over bare':>11}{'median':>9}{'95 % interval':>17}"]
    least = [{name: min(side[name] for side in sides) for name in sides[0]} for sides in zip(*rounds, strict=True)]
    for name, ratios in ratios_of(rounds).items():
        ours, theirs = (side[name] for side in least)
        over_ours, over_theirs = (side[name] - side[_BARE] for side in least)
        over = "" if name == _BARE else f"{over_ours / over_theirs:.3f}"
        found: Interval = interval_of(ratios)
        between = f"{found.low:.3f} to {found.high:.3f}"
        times = f"{ours:>8.1f}{theirs:>8.1f}{ours / theirs:>9.3f}{over:>11}"
        lines.append(f"{name:<34}{times}{found.median:>9.3f}{between:>17}")
    return "\n".join(lines)


def _against(revision: str, rounds: int) -> None:
    """Measure this tree and another revision, each installed into an environment of its own."""
    ours, theirs, commit = both_installed(revision)
    # The first run of each also writes its bytecode, so that no timed run compiles.
    for python in (ours, theirs):
        missing = _ARGUMENTS.keys() - _measured(python).keys()
        print("".join(f"SKIPPED {name}: it fails in {python.parent.parent.name}\n" for name in missing), end="")
    found: list[tuple[Times, Times]] = []
    for number in range(rounds):
        if number % 2:
            found.append((_measured(ours), _measured(theirs)))
        else:
            other = _measured(theirs)
            found.append((_measured(ours), other))
        print(f"\rround {number + 1} of {rounds}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    print(f"This tree against {commit}: CPU milliseconds of a process, minima and ratios of {rounds} rounds")
    print(_table(found))
    ratio = statistics.median(ratios_of(found)[_ASYNC])
    print(f"import of the async limiter: {ratio:.3f}, goal at most {_ASYNC_GOAL}: {verdict(ratio, _ASYNC_GOAL)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--against", metavar="REV", help="revision to compare with")
    parser.add_argument("--rounds", type=int, default=LEAST_ROUNDS, help=f"processes per revision ({LEAST_ROUNDS})")
    options = parser.parse_args()
    if options.against:
        _against(options.against, options.rounds)
    else:
        _beside_bare()


if __name__ == "__main__":
    main()
