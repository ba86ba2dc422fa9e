"""A state of the model as a value: items, actors, ledger and time, all of them small numbers, so that states compare.

Items and views are numbers too, those of the pool that keeps them.
"""

from typing import NamedTuple

from tests.model.configs import Milli, Order

ABSENT = 0
"""The number of the item that is not there, and of the shard that was not seen."""


class Job(NamedTuple):
    """A write under way, decided ``age`` ticks ago on what its actor saw.

    ``again``: it is sent again, for an answer was lost. ``acted``: how often it has been applied, up to two.
    ``disturbed``: the nonce it left was overwritten, or a copy of it came late.
    """

    order: Order
    age: int = 0
    again: bool = False
    acted: int = 0
    disturbed: bool = False


class Creator(NamedTuple):
    """What a client knows of the bucket with this birth number, which it created ``age`` ticks ago.

    ``room`` and ``writes`` are those of ``core.top_up.Creation``.
    """

    birth: int
    age: int
    room: Milli
    writes: int


class Ghost(NamedTuple):
    """A write that was given up for lost and is still under way; ``orphan``: its job has ended."""

    job: Job
    views: tuple[int, ...]
    terms: int
    orphan: bool
    birth: int = 0
    unsure: int = 0
    creator: Creator | None = None


class Actor(NamedTuple):
    """A client, or the aggregator: the shards as it last saw them, the terms it goes by, and what it is at.

    ``birth`` is the birth number of the bucket that it holds something of. ``unsure``: the time may be this many ticks
    later than it is. ``creator``: what it knows of a bucket that it created while it was unsure.
    """

    views: tuple[int, ...]
    terms: int
    held: Milli
    job: Job | None = None
    ghost: Ghost | None = None
    birth: int = 0
    unsure: int = 0
    creator: Creator | None = None


class State(NamedTuple):
    """All there is. ``ledger``: for every limit and every capacity it may have, the most that any span so far has used
    beyond what it earned, of the spans in which no larger capacity was in force."""

    items: tuple[int, ...]
    actors: tuple[Actor, ...]
    ledger: tuple[Milli, ...]
    phase: int
    version: int


class Move(NamedTuple):
    """Something that happens: what, by whom, and which."""

    what: str
    who: int = -1
    order: Order | None = None
    detail: str = ""
