"""Measure the write units of a settled LLM call on one bucket, with and without `settle_within`.

    .venv/bin/python bench/settle.py [--per-second 1 5 20 100] [--within 0 0.25 1] [--seconds 60]

Time is simulated. The calls of one client arrive at random times. Each takes an estimate and is charged or credited the
difference after some seconds. The table counts the units that DynamoDB would bill, refused writes included. The goal is
at most 1.1 units on a busy bucket (20 calls a second) with an interval of 0.25 s.
"""

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.simulation.settled_calls import units_per_call

BUSY_PER_S, WITHIN_S, GOAL = 20, 0.25, 1.1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--per-second", type=float, nargs="+", default=[1, 5, 20, 100])
    parser.add_argument("--within", type=float, nargs="+", default=[0, 0.25, 1], metavar="SECONDS")
    parser.add_argument("--seconds", type=float, default=60, help="simulated seconds of each measurement (60)")
    options = parser.parse_args()
    print("Write units per settled call, by calls a second and by settle_within")
    print(f"{'calls/s':>10}" + "".join(f"{f'{within_s:g} s':>10}" for within_s in options.within))
    for per_second in options.per_second:
        units = [units_per_call(per_second, within_s, options.seconds) for within_s in options.within]
        print(f"{per_second:>10g}" + "".join(f"{one:>10.2f}" for one in units))
    busy = units_per_call(BUSY_PER_S, WITHIN_S, options.seconds)
    verdict = "reached" if busy <= GOAL else "NOT REACHED"
    print(f"{BUSY_PER_S} calls/s, {WITHIN_S} s: {busy:.3f} units per call, goal at most {GOAL}: {verdict}")


if __name__ == "__main__":
    main()
