"""A steady soak: processes of both trees write to one SQLite file at a fixed rate, and their resources must not grow.

Every minute a line shows the sizes of log and file, and the memory, open files and threads of all processes.
"""

import json
import os
import signal
import statistics
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from tests.soak.steady_worker import LIMITS, Assignment
from tests.stress.fleet import ROOT
from zae_limiter import SyncRepository
from zae_limiter.core.checkpoint import LIMIT_BYTES

MIB = 2**20
PRINT_EVERY_S = 60.0
LOOK_EVERY_S = 0.25
SHORTEST_SAMPLES = 12
END_S = 120.0
# The allowed ratio of the median of the last third to that of the first, which leaves out the start.
MOST_GROWTH = {"file": 1.25, "RSS": 1.15, "open files": 1.25, "threads": 1.25}
LEAST_RATE = 0.9

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Options:
    """The duration, rate, number of processes and number of entities of a run."""

    seconds: float
    writes_per_second: float
    processes: int = 4
    entities: int = 2_000


class Sample(NamedTuple):
    """The resources of file and processes at one moment; ``log`` is the largest size since the last sample."""

    second: float
    writes: int
    log: int
    file: int
    rss: int
    open_files: int
    threads: int


@dataclass(slots=True)
class Report:
    """The samples of a run, its work, and its violations; ``too_slow`` if the rate was not reached."""

    samples: list[Sample] = field(default_factory=list)
    done: Counter[str] = field(default_factory=Counter)
    violations: list[str] = field(default_factory=list)
    too_slow: str | None = None


class Processes:
    """The processes of a run; none outlives it."""

    def __init__(self, url: str, folder: Path, options: Options) -> None:
        self._counts_paths = [folder / f"counts-{number}" for number in range(options.processes)]
        rate = options.writes_per_second / options.processes
        self._started = [
            subprocess.Popen(
                Assignment(
                    url, str(counts_path), "sync" if number % 2 else "async", rate, options.entities, number in (0, 1)
                ).command(),
                cwd=ROOT,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            for number, counts_path in enumerate(self._counts_paths)
        ]

    def work(self, seconds: float) -> None:
        """Wait until all are ready, and let them work."""
        for process in self._started:
            assert process.stdout is not None
            if process.stdout.readline() != "ready\n":
                raise RuntimeError("a worker does not start")
        until_s = time.time() + seconds
        for process in self._started:
            assert process.stdin is not None
            process.stdin.write(f"{until_s}\n")
            process.stdin.flush()

    def done(self) -> Counter[str]:
        """Return what all have done so far."""
        total: Counter[str] = Counter()
        for counts_path in self._counts_paths:
            if counts_path.exists():
                total.update(json.loads(counts_path.read_text(encoding="utf-8")))
        return total

    def used(self) -> tuple[int, int, int]:
        """Return the resident bytes, open files and threads of all together."""
        found = [_used(process.pid) for process in self._started if process.poll() is None]
        return tuple(sum(column) for column in zip(*found, strict=True)) or (0, 0, 0)  # type: ignore[return-value] # three columns

    def failed(self) -> list[str]:
        """Wait until all have ended, and return those that failed."""
        codes = [process.wait(END_S) for process in self._started]
        return [f"process {number} ended with {code}" for number, code in enumerate(codes) if code]

    def is_broken(self) -> bool:
        """Return whether a process has already failed."""
        return any(process.poll() for process in self._started)

    def end(self) -> None:
        """Kill those that still run."""
        for process in self._started:
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)
            process.communicate()


def soak(options: Options, say: Say) -> Report:
    """Run, print the samples, and check them."""
    report = Report()
    with tempfile.TemporaryDirectory(prefix="soak-") as folder:
        path = Path(folder) / "limiter.db"
        url = f"sqlite:///{path}"
        _prepare(url, options.entities)
        processes = Processes(url, Path(folder), options)
        try:
            processes.work(options.seconds)
            _watch(processes, path, options, report, say)
            report.violations += processes.failed()
            report.done = processes.done()
        finally:
            processes.end()
    judge(report, options)
    return report


def _prepare(url: str, entities: int) -> None:
    with SyncRepository.open(url, deadline_s=END_S) as repo:
        repo.set_system_defaults(LIMITS)
        repo.create_entity("parent")
        for number in range(entities):
            repo.create_entity(f"user-{number}")
            repo.create_entity(f"child-{number}", parent_id="parent", cascade=True)


