"""Define the values that a view of the demo shows, and its report."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol, Self

from zae_limiter.cli.demo.scenario import Member, Raise
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
    """The progress of a raise: when it is due, when it was stored, and when this client first used it."""

    change: Raise
    due_s: float
    made_s: float | None = None
    seen_s: float | None = None


@dataclass(frozen=True, slots=True)
class DemoFrame:
    """The whole demo at one moment."""

    elapsed_s: float
    total_s: float
    standings: Sequence[DemoStanding]
    raised: RaiseProgress
    events: Sequence[str]


@dataclass(frozen=True, slots=True)
class Line:
    """The result of one project or key; ``highest_share`` is the admitted part of capacity and refill."""

    member: Member
    counts: Counts
    highest_share: float


@dataclass(frozen=True, slots=True)
class Effect:
    """The effect of a raise: tokens admitted per second under that limit, before and after."""

    raised: RaiseProgress
    before_per_s: float | None
    after_per_s: float | None


@dataclass(frozen=True, slots=True)
class DemoReport:
    """The report of a run; ``usage`` is the tokens used by each key, from usage snapshots."""

    seconds: float
    callers: int
    lines: Sequence[Line]
    effect: Effect
    usage: Mapping[str, int]
    location: str

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


class DemoView(AbstractContextManager["DemoView"], Protocol):
    """A view of the demo."""

    every_s: float

    def show(self, frame: DemoFrame) -> None:
        """Show the current state."""
        ...

    def __enter__(self) -> Self: ...


def raise_line(raised: RaiseProgress) -> str:
    """Describe a raise, in tokens per minute, before or after it happens."""
    change = raised.change
    what = f"{change.entity_id} {change.after.name} {change.before.refill_amount:,} -> {change.after.refill_amount:,}"
    if raised.made_s is None:
        return f"will be raised at {raised.due_s:.1f} s: {what} per minute"
    seen = "not yet in force" if raised.seen_s is None else f"in force at {raised.seen_s:.1f} s"
    return f"raised at {raised.made_s:.1f} s: {what}, {seen}"
