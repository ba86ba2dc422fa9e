"""Run processes that hold slots of one bucket while they are killed, and stopped for longer than the hold.

The promise is checked by the journals of all processes and by the table. At no time do holders rely on more slots than
the capacity. Free and used slots always add up to it. After the end all slots are free within hold + W.
"""

import contextlib
import signal
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from tests.dynamodb.trees import session_for
from tests.soak import slot_checks, stores
from tests.soak.slot_worker import ENTITY, RESOURCE, SlotAssignment
from tests.stress.fleet import ROOT
from zae_limiter import Limit, SyncRepository
from zae_limiter.schema.attributes import TTL
from zae_limiter.schema.bucket_item import bucket_key

SLACK_S = 1.0
"""The observer polls, and a renewal just before the end is not in a journal."""

DATE_S = 2.0
"""The clock of an engine is read to the second, so expired slots are free up to this much later."""

LOOK_EVERY_S = 0.1
STOPPED_HOLDS = (1.1, 2.5)
RPM = Limit.per_minute("rpm", 1_000_000)


@dataclass(frozen=True, slots=True)
class SlotOptions:
    """What is run. ``url`` is of an existing store, None for a new one."""

    table: str
    engine: str
    seconds: float
    processes: int
    capacity: int
    hold_s: int
    seed: int
    url: str | None = None
    mutation: str | None = None


@dataclass(slots=True)
class SlotReport:
    """What happened, and what was violated."""

    store: str
    options: SlotOptions
    kills: int = 0
    stops: int = 0
    looks: int = 0
    most_relied_on: int = 0
    most_in_use: int = 0
    free_after_s: float = 0.0
    allowed_s: float = 0.0
    counts: Counter[str] = field(default_factory=Counter)
    violations: list[str] = field(default_factory=list)


def printed(report: SlotReport) -> str:
    """Return a report as it is printed."""
    one = report.options
    lines = [
        f"{report.store}: {one.processes} processes, {one.capacity} slots, hold {one.hold_s} s, {one.seconds:.0f} s",
        f"  killed {report.kills}, stopped {report.stops}, looked at the table {report.looks} times",
        *[f"  {name:<22} {count:>9,}" for name, count in sorted(report.counts.items())],
        f"  most in use at a time: {report.most_relied_on} by the journals, {report.most_in_use} by the table",
        f"  all free {report.free_after_s:.1f} s after the last take or renewal, allowed {report.allowed_s:.1f} s",
    ]
    return "\n".join([*lines, *[f"  VIOLATED: {violation}" for violation in report.violations]])


class SlotFleet:
    """The processes; a killed one is replaced."""

    def __init__(self, options: SlotOptions, url: str, directory: Path) -> None:
        self._options = options
        self._url = url
        self._directory = directory
        self._ended: list[tuple[Path, int]] = []
        self._started = 0
        self._now: list[tuple[subprocess.Popen[str], SlotAssignment, Path]] = []

    def start(self) -> None:
        """Start all, and wait until they are ready."""
        for _ in range(self._options.processes):
            self._start()
        for process, _, errors in self._now:
            assert process.stdout is not None
            if process.stdout.readline() != "ready\n":
                raise RuntimeError(f"a worker does not start: {errors.read_text()[-2000:]}")

    def kill(self, random: Random) -> None:
        """Kill one process, and start another in its place."""
        self._end(random.choice(self._now))
        self._start()

    def stop(self, random: Random) -> subprocess.Popen[str]:
        """Stop one process."""
        process = random.choice(self._now)[0]
        process.send_signal(signal.SIGSTOP)
        return process

    def failures(self) -> list[str]:
        """Return the errors of processes that have ended by themselves, or that have printed any."""
        found = [f"a worker ended: {one[2].read_text()[-2000:]}" for one in self._now if one[0].poll() is not None]
        errors = [path.read_text() for path in self._directory.glob("*.errors")]
        return found + [text[-2000:] for text in errors if "Traceback" in text]

    def end(self) -> list[slot_checks.SlotJournal]:
        """Kill all at about the same time, so that their slots stay in use, and return all journals."""
        for started in list(self._now):
            with contextlib.suppress(OSError):
                self._end(started)
        return [slot_checks.read(path, ended_ns) for path, ended_ns in self._ended if path.exists()]

    def _end(self, started: tuple[subprocess.Popen[str], SlotAssignment, Path]) -> None:
        process, assignment, _ = started
        process.kill()
        process.communicate()
        self._ended.append((Path(assignment.journal), time.time_ns()))
        self._now.remove(started)

    def _start(self) -> None:
        number = self._started
        self._started += 1
        journal, errors = self._directory / f"{number}.journal", self._directory / f"{number}.errors"
        # Only one process breaks the rule.
        mutation = self._options.mutation if number == 0 else None
        kind, seed = ("sync" if number % 2 else "async"), f"{self._options.seed}-{number}"
        assignment = SlotAssignment(self._url, str(journal), kind, self._options.hold_s, seed, mutation)
        with errors.open("w") as file:
            process = subprocess.Popen(
                assignment.command(), cwd=ROOT, stdout=subprocess.PIPE, stderr=file, text=True, stdin=subprocess.DEVNULL
            )
        self._now.append((process, assignment, errors))


