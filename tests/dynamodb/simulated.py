"""Simulated time: one that the server keeps, and machines whose clocks are off and drift, each in its own way."""

from dataclasses import dataclass, field
from random import Random

# Far ahead of any real time: ministack deletes what has expired, every minute, by a clock of its own.
START_S = 4_000_000_000.25
PPM = 1e-6


class ServerTime:
    """The time that counts. A call takes some of it, on its way to the server and on its way back."""

    def __init__(self, random: Random | None = None) -> None:
        self.elapsed_s = 0.0
        self._random = random or Random(7)

    @property
    def now_s(self) -> float:
        return START_S + self.elapsed_s

    def advance(self, seconds: float) -> None:
        self.elapsed_s += seconds

    def date_s(self) -> float:
        """The time as an answer tells it, in the middle of a round trip."""
        self.advance(self._latency_s())
        told_s = self.now_s
        self.advance(self._latency_s())
        return told_s

    def _latency_s(self) -> float:
        return self._random.uniform(0.001, 0.01)


@dataclass(slots=True)
class Machine:
    """The clocks of a machine: so much ahead of the server's, and so much faster."""

    server: ServerTime
    ahead_s: float = 0.0
    drift_ppm: float = 0.0
    booted_s: float = field(default=12_345.678)

    def now_ms(self) -> int:
        return int((START_S + self.ahead_s + self._elapsed_s()) * 1000)

    def monotonic_s(self) -> float:
        return self.booted_s + self._elapsed_s()

    def _elapsed_s(self) -> float:
        return self.server.elapsed_s * (1 + self.drift_ppm * PPM)
