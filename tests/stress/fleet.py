"""Run several processes on one SQLite file, and check their logs against the promise."""

import contextlib
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from struct import Struct

from tests.stress.worker import BUCKET, CONSUME, DEADLINE_S, RECORD, REJECTED, REJECTION
from zae_limiter import Limit, SyncRateLimiter, SyncRepository
from zae_limiter.schema.bucket_item import bucket_key

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_S = 120
POLL_S = 0.05


@dataclass(frozen=True, slots=True)
class Admission:
    """The times just before and just after an admitted acquire."""

    before_ns: int
    after_ns: int


@dataclass(frozen=True, slots=True)
class Rejection:
    """The times just before and just after a rejected acquire, and the capacity in force for it."""

    before_ns: int
    after_ns: int
    capacity: int


class Fleet:
    """Processes that take from one bucket with one limit, each with this many threads or tasks."""

    def __init__(self, directory: Path, limit: Limit) -> None:
        directory.mkdir(exist_ok=True)
        self._directory = directory
        self.path = directory / "limiter.db"
        self.url = f"sqlite:///{self.path}"
        self._limit = limit
        self._processes: list[subprocess.Popen[str]] = []
        with SyncRepository.open(self.url, deadline_s=DEADLINE_S) as repo:
            repo.set_system_defaults([limit])

    def start(self, kind: str, processes: int, each: int, config_cache_ttl: float = 60) -> None:
        """Start processes and wait until all are ready."""
        for number in range(processes):
            options = [self.url, str(self._log(number)), kind, str(each), str(config_cache_ttl)]
            command = [sys.executable, "-m", "tests.stress.worker", *options]
            self._processes.append(
                subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            )
        for process in self._processes:
            assert process.stdout is not None
            assert "ready\n" == process.stdout.readline()

    def begin(self) -> None:
        """Let all of them work."""
        self._tell("begin")

    def work_for(self, seconds: float) -> None:
        """Let all of them work for this many seconds."""
        self.begin()
        time.sleep(seconds)

    def work_until(self, is_done: Callable[[], object]) -> None:
        """Let them work until a condition holds or the time is over; the caller asserts the condition."""
        end_s = time.monotonic() + PATIENCE_S
        while not is_done() and time.monotonic() < end_s:
            time.sleep(POLL_S)

    def kill(self, number: int) -> None:
        """Kill one of them."""
        self._processes[number].kill()
        self._processes[number].wait()

    def exit_codes(self) -> list[int]:
        """Let all of them stop, and wait for them."""
        self._tell("stop")
        for process in self._processes:
            process.communicate()
        return [process.returncode for process in self._processes]

    def stop(self) -> None:
        """Kill all that still run."""
        for process in self._processes:
            with contextlib.suppress(OSError):
                process.kill()
            process.communicate()

    def admissions(self, number: int) -> list[Admission]:
        """Return the admissions of one process, without an incomplete record."""
        return [Admission(*record) for record in _records(self._log(number), RECORD)]

    def all_admissions(self) -> list[Admission]:
        """Return the admissions of all processes."""
        return [one for number in range(len(self._processes)) for one in self.admissions(number)]

    def all_rejections(self) -> list[Rejection]:
        """Return the rejections of all processes."""
        logs = [self._log(number) for number in range(len(self._processes))]
        return [Rejection(*record) for log in logs for record in _records(Path(f"{log}{REJECTED}"), REJECTION)]

    def consumed(self) -> int:
        """Return the total that the bucket has counted, over all its shards."""
        with SyncRepository.open(self.url, deadline_s=DEADLINE_S) as repo:
            found = [one for one in repo.get_buckets(*BUCKET) if one.limit_name == self._limit.name]
            return sum(one.total_consumed_milli for one in found) // 1000

    def stored(self, attribute: str) -> int:
        """Return a number that is stored with the bucket."""
        with SyncRepository.open(self.url, deadline_s=DEADLINE_S) as repo:
            item = repo.scope.table.get(bucket_key(repo.scope.namespace_id, *BUCKET))
            assert item is not None
            number: int = item[attribute]
            return number

    def takes_one_more(self) -> bool:
        """Return whether the bucket, after time to earn it, admits another request."""
        with SyncRepository.open(self.url, deadline_s=DEADLINE_S) as repo:
            limiter = SyncRateLimiter(repo)
            time.sleep(limiter.time_until_available(*BUCKET, CONSUME))
            with limiter.acquire(*BUCKET, CONSUME) as lease:
                return lease.consumed == CONSUME

    def is_sound(self) -> bool:
        """Return whether SQLite finds nothing wrong with the file."""
        connection = sqlite3.connect(self.path)
        try:
            return connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        finally:
            connection.close()

    def _tell(self, word: str) -> None:
        for process in self._processes:
            assert process.stdin is not None
            # A process that was killed or failed cannot read it.
            with contextlib.suppress(BrokenPipeError):
                process.stdin.write(f"{word}\n")
                process.stdin.flush()

    def _log(self, number: int) -> Path:
        return self._directory / f"{number}.log"


