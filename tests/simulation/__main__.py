"""Simulate a fleet of clients on one table, and check the invariants after every write.

What runs: the limiter's own async code, in several simulated processes, against a simulated DynamoDB. Only time, the
network, the table and the randomness are simulated. Messages get lost or arrive late, clocks are wrong, processes
crash, limits change, shards are split and merged. Everything is drawn from one number, the seed: the same seed gives
the same run, step by step, on every machine.

What is checked: the invariants (``invariants.py``) know the attributes of a bucket and its arithmetic, but neither the
limiter's decisions nor its caches. The main one bounds what a limit admits in every span of time.
That is at most its capacity, plus what it earns in that span, plus what wrong clocks and delays account for.
``holdings.py`` compares the table with what users were granted. ``stream.py`` checks the usage counts, and
``request.py`` the deadlines.

    python -m tests.simulation --seeds 10000 [--jobs 2] [--first 0]
    python -m tests.simulation --slots --seeds 10000    the same with a limit of concurrent use (``slot_holders.py``)
    python -m tests.simulation --quotas --seeds 10000   with quotas and soft limits (``quota_ledger.py``)
    python -m tests.simulation --seed 7 [--slots] [--quotas] [--clients 2] [--steps 100] [--without crash,late]
        [--mutation NAME] [--shrink] [--trace]

``--seeds`` prints the progress, the faults that occurred, and every violation with the shrunk command that replays it.
``--seed`` runs or replays one seed. The exit code is 1 if an invariant was violated.
``docs/contributing/debugging-a-seed.md`` explains how to find the cause of a violation.
"""

import argparse
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from functools import partial
from typing import NamedTuple

from tests.mutations.catalogue import mutation_named
from tests.simulation.fleet import Fleet
from tests.simulation.plan import FAULTS, Plan, plan_of, with_quotas, with_slots
from tests.simulation.run import Report, simulate_each, simulate_seed
from tests.simulation.server import Change, Sent
from tests.simulation.shrink import shrink

_SEEDS_AT_ONCE = 10
_PROGRESS_EVERY_S = 10.0


class Part(NamedTuple):
    """The result of some seeds, and the processor time they took."""

    seeds: int
    tally: Counter[str]
    violations: list[str]
    cpu_s: float


