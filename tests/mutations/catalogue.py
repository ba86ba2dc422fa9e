"""Every mutation: which rule of ``docs/protocol.md`` is broken on purpose, how, and which checks notice.

The simulation, the model, the promise tests and the soak take their mutations from here. Each has its own invariants,
so a bug in one of them does not hide a fault that another would notice.
"""

from tests.mutations.chains import CHAINS
from tests.mutations.combined import COMBINED
from tests.mutations.mutation import Mutation
from tests.mutations.operators import OPERATORS
from tests.mutations.rebases import EXPIRIES, REBASES
from tests.mutations.requests import CLOCKS, USAGES
from tests.mutations.reserves import RESERVES
from tests.mutations.settlements import LOST_ANSWERS, SETTLEMENTS
from tests.mutations.shards import ACROSS, MERGES, SPLITS
from tests.mutations.slots import SLOTS
from tests.mutations.takes import HOLDS, TAKES, TOP_UPS

MUTATIONS: tuple[Mutation, ...] = (
    *HOLDS,
    *TAKES,
    *TOP_UPS,
    *RESERVES,
    *SETTLEMENTS,
    *COMBINED,
    *REBASES,
    *EXPIRIES,
    *SPLITS,
    *MERGES,
    *ACROSS,
    *OPERATORS,
    *LOST_ANSWERS,
    *CHAINS,
    *SLOTS,
    *CLOCKS,
    *USAGES,
)
"""In the order of ``docs/protocol.md``."""


def mutation_named(name: str) -> Mutation:
    """Return a mutation by its name; exit with a hint if it does not exist."""
    for mutation in MUTATIONS:
        if mutation.name == name:
            return mutation
    raise SystemExit(f"no mutation is named {name!r}; python -m tests.mutations --list prints all names")
