"""Compare what was admitted with what the limits offered: a check that is independent of the limiter. Pure."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from zae_limiter.core.bucket import grid
from zae_limiter.core.limit import Limit


class Phase(NamedTuple):
    """A limit, and the time from which it was in force, until the next phase."""

    start_ms: int
    limit: Limit


class LedgerEntry(NamedTuple):
    """Tokens taken at a time, or given back if negative. Only a take was checked against the limit."""

    at_ms: int
    amount: int
    is_take: bool


class DemoAccount:
    """What was taken of one limit since the start, minus what was given back.

    The processes report their changes independently, so they are sorted and evaluated at the end.
    """

    def __init__(self, limit: Limit, start_ms: int) -> None:
        self._phases = [Phase(start_ms, limit)]
        self._changes: list[LedgerEntry] = []

    def enter(self, entry: LedgerEntry) -> None:
        """Count tokens that were admitted, or an adjustment, which may lead to debt. A take may not."""
        self._changes.append(entry)

    def raise_to(self, limit: Limit, from_ms: int) -> None:
        """Use a higher limit from then on; what the old one earned stays. A limit that is not higher is ignored."""
        if limit.refill_rate > self._phases[-1].limit.refill_rate:
            self._phases.append(Phase(from_ms, limit))

    @property
    def highest_share(self) -> float:
        """The largest admitted part of what was offered, which is the capacity plus the refill since the start.

        Upward adjustments are left out here. Another process may have written one between a take
        and the report of that take.
        """
        highest, net = 0.0, 0
        for change in sorted(self._changes):
            if change.is_take or change.amount < 0:
                net += change.amount
            if change.is_take:
                highest = max(highest, net * 1000 / self.offered_milli(change.at_ms))
        return highest

    def final_share(self, left: int, at_ms: int) -> float:
        """Return the part that all changes are of what was offered and is not left; a debt was not offered."""
        net = sum(change.amount for change in self._changes)
        gone_milli = self.offered_milli(at_ms) - left * 1000
        return net * 1000 / max(1, gone_milli) if net > 0 else 0.0

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

    def enter(self, amounts: Mapping[str, int], at_ms: int, *, is_take: bool) -> None:
        """Count what an acquire took, or an adjustment, up or down; limits without an account are left out."""
        for name in amounts.keys() & self._accounts.keys():
            self._accounts[name].enter(LedgerEntry(at_ms, amounts[name], is_take))

    def raise_to(self, limit: Limit, from_ms: int) -> None:
        """Use a higher limit from then on."""
        self._accounts[limit.name].raise_to(limit, from_ms)

    def highest_share(self, left: Mapping[str, int], at_ms: int) -> float:
        """Return the largest admitted part of what was offered, given what is left; above 1 a limit was exceeded."""
        return max(
            max(account.highest_share, account.final_share(left[name], at_ms))
            for name, account in self._accounts.items()
        )
