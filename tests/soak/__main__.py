"""Run real processes on one table while they are killed and stopped and the table's engine is unavailable.

    python -m tests.soak --seconds 60 --processes 4 --table sqlite|dynamodb|both --engine ministack|dynoxide --seed N
    python -m tests.soak --sqlite-rate 1000 --seconds 3600
    python -m tests.soak --slots 6 --processes 8 --seconds 600 --table sqlite

At the end the promise is checked by the table itself and by the journals of all processes. The exit code is 1 if it is
broken. A seed draws the same work and the same faults, but their interleaving depends on the machine, so a run is not
replayed exactly.

With ``--sqlite-rate`` nothing is killed. Processes write to a SQLite file at that rate; log, file, memory, open files
and threads must not grow. The exit code is 1 if one grows, and 3 if the machine is too slow for the rate.

With ``--slots`` the processes hold slots of one bucket. They are killed, and stopped for longer than the hold.
"""

import argparse
import os
import sys
import time

from tests.dynamodb.engines import ENGINES, EngineAbsentError
from tests.soak import slots, steady
from tests.soak.checks import Margin
from tests.soak.run import Options, Report, soak
from tests.soak.slot_worker import FAST_CLOCK
from tests.soak.slots import SlotOptions
from tests.soak.watching import MUTATIONS

TABLES = {"sqlite": ["sqlite"], "dynamodb": ["dynamodb"], "both": ["sqlite", "dynamodb"]}


def parsed(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=60.0, help="seconds per table (60)")
    parser.add_argument("--processes", type=int, default=4, help="workers, besides one administrator (4)")
    parser.add_argument("--table", choices=TABLES, default="both", help="tables to use (both)")
    parser.add_argument("--engine", choices=ENGINES, default=None, help="DynamoDB engine (dynoxide, else ministack)")
    parser.add_argument("--seed", type=int, default=None, help="seed of work and faults (a new one)")
    parser.add_argument("--sqlite-rate", type=float, default=None, help="writes per second of a steady soak")
    parser.add_argument("--slots", type=int, default=None, help="capacity of a limit of concurrent use")
    parser.add_argument("--hold", type=int, default=5, help="seconds that a slot is held, with --slots (5)")
    parser.add_argument("--url", default=None, help="an existing table, with --slots (a new one)")
    parser.add_argument("--mutation", choices=[*MUTATIONS, FAST_CLOCK], default=None, help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


def printed(report: Report) -> str:
    """Return a report as it is printed."""
    outages = ", ".join(f"{outage.kind} {outage.seconds:.1f} s" for outage in report.outages) or "never"
    worst = min(report.margins.values(), key=lambda margin: margin.left / margin.allowed, default=None)
    lines = [
        f"{report.store}: {report.processes} workers and an admin for {report.seconds:.0f} s",
        f"  killed {report.kills}, stopped {report.stops}, store unavailable {len(report.outages)} times: {outages}",
        *[f"  {name:<22} {count:>9,}" for name, count in sorted(report.steps.items())],
        f"  shards at the end: {report.shards or 'one of each bucket'}",
        f"  {'':<12} {'in a window, beyond its refill':>33} {'counted by the table':>24} {'acted by the journals':>24}",
        *[_margin(margin) for margin in report.margins.values()],
    ]
    if worst is not None:
        lines.append(f"  worst margin: {worst.left:.1f} of {worst.allowed:.1f} tokens, {worst.owner}")
    return "\n".join([*lines, *[f"  VIOLATED: {violation}" for violation in report.violations]])


def _margin(margin: Margin) -> str:
    window = f"{margin.most:.1f} of {margin.allowed:.1f}"
    return f"  {margin.owner:<12} {window:>33} {_span(margin.counted):>24} {_span(margin.acted):>24}"


def _span(span: tuple[float, float]) -> str:
    return f"{span[0]:,.0f}" if span[0] == span[1] else f"{span[0]:,.0f} to {span[1]:,.0f}"


def engine_of(asked: str | None) -> str:
    """Return the requested engine, or dynoxide if it is installed, because its data survives a kill."""
    if asked is not None:
        return asked
    try:
        ENGINES["dynoxide"](0)
    except EngineAbsentError:
        return "ministack"
    return "dynoxide"


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def soak_steadily(options: steady.Options) -> int:
    """Write at a fixed rate. Return 1 if something grew, 3 if the rate was not reached."""
    say(f"soak of sqlite, {options.writes_per_second:,.0f} writes/s for {options.seconds:,.0f} s")
    report = steady.soak(options, say)
    say(steady.printed(report))
    return 1 if report.violations else 3 if report.too_slow else 0


def soak_slots(asked: argparse.Namespace, seed: int) -> int:
    """Hold slots in all processes. Return 1 if the promise of slots is broken."""
    broken = False
    for table in TABLES[asked.table]:
        say(f"soak of slots on {asked.url or table}, seed {seed}")
        named = asked.slots, asked.hold, seed, asked.url, asked.mutation
        options = SlotOptions(table, engine_of(asked.engine), asked.seconds, asked.processes, *named)
        report = slots.soak(options, say)
        say(slots.printed(report))
        broken = broken or bool(report.violations)
    say("the promise is BROKEN" if broken else "the promise holds")
    return int(broken)


def main(arguments: list[str]) -> int:
    asked = parsed(arguments)
    if asked.sqlite_rate is not None:
        return soak_steadily(steady.Options(asked.seconds, asked.sqlite_rate, asked.processes))
    seed = asked.seed if asked.seed is not None else time.time_ns() % 1_000_000
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        os.environ.setdefault(name, "engine")
    if asked.slots is not None:
        return soak_slots(asked, seed)
    broken = False
    for table in TABLES[asked.table]:
        options = Options(table, engine_of(asked.engine), asked.seconds, asked.processes, seed, asked.mutation)
        say(f"soak of {table}, seed {seed}")
        try:
            report = soak(options, say)
        except EngineAbsentError as absent:
            say(str(absent))
            return 2
        say(printed(report))
        broken = broken or bool(report.violations)
    say("the promise is BROKEN" if broken else "the promise holds")
    return int(broken)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
