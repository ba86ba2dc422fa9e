"""Measure the CPU time of acquire and exit with a quota, relative to the same with rate limits only.

    .venv/bin/python bench/quotas.py [--rounds 20] [--calls 5000] [--only memory]

The goal on memory is at most 1.25 times a request of three rate limits.
"""

from kinds import RATES, Case, Comparison, compare

from zae_limiter import Limit

THIRD = Limit.per_minute("xpm", 1_000_000_000)
SPEND = Limit.quota("spend", 10**15, every="month", tz="Europe/Berlin")
SOFT = Limit.quota("spend", 10**15, every="month", tz="Europe/Berlin", enforce=False)
BASE = "three rate limits"
CASES: dict[str, Case] = {
    BASE: ([*RATES, THIRD], {"rpm": 1, "tpm": 500, "xpm": 12_500}),
    "a quota": ([*RATES, SPEND], {"rpm": 1, "tpm": 500, "spend": 12_500}),
    "a soft quota": ([*RATES, SOFT], {"rpm": 1, "tpm": 500, "spend": 12_500}),
    "quota not requested": ([*RATES, SPEND], {"rpm": 1, "tpm": 500}),
}

if __name__ == "__main__":
    compare(Comparison(__doc__, CASES, BASE, judged="a quota", goal=1.25))
