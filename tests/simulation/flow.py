"""What was used of one limit beyond what it earned, over every span at once: the promise as a running maximum.

For every span of time, takes + debits - credits <= the largest capacity in force in it + what it earns + a little for
clocks and delays. The most that any span ending now has used beyond its earnings is kept up at a constant cost: it
sinks by what is earned, never below the empty span's nothing, and rises by what is used. Where the capacity falls,
spans that began before may still have used the larger one: they are kept beside the newer ones for as long as they used
more.

Pure: whole numbers, millitokens and milliseconds.
"""

from collections.abc import Iterator


def most_earned(amount_milli: int, period_ms: int, span_ms: int) -> int:
    """Return the most that a limit earns in any span of that length."""
    return -(-span_ms * amount_milli // period_ms) if span_ms > 0 else 0


class Flow:
    """One limit of one bucket, all its shards together.

    ``spans`` are the most that spans have used, and the largest capacity in them: older ones first, whose capacity is
    larger; ``excess_milli`` is what clocks and delays have been off by at most, in what the limit earns in that time.
    """

    __slots__ = ("amount_milli", "excess_milli", "grid_milli", "period_ms", "spans")

    def __init__(self, capacity_milli: int, rate: tuple[int, int], now_ms: int) -> None:
        self.amount_milli, self.period_ms = rate
        self.grid_milli = now_ms * self.amount_milli // self.period_ms
        self.spans = [[0, capacity_milli]]
        self.excess_milli = 0

    def spend(self, milli: int, now_ms: int) -> None:
        """Use so much now; what is given back is used less."""
        grid = now_ms * self.amount_milli // self.period_ms
        change = milli - (grid - self.grid_milli)
        earned = grid - self.grid_milli
        self.grid_milli = grid
        spans = self.spans
        newest = spans[-1]
        if len(spans) > 1:
            for older in spans[:-1]:
                older[0] += change
        # A span may begin at any time, so also now, before the use or after it.
        newest[0] = max(0, max(0, newest[0] - earned) + milli)
        if len(spans) > 1:
            self._forget()

    def ease(self, milli: int) -> None:
        """Allow so much more: two grids may differ where they meet."""
        for span in self.spans:
            span[0] -= milli
        self.spans[-1][0] = max(0, self.spans[-1][0])

    def limit_to(self, capacity_milli: int) -> None:
        """Put the limit on another capacity from now on."""
        for span in self.spans:
            span[1] = max(span[1], capacity_milli)
        if capacity_milli < self.spans[-1][1]:
            self.spans.append([0, capacity_milli])
        self._forget()

    def pace_at(self, rate: tuple[int, int], since_ms: int, now_ms: int) -> None:
        """Put the limit on another rate; whoever did so reckons with it since a little earlier."""
        amount, period = rate
        if (amount, period) == (self.amount_milli, self.period_ms):
            return
        self.spend(0, now_ms)
        if since_ms < now_ms:
            faster = now_ms * amount // period - since_ms * amount // period
            slower = now_ms * self.amount_milli // self.period_ms - since_ms * self.amount_milli // self.period_ms
            self.ease(max(0, faster - slower))
        self.amount_milli, self.period_ms = amount, period
        self.grid_milli = now_ms * amount // period

    def allow_for(self, span_ms: int) -> None:
        """Remember that clocks and delays are off by so much."""
        excess = most_earned(self.amount_milli, self.period_ms, span_ms)
        if excess > self.excess_milli:
            self.excess_milli = excess

    def broken(self, more_milli: int = 0) -> Iterator[tuple[int, int]]:
        """Return what spans have used that is too much, and what it should have been at most."""
        for used, capacity in self.spans:
            if used > capacity + self.excess_milli + more_milli:
                yield used, capacity + self.excess_milli + more_milli

    def _forget(self) -> None:
        """Forget spans that used less than newer ones, which have a smaller capacity."""
        kept: list[list[int]] = []
        for span in reversed(self.spans):
            if not kept or (span[0] > kept[-1][0] and span[1] > kept[-1][1]):
                kept.append(span)
            elif span[0] > kept[-1][0]:
                # The same capacity: one span stands for both.
                kept[-1][0] = span[0]
        self.spans = kept[::-1]


class Ideal:
    """What a limit of a bucket would hold if it had been created at the true time, and full."""

    __slots__ = ("_capacity_milli", "_grid_milli", "_rate", "level_milli")

    def __init__(self, capacity_milli: int, level_milli: int, rate: tuple[int, int], now_ms: int) -> None:
        self._capacity_milli = capacity_milli
        self._rate = rate
        self._grid_milli = now_ms * rate[0] // rate[1]
        self.level_milli = level_milli

    def spend(self, milli: int, now_ms: int) -> None:
        """Use so much now; what is above the capacity before that is lost."""
        grid = now_ms * self._rate[0] // self._rate[1]
        earned, self._grid_milli = grid - self._grid_milli, grid
        self.level_milli = min(self._capacity_milli, self.level_milli + earned) - milli
