"""Measure the memory of a client per bucket, and the duration of a full garbage collection. Asserts nothing.

    .venv/bin/python bench/memory.py
    .venv/bin/python bench/memory.py --against 78573bb --rounds 3

Each line is measured by its own processes, one per round; with ``--against`` the two revisions
alternate. Buckets have two limits, from the system defaults. Objects and bytes are what is freed
when the client forgets its buckets.
"""

import argparse
import gc
import io
import json
import os
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
import tracemalloc
from pathlib import Path

_ROOT = Path(__file__).resolve().parent.parent
_GOALS = {"objects": 6, "bytes": 1200}
_RATIO_GOAL = 0.25
_COLLECTIONS = 5

Found = dict[str, float]
"""Tracked objects and bytes per bucket, and milliseconds per full collection."""


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--buckets", type=int, default=100_000, help="buckets that a client caches (100000)")
    parser.add_argument("--rounds", type=int, default=3, help="processes per line (3); the median is printed")
    parser.add_argument("--against", metavar="REV", help="revision to compare with, alternating with this tree")
    parser.add_argument("--worker", choices=("memory", "sqlite"), help=argparse.SUPPRESS)
    return parser.parse_args()


def _work(store: str, buckets: int) -> Found:
    """Measure the package on the import path."""
    from zae_limiter import Limit, SyncRateLimiter, SyncRepository

    limits = [Limit.per_minute("rpm", 1_000_000), Limit.per_minute("tpm", 100_000_000)]
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        url = "memory://" if store == "memory" else f"sqlite:///{folder}/memory.db"
        with SyncRepository.open(url, config_cache_ttl=3600) as repository:
            repository.set_system_defaults(limits)
            acquire = SyncRateLimiter(repository).acquire

            def fill(first: int, count: int) -> None:
                for number in range(first, first + count):
                    with acquire(f"user-{number:06}", "gpt-4", {"rpm": 1, "tpm": 500}):
                        pass

            def forget() -> None:
                repository.scope.caches.buckets.clear()
                gc.collect()

            fill(0, buckets)
            collect_ms = _collection_ms()
            before = len(gc.get_objects())
            forget()
            objects = (before - len(gc.get_objects())) / buckets
            return {"objects": objects, "bytes": _bytes(fill, forget, buckets), "collect_ms": collect_ms}


def _collection_ms() -> float:
    """Return the least CPU time of some full collections, after a first one that untracks simple objects."""
    gc.collect()
    spent = []
    for _ in range(_COLLECTIONS):
        began_s = time.thread_time()
        gc.collect()
        spent.append((time.thread_time() - began_s) * 1000)
    return min(spent)


def _bytes(fill, forget, buckets: int) -> float:  # type: ignore[no-untyped-def] # the two of the caller
    """Return the bytes that are freed per bucket, for buckets that were filled under tracemalloc."""
    some = min(buckets, 10_000)
    tracemalloc.start()
    fill(0, some)
    gc.collect()
    before = tracemalloc.get_traced_memory()[0]
    forget()
    freed = before - tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    return freed / some


def _measured(source: Path, store: str, buckets: int) -> Found:
    """Run a worker on a source tree."""
    command = [sys.executable, __file__, "--worker", store, "--buckets", str(buckets)]
    environment = {**os.environ, "PYTHONPATH": str(source)}
    answer = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True, text=True)
    found: Found = json.loads(answer.stdout)
    return found


def _extracted(revision: str, folder: str) -> Path:
    """Return the source of another revision, extracted from git."""
    archive = subprocess.run(["git", "archive", revision, "src"], cwd=_ROOT, stdout=subprocess.PIPE, check=True)
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as packed:
        packed.extractall(folder, filter="data")
    return Path(folder) / "src"


def _print_line(name: str, rounds: list[Found]) -> None:
    medians = {key: statistics.median(one[key] for one in rounds) for key in rounds[0]}
    print(f"{name:<26} {medians['objects']:>10.1f} {medians['bytes']:>10.0f} {medians['collect_ms']:>14.1f}")


def _print_store(store: str, sources: dict[str, Path], options: argparse.Namespace) -> None:
    found: dict[str, list[Found]] = {name: [] for name in sources}
    for number in range(options.rounds):
        order = list(sources.items())
        for name, source in order if number % 2 else order[::-1]:
            found[name].append(_measured(source, store, options.buckets))
    for name, rounds in found.items():
        _print_line(f"{store}, {name}", rounds)
    if len(sources) > 1:
        ours, theirs = found.values()
        pairs = zip(ours, theirs, strict=True)
        ratio = statistics.median(one["collect_ms"] / other["collect_ms"] for one, other in pairs)
        print(f"{store}: collection {ratio:.2f} of the other revision's time (goal: at most {_RATIO_GOAL})")


def main() -> None:
    options = _arguments()
    if options.worker:
        print(json.dumps(_work(options.worker, options.buckets)))
        return
    print(f"{options.buckets:,} cached buckets with two limits; CPU time of gc.collect(); medians of {options.rounds}")
    print(f"Goals: at most {_GOALS['objects']} tracked objects and {_GOALS['bytes']:,} bytes per bucket.")
    print()
    print(f"{'':<26} {'objects':>10} {'bytes':>10} {'collection ms':>14}")
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        sources = {"this tree": _ROOT / "src"}
        if options.against:
            sources[options.against] = _extracted(options.against, folder)
        for store in ("memory", "sqlite"):
            _print_store(store, sources, options)


if __name__ == "__main__":
    main()
