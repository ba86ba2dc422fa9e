"""The state of the model of quotas, and what a configuration of it has."""

from dataclasses import dataclass, field, replace
from typing import NamedTuple

Edges = tuple[int, ...]
"""The seconds at which periods begin, as one client computes them."""


@dataclass(frozen=True)
class Calendar:
    """A schedule: the edges by client, and the nominal period. Client ``c`` uses entry ``c`` modulo their number."""

    edges: tuple[Edges, ...]
    nominal_s: int = 8

    @property
    def tolerance(self) -> int:
        """The difference of epochs that counts as one edge."""
        return 2 * (self.nominal_s // 4)

    def index(self, client: int, at_s: int) -> int:
        """Return the number of the period that a second is in, as a client computes it."""
        edges = self.edges[client % len(self.edges)]
        return sum(1 for edge in edges if edge <= at_s) - 1

    def begin_s(self, client: int, at_s: int) -> int:
        """Return when the period of a second began, as a client computes it."""
        return self.edges[client % len(self.edges)][self.index(client, at_s)]

    def period(self, client: int, at_s: int) -> tuple[int, int]:
        """Return the period of a second, as a client computes it; the last one has the nominal length."""
        edges, index = self.edges[client % len(self.edges)], self.index(client, at_s)
        return edges[index], edges[index + 1] if index + 1 < len(edges) else edges[index] + self.nominal_s

    def index_of(self, epoch: int) -> int | None:
        """Return the number of the edge that an even epoch is, None if it is no edge of any client."""
        for edges in self.edges:
            if not epoch % 2 and epoch // 2 in edges:
                return edges.index(epoch // 2)
        return None


EDGE = Calendar(((0, 8, 16),))


class Version(NamedTuple):
    """A limit in force: its amount, its calendar, and whether it refuses."""

    amount: int
    calendar: Calendar = EDGE
    soft: bool = False


class Order(NamedTuple):
    """What a client wants: a take, debit, credit, group, split, merge or reset, or a debit spread over shards."""

    kind: str
    take: int = 0
    debit: int = 0
    place: int = 0


TAKE1, TAKE2 = Order("take", 1), Order("take", 2)
DEBIT1, DEBIT2, CREDIT = Order("debit", debit=1), Order("debit", debit=2), Order("credit")
SPLIT, MERGE, RESET, SPREAD = Order("split"), Order("merge"), Order("reset"), Order("spread", debit=2)


def at(place: int, *orders: Order) -> tuple[Order, ...]:
    """Return orders for another shard or bucket."""
    return tuple(order._replace(place=place) for order in orders)


@dataclass(frozen=True)
class Config:
    """What is explored.

    ``times`` are the seconds that pass, and ``clocks`` how far each client's time bounds are from the true time.
    ``lossy`` clients lose answers, and writes of ``late`` clients may arrive at any later time. ``start_spent`` is what
    the bucket has spent at first; None if it does not exist. Of that, clients hold ``start_held``. ``most_changes``
    bounds splits, merges and resets. ``most_spent`` bounds what soft takes and debits spend. ``room``: credits go
    wherever there is room. ``several``: places are buckets of their own, not shards.
    """

    name: str
    times: tuple[int, ...] = (7, 8, 16)
    clocks: tuple[tuple[int, int], ...] = ((0, 0), (0, 0))
    versions: tuple[Version, ...] = (Version(2),)
    orders: tuple[tuple[Order, ...], ...] = ((TAKE1, TAKE2), (TAKE1, TAKE2))
    lossy: frozenset[int] = frozenset()
    late: frozenset[int] = frozenset()
    places: int = 1
    several: bool = False
    start_spent: int | None = 0
    start_held: tuple[int, ...] = (0, 0)
    deletes: int = 0
    reserve: tuple[int, ...] = (0, 0)
    room: bool = False
    most_changes: int = 0
    most_spent: int | None = None
    deeper: dict[str, object] = field(default_factory=dict)

    def deepened(self) -> "Config":
        """Return the configuration with larger bounds."""
        return replace(self, name=f"{self.name} deeper", **(_DEEPER | self.deeper))  # type: ignore[arg-type] # the values have the types of their fields

    def __str__(self) -> str:
        return self.name

    def __hash__(self) -> int:
        return hash(self.name)


_DEEPER: dict[str, object] = {"times": (6, 7, 8, 9, 15, 16, 17), "lossy": frozenset((0, 1)), "late": frozenset((0, 1))}

Key = tuple[object, ...]
"""A period of the ledger: its bucket, and the edge or the reset that began it."""


class Item(NamedTuple):
    """A stored quota of one shard. ``key`` is known to the model only: the period that the stored band belongs to."""

    qk: int
    version: int
    birth: int
    generation: int
    count: int
    op: int
    key: Key


class View(NamedTuple):
    """What a client saw of an item."""

    qk: int
    version: int
    birth: int
    generation: int
    count: int


class Part(NamedTuple):
    """One write of a plan. ``birth`` and ``generation`` are conditions, None if they are not required.

    ``low`` and ``high`` bound the stored ``qk``; None is no bound. ``change`` is added, or ``new`` is set. A part with
    ``put`` requires that the item is absent.
    """

    place: int
    change: int = 0
    new: int | None = None
    low: int | None = None
    high: int | None = None
    birth: int | None = None
    generation: int | None = None
    version: int | None = None
    count: int | None = None
    put: bool = False
    delete: bool = False
    take: int = 0
    debit: int = 0
    credit: int = 0
    epoch: int = 0
    low_s: int = 0
    reserve: int = 0


class Plan(NamedTuple):
    """A write of one or several parts, which is applied as a whole. With a token it is applied once."""

    kind: str
    parts: tuple[Part, ...]
    token: bool = False


class Held(NamedTuple):
    """What a lease holds: amounts by place, epoch, birth and the period of the ledger."""

    place: int
    epoch: int
    birth: int
    amount: int


class Job(NamedTuple):
    """A write whose answer the client waits for, and how often it was applied: 0, 1 or 2."""

    plan: Plan
    acted: int = 0


class Client(NamedTuple):
    """A client: what it saw of each place, the version it knows, its lease, its job, and a write that may come late."""

    views: tuple[View | None, ...]
    version: int = 0
    held: tuple[Held, ...] = ()
    job: Job | None = None
    late: Plan | None = None


class Entry(NamedTuple):
    """One period of the ledger: what was used, the largest amount in force, and what shards had spent that left it."""

    key: Key
    used: int
    most: int
    left: int = 0


class State(NamedTuple):
    """Everything that exists."""

    tick: int
    items: tuple[Item | None, ...]
    clients: tuple[Client, ...]
    version: int = 0
    ledger: tuple[Entry, ...] = ()
    deleted: int = 0


class Move(NamedTuple):
    """One event."""

    what: str
    client: int = -1
    order: Order | None = None
    detail: str = ""
