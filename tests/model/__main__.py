"""Explore every reachable state of one small bucket, with the real decisions and writes, and check the invariants.

    python -m tests.model                      every configuration, as CI runs them
    python -m tests.model --config takes       only this configuration; may be repeated
    python -m tests.model --deeper             larger bounds, for minutes to hours
    python -m tests.model --several            only an acquire from three buckets (see ``several``)
    python -m tests.model --quotas             only the rows of calendar quotas (see ``quotas``)
    python -m tests.model --mutations          every mutation, with the shortest trace that violates an invariant

A violation is printed as the shortest sequence of steps that leads to it, and the exit code is 1. There is no
randomness: to replay a violation, run the same configuration again.

**What is modelled.** One bucket with one or two shards. Two clients, each with a view that may be as old as possible.
An aggregator that splits and merges, based on views of the shards from different times. ``zae_limiter.core`` decides on
these views, ``schema.bucket_writes`` makes the writes, and ``tables.evaluate`` applies them: none of this is written
again here.

In every state, everything that may happen is tried:

- a read
- a take, create, top-up, rebase, debit, credit, split, merge or take across shards
- a reset by an operator, and a credit by an operator with an idempotency key that all operators share
- its request is lost, its answer is lost, or a copy of it arrives late
- it is sent again as the rules say, any number of times. A take or debit keeps its nonce, and a transaction its token.
  A credit is never sent again
- the client gives up, a tick passes, the item expires
- the limits change, and each client learns of it at some later time

The number of steps is unbounded. States are values, and times, generations, nonces and totals are expressed relative to
each other (see ``pool``). So a configuration has finitely many states, and all of them are visited.

**What must hold** (see ``invariants``).

- promise: for every span that ends in a take, takes + debits - credits <= the largest capacity in force + what was
  earned. Added to this: what one deadline earns, if writes may be in flight while time passes, and what other shards
  owe. What a reset raises the level by counts as a credit.
- exact: an unsharded bucket offers what a token bucket without clients, views or faults would offer. It offers at most
  that if a client knows the time only roughly.
- totals: the totals count what was applied, and nothing else.
- clamp: no take or debit leaves an overflow.
- kept: no write creates a token. No write loses one, except writes that may give tokens away.
- debt: only a debit creates a debt.
- belief: a client that treats its write as applied is right. A client that treats it as not applied may be wrong, or be
  charged twice, in two cases. Another write replaced the nonce before the resend, or a copy came late. Then the bucket
  has fewer tokens, never more.
- once: a credit by an operator is given once with its key, and all of it reaches the bucket.
- shards: every number belongs to exactly one shard, and no shard of several expires.
- reserve: a take that must leave a part of the capacity leaves it, on every shard that it takes from.
- admitted: a request that is made while all others pause is admitted exactly if the tokens exist, however old the
  client's view is.

**Top-ups.** Client 0 starts with wide time bounds, which get narrower by one tick at a time. Its knowledge of the
creation ends after a few ticks or writes, and exploration stops there.

**What is not modelled.** Clocks that differ, or that are uncertain except for top-ups (time is exact, in ticks). More
than two shards. Group commit, and charges spread over shards. The choice of an effort from the rate of other
clients: every effort is tried instead (see ``efforts``). Stale reads, except as old views. ``tests/promise`` and
``tests/simulation`` cover these at random. Bounds: amounts of one and two tokens, a debt of one or two tokens, one
lease per client, one late copy. Several buckets are modelled apart from this, with two faults per run (``several``).

**States that are merged without loss.** An answer in flight, with the client that has it and waits. A write in flight
while no time may pass: it is sent when it arrives. An overflow of more than one token. Attributes of views that no code
reads. In a configuration with ``forgets``: views from which no write that requires the hold could be made.
``test_model`` compares merged and unmerged runs step by step.
"""

import argparse
import sys

from tests.model.configs import CONFIGS
from tests.model.explorer import explore
from tests.model.mutations import explore_mutated
from tests.model.quotas import explore as explore_quotas
from tests.model.quotas_configs import CONFIGS as QUOTAS
from tests.model.quotas_configs import config as quotas_config
from tests.model.quotas_mutations import MUTATIONS as QUOTA_MUTATIONS
from tests.model.several import CASES, explore_several
from tests.mutations.catalogue import MUTATIONS


def main(arguments: list[str]) -> int:
    """Explore the chosen configurations. Return 1 after an unexpected violation, or if an expected one is missing."""
    parser = argparse.ArgumentParser(prog="python -m tests.model", description="Explore a bucket exhaustively.")
    parser.add_argument(
        "--config", action="append", choices=[one.name for one in CONFIGS], help="a configuration; may be repeated"
    )
    parser.add_argument("--all", action="store_true", help="all configurations (default)")
    parser.add_argument("--several", action="store_true", help="an acquire from three buckets, instead of one bucket")
    parser.add_argument("--quotas", action="store_true", help="the rows of calendar quotas, instead of one bucket")
    parser.add_argument("--deeper", action="store_true", help="larger bounds")
    parser.add_argument("--most", type=int, help="stop after this many states")
    parser.add_argument("--mutations", action="store_true", help="print the violation of each broken rule")
    asked = parser.parse_args(arguments)
    if asked.quotas:
        return _explore_quotas(asked)
    if asked.mutations:
        return _explore_mutations(asked.config)
    if asked.several:
        return _explore_several(int(asked.deeper))
    failed = False
    for config in CONFIGS:
        if asked.all or not asked.config or config.name in asked.config:
            explored = explore(config.deepened() if asked.deeper else config, most=asked.most)
            _print(explored)
            failed = failed or explored.violation is not None
    return 1 if failed else 0


def _explore_mutations(names: list[str] | None) -> int:
    missed = 0
    for mutation in MUTATIONS:
        for check in mutation.model:
            if not names or check.config.name in names:
                explored = explore_mutated(mutation, check)
                _print(f"{mutation.name}:\n{explored}\n")
                missed += explored.violation is None
    return 1 if missed else 0


def _explore_several(more_faults: int) -> int:
    missed = 0
    for case in CASES:
        explored = explore_several(case, case.faults + more_faults)
        _print(explored)
        missed += explored.violation is not None
    return 1 if missed else 0


def _explore_quotas(asked: argparse.Namespace) -> int:
    if asked.mutations:
        mutated = [(one, explore_quotas(quotas_config(one.config), one.rules)) for one in QUOTA_MUTATIONS]
        for mutation, explored in mutated:
            _print(f"{mutation.name}:\n{explored}\n")
        return int(any(explored.violation is None for _, explored in mutated))
    missed = 0
    for config in QUOTAS:
        explored = explore_quotas(config.deepened() if asked.deeper else config, most=asked.most)
        _print(explored)
        missed += explored.violation is not None
    return 1 if missed else 0


def _print(text: object) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
