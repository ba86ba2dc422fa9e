"""Compare what was admitted with what the limits offered: a check that is independent of the limiter. Pure."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from zae_limiter.core.bucket import grid
from zae_limiter.core.limit import Limit


class Phase(NamedTuple):
    """A limit, and the time from which it was in force, until the next phase."""

    start_ms: int
    limit: Limit


class DemoAccount:
    """What was taken of one limit since the start, minus what was given back.

    It is evaluated at the end, so that a raise by another process may be noticed a little late.
    """

    def __init__(self, limit: Limit, start_ms: int) -> None:
        self._phases = [Phase(start_ms, limit)]
        self._net = 0
        self._takes: list[tuple[int, int]] = []

    def take(self, amount: int, now_ms: int) -> None:
        """Count tokens that were admitted now."""
        self._net += amount
        self._takes.append((now_ms, self._net))

    def settle(self, change: int) -> None:
        """Count an adjustment, which may lead to debt. A take may not."""
        self._net += change

    def raise_to(self, limit: Limit, from_ms: int) -> None:
        """Use a higher limit from then on; what the old one earned stays. A limit that is not higher is ignored."""
        if limit.refill_rate > self._phases[-1].limit.refill_rate:
            self._phases.append(Phase(from_ms, limit))

    @property
    def highest_share(self) -> float:
        """The largest admitted part of what was offered, which is the capacity plus the refill since the start."""
        return max((net * 1000 / self.offered_milli(at_ms) for at_ms, net in self._takes), default=0.0)

    def offered_milli(self, at_ms: int) -> int:
        """Return the most that may have been taken since the start, however full the bucket was, in millitokens."""
        phases = [phase for phase in self._phases if phase.start_ms <= at_ms] or self._phases[:1]
        ends_ms = [*(phase.start_ms for phase in phases[1:]), at_ms]
        earned = sum(_earned_milli(phase, end_ms) for phase, end_ms in zip(phases, ends_ms, strict=True))
        return max(phase.limit.capacity_milli for phase in phases) + earned


def _earned_milli(phase: Phase, end_ms: int) -> int:
    limit = phase.limit
    end, start = (grid(at, limit.refill_amount_milli, limit.refill_period_ms) for at in (end_ms, phase.start_ms))
    return end - start


class Ledger:
    """The accounts of one bucket, by limit."""

    def __init__(self, limits: Iterable[Limit], start_ms: int) -> None:
        self._accounts = {limit.name: DemoAccount(limit, start_ms) for limit in limits}

    def take(self, amounts: Mapping[str, int], now_ms: int) -> None:
        """Count what an acquire took."""
        for name, amount in amounts.items():
            self._accounts[name].take(amount, now_ms)

    def settle(self, changes: Mapping[str, int]) -> None:
        """Count an adjustment, up or down."""
        for name, change in changes.items():
            self._accounts[name].settle(change)

    def raise_to(self, limit: Limit, from_ms: int) -> None:
        """Use a higher limit from then on."""
        self._accounts[limit.name].raise_to(limit, from_ms)

    @property
    def highest_share(self) -> float:
        """The largest admitted part of what was offered; above 1 a limit was exceeded."""
        return max(account.highest_share for account in self._accounts.values())