@contextlib.contextmanager
def fleet_of(directory: Path, limit: Limit) -> Iterator[Fleet]:
    """Return a fleet, and stop it at the end."""
    fleet = Fleet(directory, limit)
    try:
        yield fleet
    finally:
        fleet.stop()


def _records(log: Path, record: Struct) -> Iterator[tuple[int, ...]]:
    """Return the complete records of a log."""
    data = log.read_bytes() if log.exists() else b""
    whole = len(data) - len(data) % record.size
    return record.iter_unpack(data[:whole])


def most_allowed(admissions: Sequence[Admission], limit: Limit) -> float:
    """Return the capacity, plus what a millisecond of the clock and a delayed write's delay earn."""
    return limit.capacity + limit.refill_rate * (0.001 + longest_s(admissions)) + 0.001


def offered(rejections: Sequence[Rejection], limit: Limit) -> float:
    """Return what the limit offered under demand: a full bucket, and what it earned between rejections.

    A rejection shows that everything was taken. After a long time without one, the bucket is full and earns no more.
    """
    first_ns = min(one.after_ns for one in rejections)
    times_ns = [first_ns, *sorted(one.before_ns for one in rejections if one.before_ns > first_ns)]
    earned = (limit.refill_rate * (later - sooner) / 1e9 for sooner, later in pairwise(times_ns))
    return limit.capacity + sum(min(limit.capacity, one) for one in earned)


def demand_s(rejections: Sequence[Rejection]) -> float:
    """Return how long demand exceeded supply: the seconds from the first rejection to the last."""
    times_ns = [one.before_ns for one in rejections]
    return (max(times_ns) - min(times_ns)) / 1e9 if times_ns else 0.0


def taken(admissions: Sequence[Admission], rejections: Sequence[Rejection], limit: Limit) -> int:
    """Return the share of the offer that was taken: a full bucket before the first rejection, then all to the last."""
    first_ns = min(one.after_ns for one in rejections)
    last_ns = max(rejections, key=lambda one: one.before_ns).after_ns
    before = sum(one.after_ns <= first_ns for one in admissions)
    return min(limit.capacity, before) + sum(one.after_ns > first_ns and one.before_ns < last_ns for one in admissions)


def longest_s(admissions: Sequence[Admission]) -> float:
    """Return the duration of the slowest acquire in seconds."""
    return max(one.after_ns - one.before_ns for one in admissions) / 1e9


def most_in_any_window(admissions: Sequence[Admission], limit: Limit) -> float:
    """Return the most that was taken in any window, less what the window earned.

    A window starts just before an acquire and ends just after one; acquires count if they are completely in it.
    """
    starts = sorted({one.before_ns for one in admissions})
    position = {start_ns: index for index, start_ns in enumerate(starts)}
    rate = limit.refill_rate / 1e9
    windows = Windows([rate * (start_ns - starts[0]) for start_ns in starts])
    most = 0.0
    for one in sorted(admissions, key=lambda one: one.after_ns):
        windows.count(position[one.before_ns])
        most = max(most, windows.largest() - rate * (one.after_ns - starts[0]))
    return most


class Windows:
    """A segment tree: for every start of a window a number, raised by what each acquire in it takes.

    A start counts once the acquire that it is just before has ended.
    """

    _UNUSED = -1e9

    def __init__(self, numbers: Sequence[float]) -> None:
        self._size = 1 << max(0, len(numbers) - 1).bit_length()
        self._numbers = numbers
        self._used = [False] * len(numbers)
        self._largest = [self._UNUSED] * (2 * self._size)
        self._added = [0.0] * (2 * self._size)

    def count(self, position: int, amount: float = 1, *, begins: bool = True) -> None:
        """Raise the numbers of all starts up to and including a position; ``begins``: that start counts from now."""
        node = self._size + position
        if begins and not self._used[position]:
            self._used[position] = True
            self._largest[node] += self._numbers[position] - self._UNUSED
        self._largest[node] += amount
        while node > 1:
            if node % 2:
                # Everything left of it, under its parent, is raised as a whole.
                self._largest[node - 1] += amount
                self._added[node - 1] += amount
            node //= 2
            largest = max(self._largest[2 * node], self._largest[2 * node + 1])
            self._largest[node] = largest + self._added[node]

    def largest(self) -> float:
        """Return the largest number of a start that counts."""
        return self._largest[1]
