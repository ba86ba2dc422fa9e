"""A table behind the fault proxy with async or sync clients, and the kinds of calls that a fault may hit."""

import contextlib
import itertools
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.dynamodb.engines import fresh_table_name
from tests.dynamodb.faults import (
    Drop,
    Fault,
    Garbage,
    Half,
    Nothing,
    ResetIdle,
    Split,
    Stall,
    WrongChecksum,
    server_error,
    throttled,
)
from tests.dynamodb.ledgers import RESOURCE, Ledger, quick_engine, table_url
from tests.dynamodb.proxy import Proxy
from tests.dynamodb.trees import tree
from zae_limiter import Limit, RateLimiterUnavailable, RateLimitExceeded

LONG_DEADLINE_S = 30.0
CONSUME = {"rpm": 1, "tpm": 10}
# So slow that nothing refills during a test.
LIMITS = [Limit.per_day("rpm", 1_000), Limit.per_day("tpm", 10_000)]
OTHER_LIMITS = [Limit.per_day("rpm", 1_001), Limit.per_day("tpm", 10_001)]

# Faults that leave it unknown whether the call was applied.
UNKNOWN_OUTCOMES: dict[str, Fault] = {
    "dropped": Drop(applied=False),
    "dropped in order": Drop(applied=False, reset=False),
    "dropped after": Drop(applied=True),
    "half": Half(),
    "half, reset": Half(reset=True),
    "checksum": WrongChecksum(),
    "stalled": Stall(applied=False),
    "stalled after": Stall(applied=True),
    "500": server_error(applied=False),
    "500 after": server_error(applied=True),
    "garbage": Garbage(),
    "garbage after": Garbage(applied=True),
}
# Faults with a definite outcome: a definite failure, or a complete response.
DEFINITE_OUTCOMES: dict[str, Fault] = {"throttled": throttled(), "reset when idle": ResetIdle(), "split": Split()}
FAULTS = UNKNOWN_OUTCOMES | DEFINITE_OUTCOMES


class WorkFailedError(Exception):
    """The work that the tokens were taken for has failed."""


class FaultyTable:
    """A table, the proxy in front of it, and one client per deadline, whose deadlines can be shortened later."""

    def __init__(self, kind: str, stack: ExitStack) -> None:
        engine = quick_engine()
        self.proxy = stack.enter_context(Proxy(engine.url))
        table = fresh_table_name()
        self._url = table_url(table, self.proxy.url)
        self._stack = stack
        self._tree = stack.enter_context(tree(kind))
        self._limiters: dict[tuple[float, bool], Any] = {}
        self._numbers = itertools.count(1)
        first = self.limiter(LONG_DEADLINE_S)
        first.set_system_defaults(LIMITS)
        self.ledger = Ledger(engine.url, table, first.repository.scope.namespace_id)

    def limiter(self, deadline_s: float, speculative: bool = True) -> Any:
        """Return a client with this deadline."""
        if (deadline_s, speculative) not in self._limiters:
            self._limiters[deadline_s, speculative] = self.new_limiter(deadline_s, speculative)
        return self._limiters[deadline_s, speculative]

    def new_limiter(self, deadline_s: float, speculative: bool = True) -> Any:
        """Return a separate client with connections of its own."""
        repo = self._tree.open(self._url, deadline_s=deadline_s)
        self._stack.callback(repo.close)
        return self._tree.limiter(repo, speculative_writes=speculative)

    def shorten_deadlines(self, deadline_s: float) -> None:
        """Set the deadline of later calls of all clients, until `clear_faults`.

        Calls without faults keep a long deadline, since a busy machine is slow.
        """
        for limiter in self._limiters.values():
            limiter._client._deadline_s = deadline_s

    def clear_faults(self) -> None:
        """Remove all faults and restore the deadlines."""
        self.proxy.clear_faults()
        for (deadline_s, _), limiter in self._limiters.items():
            limiter._client._deadline_s = deadline_s

    def actor(self, deadline_s: float = LONG_DEADLINE_S) -> "Actor":
        """Return a new entity as a client with this deadline sees it, without faults."""
        self.clear_faults()
        self.proxy.forget()
        self.limiter(deadline_s)  # opened before anything goes wrong
        return Actor(self, f"user-{next(self._numbers)}", deadline_s)


@dataclass(slots=True)
class Actor:
    """An entity and the client that acts for it."""

    faulty: FaultyTable
    entity_id: str
    deadline_s: float
    choice: str | None = None

    @property
    def limiter(self) -> Any:
        return self.faulty.limiter(self.deadline_s)

    @property
    def used(self) -> dict[str, int]:
        """What the table has counted."""
        return self.faulty.ledger.used(self.entity_id)

    @property
    def parent_id(self) -> str:
        return f"above-{self.entity_id}"

    def acquire(self, **options: Any) -> Any:
        return self.limiter.acquire(self.entity_id, RESOURCE, CONSUME, **{"on_unavailable": self.choice, **options})

    def take(self, **options: Any) -> None:
        with self.acquire(**options):
            pass

    def have_parent(self) -> None:
        """Become the child of a parent, which is charged too, and cache that."""
        self.limiter.create_entity(self.parent_id)
        self.limiter.create_entity(self.entity_id, parent_id=self.parent_id, cascade=True)
        self.take()


