"""Measure cases in rounds, in one process: CPU time per call, smallest and median.

This module defines cases, their traffic and the timing. It knows no limiter.
"""

import gc
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path

# Makes one request per key, one after the other, and returns how many were admitted.
Run = Callable[[list[str]], int]


@dataclass(frozen=True, slots=True)
class Traffic:
    """The number of entities, and the two limits in requests and tokens per minute."""

    name: str
    entities: int
    rpm: int
    tpm: int
    admitted: bool

    def keys(self, calls: int) -> list[str]:
        """Return the entities of this many calls, in turn."""
        return list(islice(cycle(f"user-{number}" for number in range(self.entities)), calls))

    @property
    def warm_up_calls(self) -> int:
        """The number of calls after which every entity was used twice, and a refused one has used up its limit."""
        return max(200, 2 * self.entities)


HOT = Traffic("one entity", entities=1, rpm=1_000_000, tpm=100_000_000, admitted=True)
MANY = Traffic("1,000 entities", entities=1_000, rpm=1_000_000, tpm=100_000_000, admitted=True)
REFUSED = Traffic("refused", entities=1, rpm=1, tpm=100_000_000, admitted=False)

# What one call takes of the two limits.
REQUESTS, TOKENS = 1, 500


@dataclass(frozen=True, slots=True)
class Case:
    """One limiter under one traffic; `opened` opens it in an empty folder and closes it."""

    name: str
    traffic: Traffic
    opened: Callable[[Traffic, Path], AbstractContextManager[Run]]
    calls: int

    @property
    def title(self) -> str:
        return f"{self.name}, {self.traffic.name}"


class WrongAnswerError(Exception):
    """A case admitted or refused wrongly, so its time is meaningless."""


def _check(case: Case, admitted: int) -> None:
    # A limiter with calendar windows may admit one more when a minute begins.
    right = admitted == case.calls if case.traffic.admitted else admitted <= 1
    if not right:
        raise WrongAnswerError(f"{case.title}: {admitted} of {case.calls} calls admitted")


def cpu_us_per_call(case: Case) -> float:
    """Open the case, warm it up and time its calls; opening and closing are not timed.

    The CPU time is that of the whole process, so work on other threads counts. Every measurement
    starts with an empty store, so that logs do not grow between rounds. Garbage is collected
    before, and the collector stays on.
    """
    keys = case.traffic.keys(case.calls)
    warm_up = case.traffic.keys(case.traffic.warm_up_calls)
    with tempfile.TemporaryDirectory(prefix="bench-") as folder, case.opened(case.traffic, Path(folder)) as run:
        run(warm_up)
        gc.collect()
        began_ns = time.process_time_ns()
        admitted = run(keys)
        spent_ns = time.process_time_ns() - began_ns
    _check(case, admitted)
    return spent_ns / case.calls / 1_000


class Measured:
    """CPU microseconds per call of each case, round by round."""

    def __init__(self, rounds_us: dict[str, list[float]]) -> None:
        self._rounds_us = rounds_us

    def __contains__(self, title: str) -> bool:
        return title in self._rounds_us

    def smallest_us(self, title: str) -> float:
        return min(self._rounds_us[title])

    def median_us(self, title: str) -> float:
        return statistics.median(self._rounds_us[title])

    def ratio_of_smallest(self, title: str, other: str) -> float:
        return self.smallest_us(title) / self.smallest_us(other)

    def median_of_ratios(self, title: str, other: str) -> float:
        """Return the median of the ratios of each round, so that a slow round cancels out."""
        pairs = zip(self._rounds_us[title], self._rounds_us[other], strict=True)
        return statistics.median(one / two for one, two in pairs)


def measure(cases: Iterable[Case], rounds: int, seed: int) -> Measured:
    """Time every case once per round, in a new random order for each round."""
    order = list(cases)
    rounds_us: dict[str, list[float]] = {case.title: [] for case in order}
    shuffle = random.Random(seed).shuffle
    for number in range(1, rounds + 1):
        shuffle(order)
        for case in order:
            rounds_us[case.title].append(cpu_us_per_call(case))
        print(f"\rround {number} of {rounds}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    return Measured(rounds_us)
