"""Simulated time: the time of the server, and machines whose clocks are offset and drift."""

from dataclasses import dataclass, field
from random import Random

# Far in the future: ministack deletes expired items every minute by the real clock.
START_S = 4_000_000_000.25
PPM = 1e-6


class ServerTime:
    """The reference time. Each direction of a call takes some of it."""

    def __init__(self, random: Random | None = None) -> None:
        self.elapsed_s = 0.0
        self._random = random or Random(7)

    @property
    def now_s(self) -> float:
        return START_S + self.elapsed_s

    def advance(self, seconds: float) -> None:
        self.elapsed_s += seconds

    def date_s(self) -> float:
        """Return the time in a response, in the middle of a round trip."""
        self.advance(self._latency_s())
        told_s = self.now_s
        self.advance(self._latency_s())
        return told_s

    def _latency_s(self) -> float:
        return self._random.uniform(0.001, 0.01)


@dataclass(slots=True)
class Machine:
    """The clocks of a machine, with an offset from the server's time and a drift."""

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