def main() -> int:
    """Run the chosen seeds. Return 1 if an invariant was violated."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, help="number of seeds to run")
    parser.add_argument("--first", type=int, default=0, help="first seed")
    parser.add_argument("--jobs", type=int, default=1, help="number of processes")
    parser.add_argument("--seed", type=int, help="run one seed, and print its result in full")
    parser.add_argument("--clients", type=int)
    parser.add_argument("--steps", type=int, help="number of requests")
    parser.add_argument("--without", default="", help=f"faults to leave out, of: {', '.join(FAULTS)}")
    parser.add_argument("--slots", action="store_true", help="add a limit of concurrent use to every plan")
    parser.add_argument("--quotas", action="store_true", help="add quotas and soft limits to every plan")
    parser.add_argument("--mutation", help="a rule to break; python -m tests.mutations --list names them")
    parser.add_argument("--shrink", action="store_true", help="look for a smaller run that fails in the same way")
    parser.add_argument("--trace", action="store_true", help="print every change of a bucket when it acts on the table")
    chosen = parser.parse_args()
    if chosen.seed is None:
        return _run_many(range(chosen.first, chosen.first + (chosen.seeds or 100)), chosen.jobs, _plan_of(chosen))
    return _run_one(chosen)


def _plan_of(chosen: argparse.Namespace) -> Callable[[int], Plan]:
    """Return what makes the plan of a seed."""
    if chosen.quotas:
        return with_quotas
    return with_slots if chosen.slots else plan_of


def _run_one(chosen: argparse.Namespace) -> int:
    gone = [fault for fault in chosen.without.split(",") if fault]
    plan = _plan_of(chosen)(chosen.seed).reduced(chosen.clients, chosen.steps, gone)
    with mutation_named(chosen.mutation).applied() if chosen.mutation else nullcontext():
        report = simulate_seed(plan.seed, plan, _trace if chosen.trace else None)
        if chosen.shrink and report.violation is not None:
            report = shrink(report)
    plan = report.plan
    _print(f"{plan.command}: {plan.clients} clients, faults: {', '.join(sorted(plan.faults)) or 'none'}")
    _print(f"  {report.steps} steps, digest {report.digest:x}; {_summary(report.tally)}")
    for line in _violation(report):
        _print(line)
    return int(report.violation is not None)


def _trace(fleet: Fleet) -> None:
    """Print every change of a bucket before it is checked."""
    fleet.server.watchers.insert(0, _print_step)
    fleet.server.expiry_watchers.insert(0, lambda now_ms, change: _print(_change(now_ms, "expiry", change)))


def _print_step(now_ms: int, changes: Sequence[Change], sent: Sent) -> None:
    for change in changes:
        if change.key.sk == "#STATE":
            _print(_change(now_ms, sent.process, change) + (" (the sender gets no answer)" if sent.unanswered else ""))


def _change(now_ms: int, sender: str, change: Change) -> str:
    old, new = change.old or {}, change.new or {}
    kind = "deleted" if change.new is None else "created" if change.old is None else "changed"
    names = sorted(name for name in new.keys() | old.keys() if new and old.get(name) != new.get(name))
    # The partition key is printed already; the other keys are made of the same parts.
    names = [name for name in names if not name.startswith(("PK", "SK", "GSI"))]
    shown = [f"{name} {old[name]} to {new.get(name)}" if name in old else f"{name} {new[name]}" for name in names]
    return f"{now_ms} {sender}: {change.key.pk} {kind}" + (f": {', '.join(shown)}" if shown else "")


def _run_many(seeds: range, jobs: int, plan: Callable[[int], Plan]) -> int:
    started_s = printed_s = time.monotonic()
    done, tally, violations, cpu_s = 0, Counter[str](), [], 0.0
    for part in _parts(seeds, jobs, plan):
        done, cpu_s = done + part.seeds, cpu_s + part.cpu_s
        tally.update(part.tally)
        violations += part.violations
        for line in part.violations:
            _print(line)
        if time.monotonic() - printed_s >= _PROGRESS_EVERY_S or done == len(seeds):
            printed_s = time.monotonic()
            _print(f"{done:6} of {len(seeds)} seeds, {_speed(tally, cpu_s)}, {len(violations)} violations")
    _print(f"{len(seeds)} seeds from {seeds.start} in {time.monotonic() - started_s:.0f} s, {jobs} at a time")
    _print(f"  {_speed(tally, cpu_s)}; {len(violations)} violations")
    _print(f"  {_summary(tally)}")
    return int(bool(violations))


def _parts(seeds: range, jobs: int, plan: Callable[[int], Plan]) -> Iterator[Part]:
    some = [seeds[start : start + _SEEDS_AT_ONCE] for start in range(0, len(seeds), _SEEDS_AT_ONCE)]
    run = partial(_run_some, plan)
    if jobs == 1:
        yield from map(run, some)
        return
    with ProcessPoolExecutor(jobs) as pool:
        yield from pool.map(run, some)


def _run_some(plan: Callable[[int], Plan], seeds: Iterable[int]) -> Part:
    """Run some seeds, and shrink those that fail."""
    started_s = time.process_time()
    tally: Counter[str] = Counter()
    failed = []
    count = 0
    for report in simulate_each(map(plan, seeds)):
        tally.update(report.tally)
        count += 1
        if report.violation is not None:
            failed.append(report)
    cpu_s = time.process_time() - started_s
    return Part(count, tally, [line for one in failed for line in _violation(shrink(one))], cpu_s)


def _violation(report: Report) -> list[str]:
    if report.violation is None:
        return []
    return [f"VIOLATION: {report.plan.command}\n    {str(report.violation)[:1000]}"]


def _speed(tally: Counter[str], cpu_s: float) -> str:
    acquires = tally["acquires"]
    return f"{acquires:,} acquires, {acquires / max(cpu_s, 0.001):,.0f} per CPU second"


def _summary(tally: Counter[str]) -> str:
    return ", ".join(f"{name}: {count:,}" for name, count in sorted(tally.items()) if count)


def _print(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
