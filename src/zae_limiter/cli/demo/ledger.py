"""Keeps count of what was admitted, beside what the limits offered: a check of the limiter from outside. Pure."""

from collections.abc import Iterable, Mapping

from zae_limiter.core.bucket import grid
from zae_limiter.core.limit import Limit


class Account:
    """What was taken of one limit since the start, less what was given back."""

    def __init__(self, limit: Limit, start_ms: int) -> None:
        self._limit = limit
        self._start_ms = start_ms
        self._net = 0
        self._earned_milli = 0
        self.highest_share = 0.0

    def take(self, amount: int, now_ms: int) -> None:
        """Count what was admitted now, and compare all of it with what was offered: capacity and refill since."""
        self._net += amount
        self.highest_share = max(self.highest_share, self._net * 1000 / self.offered_milli(now_ms))

    def settle(self, change: int) -> None:
        """Count a correction; it may lead into debt, which no take may do."""
        self._net += change

    def raise_to(self, limit: Limit, now_ms: int) -> None:
        """Count by a higher limit from now on; what was earned by the old one stays."""
        self._earned_milli, self._start_ms = self._earned(now_ms), now_ms
        self._limit = limit

    def offered_milli(self, now_ms: int) -> int:
        """Return the most that may have been taken since the start, however full the bucket was."""
        return self._limit.capacity_milli + self._earned(now_ms)

    def _earned(self, now_ms: int) -> int:
        limit = self._limit
        now, then = (grid(at, limit.refill_amount_milli, limit.refill_period_ms) for at in (now_ms, self._start_ms))
        return self._earned_milli + now - then


class Ledger:
    """The accounts of one bucket, by limit."""

    def __init__(self, limits: Iterable[Limit], start_ms: int) -> None:
        self._accounts = {limit.name: Account(limit, start_ms) for limit in limits}

    def take(self, amounts: Mapping[str, int], now_ms: int) -> None:
        """Count what an acquire took."""
        for name, amount in amounts.items():
            self._accounts[name].take(amount, now_ms)

    def settle(self, changes: Mapping[str, int]) -> None:
        """Count a correction, up or down."""
        for name, change in changes.items():
            self._accounts[name].settle(change)

    def raise_to(self, limit: Limit, now_ms: int) -> None:
        """Count by a higher limit from now on."""
        self._accounts[limit.name].raise_to(limit, now_ms)

    @property
    def highest_share(self) -> float:
        """The largest part of what was offered that had ever been admitted; above 1 a limit was exceeded."""
        return max(account.highest_share for account in self._accounts.values())
