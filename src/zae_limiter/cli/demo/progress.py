"""What a view of the demo is shown while it runs, and what is known in the end. Values only."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol, Self

from zae_limiter.cli.demo.scenario import Member, Raise
from zae_limiter.core.limit import Limit


@dataclass(frozen=True, slots=True)
class Counts:
    """What came of the calls of a key, or of all keys of a project; ``rejected_above`` by the project alone."""

    admitted: int = 0
    rejected: int = 0
    rejected_above: int = 0
    failed: int = 0
    estimated: int = 0
    used: int = 0

    def __add__(self, other: "Counts") -> "Counts":
        """Return both together."""
        return Counts(
            self.admitted + other.admitted,
            self.rejected + other.rejected,
            self.rejected_above + other.rejected_above,
            self.failed + other.failed,
            self.estimated + other.estimated,
            self.used + other.used,
        )


@dataclass(frozen=True, slots=True)
class DemoStanding:
    """One project or key now: its limits in force and their balances, by name."""

    member: Member
    limits: Mapping[str, Limit]
    source: str
    balances: Mapping[str, int]
    counts: Counts
    retry_after_s: float | None


@dataclass(frozen=True, slots=True)
class RaiseProgress:
    """A limit that is raised: when it is to be, when it was, and when this client first went by it."""

    change: Raise
    due_s: float
    made_s: float | None = None
    seen_s: float | None = None


@dataclass(frozen=True, slots=True)
class DemoFrame:
    """All of the demo now."""

    elapsed_s: float
    total_s: float
    standings: Sequence[DemoStanding]
    raised: RaiseProgress
    events: Sequence[str]


@dataclass(frozen=True, slots=True)
class Line:
    """How it went for one project or key; ``highest_share`` is of what its limits offered, capacity and refill."""

    member: Member
    counts: Counts
    highest_share: float


@dataclass(frozen=True, slots=True)
class Effect:
    """What a raise did: tokens admitted a second below the raised limit, before it and once it was in force."""

    raised: RaiseProgress
    before_per_s: float | None
    after_per_s: float | None


@dataclass(frozen=True, slots=True)
class DemoReport:
    """How it went; ``usage`` is tokens used, by key, as usage snapshots tell."""

    seconds: float
    callers: int
    lines: Sequence[Line]
    effect: Effect
    usage: Mapping[str, int]
    location: str

    @property
    def total(self) -> Counts:
        """What came of all calls."""
        return sum((line.counts for line in self.lines if line.member.is_key), Counts())

    @property
    def highest_share(self) -> float:
        """The largest part of what a limit offered that was ever admitted."""
        return max(line.highest_share for line in self.lines)

    @property
    def is_exceeded(self) -> bool:
        """True if more was admitted than a limit allows."""
        return self.highest_share > 1


class DemoView(AbstractContextManager["DemoView"], Protocol):
    """Where the demo is shown."""

    every_s: float

    def show(self, frame: DemoFrame) -> None:
        """Show how things stand."""
        ...

    def __enter__(self) -> Self: ...


def raise_line(raised: RaiseProgress) -> str:
    """Say what is raised, a minute, and when; before it happens and after."""
    change = raised.change
    what = f"{change.entity_id} {change.after.name} {change.before.refill_amount:,} -> {change.after.refill_amount:,}"
    if raised.made_s is None:
        return f"to be raised at {raised.due_s:.1f} s: {what} a minute"
    seen = "not yet in force" if raised.seen_s is None else f"in force at {raised.seen_s:.1f} s"
    return f"raised at {raised.made_s:.1f} s: {what}, {seen}"
