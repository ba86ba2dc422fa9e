"""Compute the axes of a chart: amounts upwards in round steps, and time to the right."""

import math
from collections.abc import Sequence
from typing import NamedTuple

from zae_limiter.core.lazy_dataclass import dataclass
from zae_limiter.core.usage import Window
from zae_limiter.visualization.wording import moment_of

_ROUND = (1, 2, 5, 10)
_STEPS = {
    "hourly": (1, 2, 3, 6, 12, 24, 48, 24 * 7, 24 * 14, 24 * 28),
    "daily": (1, 2, 7, 14, 28, 56, 112, 224),
    "monthly": (1, 2, 3, 6, 12, 24, 60, 120, 240),
}


@dataclass(frozen=True, slots=True)
class Axis:
    """Amounts from a lowest to a highest, both multiples of the step."""

    low: int
    high: int
    step: int

    @property
    def ticks(self) -> list[int]:
        """The labelled amounts, lowest first."""
        return list(range(self.low, self.high + 1, self.step))

    def share(self, amount: float) -> float:
        """Return the relative height of an amount, from 0 to 1."""
        return (amount - self.low) / (self.high - self.low)


class Tick(NamedTuple):
    """A labelled window, by its position."""

    place: int
    label: str


def axis_of(lowest: int, highest: int, most_steps: int = 5) -> Axis:
    """Choose the finest round steps, at most ``most_steps``, for an axis that includes zero and all amounts."""
    low, high = min(lowest, 0), max(highest, 0)
    if low == high:
        high = 1
    magnitude = max(0, math.floor(math.log10(max((high - low) / most_steps, 1))))
    while True:
        for factor in _ROUND:
            step = int(factor) * 10**magnitude
            below, above = -(low // step), -(-high // step)
            if below + above <= most_steps:
                return Axis(-below * step, above * step, step)
        magnitude += 1


def ticks_of(windows: Sequence[Window], most: int) -> list[Tick]:
    """Choose the windows at round times to label: at most ``most``, and at least one."""
    steps = _STEPS[windows[0].type]
    counts = [_count(window) for window in windows]
    chosen: list[int] = []
    for step in steps:
        chosen = [place for place, count in enumerate(counts) if count % step == 0]
        if len(chosen) <= most:
            break
    if not chosen or len(chosen) > most:
        chosen = [0]
    return [Tick(place, _label(windows[place])) for place in chosen]


def _count(window: Window) -> int:
    """Return the number of a window, counted from a Monday, so that weeks begin on Mondays."""
    moment = moment_of(window)
    if window.type == "monthly":
        return moment.year * 12 + moment.month - 1
    days = moment.toordinal() - 1
    return days * 24 + moment.hour if window.type == "hourly" else days


def _label(window: Window) -> str:
    moment = moment_of(window)
    if window.type == "monthly":
        return moment.strftime("%b %Y")
    if window.type == "hourly" and moment.hour:
        return moment.strftime("%H:%M")
    return f"{moment.strftime('%b')} {moment.day}"
