"""Mutations of what an operator does to a bucket: reset and credit. Only the model has operators."""

from collections.abc import Callable
from typing import Any

from tests.model.invariants import CLAMP, KEPT, ONCE, TOTALS
from tests.mutations import writes
from tests.mutations.mutation import model, mutation, redundant, writer, written
from zae_limiter.core import operator_actions
from zae_limiter.schema.operations import Update

Decision = Callable[..., Any]


def whole_capacity(reset: Decision) -> Decision:
    """Return a reset that sets balances to the capacity, whatever was earned since the baseline."""

    def write(view: Any, filled: Any, nonce: int) -> Any:
        shares = view.layout.shared.shares
        return reset(view, [one._replace(balance=shares[one.position].capacity_milli) for one in filled], nonce)

    return write


def at_the_earliest_time(views: Any, now: Any) -> Any:
    """Return how shards are filled, as of the earliest possible time."""
    return operator_actions.reset(views, (now[0], now[0]))


def shard_0_alone(views: Any, now: Any) -> Any:
    """Return how shard 0 is filled, and no other one."""
    return {shard: parts for shard, parts in operator_actions.reset(views, now).items() if not shard}


def keeping_generation(write: Update) -> Update:
    """Return the write without its new generation."""
    kept = {name: value for name, value in write.set.items() if name != "gn"}
    return Update(write.key, write.add, kept, write.remove, write.when)


OPERATORS = (
    mutation(
        "reset without its hold",
        "reset: the hold",
        written(writes.without_hold, "reset"),
        model("resets limits", CLAMP, 4),
    ),
    mutation(
        "reset that keeps an overflow",
        "reset: `tk = cap-E`",
        writer("reset", whole_capacity),
        model("resets", CLAMP, 3),
    ),
    mutation(
        "reset at the earliest time",
        "reset: E at the latest time",
        (),
        model("resets unsure", CLAMP, 4, filled=at_the_earliest_time),
    ),
    mutation(
        "reset of shard 0 alone",
        "reset: all shards in one transaction",
        (),
        model("resets shards", KEPT, 5, filled=shard_0_alone),
    ),
    mutation(
        "reset that keeps the generation",
        "reset: `gn` is raised",
        written(keeping_generation, "reset"),
        redundant("the conditions of earlier writes still fit; one that gives tokens away may undo the reset"),
    ),
    mutation(
        "operator's credit without its record",
        "credit by an operator: the record is absent",
        (),
        model("operator credits", ONCE, 4, keeps_records=False),
    ),
    mutation(
        "operator's credit beyond what is spent",
        "credit by an operator: `tk <= cap-c-E`",
        written(writes.without_ceiling, "operator_credit"),
        model("operator credits", KEPT, 3),
    ),
    mutation(
        "operator's credit without its hold",
        "credit by an operator: the hold",
        written(writes.without_hold, "operator_credit"),
        model("operator credits limits", KEPT, 6),
    ),
    mutation(
        "operator's credit that is not counted",
        "credit by an operator: `tc` is lowered in the same write",
        written(writes.uncounted, "operator_credit"),
        model("operator credits", TOTALS, 2),
    ),
)
