"""Find, keep and replay the runs that notice a mutation.

A mutation is a rule of the protocol that is broken on purpose (``tests/mutations``). A run notices it if it violates an
invariant. ``noticed.json`` keeps one such run per mutation; ``test_mutations.py`` replays them.
"""

import json
import time
from collections.abc import Iterator
from itertools import count, islice
from pathlib import Path
from typing import NamedTuple

from tests.mutations.catalogue import MUTATIONS, mutation_named
from tests.mutations.mutation import Mutation
from tests.simulation.needs import meets
from tests.simulation.plan import Plan, plan_of
from tests.simulation.run import simulate_each
from tests.simulation.shrink import shrink

_SMALLER_RUNS = 25
NOTICED = Path(__file__).with_name("noticed.json")
"""The kept runs, by the names of their mutations."""


class KeptRun(NamedTuple):
    """A run that notices a mutation, the kind of its violation, and the number of seeds tried until it was found."""

    seed: int
    clients: int
    steps: int
    without: list[str]
    kind: str
    tried: int

    @property
    def plan(self) -> Plan:
        """The plan of the run, as small as it still notices."""
        return plan_of(self.seed).reduced(self.clients, self.steps, self.without)


class Search(NamedTuple):
    """The result of a search: the run that notices, None if no seed did, the violation and the processor time."""

    name: str
    found: KeptRun | None
    violation: str
    cpu_s: float


def plans_for(mutation: Mutation) -> Iterator[Plan]:
    """Return the plans in which a mutation matters, in the order of their seeds."""
    where = mutation.simulation or mutation.redundant
    assert where is not None, f"{mutation.name} is not for the simulation"
    needs = where.needs
    return (plan for plan in map(plan_of, count()) if meets(plan, needs))


def search(name: str, seeds: int, smaller: bool) -> Search:
    """Look for a run that notices a mutation; ``smaller`` shrinks it."""
    mutation = mutation_named(name)
    started_s = time.process_time()
    with mutation.applied():
        for tried, report in enumerate(simulate_each(islice(plans_for(mutation), seeds)), 1):
            if report.violation is None or (
                mutation.simulation and report.violation.kind not in mutation.simulation.kinds
            ):
                continue
            plan = report.plan
            report = shrink(report, _SMALLER_RUNS) if smaller else report
            small, without = report.plan, sorted(plan.faults - report.plan.faults)
            assert report.violation is not None, "a shrunk run still fails"
            found = KeptRun(plan.seed, small.clients, small.requests, without, report.violation.kind, tried)
            return Search(name, found, str(report.violation), time.process_time() - started_s)
    return Search(name, None, "", time.process_time() - started_s)


def kept_runs() -> dict[str, KeptRun]:
    """Return the kept runs, by the names of their mutations."""
    return {name: KeptRun(**run) for name, run in json.loads(NOTICED.read_text()).items()}


def keep(new: dict[str, KeptRun]) -> None:
    """Add runs to the kept ones, a line each, in the order of the catalogue."""
    known = (kept_runs() if NOTICED.exists() else {}) | new
    lines = [
        f"  {json.dumps(one.name)}: {json.dumps(known[one.name]._asdict())}" for one in MUTATIONS if one.name in known
    ]
    NOTICED.write_text("{\n" + ",\n".join(lines) + "\n}\n")
