"""Breaks the rules of the protocol, one at a time, and says which seed of the simulation notices it.

    python -m tests.simulation.mutations [NAME ...] [--seeds 1000] [--jobs 2] [--keep] [--list]

Seeds are tried in their order, of plans that have what the rule is about. ``--keep`` writes down the catching runs,
shrunk, which the tests replay; ``--list`` tells of those without running anything. It ends with 1 if a rule was
broken and nobody noticed, unless it says why nobody can.
"""

import argparse
import json
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from itertools import count, islice
from pathlib import Path
from typing import NamedTuple

from tests.simulation.mutants import MUTANTS, Mutant, mutant
from tests.simulation.plan import Plan, plan_of
from tests.simulation.run import simulate_each
from tests.simulation.shrink import shrink

_SMALLER_RUNS = 25
CATCHES = Path(__file__).with_name("catches.json")


class Catch(NamedTuple):
    """A run that notices a broken rule, by which violation, and how many seeds were tried until then."""

    seed: int
    clients: int
    steps: int
    without: list[str]
    kind: str
    tried: int

    @property
    def plan(self) -> Plan:
        """The run, as small as it still notices."""
        return plan_of(self.seed).less(self.clients, self.steps, self.without)


class Search(NamedTuple):
    """What came of looking for a run that notices a mutant."""

    name: str
    catch: Catch | None
    told: str
    cpu_s: float


def plans_for(one: Mutant) -> Iterator[Plan]:
    """Return the plans in which a rule matters, by their seeds."""
    return (plan for plan in map(plan_of, count()) if one.matters_in(plan))


def search(name: str, seeds: int, smaller: bool) -> Search:
    """Look for a run that notices a broken rule."""
    one = mutant(name)
    started_s = time.process_time()
    with one.applied():
        for tried, report in enumerate(simulate_each(islice(plans_for(one), seeds)), 1):
            if report.violation is None:
                continue
            plan = report.plan
            report = shrink(report, _SMALLER_RUNS) if smaller else report
            found, gone = report.plan, sorted(plan.faults - report.plan.faults)
            assert report.violation is not None, "what is shrunk still fails"
            catch = Catch(plan.seed, found.clients, found.requests, gone, report.violation.kind, tried)
            return Search(name, catch, str(report.violation), time.process_time() - started_s)
    return Search(name, None, "", time.process_time() - started_s)


def kept() -> dict[str, Catch]:
    """Return the catching runs that are kept, by the names of the mutants."""
    return {name: Catch(**found) for name, found in json.loads(CATCHES.read_text()).items()}


def _keep(new: dict[str, Catch]) -> None:
    """Write down catching runs beside those that are kept already, a line each."""
    known = (kept() if CATCHES.exists() else {}) | new
    lines = [
        f"  {json.dumps(one.name)}: {json.dumps(known[one.name]._asdict())}" for one in MUTANTS if one.name in known
    ]
    CATCHES.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def main() -> int:
    """Run what was asked for; 1 if a broken rule was not noticed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="the mutations to try; all if there is none")
    parser.add_argument("--seeds", type=int, default=1000, help="how many seeds are tried at most")
    parser.add_argument("--jobs", type=int, default=1, help="how many processes try them")
    parser.add_argument("--keep", action="store_true", help="write down the catching runs, shrunk")
    parser.add_argument("--list", action="store_true", help="tell of the catching runs that are kept")
    chosen = parser.parse_args()
    wanted = [mutant(name) for name in chosen.names] or list(MUTANTS)
    if chosen.list:
        found = kept()
        _say("| rule | broken | noticed as | seed | seeds tried |\n| --- | --- | --- | --- | --- |")
        for one in wanted:
            _say(_row(one, found.get(one.name)))
        return 0
    return _run([one.name for one in wanted], chosen)


def _run(names: list[str], chosen: argparse.Namespace) -> int:
    missed = []
    with ProcessPoolExecutor(chosen.jobs) as pool:
        searches = [pool.submit(search, name, _seeds(name, chosen.seeds), chosen.keep) for name in names]
        for under_way in as_completed(searches):
            result = under_way.result()
            _say(f"{_row(mutant(result.name), result.catch)} {result.cpu_s:.1f} s CPU  {result.told[:200]}")
            if result.catch is None and not mutant(result.name).redundant:
                missed.append(result.name)
            if result.catch is not None and chosen.keep:
                _keep({result.name: result.catch})
    _say(f"{len(names)} mutations, {len(missed)} not noticed: {', '.join(missed) or 'none'}")
    return int(bool(missed))


def _seeds(name: str, asked: int) -> int:
    """Return how many seeds to try: few of a rule that others stand in for."""
    return min(asked, 100) if mutant(name).redundant else asked


def _row(one: Mutant, catch: Catch | None) -> str:
    if catch is None:
        return f"| {one.rule} | {one.name} | {one.redundant or 'NOT NOTICED'} | | |"
    return f"| {one.rule} | {one.name} | {catch.kind} | {catch.seed} | {catch.tried} |"


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
