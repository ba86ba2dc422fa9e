"""What a bucket lost because it was created while its creator knew the time only roughly.

A bucket is created at the latest time that its creator considers possible. If the creator later knows that time
better, the difference was withheld from the bucket: it earned less than it should have. The creator returns it together
with takes that would otherwise be rejected, more of it the better it knows the time.

How much was withheld is certain only for a bucket that nobody else has written to. Its creator then knows the total
before each of its takes and the time of each response. A bucket that would have been full before a take would have
overflowed; what would have overflowed is not returned.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from zae_limiter.core.acquire import Take
from zae_limiter.core.add_or_set import Bounds
from zae_limiter.core.bucket import TimeBounds, grid
from zae_limiter.core.bucket_changes import expiry_s, solvency
from zae_limiter.core.view import Amounts, BucketLayout, EffectiveLimits, View

_SURE_MS = 20
"""What is withheld by bounds this close is not worth returning."""

_TOKEN = 1_000

_DRIFT = 5_000
"""The server's clock gains at most one part in so many on a local one (200 ppm)."""


@dataclass(slots=True)
class Creation:
    """What the creator of a bucket knows of it.

    ``layout`` is that of the bucket as it was created. ``earliest_ms`` is the earliest server time at which that may
    have been, ``received_ms`` the local time of the response. ``writes`` are the creator's own, the creation included.
    ``room`` is what each limit had to spare before the fullest take since, in millitokens: 0 if no limit came near its
    capacity, below 0 if it overflowed.
    """

    layout: BucketLayout
    earliest_ms: int
    received_ms: int
    rates: Sequence[tuple[int, int]]
    room: Sequence[int]
    writes: int = 1

    def after(self, view: View[Any], amounts: Amounts, received_ms: int) -> "Creation":
        """Return what the creator knows after a take of its own, by the view after it."""
        taken = dict(amounts)
        room = [
            min(spare, view.total(position) - taken.get(position, 0) - self._earned(position, received_ms))
            for position, spare in enumerate(self.room)
        ]
        return replace(self, room=room, writes=self.writes + 1)

    def _earned(self, position: int, received_ms: int) -> int:
        """Return the most that a limit may have earned from the creation to a local time."""
        amount, period = self.rates[position]
        span_ms = received_ms - self.received_ms
        return -(-(span_ms + span_ms // _DRIFT + 2) * amount // period)

    def is_certain(self, view: View[Any]) -> bool:
        """Say whether all writes so far are the creator's own takes."""
        return view.layout is self.layout and view.writes == self.writes

    def is_worth_narrowing(self, amounts: Amounts, now: TimeBounds) -> bool:
        """Say whether a better knowledge of the time could return a whole token of a limit that is asked for."""
        if now[1] - now[0] <= _SURE_MS:
            return False
        return any(
            grid(now[1], *self.rates[position]) - grid(now[0], *self.rates[position]) >= _TOKEN
            for position, _ in amounts
        )

    def withheld(self, view: View[Any], known: "Known") -> list[int]:
        """Return by how much each balance is below what it would be, in millitokens; not above 0 if it is not.

        The level of a bucket that was created full at a known time follows from the total and from its fullest moment.
        """
        found = []
        for position, baseline in enumerate(view.layout.baselines):
            amount, period = self.rates[position]
            # Before the baseline the item earns nothing: only what is earned by now is returned then.
            earned_ms = min(known.now[0], baseline.start_ms)
            lost = grid(earned_ms, amount, period) - grid(known.created_ms, amount, period)
            total = view.total(position)
            room = min(self.room[position], total - self._earned(position, known.local_ms))
            found.append(baseline.capacity_milli - total + lost + room - view.numbers[position])
        return found


@dataclass(slots=True)
class TopUp:
    """A take together with what is returned of each limit, in millitokens."""

    taking: Take
    returned: list[int]


class Known(NamedTuple):
    """What the creator knows now.

    ``created_ms`` is the latest server time at which the bucket may have been created; ``local_ms`` the local time.
    """

    now: TimeBounds
    created_ms: int
    local_ms: int


def created(view: View[Any], now: TimeBounds, received_ms: int) -> Creation | None:
    """Return what to remember of a bucket that was created at ``now``, None if that was known well enough."""
    if now[1] - now[0] <= _SURE_MS:
        return None
    layout = view.layout
    rates = [(baseline.share.amount_milli, baseline.share.period_ms) for baseline in layout.baselines]
    return Creation(layout, now[0], received_ms, rates, [0] * len(rates))


def top_up(creation: Creation, view: View[Any], terms: EffectiveLimits, amounts: Amounts, known: Known) -> TopUp | None:
    """Return the take that also returns what was withheld, None if that is not due yet or not enough."""
    layout, now = view.layout, known.now
    if not creation.earliest_ms <= known.created_ms < layout.start_ms:
        return None
    returned = creation.withheld(view, known)
    bounds: list[Bounds] = []
    taken = dict(amounts)
    for position, baseline in enumerate(layout.baselines):
        balance = view.numbers[position]
        early, late = baseline.earned(now[0]), baseline.earned(now[1])
        ceiling = baseline.capacity_milli - late
        returned[position] = gain = max(0, min(returned[position], ceiling - balance))
        wanted = taken.get(position, 0)
        if not wanted:
            continue
        if wanted > balance + gain + early:
            return None
        bounds.append((position, wanted, wanted - early - gain, ceiling - gain, None))
    if not any(returned):
        return None
    floors = solvency(view, bounds, now) if terms.ttl_multiplier else None
    used_ms = max(now[1], layout.start_ms)
    expires_s = None if floors is None else expiry_s(used_ms, layout.fill_time_ms, terms.ttl_multiplier)
    return TopUp(Take(bounds, expires_s, floors or ()), returned)
