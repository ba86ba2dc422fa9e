"""Define the values that a view of the demo shows, and its report."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from enum import Enum
from typing import Protocol, Self

from zae_limiter.cli.demo.scenario import Member
from zae_limiter.core.lazy_dataclass import asdict, dataclass
from zae_limiter.core.limit import Limit


@dataclass(frozen=True, slots=True)
class Counts:
    """The results of the calls of a key, or of all keys of a project.

    ``rejected_above`` counts the rejections by the project.
    """

    admitted: int = 0
    rejected: int = 0
    rejected_above: int = 0
    failed: int = 0
    estimated: int = 0
    used: int = 0

    def __add__(self, other: "Counts") -> "Counts":
        """Return the sum."""
        return Counts(**{name: count + getattr(other, name) for name, count in asdict(self).items()})


@dataclass(frozen=True, slots=True)
class DemoStanding:
    """One project or key now: its limits in force and their balances, by name."""

    member: Member
    limits: Mapping[str, Limit]
    source: str
    balances: Mapping[str, int]
    counts: Counts
    retry_after_s: float | None


class StepState(Enum):
    """The state of a step."""

    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class Step:
    """A step of the demo: its name, its state, and one line about what happens or happened."""

    name: str
    state: StepState
    text: str

    def __str__(self) -> str:
        """Return the name and the text, in aligned columns."""
        return f"{self.name:7} {self.text}"


@dataclass(frozen=True, slots=True)
class DemoFrame:
    """The whole demo at one moment."""

    elapsed_s: float
    total_s: float
    standings: Sequence[DemoStanding]
    steps: Sequence[Step]
    events: Sequence[str]


@dataclass(frozen=True, slots=True)
class Line:
    """The result of one project or key; ``highest_share`` is the admitted part of capacity and refill."""

    member: Member
    counts: Counts
    highest_share: float


@dataclass(frozen=True, slots=True)
class DemoReport:
    """The report of a run; ``usage`` is the tokens used by each key, from usage snapshots."""

    seconds: float
    processes: int
    lines: Sequence[Line]
    steps: Sequence[Step]
    usage: Mapping[str, int]
    is_interrupted: bool = False

    @property
    def total(self) -> Counts:
        """The sum over all keys."""
        return sum((line.counts for line in self.lines if line.member.is_key), Counts())

    @property
    def highest_share(self) -> float:
        """The largest admitted part of what a limit offered."""
        return max(line.highest_share for line in self.lines)

    @property
    def is_exceeded(self) -> bool:
        """Whether more was admitted than a limit allows."""
        return self.highest_share > 1

    @property
    def is_usage_equal(self) -> bool:
        """Whether the usage snapshots equal what the processes counted."""
        return self.usage == {line.member.entity_id: line.counts.used for line in self.lines if line.member.is_key}

    @property
    def is_failed(self) -> bool:
        """Whether a limit was exceeded, or a step or the usage differs from what the limiter promises."""
        is_step_failed = any(step.state is StepState.FAILED for step in self.steps)
        return self.is_exceeded or is_step_failed or not self.is_usage_equal


class DemoView(AbstractContextManager["DemoView"], Protocol):
    """A view of the demo."""

    every_s: float

    def show(self, frame: DemoFrame) -> None:
        """Show the current state."""
        ...

    def __enter__(self) -> Self: ...
