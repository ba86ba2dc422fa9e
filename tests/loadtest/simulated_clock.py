"""A clock that is moved by hand."""


class SimulatedClock:
    """The time of a limiter and of its recorder."""

    def __init__(self, start_s: float = 1_700_000_000.0) -> None:
        self.time_s = start_s

    def now_s(self) -> float:
        return self.time_s

    def now_ms(self) -> int:
        return int(self.time_s * 1000)

    def monotonic_s(self) -> float:
        return self.time_s
