"""Compute what a bucket lost because its creator knew the time only roughly, and return it.

A bucket is created at the latest time that its creator considers possible. The creator may know
that time better later. Then the bucket has earned less than it should have: the difference was
withheld. The creator returns it in a take that would otherwise be rejected.

How much was withheld is certain only if no other client has written to the bucket. Its creator then
knows the total before each of its takes, and the time of each response. A bucket that would have
been full before a take would have overflowed. What would have overflowed is not returned.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from zae_limiter.core.acquire import MixedTake, Take
from zae_limiter.core.add_or_set import Bounds, Effort
from zae_limiter.core.bucket import TimeBounds, grid
from zae_limiter.core.bucket_changes import expiry_s, solvency
from zae_limiter.core.lazy_dataclass import dataclass, replace
from zae_limiter.core.reserve import Reserve
from zae_limiter.core.reserved_take import floors_on, lowered, raised
from zae_limiter.core.slots import MixedView, item_expiry_s
from zae_limiter.core.tracked import take_mixed
from zae_limiter.core.view import Amounts, BucketLayout, EffectiveLimits, View

_SURE_MS = 20
"""Bounds that are at most this many milliseconds apart withhold too little to be worth returning."""

_TOKEN = 1_000

_SURE = Effort(sure=True)

_DRIFT = 5_000
"""The server's clock gains at most one part in this many on a local clock (200 ppm)."""


@dataclass(slots=True)
class Creation:
    """What the creator of a bucket knows about it.

    ``layout`` is the layout of the bucket as it was created. ``earliest_ms`` is the earliest
    possible server time of the creation, ``received_ms`` the local time of the response. ``rates``
    are the refill amount and period of each limit. ``writes`` counts the creator's own writes, the
    creation included. ``room`` is what each limit had to spare before its fullest take so far, in
    millitokens. It is 0 if the limit would never have been full, and negative if it would have
    overflowed.
    """

    layout: BucketLayout
    earliest_ms: int
    received_ms: int
    rates: Sequence[tuple[int, int]]
    room: Sequence[int]
    writes: int = 1

    def after(self, view: View[Any], amounts: Amounts, received_ms: int) -> "Creation":
        """Return what the creator knows after its own take, from the view after it."""
        taken = dict(amounts)
        room = [
            min(spare, view.total(position) - taken.get(position, 0) - self._earned(position, received_ms))
            for position, spare in enumerate(self.room)
        ]
        return replace(self, room=room, writes=self.writes + 1)

    def _earned(self, position: int, received_ms: int) -> int:
        """Return the most that a limit can have earned from the creation to a local time, in millitokens."""
        amount, period = self.rates[position]
        span_ms = received_ms - self.received_ms
        # Too much is the strict side here, because it leaves less room and so returns less. So
        # include the drift and 2 ms of rounding, and round up.
        return -(-(span_ms + span_ms // _DRIFT + 2) * amount // period)

    def is_certain(self, view: View[Any]) -> bool:
        """Return whether all writes so far are the creator's own takes."""
        return view.layout is self.layout and view.writes == self.writes

    def is_worth_narrowing(self, amounts: Amounts, now: TimeBounds) -> bool:
        """Return whether knowing the time better could return a whole token of a requested limit."""
        if now[1] - now[0] <= _SURE_MS:
            return False
        return any(
            grid(now[1], *self.rates[position]) - grid(now[0], *self.rates[position]) >= _TOKEN
            for position, _ in amounts
        )

    def withheld(self, view: View[Any], known: "Known") -> list[int]:
        """Return by how many millitokens each balance is too low; 0 or less if it is not.

        The level of a bucket that was created full at a known time follows from its total and its
        fullest moment.
        """
        found = []
        for position, baseline in enumerate(view.layout.baselines):
            amount, period = self.rates[position]
            # The item earns nothing before its baseline. Until then, only what is earned by now is
            # returned.
            earned_ms = min(known.now[0], baseline.start_ms)
            lost = grid(earned_ms, amount, period) - grid(known.created_ms, amount, period)
            total = view.total(position)
            room = min(self.room[position], total - self._earned(position, known.local_ms))
            # The balance that the bucket would have if it had been created full at ``created_ms``,
            # minus the balance that it has.
            found.append(baseline.capacity_milli - total + lost + room - view.numbers[position])
        return found


@dataclass(slots=True)
class TopUp:
    """A take, and the millitokens that are returned of each limit."""

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
    """Return what to remember of a bucket that was created at ``now``, None if that time was known well enough."""
    if now[1] - now[0] <= _SURE_MS:
        return None
    layout = view.layout
    rates = [(baseline.share.amount_milli, baseline.share.period_ms) for baseline in layout.baselines]
    return Creation(layout, now[0], received_ms, rates, [0] * len(rates))


def top_up(
    creation: Creation,
    view: View[Any],
    terms: EffectiveLimits,
    amounts: Amounts,
    known: Known,
    reserve: Reserve | None = None,
) -> TopUp | None:
    """Return the take that also returns what was withheld, None if nothing is due yet or it is not enough.

    The take must leave ``reserve``; None if it may take everything.
    """
    if reserve is None:
        return _top_up(creation, view, terms, amounts, known)
    floors = floors_on(view, terms.limits, amounts, reserve)
    topping = _top_up(creation, view, terms, raised(amounts, floors), known)
    return topping and TopUp(lowered(topping.taking, floors, terms.limits), topping.returned)


def _top_up(
    creation: Creation, view: View[Any], terms: EffectiveLimits, amounts: Amounts, known: Known
) -> TopUp | None:
    layout, now = view.layout, known.now
    if not creation.earliest_ms <= known.created_ms < layout.start_ms:
        return None
    parts = take_mixed(view, amounts, now, _SURE)
    if parts is None:
        return None
    returned = creation.withheld(view, known)
    bounds = _bounds(view, dict(parts.rest), returned, now)
    if bounds is None or not any(returned):
        return None
    floors = solvency(view, bounds, now) if terms.ttl_multiplier else None
    used_ms = max(now[1], layout.start_ms)
    expires_s = None if floors is None else expiry_s(used_ms, layout.fill_time_ms, terms.ttl_multiplier)
    if isinstance(view, MixedView):
        return TopUp(
            MixedTake(bounds, item_expiry_s(view, expires_s), floors or (), parts.slots, parts.tracked), returned
        )
    return TopUp(Take(bounds, expires_s, floors or ()), returned)


def _bounds(view: View[Any], taken: dict[int, int], returned: list[int], now: TimeBounds) -> list[Bounds] | None:
    """Return how enforced rate limits are taken from and get back what is ``returned``; None if they have too little.

    What does not fit is taken off ``returned``. Limits of other kinds get nothing back.
    """
    layout = view.layout
    bounds: list[Bounds] = []
    for position, baseline in enumerate(layout.baselines):
        balance = view.numbers[position]
        if position in layout.shared.slots or position in layout.shared.tracked:
            returned[position] = 0
            continue
        early, late = baseline.earned(now[0]), baseline.earned(now[1])
        ceiling = baseline.capacity_milli - late
        # A return must not raise the level above the capacity, so the upper bound of the write is
        # lower by the same amount.
        returned[position] = gain = max(0, min(returned[position], ceiling - balance))
        wanted = taken.get(position, 0)
        if not wanted:
            continue
        if wanted > balance + gain + early:
            return None
        bounds.append((position, wanted, wanted - early - gain, ceiling - gain, None))
    return bounds