class SlotTable:
    """The bucket, as an independent client reads it."""

    def __init__(self, url: str, options: SlotOptions) -> None:
        self._repo = SyncRepository.open(url, session=session_for(url), deadline_s=30.0)
        self._capacity = options.capacity
        self._slots = Limit.concurrent("slots", options.capacity, hold_seconds=options.hold_s)
        self._repo.set_system_defaults([RPM, self._slots])

    @property
    def longest_s(self) -> float:
        """The longest time for which a slot whose holder is gone stays in use: hold + W."""
        return self._slots.hold_seconds + self._slots.cohort_seconds

    def look(self, report: SlotReport) -> bool:
        """Read the item, record what is wrong with it, and return whether all slots are free."""
        item = self._repo.scope.table.get(bucket_key(self._repo.scope.namespace_id, ENTITY, RESOURCE), consistent=True)
        report.looks += 1
        if item is None:
            return True
        now_s = time.time()
        used = {end_s: milli for end_s, milli in _cohorts(item) if milli}
        if any(milli < 0 for milli in used.values()):
            report.violations.append(f"a cohort is negative: {used}")
        if item["b_slots_tk"] + sum(used.values()) != self._capacity * 1000:
            report.violations.append(f"free and used slots are not the capacity: {item['b_slots_tk']} and {used}")
        live = sum(milli for end_s, milli in used.items() if end_s > now_s) // 1000
        report.most_in_use = max(report.most_in_use, live)
        if TTL in item and used and item[TTL] < max(used):
            report.violations.append(f"the item expires at {item[TTL]}, before its slots end: {used}")
        return live == 0

    def free(self) -> int:
        """Return the free slots by the library."""
        from zae_limiter import SyncRateLimiter

        return SyncRateLimiter(self._repo).available(ENTITY, RESOURCE)["slots"]

    def close(self) -> None:
        """Close the client."""
        self._repo.close()


def _cohorts(item: Mapping[str, Any]) -> list[tuple[int, int]]:
    prefix = "b_slots_h"
    found = [(name.removeprefix(prefix), milli) for name, milli in item.items() if name.startswith(prefix)]
    return [(int(end_s), milli) for end_s, milli in found if end_s.isdigit()]


def soak(options: SlotOptions, say: Callable[[str], None]) -> SlotReport:
    """Run a soak of slots, and return its report.

    Raises:
        EngineAbsentError: The engine is not installed.
    """
    with contextlib.ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        if options.url is None:
            store = stack.enter_context(stores.opened(options.table, options.engine, directory))
            name, url = store.name, store.making_url
        else:
            name, url = options.url, options.url
        report = SlotReport(name, options)
        table = SlotTable(url, options)
        stack.callback(table.close)
        fleet = SlotFleet(options, url, directory)
        stack.callback(fleet.end)
        fleet.start()
        _disturb(fleet, table, report, say)
        report.violations += fleet.failures()
        journals = fleet.end()
        for journal in journals:
            report.counts.update(journal.counts)
        intervals = [interval for journal in journals for interval in journal.intervals]
        report.most_relied_on = slot_checks.most_at_a_time(intervals)[0]
        report.violations += slot_checks.violations(journals, options.capacity)
        _wait_until_free(table, report, max(journal.last_ns for journal in journals))
    return report


def _disturb(fleet: SlotFleet, table: SlotTable, report: SlotReport, say: Callable[[str], None]) -> None:
    """Kill and stop processes until the time is over, and look at the table."""
    options, random = report.options, Random(report.options.seed)
    stopped: list[tuple[float, subprocess.Popen[str]]] = []
    began_s = said_s = time.monotonic()
    next_s = began_s + 1
    while (now_s := time.monotonic()) < began_s + options.seconds:
        table.look(report)
        if now_s >= next_s:
            next_s = now_s + random.random() * 3
            if random.random() < 0.4:
                fleet.kill(random)
                report.kills += 1
            else:
                until_s = now_s + random.uniform(*STOPPED_HOLDS) * options.hold_s
                stopped.append((until_s, fleet.stop(random)))
                report.stops += 1
        for one in [one for one in stopped if one[0] <= now_s]:
            stopped.remove(one)
            one[1].send_signal(signal.SIGCONT)
        if now_s - said_s >= 60:
            said_s = now_s
            say(f"  {now_s - began_s:.0f} s: {report.kills} kills, {report.stops} stops, {report.violations[:3]}")
        time.sleep(LOOK_EVERY_S)
    for _, process in stopped:
        process.send_signal(signal.SIGCONT)


def _wait_until_free(table: SlotTable, report: SlotReport, last_ns: int) -> None:
    """Wait until all slots are free, and record whether that was in time."""
    is_remote = not report.store.startswith("sqlite")
    report.allowed_s = table.longest_s + SLACK_S + (DATE_S if is_remote else 0.0)
    while True:
        # By the table, and by the answer to a client of the library.
        all_free = table.look(report) and table.free() == report.options.capacity
        report.free_after_s = time.time() - last_ns / 1e9
        if all_free:
            break
        if report.free_after_s > 2 * report.allowed_s:
            report.violations.append("slots are never free again")
            return
        time.sleep(LOOK_EVERY_S)
    if report.free_after_s > report.allowed_s:
        report.violations.append(f"slots are free after {report.free_after_s:.1f} s, later than {report.allowed_s:.1f}")
