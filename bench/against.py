"""Compare this tree with another revision: CPU time per call, as ratios with a 95 % interval.

    bench/run --against REV                     install both, then alternate for 40 rounds
    bench/run --against REV --rounds 60 --at-most 1.03 --only cascade
    bench/run --against REV --rounds 3 --opcodes    count bytecode instructions instead

Each revision is installed into its own environment. In each round a new process of each revision
measures every case, and the two alternate in order. A round gives one ratio per case: CPU time of
this tree divided by that of the other revision. The median of these ratios and its 95 % interval
are printed. A bound is met if the lower end of the interval is at or below it.

A loaded machine makes CPU times noisy. The number of bytecode instructions (``--opcodes``) is the
same on every machine, but says nothing about C code and memory.

Each round uses new processes, because memory layout and hash seed change the speed by some percent.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from math import comb
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
VERSIONS = HERE / ".versions"
WORKER = HERE / "against_worker.py"
CONFIDENCE = 0.95
LEAST_ROUNDS = 40

Times = dict[str, float]
"""CPU microseconds, or instructions, per call, by case."""


@dataclass(frozen=True, slots=True)
class Interval:
    """The median of some ratios, and the interval that contains the true median with 95 % confidence."""

    median: float
    low: float
    high: float

    def meets(self, at_most: float) -> bool:
        """Return whether a bound is met: the lower end is at or below it."""
        return self.low <= at_most


def interval_of(ratios: Sequence[float]) -> Interval:
    """Return the median of ratios and its interval, from their order alone: no distribution is assumed.

    With fewer than six ratios the interval is the whole range, at less than 95 %.
    """
    ordered = sorted(ratios)
    count = len(ordered)
    outside = (1 - CONFIDENCE) / 2
    rank, below = 0, 0.0
    while rank < (count - 1) // 2:
        below += comb(count, rank) / 2**count
        if below > outside:
            break
        rank += 1
    # ``rank`` values may be outside at each end; the first of them is always included.
    cut = max(0, rank - 1)
    return Interval(statistics.median(ordered), ordered[cut], ordered[count - 1 - cut])


def ratios_of(rounds: Sequence[tuple[Times, Times]]) -> dict[str, list[float]]:
    """Return the ratios of each case, round by round, for the cases that both revisions measured."""
    shared = [case for case in rounds[0][0] if all(case in ours and case in theirs for ours, theirs in rounds)]
    return {case: [ours[case] / theirs[case] for ours, theirs in rounds] for case in shared}


def table(rounds: Sequence[tuple[Times, Times]], at_most: float) -> str:
    """Return one line per case: both medians, the ratio, its interval, and the verdict."""
    lines = [f"{'':<34}{'this':>9}{'other':>9}{'ratio':>8}{'95 % interval':>17}  at most {at_most}"]
    for case, ratios in ratios_of(rounds).items():
        found = interval_of(ratios)
        ours, theirs = (statistics.median(side[case] for side in sides) for sides in zip(*rounds, strict=True))
        between = f"{found.low:.3f} to {found.high:.3f}"
        verdict = "met" if found.meets(at_most) else f"NOT MET, by {found.low / at_most - 1:.1%}"
        lines.append(f"{case:<34}{ours:>9.2f}{theirs:>9.2f}{found.median:>8.3f}{between:>17}  {verdict}")
    return "\n".join(lines)


def commit_of(revision: str) -> str:
    """Return the commit of a revision.

    Raises:
        SystemExit: The revision does not exist.
    """
    found = subprocess.run(
        ["git", "rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if found.returncode:
        sys.exit(f"bench: git has no revision {revision!r}")
    return found.stdout.strip()


def installed(name: str, source: Path, *, again: bool) -> Path:
    """Return the Python of an environment with the tree at ``source`` installed; it is made if it is missing."""
    venv = VERSIONS / name
    python = venv / "bin" / "python"
    stamp = venv / "installed"
    if again or not stamp.exists():
        print(f"bench: installing {name}", file=sys.stderr, flush=True)
        # Without its stamp, an environment may be incomplete, because its creation was interrupted.
        if not stamp.exists():
            subprocess.run([sys.executable, "-m", "venv", "--clear", str(venv)], check=True)
        subprocess.run(
            [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--force-reinstall"]
            + (["--no-deps"] if stamp.exists() else [])
            + [str(source)],
            check=True,
        )
        stamp.touch()
    return python


def exported(commit: str) -> Path:
    """Return a folder with the files of a commit."""
    folder = VERSIONS / f"{commit}-source"
    if not folder.exists():
        partial = folder.with_suffix(".partial")
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        archive = subprocess.run(["git", "archive", commit], cwd=ROOT, stdout=subprocess.PIPE, check=True).stdout
        subprocess.run(["tar", "-x", "-C", str(partial)], input=archive, check=True)
        partial.rename(folder)
    return folder


def measured(python: Path, options: argparse.Namespace, number: int) -> Times:
    """Measure every case once, in a new process."""
    command = [python, WORKER, "--calls", options.calls, "--order", options.seed + number, "--only", options.only]
    command += ["--opcodes"] if options.opcodes else []
    # Each tree must only be imported from its own environment.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [str(part) for part in command], env=environment, stdout=subprocess.PIPE, text=True, check=True
    )
    found: Times = json.loads(done.stdout)
    return found


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--against", required=True, metavar="REV", help="revision to compare with")
    parser.add_argument("--rounds", type=int, default=LEAST_ROUNDS, help=f"processes per revision ({LEAST_ROUNDS})")
    parser.add_argument("--calls", type=int, default=4_000, help="calls per measurement on memory (4000); else fewer")
    parser.add_argument("--at-most", type=float, default=1.03, metavar="RATIO", help="largest allowed ratio (1.03)")
    parser.add_argument("--only", default="", metavar="TEXT", help="run only cases with this text in their name")
    parser.add_argument("--seed", type=int, default=1, help="seed of the order of the cases (1)")
    parser.add_argument("--opcodes", action="store_true", help="count bytecode instructions, not CPU time")
    return parser.parse_args()


def both_installed(revision: str) -> tuple[Path, Path, str]:
    """Return the Python of this tree, that of another revision, and its short commit."""
    commit = commit_of(revision)[:12]
    theirs = installed(commit, exported(commit), again=False)
    return installed("this", ROOT, again=True), theirs, commit


def main() -> None:
    options = arguments()
    ours, theirs, commit = both_installed(options.against)
    what = "bytecode instructions" if options.opcodes else "CPU microseconds"
    print(f"This tree against {commit}: {what} per call, {options.rounds} rounds of new processes", flush=True)
    rounds = []
    for number in range(options.rounds):
        pair = [(ours, 0), (theirs, 1)]
        found: list[Times] = [{}, {}]
        for python, side in pair if number % 2 else reversed(pair):
            found[side] = measured(python, options, number)
        rounds.append((found[0], found[1]))
        print(f"\rround {number + 1} of {options.rounds}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    print(table(rounds, options.at_most))


if __name__ == "__main__":
    main()
