"""The configurations of the model of quotas."""

from tests.model.quotas_state import (
    CREDIT,
    DEBIT1,
    DEBIT2,
    MERGE,
    RESET,
    SPLIT,
    SPREAD,
    TAKE1,
    TAKE2,
    Calendar,
    Config,
    Order,
    Version,
    at,
)
from zae_limiter.core.quota import MOST_SPENT

DIFFERING = Calendar(((0, 8, 16), (0, 9, 15)))
"""Two clients have other time zone data: the first edge is a second later, and the second one a second earlier."""

CHANGED = Calendar(((0, 9, 17),))
"""Another schedule: its first edge is a second after that of the first one."""

GROUPS = (Order("group", 1, 1), Order("group", 1))

LOSSY_0, LATE_0 = frozenset((0,)), frozenset((0,))

CONFIGS = (
    Config("takes", times=(7, 8), lossy=LOSSY_0, late=LATE_0, orders=((TAKE1,), (TAKE1, TAKE2))),
    Config("clocks", times=(7, 8, 9, 16), clocks=((1, 1), (0, 2))),
    Config("created", start_spent=None, clocks=((0, 0), (0, 1)), deletes=1, orders=((TAKE1, CREDIT), (TAKE2, CREDIT))),
    Config("credits", times=(7, 8), orders=((TAKE1, CREDIT), (TAKE1, CREDIT)), lossy=LOSSY_0),
    Config("debits", times=(7, 8), orders=((TAKE1, DEBIT2), (TAKE2, DEBIT1)), lossy=frozenset((1,))),
    Config("differing", times=(7, 8, 9, 14, 15, 16), versions=(Version(2, DIFFERING),)),
    Config(
        "cut",
        start_spent=MOST_SPENT - 1,
        start_held=(1, 2),
        orders=((DEBIT1, DEBIT2, CREDIT, TAKE1), (DEBIT2, CREDIT, *GROUPS)),
        times=(7, 8),
    ),
    Config("reserve", versions=(Version(4),), reserve=(2, 0), orders=((TAKE1,), (TAKE1, TAKE2))),
    Config("groups", times=(7, 8), orders=((TAKE1, *GROUPS), (TAKE1, CREDIT, *GROUPS)), lossy=LOSSY_0),
    Config(
        "soft",
        times=(7, 8),
        versions=(Version(1, soft=True),),
        orders=((TAKE2, *GROUPS), (TAKE1, CREDIT)),
        most_spent=4,
    ),
    Config(
        "soft to hard",
        times=(7, 8),
        versions=(Version(2, soft=True), Version(2)),
        orders=((TAKE2,), (TAKE1, CREDIT)),
        most_spent=4,
    ),
    Config("amounts", times=(7, 8), versions=(Version(2), Version(3), Version(1)), orders=((TAKE1,), (TAKE2,))),
    Config(
        "schedules",
        times=(7, 8, 9),
        clocks=((0, 0), (1, 1)),
        versions=(Version(2), Version(2, CHANGED)),
        orders=((TAKE1, CREDIT), (TAKE2,)),
    ),
    Config(
        "schedules soft",
        times=(7, 8, 9),
        versions=(Version(1), Version(1, CHANGED, soft=True)),
        orders=((TAKE1,), (TAKE2, CREDIT)),
        most_spent=4,
    ),
    Config("resets", times=(7, 8, 9), clocks=((0, 0), (1, 0)), orders=((TAKE2, CREDIT), (RESET,)), most_changes=2),
    Config(
        "resets differing",
        times=(7, 8, 9, 15),
        versions=(Version(1, DIFFERING),),
        orders=((TAKE1, RESET), (TAKE1,)),
        most_changes=2,
    ),
    Config("shards", times=(7, 8), places=2, orders=((TAKE1, *at(1, TAKE1)), (SPLIT, MERGE, TAKE1)), most_changes=2),
    Config(
        "shards credits",
        times=(7, 8),
        places=2,
        orders=((TAKE2, CREDIT), (SPLIT, MERGE, TAKE1, *at(1, TAKE1))),
        room=True,
        most_changes=2,
        lossy=LOSSY_0,
    ),
    Config(
        "shards debt",
        times=(7, 8),
        places=2,
        start_spent=3,
        start_held=(3, 0),
        orders=((CREDIT,), (SPLIT, MERGE, TAKE1)),
        most_changes=2,
    ),
    Config(
        "shards groups",
        times=(7, 8),
        places=2,
        versions=(Version(4),),
        orders=((Order("take", 3), *GROUPS), (SPLIT, MERGE)),
        most_changes=2,
    ),
    Config(
        "shards soft",
        times=(7, 8),
        places=2,
        versions=(Version(4, soft=True),),
        orders=((Order("take", 3), *GROUPS), (SPLIT, MERGE)),
        most_changes=2,
        most_spent=4,
    ),
    Config(
        "shards debits",
        times=(7, 8),
        places=2,
        orders=((TAKE1, DEBIT2, SPREAD), (SPLIT, MERGE, *at(1, TAKE1))),
        most_changes=2,
    ),
    Config(
        "shards schedules",
        times=(7, 8, 9),
        places=2,
        versions=(Version(2), Version(2, CHANGED)),
        orders=((TAKE1, *at(1, TAKE1)), (SPLIT, MERGE)),
        most_changes=2,
    ),
    Config(
        "shards reset",
        times=(7, 8),
        places=2,
        orders=(at(1, TAKE1), (SPLIT, RESET)),
        deeper={"most_changes": 3},
        lossy=frozenset((1,)),
        most_changes=2,
    ),
    Config(
        "shards differing",
        times=(8, 9),
        places=2,
        versions=(Version(2, DIFFERING),),
        orders=((TAKE1, *at(1, TAKE1)), (SPLIT, MERGE, TAKE1)),
        most_changes=2,
    ),
    Config(
        "several",
        times=(7, 8),
        places=2,
        several=True,
        orders=((TAKE2, *at(1, TAKE1), CREDIT), (TAKE2,)),
        deeper={"lossy": LOSSY_0, "late": frozenset()},
    ),
)


def config(name: str) -> Config:
    """Return a configuration by its name."""
    return next(one for one in CONFIGS if one.name == name)
