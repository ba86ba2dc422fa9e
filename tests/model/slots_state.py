"""The states of the model of slots. They are values: items, views and writes are numbers of interned objects."""

from typing import Any, NamedTuple

from zae_limiter.core.slots import Claim

ABSENT = 0
"""The number of the item that does not exist."""

Writes = tuple[tuple[int, int], ...]
"""Shards, and the numbers of their writes."""


class Lease(NamedTuple):
    """The slots of a client's lease, the bucket that gave them, and the version of its limits.

    ``most`` is the largest capacity in force since the take, by limit. ``counted`` is False once the bucket was
    deleted. ``final``: its slots are not renewed any more.
    """

    claims: tuple[Claim, ...]
    birth: int
    terms: int
    most: tuple[tuple[str, int], ...]
    counted: bool = True
    final: bool = False


class Job(NamedTuple):
    """A write in flight. ``again``: its answer was lost. ``applied``: so that its token refuses it from now on.

    ``moved`` are the claims that a lease has after it. ``birth`` is the number of the bucket that it is for.
    """

    kind: str
    writes: Writes
    moved: tuple[Claim, ...]
    birth: int = 0
    again: bool = False
    applied: bool = False


class LateWrite(NamedTuple):
    """A copy of a write that arrives later. ``orphan``: the client has ended the job."""

    job: Job
    orphan: bool = False


class Client(NamedTuple):
    """What a client knows, holds and does."""

    views: tuple[int, ...]
    terms: int = 0
    lease: Lease | None = None
    job: Job | None = None
    late: LateWrite | None = None


class State(NamedTuple):
    """The whole state. ``tick`` is the true time, ``version`` the limits in force, ``sent`` the writes so far."""

    tick: int
    items: tuple[int, ...]
    clients: tuple[Client, ...]
    version: int = 0
    deletes: int = 0
    sent: int = 0


class Move(NamedTuple):
    """Something that may happen."""

    what: str
    who: int = -1
    detail: Any = ""
    fate: str = ""

    def __str__(self) -> str:
        who = f"client {self.who} " if self.who >= 0 else ""
        return f"{who}{self.what} {self.detail} {self.fate}".strip()
