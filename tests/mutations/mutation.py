"""The parts of a mutation: the rule of the protocol that is broken on purpose, how, and the checks that must notice.

A check *notices* a mutation if it fails because of it. A *kept run* is a seed of the simulation that notices.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple
from unittest import mock

from tests.model.config import Config
from tests.model.configs import config
from tests.model.slots_configs import SlotConfig, slot_config
from tests.mutations import writes
from zae_limiter.schema import bucket_writes

Around = Callable[[Any], Any]
"""Takes a real function and returns the one that breaks the rule."""


class Patch(NamedTuple):
    """The function to replace: its owner, its name, and a function that makes the mutated one from the real one."""

    owner: Any
    name: str
    around: Around


Patches = tuple[Patch, ...]

ONE_BUCKET, SHARDED_BUCKET = "one bucket", "sharded bucket"
"""The worlds of the promise tests."""

OVER = frozenset(("made", "overdrawn", "overfull", "promise", "indebted"))
"""Violations of the simulation in which more is offered or taken than exists."""

MISCOUNTED = frozenset(("uncounted", "overcounted", "unsettled"))
"""Violations of the simulation in which the table counted other amounts than users hold."""


@dataclass(frozen=True)
class SimulationCheck:
    """The simulation notices: the possible kinds of violation, and what a plan needs for the rule to matter."""

    kinds: frozenset[str]
    needs: frozenset[str]


@dataclass(frozen=True)
class ModelCheck:
    """The model notices: the invariant that breaks in a configuration, and the length of the shortest trace.

    ``rules`` are the model's own way to break the rule. If it is empty, the patches of writers are used.
    """

    config: Config
    breaks: str
    steps: int
    rules: Mapping[str, Any]


@dataclass(frozen=True)
class PromiseCheck:
    """The promise tests notice, in one of their worlds.

    ``patches`` are their own way to break the rule. If it is empty, the patches of the mutation are used.
    """

    world: str
    patches: Patches = ()


@dataclass(frozen=True)
class SoakCheck:
    """The soak notices: how the table of a worker breaks the rule, and what the violation's text contains."""

    way: str
    violation: str


@dataclass(frozen=True)
class Redundant:
    """No check can notice, because another rule prevents the same fault: which, and what a plan needs."""

    reason: str
    needs: frozenset[str]


@dataclass(frozen=True)
class SlotModelCheck:
    """The model of slots notices: its configuration, the invariant that breaks, and the length of the shortest trace.

    ``is_costly``: only the command explores so many states, not CI.
    """

    config: SlotConfig
    breaks: str
    steps: int
    is_costly: bool = False


Check = SimulationCheck | ModelCheck | SlotModelCheck | PromiseCheck | SoakCheck | Redundant


@dataclass(frozen=True)
class Mutation:
    """A rule that is broken on purpose.

    ``rule`` is its text in ``docs/protocol.md``, and ``patches`` are how it is broken. A mutation without patches is
    broken by each check in its own way.
    """

    name: str
    rule: str
    patches: Patches
    checks: tuple[Check, ...]

    @property
    def simulation(self) -> SimulationCheck | None:
        """What the simulation must notice, None if it need not."""
        return next((check for check in self.checks if isinstance(check, SimulationCheck)), None)

    @property
    def model(self) -> tuple[ModelCheck, ...]:
        """What the model must notice."""
        return tuple(check for check in self.checks if isinstance(check, ModelCheck))

    @property
    def slot_model(self) -> tuple[SlotModelCheck, ...]:
        """What the model of slots must notice."""
        return tuple(check for check in self.checks if isinstance(check, SlotModelCheck))

    @property
    def promise(self) -> tuple[PromiseCheck, ...]:
        """What the promise tests must notice."""
        return tuple(check for check in self.checks if isinstance(check, PromiseCheck))

    @property
    def soak(self) -> SoakCheck | None:
        """What the soak must notice, None if it need not."""
        return next((check for check in self.checks if isinstance(check, SoakCheck)), None)

    @property
    def redundant(self) -> Redundant | None:
        """Why no check can notice, None if one has to."""
        return next((check for check in self.checks if isinstance(check, Redundant)), None)

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Break the rule inside the ``with`` block."""
        with patched(self.patches):
            yield


@contextmanager
def patched(patches: Patches) -> Iterator[None]:
    """Replace functions inside the ``with`` block."""
    with ExitStack() as stack:
        for owner, name, around in patches:
            stack.enter_context(mock.patch.object(owner, name, around(getattr(owner, name))))
        yield


def mutation(name: str, rule: str, patches: Patches, *checks: Check | tuple[Check, ...]) -> Mutation:
    """Return an entry of the catalogue."""
    flat = [one for check in checks for one in (check if isinstance(check, tuple) else (check,))]
    return Mutation(name, rule, patches, tuple(flat))


def patch(owner: Any, name: str, around: Around) -> Patches:
    """Return the patch of one function."""
    return (Patch(owner, name, around),)


def writer(name: str, around: Around) -> Patches:
    """Return the patch of one writer of a bucket."""
    return patch(bucket_writes, name, around)


def written(change: writes.Change, *writers: str) -> Patches:
    """Return the patches that change what writers of a bucket write."""
    return tuple(Patch(bucket_writes, name, writes.changed(change)) for name in writers)


def simulation(kinds: frozenset[str] | str, *needs: str) -> SimulationCheck:
    """State that the simulation notices, by a violation of one of these kinds."""
    return SimulationCheck(frozenset((kinds,)) if isinstance(kinds, str) else kinds, frozenset(needs))


def model(where: Config | str, breaks: str, steps: int, **rules: Any) -> ModelCheck:
    """State that the model notices, in a configuration."""
    return ModelCheck(config(where) if isinstance(where, str) else where, breaks, steps, rules)


def slot_model(name: str, breaks: str, steps: int, *, costly: bool = False) -> SlotModelCheck:
    """State that the model of slots notices, in a configuration."""
    return SlotModelCheck(slot_config(name), breaks, steps, costly)


def promise(*worlds: str, by: Patches = ()) -> tuple[PromiseCheck, ...]:
    """State that the promise tests notice, in each of these worlds."""
    return tuple(PromiseCheck(world, by) for world in worlds)


def soak(way: str, violation: str) -> SoakCheck:
    """State that the soak notices, by a violation whose text contains this."""
    return SoakCheck(way, violation)


def redundant(reason: str, *needs: str) -> Redundant:
    """State that no check can notice, and why."""
    return Redundant(reason, frozenset(needs))
