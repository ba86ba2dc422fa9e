"""Measure the CPU time of acquire and exit with two limits, beside other libraries. Asserts nothing about time."""

import argparse
import importlib
import platform
import sys
from importlib import metadata

from measure import REQUESTS, TOKENS, Case, measure
from report import tables

_PEERS = ("limits", "pyrate-limiter", "throttled-py")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15, help="measurements of each case (15)")
    parser.add_argument("--calls", type=int, default=5_000, help="calls per measurement (5000); fewer on files")
    parser.add_argument("--seed", type=int, default=1, help="seed of the order of the cases within each round (1)")
    parser.add_argument("--only", default="", metavar="TEXT", help="run only cases with this text in their title")
    return parser.parse_args()


def _cases_of(module: str, calls: int) -> list[Case]:
    """Return the cases of a module; none, with a printed reason, if what it measures is not installed."""
    try:
        return list(importlib.import_module(module).cases(calls))
    except (ImportError, AttributeError) as missing:
        print(f"SKIPPED {module}: {missing}")
        return []


def _print_heading(options: argparse.Namespace) -> None:
    versions = ", ".join(f"{name} {metadata.version(name)}" for name in _PEERS)
    print("Acquire and exit with two limits")
    print(f"Python {platform.python_version()} on {platform.system()} {platform.machine()}; {versions}")
    print(f"{options.rounds} rounds in one process, order shuffled by seed {options.seed}; CPU time of all threads;")
    print("gc on; every measurement opens an empty store and warms up first.")
    print(f"A call takes {REQUESTS} of rpm and {TOKENS} of tpm. Except: limits moving window takes 1 of both;")
    print("pyrate-limiter takes 1, checked against a rate per minute and ten times that per hour.")
    print()


def main() -> None:
    options = _arguments()
    _print_heading(options)
    found = [*_cases_of("ours", options.calls), *_cases_of("peers", options.calls)]
    cases = [case for case in found if options.only in case.title]
    if not cases:
        sys.exit(f"no case has {options.only!r} in its title; omit --only to run all")
    print(tables(cases, measure(cases, options.rounds, options.seed)))


if __name__ == "__main__":
    main()
