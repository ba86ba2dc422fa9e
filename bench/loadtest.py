"""Measure what the two drivers of load tests achieve on this machine, and what Locust costs more.

    PYTHONPATH=src:. .venv/bin/python bench/loadtest.py [--duration 10] [--users 20] [--json]

The native driver calls a limiter in memory, on a SQLite file and on a local engine of DynamoDB.
Locust calls a limiter in memory, and a SQLite file with one and with two processes. The native driver
calls the async limiter, and Locust the sync one. No call is rejected. CPU time is that
of all processes of the driver, and that of an engine is not part of it. For Locust, it is the
difference of a long and a short run, so that its start does not count.
"""

import argparse
import asyncio
import json
import os
import resource
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.dynamodb.engines import EngineAbsentError, fresh_table_name, running
from zae_limiter import Limit
from zae_limiter.core.errors import ZAELimiterError
from zae_limiter.loadtest.measurements import Measurements
from zae_limiter.loadtest.native_driver import NativeRun, Workload
from zae_limiter.loadtest.report import report_of

LOCUST_FILE = Path(__file__).resolve().parents[1] / "examples" / "locust" / "locustfiles" / "max_rps.py"
LIMITS = [Limit.per_second("rps", 1_000_000)]
SHORT_S = 3
ENGINES = ("dynoxide", "ministack")


@dataclass(frozen=True, slots=True)
class Line:
    """What one driver achieved on one store; CPU time is in microseconds per call."""

    title: str
    calls_per_s: float
    p50_ms: float
    p99_ms: float
    cpu_us: float
    held: bool


@dataclass(frozen=True, slots=True)
class Spent:
    """The measurements of a run, and the CPU seconds of its processes."""

    measured: Measurements
    cpu_s: float


def line_of(title: str, measured: Measurements, cpu_us: float) -> Line:
    """Return the figures of a run."""
    report = report_of(measured)
    acquired = next(row for row in report.latencies if row.request_type == "ACQUIRE")
    return Line(title, report.calls_per_s, acquired.p50_ms, acquired.p99_ms, cpu_us, report.held)


def native(title: str, url: str, options: argparse.Namespace) -> Line:
    """Run the native driver."""
    workload = Workload(
        {"rps": 1}, limits=LIMITS, entities=options.users, users=options.users, duration_s=options.duration
    )
    began_s = time.process_time()

    async def run() -> Measurements:
        return await NativeRun(workload).on_url(url)

    measured = asyncio.run(run())
    return line_of(title, measured, (time.process_time() - began_s) / measured.attempts * 1e6)


def locust(title: str, url: str, processes: int, options: argparse.Namespace) -> Line:
    """Run Locust for a short and for a long time, and return the figures of the long run."""
    short, long = (_locust_run(url, processes, options.users, seconds) for seconds in (SHORT_S, options.duration))
    calls = long.measured.attempts - short.measured.attempts
    return line_of(title, long.measured, (long.cpu_s - short.cpu_s) / max(1, calls) * 1e6)


def _locust_run(url: str, processes: int, users: int, seconds: int) -> Spent:
    # Imported here, because the native lines need no Locust.
    from zae_limiter.loadtest.locust_process import LoadShape, LocustTest, run_locust

    test = LocustTest(LOCUST_FILE, url, ("MaxRpsUser",), processes)
    began_s = _cpu_of_children_s()
    measured = run_locust(test, LoadShape(users, users, seconds)).measured
    return Spent(measured, _cpu_of_children_s() - began_s)


def _cpu_of_children_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def engine_url() -> tuple[str, str] | None:
    """Return the name of an installed engine, and the URL of a new table on it; None if there is none."""
    for name in ENGINES:
        try:
            engine = running(name)
        except EngineAbsentError as absent:
            print(absent, file=sys.stderr)
            continue
        os.environ |= {"AWS_ACCESS_KEY_ID": "AKIDEXAMPLE", "AWS_SECRET_ACCESS_KEY": "secret"}
        return name, f"dynamodb://{fresh_table_name()}?region=us-east-1&endpoint_url={engine.url}&create=true"
    return None


def lines(options: argparse.Namespace) -> Iterator[Line]:
    """Run everything, one after the other."""
    with tempfile.TemporaryDirectory(prefix="bench-load-") as folder:
        yield native("native, memory", "memory://", options)
        yield native("native, SQLite", f"sqlite:///{folder}/native.db", options)
        found = engine_url()
        if found is not None:
            yield native(f"native, {found[0]}", found[1], options)
        try:
            yield locust("Locust, memory, 1 process", "memory://", 1, options)
            yield locust("Locust, SQLite, 1 process", f"sqlite:///{folder}/locust-1.db", 1, options)
            yield locust("Locust, SQLite, 2 processes", f"sqlite:///{folder}/locust-2.db", 2, options)
        except ZAELimiterError as error:
            print(f"SKIPPED Locust: {error}", file=sys.stderr)


def overheads(found: list[Line]) -> list[str]:
    """Return what a call costs more with Locust than with the native driver, on each store and in one process.

    It is negative if the sync limiter, which Locust calls, saves more than Locust costs.
    """
    by_title = {line.title: line for line in found}
    lines = []
    for store in ("memory", "SQLite"):
        ours, theirs = by_title.get(f"native, {store}"), by_title.get(f"Locust, {store}, 1 process")
        if ours is not None and theirs is not None:
            lines.append(
                f"Locust's overhead on {store}: {theirs.cpu_us - ours.cpu_us:+.0f} us of CPU per call "
                f"({theirs.cpu_us:.0f} instead of {ours.cpu_us:.0f}), "
                f"and {theirs.calls_per_s / ours.calls_per_s:.2f} times the calls per second."
            )
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--duration", type=int, default=10, metavar="SECONDS", help="length of each run")
    parser.add_argument("--users", type=int, default=20, help="users that call without a pause")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    options = parser.parse_args()
    if options.duration <= SHORT_S:
        parser.error(f"--duration must be above {SHORT_S}")
    found = []
    if not options.json:
        print(f"{os.cpu_count()} cores, {options.users} users, {options.duration} s each")
        print(f"{'':<28}{'calls/s':>10}{'p50 ms':>10}{'p99 ms':>10}{'CPU us/call':>13}  promise")
    for line in lines(options):
        found.append(line)
        if not options.json:
            figures = f"{line.calls_per_s:>10,.0f}{line.p50_ms:>10.3f}{line.p99_ms:>10.3f}{line.cpu_us:>13.0f}"
            print(f"{line.title:<28}{figures}  {'held' if line.held else 'BROKEN'}", flush=True)
    if options.json:
        print(json.dumps({"lines": [asdict(line) for line in found], "overheads": overheads(found)}, indent=2))
    else:
        print("\n".join(overheads(found)))


if __name__ == "__main__":
    main()
