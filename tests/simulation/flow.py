"""The promise as a running maximum: what one limit used beyond what it earned, over every span of time.

For every span, takes + debits - credits <= the largest capacity in force in it + what it earns + an allowance for
clocks and delays. The largest excess of any span that ends now is updated at a constant cost. It sinks by what is
earned, but not below 0, which is the excess of the empty span. It rises by what is used.

When the capacity falls, spans that began before may have used the larger capacity. They are kept beside the newer spans
while their excess is larger.

No clock, no I/O: only integers, in millitokens and milliseconds.
"""

from collections.abc import Iterator


def most_earned(amount_milli: int, period_ms: int, span_ms: int) -> int:
    """Return the most that a limit earns in any span of this length."""
    return -(-span_ms * amount_milli // period_ms) if span_ms > 0 else 0


class Flow:
    """One limit of one bucket, all its shards together.

    ``spans`` are pairs of the largest excess of some spans and their largest capacity. Older spans come first and have
    a larger capacity. ``excess_milli`` is what the limit earns in the largest clock error or delay seen so far.
    """

    __slots__ = ("amount_milli", "excess_milli", "grid_milli", "period_ms", "spans")

    def __init__(self, capacity_milli: int, rate: tuple[int, int], now_ms: int) -> None:
        self.amount_milli, self.period_ms = rate
        self.grid_milli = now_ms * self.amount_milli // self.period_ms
        self.spans = [[0, capacity_milli]]
        self.excess_milli = 0

    def spend(self, milli: int, now_ms: int) -> None:
        """Use this much now; a negative amount is a credit."""
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
            self._drop_dominated()

    def tolerate(self, milli: int) -> None:
        """Allow this much more, because two grids may differ where they meet."""
        for span in self.spans:
            span[0] -= milli
        self.spans[-1][0] = max(0, self.spans[-1][0])

    def change_capacity(self, capacity_milli: int) -> None:
        """Change the capacity from now on."""
        for span in self.spans:
            span[1] = max(span[1], capacity_milli)
        if capacity_milli < self.spans[-1][1]:
            self.spans.append([0, capacity_milli])
        self._drop_dominated()

    def change_rate(self, rate: tuple[int, int], since_ms: int, now_ms: int) -> None:
        """Change the rate from now on. The client that changed it may have counted with it since ``since_ms``."""
        amount, period = rate
        if (amount, period) == (self.amount_milli, self.period_ms):
            return
        self.spend(0, now_ms)
        if since_ms < now_ms:
            faster = now_ms * amount // period - since_ms * amount // period
            slower = now_ms * self.amount_milli // self.period_ms - since_ms * self.amount_milli // self.period_ms
            self.tolerate(max(0, faster - slower))
        self.amount_milli, self.period_ms = amount, period
        self.grid_milli = now_ms * amount // period

    def allow_for(self, span_ms: int) -> None:
        """Record a clock error or delay of this many milliseconds."""
        excess = most_earned(self.amount_milli, self.period_ms, span_ms)
        if excess > self.excess_milli:
            self.excess_milli = excess

    def exceeded(self, more_milli: int = 0) -> Iterator[tuple[int, int]]:
        """Yield the excess of each span that used too much, and the most that was allowed."""
        for used, capacity in self.spans:
            if used > capacity + self.excess_milli + more_milli:
                yield used, capacity + self.excess_milli + more_milli

    def _drop_dominated(self) -> None:
        """Drop spans whose excess is smaller than that of a newer span with a smaller capacity."""
        kept: list[list[int]] = []
        for span in reversed(self.spans):
            if not kept or (span[0] > kept[-1][0] and span[1] > kept[-1][1]):
                kept.append(span)
            elif span[0] > kept[-1][0]:
                # Two spans with the same capacity: the larger excess is enough.
                kept[-1][0] = span[0]
        self.spans = kept[::-1]


class Ideal:
    """The balance that a limit would have if its bucket had been created full at the true time."""

    __slots__ = ("_capacity_milli", "_grid_milli", "_rate", "level_milli")

    def __init__(self, capacity_milli: int, level_milli: int, rate: tuple[int, int], now_ms: int) -> None:
        self._capacity_milli = capacity_milli
        self._rate = rate
        self._grid_milli = now_ms * rate[0] // rate[1]
        self.level_milli = level_milli

    def spend(self, milli: int, now_ms: int) -> None:
        """Use this much now; tokens above the capacity before that are lost."""
        grid = now_ms * self._rate[0] // self._rate[1]
        earned, self._grid_milli = grid - self._grid_milli, grid
        self.level_milli = min(self._capacity_milli, self.level_milli + earned) - milli