Plant = Callable[[], None]
"""Makes the next calls go wrong."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """Calls of a client with a fault injected before one of them, and the usage they should result in.

    ``meets``: the number of calls that meet the fault. ``lost``: the usage if a credit was lost.
    """

    act: Callable[[Actor, Plant], None]
    target: str
    used: dict[str, int]
    meets: int = 1
    cascades: bool = False
    lost: dict[str, int] = field(default_factory=dict)


def _take(actor: Actor, plant: Plant) -> None:
    actor.take()
    plant()
    actor.take()


def _first(actor: Actor, plant: Plant) -> None:
    plant()
    actor.take()


def _look(actor: Actor, plant: Plant) -> None:
    reading = actor.faulty.limiter(actor.deadline_s, speculative=False)
    actor.take()
    with reading.acquire(actor.entity_id, RESOURCE, CONSUME):
        pass
    plant()
    with reading.acquire(actor.entity_id, RESOURCE, CONSUME, on_unavailable=actor.choice):
        pass


def _rebase(actor: Actor, plant: Plant) -> None:
    actor.take()
    plant()
    actor.take(limits=OTHER_LIMITS)


def _debit(actor: Actor, plant: Plant) -> None:
    with actor.acquire() as lease:
        lease.adjust(tpm=5)
        plant()


def _more(actor: Actor, plant: Plant) -> None:
    with actor.acquire() as lease:
        plant()
        lease.consume(tpm=5)


def _cascade(actor: Actor, plant: Plant) -> None:
    actor.have_parent()
    plant()
    actor.take()


SCENARIOS = {
    "take": Scenario(_take, "UpdateItem", {"rpm": 2, "tpm": 20}),
    "create": Scenario(_first, "PutItem", {"rpm": 1, "tpm": 10}),
    "first touch": Scenario(_first, "BatchGetItem", {"rpm": 1, "tpm": 10}),
    "look": Scenario(_look, "GetItem", {"rpm": 3, "tpm": 30}),
    "rebase": Scenario(_rebase, "UpdateItem", {"rpm": 2, "tpm": 20}),
    "debit": Scenario(_debit, "UpdateItem", {"rpm": 1, "tpm": 15}),
    "more": Scenario(_more, "UpdateItem", {"rpm": 1, "tpm": 15}),
    "one of a cascade": Scenario(_cascade, "UpdateItem", {"rpm": 2, "tpm": 20}, cascades=True),
    "both of a cascade": Scenario(_cascade, "UpdateItem", {"rpm": 2, "tpm": 20}, meets=2, cascades=True),
}


def _credit(actor: Actor, plant: Plant) -> None:
    with actor.acquire() as lease:
        lease.adjust(tpm=-4)
        plant()


def _release(actor: Actor, plant: Plant) -> None:
    with actor.acquire() as lease:
        plant()
        with contextlib.suppress(RateLimiterUnavailable):
            lease.release(tpm=4)


def _roll_back(actor: Actor, plant: Plant) -> None:
    with contextlib.suppress(WorkFailedError), actor.acquire():
        plant()
        raise WorkFailedError


def _mixed(actor: Actor, plant: Plant) -> None:
    with actor.acquire() as lease:
        lease.adjust(rpm=1, tpm=-4)
        plant()


def _denied_by_parent(actor: Actor, plant: Plant) -> None:
    actor.limiter.set_limits(actor.parent_id, [Limit.per_day("rpm", 2)])
    actor.have_parent()
    # Another client takes the rest of the parent. A client that knows it to be empty would write nothing.
    other = actor.faulty.limiter(actor.deadline_s, speculative=False)
    with other.acquire(actor.parent_id, RESOURCE, {"rpm": 1}):
        pass
    # The take of the child is applied and that of the parent refused. The third write credits the child.
    actor.faulty.proxy.next(Nothing(), 2, "UpdateItem")
    plant()
    with pytest.raises(RateLimitExceeded):
        actor.take()


CREDITS = {
    "on exit": Scenario(_credit, "UpdateItem", {"rpm": 1, "tpm": 6}, lost={"rpm": 1, "tpm": 10}),
    "release": Scenario(_release, "UpdateItem", {"rpm": 1, "tpm": 6}, lost={"rpm": 1, "tpm": 10}),
    "roll back": Scenario(_roll_back, "UpdateItem", {"rpm": 0, "tpm": 0}, lost={"rpm": 1, "tpm": 10}),
    "beside a debit": Scenario(_mixed, "UpdateItem", {"rpm": 2, "tpm": 6}, lost={"rpm": 2, "tpm": 10}),
    "child of a parent that refused": Scenario(
        _denied_by_parent, "UpdateItem", {"rpm": 1, "tpm": 10}, lost={"rpm": 2, "tpm": 20}
    ),
}


def gives_back(body: Any) -> bool:
    """Return whether a request credits a balance."""
    if "UpdateExpression" not in body:
        return False
    added = body["UpdateExpression"].partition(" SET ")[0].removeprefix("ADD ").split(", ")
    names, values = body["ExpressionAttributeNames"], body["ExpressionAttributeValues"]
    pairs = [pair.split() for pair in added]
    return any(names[name].endswith("_tk") and int(values[value]["N"]) > 0 for name, value in pairs)


def is_applied(fault: Fault) -> bool:
    """Return whether the engine applies the requests that the fault hits."""
    return getattr(fault, "applied", True)
