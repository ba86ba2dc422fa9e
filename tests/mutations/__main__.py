"""Break the rules of the protocol, one at a time, and search for a simulated run that notices.

A mutation is a rule of ``docs/protocol.md`` that is broken on purpose. It shows that the checks would find such a bug:
without it a run has no violation, with it the same run has one.

    python -m tests.mutations [NAME ...] [--seeds 1000] [--jobs 2] [--keep] [--list]
    python -m tests.simulation --seed 11 --mutation NAME
    python -m tests.model --mutations

The first command tries seeds in ascending order, only those of plans in which the rule matters, and prints the first
that notices. ``--keep`` shrinks these runs and stores them in ``tests/simulation/noticed.json``; the tests replay them.
``--list`` only prints every mutation with the checks that notice it. The exit code is 1 if a mutation was not noticed,
unless the catalogue says why no check can. The other two commands replay one run, and print what the model finds.
"""

import argparse
import sys
from concurrent.futures import ProcessPoolExecutor, as_completed

from tests.mutations.catalogue import MUTATIONS, mutation_named
from tests.mutations.mutation import Mutation
from tests.simulation.mutations import KeptRun, keep, kept_runs, search

_SEEDS_OF_REDUNDANT = 100


def main() -> int:
    """Run the search. Return 1 if a mutation was not noticed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="mutations to try (default: all)")
    parser.add_argument("--seeds", type=int, default=1000, help="largest number of seeds to try")
    parser.add_argument("--jobs", type=int, default=1, help="number of processes")
    parser.add_argument("--keep", action="store_true", help="store the runs that notice, shrunk")
    parser.add_argument("--list", action="store_true", help="print the catalogue and the kept runs")
    chosen = parser.parse_args()
    wanted = [mutation_named(name) for name in chosen.names] or list(MUTATIONS)
    if chosen.list:
        _list(wanted)
        return 0
    return _run([one.name for one in wanted if one.simulation or one.redundant], chosen)


def _list(wanted: list[Mutation]) -> None:
    kept = kept_runs()
    _print("| rule | mutation | simulation | seed | seeds tried | model | promise | soak |")
    _print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for mutation in wanted:
        in_model = ", ".join(
            f"{check.config.name}: {check.breaks} in {check.steps} steps"
            for check in (*mutation.model, *mutation.slot_model)
        )
        in_promise = ", ".join(check.world for check in mutation.promise)
        in_soak = mutation.soak.way if mutation.soak else ""
        _print(f"{_row(mutation, kept.get(mutation.name))} {in_model} | {in_promise} | {in_soak} |")


def _run(names: list[str], chosen: argparse.Namespace) -> int:
    missed = []
    with ProcessPoolExecutor(chosen.jobs) as pool:
        searches = [pool.submit(search, name, _seeds(name, chosen.seeds), chosen.keep) for name in names]
        for ended in as_completed(searches):
            result = ended.result()
            mutation = mutation_named(result.name)
            _print(f"{_row(mutation, result.found)} {result.cpu_s:.1f} s CPU  {result.violation[:200]}")
            if result.found is None and not mutation.redundant:
                missed.append(result.name)
            if result.found is not None and chosen.keep:
                keep({result.name: result.found})
    _print(f"{len(names)} mutations, {len(missed)} not noticed: {', '.join(missed) or 'none'}")
    return int(bool(missed))


def _seeds(name: str, asked: int) -> int:
    """Return the number of seeds to try: few for a mutation that no check can notice."""
    return min(asked, _SEEDS_OF_REDUNDANT) if mutation_named(name).redundant else asked


def _row(mutation: Mutation, run: KeptRun | None) -> str:
    if run is not None:
        return f"| {mutation.rule} | {mutation.name} | {run.kind} | {run.seed} | {run.tried} |"
    if mutation.redundant is not None:
        return f"| {mutation.rule} | {mutation.name} | redundant: {mutation.redundant.reason} | | |"
    return f"| {mutation.rule} | {mutation.name} | {'NOT NOTICED' if mutation.simulation else ''} | | |"


def _print(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
