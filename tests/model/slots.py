"""Explore every reachable state of one small bucket with slots, with the real decisions and writes.

    python -m tests.model.slots [--config NAME] [--deeper] [--most STATES] [--mutations]

The search is breadth-first, so that a violation is printed as the shortest sequence of steps that leads to it.
"""

import argparse
import sys
import time
from collections import deque
from dataclasses import dataclass, field

from tests.model.slots_configs import SLOT_CONFIGS, SlotConfig
from tests.model.slots_invariants import ALL, ViolationError
from tests.model.slots_state import Move, State
from tests.model.slots_world import World


@dataclass
class Explored:
    """The result: numbers of states and transitions, the kinds of writes, and the violation with its shortest steps."""

    config: SlotConfig
    states: int = 0
    transitions: int = 0
    cpu_s: float = 0.0
    kinds: set[str] = field(default_factory=set)
    violation: ViolationError | None = None
    trace: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        figures = f"{self.states:>9,} states {self.transitions:>10,} transitions {self.cpu_s:6.1f} s"
        lines = [f"{self.config.name:<16}{figures}  {', '.join(sorted(self.kinds))}"]
        if self.violation is not None:
            lines += [f"violates {self.violation} after {len(self.trace)} steps:", *self.trace]
        return "\n".join(lines)


def explore(config: SlotConfig, checked: frozenset[str] = ALL, most: int | None = None) -> Explored:
    """Explore a configuration to its end, to the first violation, or to this many states."""
    began, world, result = time.process_time(), World(config, checked), Explored(config)
    start = world.start()
    came: dict[State, tuple[State, Move] | None] = {start: None}
    waiting = deque([start])
    while waiting and result.violation is None and (most is None or len(came) < most):
        state = waiting.popleft()
        for move in world.moves(state):
            try:
                new = world.after(state, move)
                if new is None:
                    continue
                new = world.noted(new)
                result.transitions += 1
                if new not in came:
                    came[new] = state, move
                    world.check(new)
                    waiting.append(new)
            except ViolationError as violation:
                result.violation = violation
                result.trace = _trace(world, came, state, move)
                break
    result.states, result.kinds, result.cpu_s = len(came), world.kinds, time.process_time() - began
    return result


def _trace(world: World, came: dict[State, tuple[State, Move] | None], state: State, last: Move) -> list[str]:
    steps: list[str] = [f"  {last}"]
    while (before := came[state]) is not None:
        slots = [
            {
                name: value
                for name, value in world.items[number].items()
                if (name[:2] == "b_" and "_tc" not in name) or name in ("ttl", "bi")
            }
            for number in state.items
        ]
        steps.append(f"  {before[1]}  ->  tick {state.tick} {slots}")
        state = before[0]
    return steps[::-1]


def main(arguments: list[str]) -> int:
    """Explore the chosen configurations. Return 1 after a violation, or if an expected one is missing."""
    parser = argparse.ArgumentParser(prog="python -m tests.model.slots", description="Explore slots exhaustively.")
    parser.add_argument("--config", action="append", choices=[one.name for one in SLOT_CONFIGS])
    parser.add_argument("--deeper", action="store_true", help="larger bounds")
    parser.add_argument("--most", type=int, help="stop after this many states")
    asked = parser.parse_args(arguments)
    failed = 0
    for config in SLOT_CONFIGS:
        if not asked.config or config.name in asked.config:
            explored = explore(config.deepened() if asked.deeper else config, most=asked.most)
            sys.stdout.write(f"{explored}\n")
            sys.stdout.flush()
            failed += explored.violation is not None
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
