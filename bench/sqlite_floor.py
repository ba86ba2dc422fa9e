"""Measure the bare statement of a SQLite write beside a whole acquire: the floor that no Python code can undercut.

    PYTHONPATH=src .venv/bin/python bench/sqlite_floor.py
    PYTHONPATH=src .venv/bin/python bench/sqlite_floor.py --rounds 15 --calls 8000

The bare lines use the `sqlite3` module alone, on a row like that of a bucket with two limits. The first opens a
snapshot for each write, the second writes in one that stays open. No copy of the log is part of them.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import ours
from measure import HOT

from zae_limiter.tables.sqlite.file import connect, prepare

TEXT = '{"PK":"%s","number":%010d}'
PADDING = "x" * 700
UPDATE = "UPDATE items SET ttl = ?, body = ? WHERE id = ? AND body = ?"


def bare(keeps: bool) -> Callable[[Path, int], float]:
    """Return a measurement of the statement, in CPU microseconds; ``keeps`` a snapshot open or not."""

    def measured(folder: Path, calls: int) -> float:
        path = str(folder / "bare.db")
        cursor = connect(path, prepare(path))
        texts = [TEXT % (PADDING, number) for number in range(calls + 1)]
        cursor.execute("INSERT INTO items(ttl, body, pk, sk) VALUES(1, ?, 'pk', 'sk')", (texts[0],))
        if keeps:
            cursor.keep()
        began_ns = time.thread_time_ns()
        for number in range(calls):
            cursor.execute(UPDATE, (1, texts[number + 1], 1, texts[number]))
        took_ns = time.thread_time_ns() - began_ns
        cursor.release()
        cursor.connection.close()
        return took_ns / calls / 1_000

    return measured


def acquire(kind: Callable[..., object]) -> Callable[[Path, int], float]:
    """Return a measurement of an acquire, in CPU microseconds of the process."""

    def measured(folder: Path, calls: int) -> float:
        with kind(HOT, folder) as run:  # type: ignore[attr-defined] # a context manager
            run(HOT.keys(600))
            keys = HOT.keys(calls)
            began_ns = time.process_time_ns()
            run(keys)
            return (time.process_time_ns() - began_ns) / calls / 1_000

    return measured


CASES = {
    "bare UPDATE, its own snapshot": bare(keeps=False),
    "bare UPDATE, kept snapshot": bare(keeps=True),
    "acquire, memory": acquire(ours.memory_sync),
    "acquire, SQLite": acquire(ours.sqlite_sync),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9, help="measurements of each case (9)")
    parser.add_argument("--calls", type=int, default=5_000, help="calls per measurement (5000)")
    options = parser.parse_args()
    found: dict[str, list[float]] = {name: [] for name in CASES}
    for _ in range(options.rounds):
        for name, measured in CASES.items():
            with tempfile.TemporaryDirectory(prefix="bench-") as folder:
                found[name].append(measured(Path(folder), options.calls))
    print(f"{'CPU us per call':<34}{'minimum':>9}{'median':>9}")
    for name, times_us in found.items():
        print(f"{name:<34}{min(times_us):>9.2f}{statistics.median(times_us):>9.2f}")


if __name__ == "__main__":
    main()
