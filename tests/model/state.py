"""A state of the model as a value: items, actors, ledger and time, all of them small numbers, so that states compare.

Items and views are numbers of the pool that stores them.
"""

from typing import NamedTuple

from tests.model.config import Milli, Order

ABSENT = 0
"""The number of an item that does not exist, and of a shard that was never read."""


class Job(NamedTuple):
    """A write in flight, decided ``age`` ticks ago on the views of its actor.

    ``again``: it is sent again because an answer was lost. ``acted``: how often it was applied, up to two.
    ``disturbed``: its nonce was overwritten, or a copy of it came late. ``credited``: its credits were given.
    """

    order: Order
    age: int = 0
    again: bool = False
    acted: int = 0
    disturbed: bool = False
    credited: bool = False


class Creator(NamedTuple):
    """A client's knowledge of the bucket with this birth number, which it created ``age`` ticks ago.

    ``room`` and ``writes`` are those of ``core.top_up.Creation``.
    """

    birth: int
    age: int
    room: Milli
    writes: int


class LateWrite(NamedTuple):
    """A write that was given up for lost and is still in flight; ``orphan``: its job has ended."""

    job: Job
    views: tuple[int, ...]
    terms: int
    orphan: bool
    birth: int = 0
    unsure: int = 0
    creator: Creator | None = None


class Actor(NamedTuple):
    """A client, or the aggregator: its views of the shards, its limits, and its job.

    ``birth`` is the birth number of the bucket that it holds tokens of. ``unsure``: the time may be this many ticks
    later. ``creator``: its knowledge of a bucket that it created while it was unsure.
    """

    views: tuple[int, ...]
    terms: int
    held: Milli
    job: Job | None = None
    late_write: LateWrite | None = None
    birth: int = 0
    unsure: int = 0
    creator: Creator | None = None


class State(NamedTuple):
    """Everything that exists.

    ``ledger`` is kept for every limit and every capacity it may have. It is the most that any span has used beyond its
    earnings. Spans with a larger capacity are left out. ``recorded``: the record of the operator's credit exists.
    """

    items: tuple[int, ...]
    actors: tuple[Actor, ...]
    ledger: tuple[Milli, ...]
    phase: int
    version: int
    recorded: bool = False


class Move(NamedTuple):
    """One event: what, by which actor, and its details."""

    what: str
    who: int = -1
    order: Order | None = None
    detail: str = ""
