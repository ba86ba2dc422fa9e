"""Measure the write-ahead log of a SQLite file under load: ``python bench/sqlite_log.py [--seconds 20]``.

Processes acquire and create entities as fast as they can while one of them reads reports. Every
second a line shows the size of the log. The last lines show the largest sizes. The log should stay
below 32 MiB.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from zae_limiter import Limit, SyncRateLimiter, SyncRepository

LIMITS = [Limit.per_minute("rpm", 10**9), Limit.per_minute("tpm", 10**12)]
ENTITIES = 500
REPORT_EVERY_S = 2.0


def acquire(url: str, until_s: float) -> int:
    """Acquire from many entities in turn, and read a report every 2 seconds."""
    calls, report_s = 0, time.time()
    with SyncRepository.open(url, deadline_s=30) as repo:
        limiter = SyncRateLimiter(repo)
        while time.time() < until_s:
            with limiter.acquire(f"user-{calls % ENTITIES}", "gpt-4", {"rpm": 1, "tpm": 500}) as lease:
                lease.adjust(tpm=calls % 7)
            calls += 1
            if time.time() > report_s:
                repo.get_resource_capacity("gpt-4", "rpm")
                report_s = time.time() + REPORT_EVERY_S
    return calls


def create(url: str, until_s: float) -> int:
    """Create entities, each in a transaction."""
    calls = 0
    with SyncRepository.open(url, deadline_s=30) as repo:
        while time.time() < until_s:
            repo.create_entity(f"{os.getpid()}-{calls}", name="someone")
            calls += 1
    return calls


def size_of(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def watch(kinds: list[str], seconds: float) -> int:
    """Run one process of each kind on one file, and return the largest size of the log."""
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        path = Path(folder) / "limiter.db"
        log = path.with_name(f"{path.name}-wal")
        with SyncRepository.open(f"sqlite:///{path}") as repo:
            repo.set_system_defaults(LIMITS)
        until_s = time.time() + seconds
        command = [sys.executable, __file__, "--worker"]
        workers = [
            subprocess.Popen([*command, kind, f"sqlite:///{path}", str(until_s)], stdout=subprocess.PIPE, text=True)
            for kind in kinds
        ]
        largest = shown_s = 0.0
        while any(worker.poll() is None for worker in workers):
            largest = max(largest, size := size_of(log))
            if time.time() - shown_s >= 1:
                shown_s = time.time()
                print(f"  log {size / 2**20:6.1f} MiB, file {size_of(path) / 2**20:7.1f} MiB", flush=True)
            time.sleep(0.005)
        done = [int(worker.communicate()[0]) for worker in workers]
    rates = ", ".join(f"{kind} {calls / seconds:,.0f}" for kind, calls in zip(kinds, done, strict=True))
    print(f"calls/s: {rates}; log at most {largest / 2**20:.1f} MiB")
    return int(largest)


def main() -> None:
    if sys.argv[1:2] == ["--worker"]:
        kind, url, until_s = sys.argv[2:]
        print({"acquire": acquire, "create": create}[kind](url, float(until_s)))
        return
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=20.0, help="seconds per mix of processes (20)")
    seconds = parser.parse_args().seconds
    for kinds in (["acquire"], ["create"], ["acquire", "acquire", "create", "create"]):
        watch(kinds, seconds)


if __name__ == "__main__":
    main()
