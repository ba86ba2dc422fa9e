"""Print a violation as the steps that lead to it, each with what the bucket offers after it."""

from collections.abc import Mapping
from dataclasses import dataclass

from tests.model.config import Milli, Order
from tests.model.invariants import ViolationError
from tests.model.state import Move, State
from tests.model.world import World

Came = Mapping[State, tuple[State, Move] | None]


@dataclass(frozen=True)
class Trace:
    """The steps that lead to a violation; the last step violates the invariant."""

    steps: tuple[str, ...]
    violation: ViolationError

    def __len__(self) -> int:
        return len(self.steps)

    def __str__(self) -> str:
        lines = [f"  {number:>3}. {step}" for number, step in enumerate(self.steps, start=1)]
        return "\n".join([f"violates {self.violation} after {len(self)} steps:", *lines])


def traced(world: World, came: Came, last: tuple[State, Move], violation: ViolationError) -> Trace:
    """Return the shortest path to a violation."""
    steps = [_line(world, last[0], last[1], None)]
    state = last[0]
    while (before := came[state]) is not None:
        steps.append(_line(world, before[0], before[1], state))
        state = before[0]
    return Trace(tuple(reversed(steps)), violation)


def _line(world: World, state: State, move: Move, after: State | None) -> str:
    line = _what(world, state, move)
    return line if after is None else f"{line:<64} {_offers(world, after)}"


def _what(world: World, state: State, move: Move) -> str:
    if move.who < 0:
        return {"tick": "a tick passes", "expires": "the item expires"}.get(move.what, "the configuration changes")
    who = f"client {move.who}" if move.who < world.config.clients else "the aggregator"
    actor = state.actors[move.who]
    if move.what == "looks":
        return f"{who} looks at shard {move.detail}"
    if move.what == "sends" and move.order is not None:
        return f"{who} sends {_order(world, move.order)} by what it saw ({_seen(world, state, move.who)}) {move.detail}"
    if move.what == "arrives" and actor.job is not None:
        once_more = "sent again: " if actor.job.again else ""
        return f"{who}'s {_order(world, actor.job.order)}: {once_more}{move.detail}"
    if move.what == "narrows":
        return f"{who} knows the time better"
    if move.what == "learns":
        return f"{who} reads the configuration"
    return f"{who} {move.what}" if move.what in ("ends", "gives up") else f"{who}'s lost write {move.what}"


def _order(world: World, order: Order) -> str:
    kind, takes, debits, credits, shard, effort, reserve = order
    amounts = [
        f"{sign}{_tokens(world, milli)}" for sign, milli in (("", takes), ("+", debits), ("-", credits)) if any(milli)
    ]
    place = f" shard {shard}" if world.config.most_shards > 1 else ""
    leaves = "" if reserve is None else f" leaving {reserve.numerator}/{reserve.denominator}"
    return " ".join([kind, *amounts]) + leaves + place + (f" effort {effort}" if effort else "")


def _tokens(world: World, milli: Milli) -> str:
    return ",".join(
        f"{amount / 1000:g} {name}" for name, amount in zip(world.config.names, milli, strict=True) if amount
    )


def _seen(world: World, state: State, who: int) -> str:
    return _levels(world, state.actors[who].views, state.phase)


def _offers(world: World, state: State) -> str:
    used = ", ".join(f"{most[-1] / 1000:g}" for most in state.ledger)
    return f"offers {_levels(world, state.items, state.phase)}; used {used}"


def _levels(world: World, numbers: tuple[int, ...], phase: int) -> str:
    names = world.config.names
    text = [
        "/".join(f"{world.pool.level(one, name, phase) / 1000:g}" for name in names) if one else "-" for one in numbers
    ]
    return " + ".join(text)
