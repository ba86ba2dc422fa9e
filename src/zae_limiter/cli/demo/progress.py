"""What a view of the demo is shown while it runs, and what is known in the end. Values only."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol, Self

from zae_limiter.cli.demo.scenario import Project


@dataclass(frozen=True, slots=True)
class Standing:
    """One project now."""

    project: Project
    balances: dict[str, int]
    admitted: int
    rejected: int
    retry_after_s: float | None


@dataclass(frozen=True, slots=True)
class Frame:
    """All of the demo now."""

    elapsed_s: float
    total_s: float
    standings: Sequence[Standing]
    events: Sequence[str]


@dataclass(frozen=True, slots=True)
class Report:
    """How it went; ``highest_share`` is of what the limits offered, capacity and refill."""

    seconds: float
    callers: int
    projects: int
    admitted: int
    rejected: int
    failed: int
    estimated: int
    used: int
    highest_share: float
    location: str

    @property
    def is_exceeded(self) -> bool:
        """True if more was admitted than a limit allows."""
        return self.highest_share > 1


class View(AbstractContextManager["View"], Protocol):
    """Where the demo is shown."""

    every_s: float

    def show(self, frame: Frame) -> None:
        """Show how things stand."""
        ...

    def __enter__(self) -> Self: ...