def _watch(processes: Processes, path: Path, options: Options, report: Report, say: Say) -> None:
    """Take samples until the end."""
    log = path.with_name(f"{path.name}-wal")
    every_s = min(PRINT_EVERY_S, options.seconds / SHORTEST_SAMPLES)
    began_s = time.monotonic()
    end_s = began_s + options.seconds
    due_s, largest = began_s + every_s, 0
    say(_HEADING)
    while (now_s := time.monotonic()) < end_s and not processes.is_broken():
        largest = max(largest, _size(log))
        if now_s >= due_s:
            sample = Sample(now_s - began_s, processes.done()["writes"], largest, _size(path), *processes.used())
            before = report.samples[-1] if report.samples else None
            report.samples.append(sample)
            say(_line(sample, before))
            due_s, largest = due_s + every_s, 0
        time.sleep(min(LOOK_EVERY_S, every_s / 4))


def judge(report: Report, options: Options) -> None:
    """Add the violations of a run to its report."""
    samples = report.samples
    if len(samples) < 3:
        report.violations.append(f"only {len(samples)} samples were taken")
        return
    largest = max(sample.log for sample in samples)
    if largest >= LIMIT_BYTES:
        report.violations.append(f"log: it grew to {largest / MIB:.1f} MiB")
    third = len(samples) // 3
    columns = {"file": 3, "RSS": 4, "open files": 5, "threads": 6}
    for name, column in columns.items():
        first = statistics.median(sample[column] for sample in samples[:third])
        last = statistics.median(sample[column] for sample in samples[-third:])
        if last > first * MOST_GROWTH[name]:
            report.violations.append(f"{name}: it grew from {first:,.0f} to {last:,.0f}")
    rate = (samples[-1].writes - samples[0].writes) / (samples[-1].second - samples[0].second)
    if rate < LEAST_RATE * options.writes_per_second:
        report.too_slow = f"{rate:,.0f} of {options.writes_per_second:,.0f} writes/s were reached"


_HEADING = f"{'second':>8} {'writes/s':>9} {'log MiB':>8} {'file MiB':>9} {'RSS MiB':>8} {'files':>6} {'threads':>8}"


def _line(sample: Sample, before: Sample | None) -> str:
    second, writes = (before.second, before.writes) if before else (0.0, 0)
    rate = (sample.writes - writes) / (sample.second - second)
    sizes = f"{sample.log / MIB:>8.1f} {sample.file / MIB:>9.1f} {sample.rss / MIB:>8.1f}"
    return f"{sample.second:>8.0f} {rate:>9,.0f} {sizes} {sample.open_files:>6} {sample.threads:>8}"


def printed(report: Report) -> str:
    """Return a report as it is printed."""
    samples = report.samples
    lines = [f"  {name:<12} {count:>12,}" for name, count in sorted(report.done.items())]
    if samples:
        lines.append(f"  largest log {max(sample.log for sample in samples) / MIB:>9.1f} MiB")
        lines += [_span(name, [sample[column] for sample in samples]) for name, column in _SHOWN]
    if report.too_slow:
        lines.append(f"  TOO SLOW: {report.too_slow}")
    lines += [f"  NOT LEVEL: {violation}" for violation in report.violations]
    return "\n".join([*lines, "everything stayed level" if not report.violations else "something did NOT stay level"])


_SHOWN = (("log", 2), ("file", 3), ("RSS", 4), ("open files", 5), ("threads", 6))


def _span(name: str, values: Sequence[int]) -> str:
    third = max(1, len(values) // 3)
    first, last = (statistics.median(part) for part in (values[:third], values[-third:]))
    return f"  {name:<12} {first:>14,.0f} in the first third, {last:>14,.0f} in the last: {last / (first or 1):.2f}"


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _used(pid: int) -> tuple[int, int, int]:
    """Return the resident bytes, open files and threads of a process; zeros if it has ended."""
    place = Path("/proc") / str(pid)
    try:
        facts = dict(line.split(":", 1) for line in (place / "status").read_text(encoding="utf-8").splitlines())
        files = len(os.listdir(place / "fd"))
    except OSError:
        return 0, 0, 0
    return int(facts.get("VmRSS", "0 kB").split()[0]) * 1024, files, int(facts["Threads"])
