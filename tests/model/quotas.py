"""Explore the rows of a calendar quota: every reachable state of a small bucket, around one or two edges.

The rows are those of ``zae_limiter.core.quota``. Conditions and writes are evaluated by the model, because the schema
of a bucket does not have quotas yet. ``python -m tests.model --quotas`` runs all of it.
"""

import time
from collections import deque
from dataclasses import dataclass

from tests.model.invariants import ViolationError
from tests.model.quotas_rules import REAL, Rules
from tests.model.quotas_state import Config, Move, State
from tests.model.quotas_world import QuotaWorld
from zae_limiter.core.quota import BAND, HALF_BAND


@dataclass(frozen=True)
class QuotasExplored:
    """The result: numbers of states and transitions, the applied writes, and the shortest trace to a violation."""

    config: Config
    states: int
    transitions: int
    cpu_s: float
    kinds: frozenset[str]
    violation: ViolationError | None = None
    steps: tuple[str, ...] = ()
    complete: bool = True

    def __str__(self) -> str:
        figures = f"{self.states:>9,} states {self.transitions:>10,} transitions  {self.cpu_s:6.1f} s"
        lines = [f"{number:>3}. {step}" for number, step in enumerate(self.steps, start=1)]
        found = "\n".join(["", f"violates {self.violation}", *lines]) if self.violation else ""
        return f"{self.config.name:<24}{figures}{'' if self.complete else '  (not all)'}{found}"


def explore(config: Config, rules: Rules = REAL, most: int | None = None) -> QuotasExplored:
    """Explore a configuration to its end, to the first violation, or to this many states."""
    began = time.process_time()
    world = QuotaWorld(config, rules)
    start = world.start()
    came: dict[State, tuple[State, Move] | None] = {start: None}
    waiting = deque([start])
    transitions = 0
    violation, last = None, None
    while waiting and violation is None and (most is None or len(came) < most):
        state = waiting.popleft()
        for move in world.moves(state):
            last = state, move
            try:
                new = world.after(state, move)
                if new is None:
                    continue
                transitions += 1
                if new not in came:
                    came[new] = state, move
                    world.check(new)
                    waiting.append(new)
            except ViolationError as found:
                violation = found
                break
    steps = () if violation is None or last is None else _steps(world, came, last)
    cpu_s = time.process_time() - began
    complete = not waiting or violation is not None
    return QuotasExplored(config, len(came), transitions, cpu_s, frozenset(world.kinds), violation, steps, complete)


def _steps(
    world: QuotaWorld, came: dict[State, tuple[State, Move] | None], last: tuple[State, Move]
) -> tuple[str, ...]:
    lines = [_line(world, last[0], last[1])]
    state = last[0]
    while (before := came[state]) is not None:
        lines.append(f"{_line(world, *before):<60} {_offers(state)}")
        state = before[0]
    return tuple(reversed(lines))


def _line(world: QuotaWorld, state: State, move: Move) -> str:
    if move.client < 0:
        return (
            f"{world.config.times[min(state.tick + 1, len(world.config.times) - 1)]} s"
            if move.what == "tick"
            else move.what
        )
    order = ""
    if move.order is not None:
        order = f" {move.order.kind} {move.order.take or move.order.debit or ''} at {move.order.place}"
    seen = [_shown(view.qk) if view else "-" for view in state.clients[move.client].views]
    return f"client {move.client} {move.what}{order} {move.detail} by what it saw ({', '.join(seen)})"


def _offers(state: State) -> str:
    items = [f"{_shown(item.qk)} v{item.version} g{item.generation}" if item else "-" for item in state.items]
    return f"=> {', '.join(items)}"


def _shown(qk: int) -> str:
    epoch = (HALF_BAND - qk) // BAND
    return f"e{epoch}:{-BAND * epoch - qk}"
