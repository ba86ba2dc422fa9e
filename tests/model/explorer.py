"""Breadth-first search through every reachable state: the first violation found has the shortest trace."""

import time
from collections import deque
from dataclasses import dataclass

from tests.model.config import Config
from tests.model.invariants import ALL, ViolationError
from tests.model.rules import REAL, Rules
from tests.model.state import Move, State
from tests.model.trace import Trace, traced
from tests.model.world import World


@dataclass(frozen=True)
class Explored:
    """The result: numbers of states and transitions, the largest distance, the applied writes, and the violation.

    ``violation`` is None if every invariant held in every state.
    """

    config: Config
    states: int
    transitions: int
    depth: int
    cpu_s: float
    writes: frozenset[str]
    violation: Trace | None

    def __str__(self) -> str:
        found = "" if self.violation is None else f"\n{self.violation}"
        figures = f"{self.states:>9,} states {self.transitions:>10,} transitions  depth {self.depth:>3}"
        return f"{self.config.name:<14}{figures}  {self.cpu_s:6.1f} s{found}"


def explore(config: Config, rules: Rules = REAL, checked: frozenset[str] = ALL, most: int | None = None) -> Explored:
    """Explore a configuration to its end, to the first violation, or to this many states."""
    began = time.process_time()
    world = World(config, rules, checked)
    start = world.start()
    came: dict[State, tuple[State, Move] | None] = {start: None}
    depths = {start: 0}
    waiting = deque([start])
    transitions = depth = 0
    violation = None
    while waiting and violation is None and (most is None or len(came) < most):
        state = waiting.popleft()
        depth = depths.pop(state)
        if world.is_final(state):
            continue
        for move in world.moves(state):
            try:
                new = world.after(state, move)
                if new is None:
                    continue
                transitions += 1
                if new not in came:
                    came[new] = state, move
                    depths[new] = depth + 1
                    world.invariants.check_state(new)
                    waiting.append(new)
            except ViolationError as found:
                violation = traced(world, came, (state, move), found)
                break
    cpu_s = time.process_time() - began
    farthest = depth + (violation is not None)
    return Explored(config, len(came), transitions, farthest, cpu_s, frozenset(world.writes), violation)
