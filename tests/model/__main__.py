"""A formal model of one bucket, explored exhaustively for small bounds, by the real code.

    python -m tests.model                      every configuration, as CI runs them
    python -m tests.model --config takes       one of them, or several
    python -m tests.model --deeper             larger bounds, for minutes to hours
    python -m tests.model --mutations          every mutation, with the shortest trace that violates an invariant

A violation is printed as the shortest sequence of steps that leads to it, and the command fails.

**What is modelled.** One bucket, unsharded or of two shards; two clients, each with a view as old as it may be; an
aggregator that splits and merges as it saw the shards, at different times. What is written is decided by
``zae_limiter.core`` on these views, written down by ``schema.bucket_writes``, and applied by ``tables.evaluate``:
nothing of it is written here a second time. Everything that may happen is tried in every state: a look; a take,
create, top-up, rebase, debit, credit, split, merge or take across shards; its request lost, its answer lost, its copy
arriving late; the resend that the rules ask for (a take or debit with its nonce, a transaction with its token, a
credit never), any number of times; giving up; the passing of a tick; changed limits, learnt by each client some time;
expiry. There is no bound on the number of steps: states are values, and times, generations, nonces and totals are
told relative to each other (see ``pool``), so a configuration has finitely many and all of them are visited.

**What must hold** (see ``invariants``).

- promise: for every span that ends in a take, takes + debits - credits <= the largest capacity in force + what was
  earned (+ what one deadline earns, where writes may be under way while time passes; + what other shards owe).
- exact: what a bucket in one place offers is what a token bucket without clients, views or faults would. It is at
  most that where a client knows the time only roughly.
- totals: the totals count what was applied, and nothing else. clamp: no take or debit leaves an overflow.
- kept: no write makes a token, and none loses one but those that may give tokens away. debt: only a debit makes one.
- belief: who is told that its write was applied is told the truth. Who is told that it was not, or is charged twice,
  is so only if another's write overwrote the nonce before the resend, or a copy came late: that errs to the strict
  side.
- shards: they have every number once, and none of several expires.
- admitted: whoever asks while all others stand still, with a view however old or none, is admitted exactly if the
  tokens are there.

**Top-ups.** Client 0 starts with wide bounds of the time, which get narrower by a tick at a time. What it knows of its
creation is forgotten after a few ticks or writes, and nothing is explored beyond that.

**What is not modelled.** Clocks that differ, or are unsure but for top-ups (time is exact, in ticks); more than two
shards; cascades, group commit, charges spread over shards; the guessing from others' pace (every effort a guess may end
in is tried instead, see ``efforts``); reads that are not the newest beyond what old views stand for. Chance covers
these in ``tests/promise`` and ``tests/simulation``. Bounds: tokens in ones and twos, a debt of one or two tokens, one
lease a client, one late copy.

**What is folded without loss.** An answer under way: the client that has it and waits is the same. A write under way
while no time may pass: it is sent as it arrives. An overflow of more than a token. What views hold that no reader
looks at. Where a configuration ``forgets``: views that no write that holds could be made by. ``test_model`` walks
folded and unfolded worlds side by side.
"""

import argparse
import sys

from tests.model.configs import CONFIGS
from tests.model.explorer import explore
from tests.model.mutations import explore_mutated
from tests.mutations.catalogue import MUTATIONS


def main(arguments: list[str]) -> int:
    """Explore what is asked for; 1 if a violation was found that should not be, or one was not that should be."""
    parser = argparse.ArgumentParser(prog="python -m tests.model", description="Explore a bucket exhaustively.")
    parser.add_argument("--config", action="append", choices=[one.name for one in CONFIGS], help="one of them")
    parser.add_argument("--all", action="store_true", help="all of them, as without --config")
    parser.add_argument("--deeper", action="store_true", help="larger bounds")
    parser.add_argument("--most", type=int, help="stop after so many states")
    parser.add_argument("--mutations", action="store_true", help="print what each broken rule leads to")
    asked = parser.parse_args(arguments)
    if asked.mutations:
        return _explore_mutations(asked.config)
    failed = False
    for config in CONFIGS:
        if asked.all or not asked.config or config.name in asked.config:
            explored = explore(config.deepened() if asked.deeper else config, most=asked.most)
            _say(explored)
            failed = failed or explored.violation is not None
    return 1 if failed else 0


def _explore_mutations(names: list[str] | None) -> int:
    missed = 0
    for mutation in MUTATIONS:
        for check in mutation.model:
            if not names or check.config.name in names:
                explored = explore_mutated(mutation, check)
                _say(f"{mutation.name}:\n{explored}\n")
                missed += explored.violation is None
    return 1 if missed else 0


def _say(told: object) -> None:
    sys.stdout.write(f"{told}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
