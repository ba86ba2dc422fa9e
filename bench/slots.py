"""Measure the CPU time of acquire and exit with a slot, relative to the same without one.

    .venv/bin/python bench/slots.py [--rounds 20] [--calls 5000] [--only memory]

The goal on memory is at most 1.6 times a request without a slot.
"""

from kinds import RATES, Case, Comparison, compare

from zae_limiter import Limit

SLOTS = Limit.concurrent("slots", 1_000, hold_seconds=60)
BASE = "without a slot"
CASES: dict[str, Case] = {
    BASE: (RATES, {"rpm": 1, "tpm": 500}),
    "with a slot": ([*RATES, SLOTS], {"rpm": 1, "tpm": 500, "slots": 1}),
    "slots not requested": ([*RATES, SLOTS], {"rpm": 1, "tpm": 500}),
}

if __name__ == "__main__":
    compare(Comparison(__doc__, CASES, BASE, judged="with a slot", goal=1.6))
