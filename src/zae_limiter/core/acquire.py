"""Decide the next step of an acquire from what is known about the bucket.

The caller carries out the step and calls again with what it learned. Contention alone never
rejects: a take that is refused because of a wrong estimate is retried. Each retry gives more tokens
away. The last one is refused only by a bucket that lacks the tokens.
"""

from collections.abc import Sequence
from typing import Any

from zae_limiter.core.add_or_set import HALFWAY, UTMOST, Bounds, Effort
from zae_limiter.core.bucket import TimeBounds
from zae_limiter.core.bucket_changes import UNSURE, Floors, Short, expiry_s, solvency, take
from zae_limiter.core.errors import AmountExceedsCapacityError, ValidationError
from zae_limiter.core.lazy_dataclass import dataclass, replace
from zae_limiter.core.names import MAX_AMOUNT
from zae_limiter.core.rebase import Rebasing, rebase
from zae_limiter.core.slots import (
    LOCAL_TRUST_MS,
    MixedView,
    SlotTake,
    claimed,
    item_expiry_s,
    take_slots,
)
from zae_limiter.core.tracked import Taken, TrackedTake, charged, is_at_edge, take_tracked
from zae_limiter.core.view import Amounts, EffectiveLimits, View

GUESSES = 3
"""After this many refusals a take gives tokens away to avoid another one."""

HALVINGS = 3
"""After this many further refusals a take gives away all that it may."""

_FIRST_EFFORT = Effort()
_SURE = Effort(sure=True)
_HALFWAY = Effort(sure=True, yielding=HALFWAY)
_UTMOST = Effort(sure=True, yielding=UTMOST)


@dataclass(frozen=True, slots=True)
class Look:
    """Read the bucket."""


@dataclass(frozen=True, slots=True)
class Resolve:
    """Read the configuration again, consistently."""


@dataclass(frozen=True, slots=True)
class Create:
    """Create the bucket and take from it."""


@dataclass(slots=True)
class Take:
    """Take from the bucket. ``solvent`` are lowest balances of limits that are left out but must not be in debt.

    The bucket never expires if ``expires_s`` is None.
    """

    bounds: list[Bounds]
    expires_s: int | None
    solvent: Floors


@dataclass(slots=True)
class MixedTake(Take):
    """Take from a bucket that has limits other than enforced rate limits.

    ``slots`` are the slots to take, and ``tracked`` what is taken of quotas and soft rate limits. A bucket with slots
    never expires earlier than another client has stored.
    """

    slots: list[SlotTake]
    tracked: Sequence[TrackedTake] = ()


@dataclass(slots=True)
class Rebase:
    """Move the bucket to the client's limits; ``takes`` is True if the same write also takes the request."""

    rebasing: Rebasing
    takes: bool


@dataclass(slots=True)
class Reject:
    """Reject the request; ``at`` is the time for which it was decided."""

    at: TimeBounds


NextStep = Take | Rebase | Create | Look | Resolve | Reject

LOOK = Look()
RESOLVE = Resolve()
CREATE = Create()


@dataclass(frozen=True, slots=True)
class Progress:
    """What has been done for a request so far.

    ``trust_ms`` is the age in milliseconds up to which a view may reject without a read. With
    ``look_first`` the bucket is read before any write. ``looked`` is True once the bucket was read
    or has answered a write. ``resolved`` is True once the limits were read, and ``resolved_at`` is
    the stamp of the bucket that was the reason. ``vanished`` is True if a bucket that was seen
    before is gone. ``refusals`` counts refusals because of wrong estimates, not because of changed
    limits. ``asked`` is the time of the last take that was refused. ``effort`` is how much the next
    take gives away.
    """

    trust_ms: int
    look_first: bool = False
    looked: bool = False
    resolved: bool = False
    resolved_at: int | None = None
    vanished: bool = False
    refusals: int = 0
    asked: TimeBounds | None = None
    effort: Effort = _FIRST_EFFORT

    def after_look(self) -> "Progress":
        """Return the progress after a read of the bucket."""
        return replace(self, looked=True, effort=_effort(self.refusals))

    def after_resolve(self, stamp: int | None) -> "Progress":
        """Return the progress after the configuration was read because of a bucket with this stamp."""
        return replace(self, resolved=True, resolved_at=stamp)

    def after_refusal(self, asked: TimeBounds, *, guessed: bool) -> "Progress":
        """Return the progress after a write for the time ``asked`` was refused; ``guessed`` if by its bounds."""
        refusals = self.refusals + guessed
        return replace(self, looked=True, refusals=refusals, asked=asked, effort=_effort(refusals))

    def after_vanishing(self) -> "Progress":
        """Return the progress after a bucket that was seen before turned out to be gone."""
        return replace(self, looked=True, vanished=True, asked=None)


def amounts_of(consume: dict[str, int], terms: EffectiveLimits, field: str = "consume") -> Amounts:
    """Return a request's amounts by position; error messages call the argument ``field``.

    Raises:
        ValidationError: A limit is unknown, or an amount is not a whole number.
        AmountExceedsCapacityError: An amount can never be admitted. Its statuses are empty.
    """
    positions, limits = terms.positions, terms.limits
    amounts = []
    for name, amount in consume.items():
        position = positions.get(name)
        if position is None or type(amount) is not int or not 0 <= amount <= limits[position].capacity:
            error = _bad_amount(name, amount, terms, field)
            # A soft limit never rejects: what is more than its capacity is only counted.
            if not isinstance(error, AmountExceedsCapacityError) or limits[terms.positions[name]].enforce:
                raise error
        amounts.append((positions[name], amount * 1000))
    return amounts


def requested_amounts(consume: dict[str, int], terms: EffectiveLimits) -> Amounts:
    """Return the whole numbers of a request by position, even if they can never be admitted; others are left out."""
    return [
        (terms.positions[name], amount * 1000)
        for name, amount in consume.items()
        if name in terms.positions and type(amount) is int and 0 <= amount <= MAX_AMOUNT
    ]


def _bad_amount(name: str, amount: object, terms: EffectiveLimits, field: str) -> ValidationError:
    if name not in terms.positions:
        known = ", ".join(limit.name for limit in terms.limits)
        return ValidationError(field, name, f"is not a limit in force; the limits in force are: {known}")
    # Imported here, because few requests are invalid.
    from zae_limiter.core.money import format_with_unit, is_currency

    limit = terms.limits[terms.positions[name]]
    if type(amount) is not int or not 0 <= amount <= MAX_AMOUNT:
        reason = f"must be a whole number from 0 to {MAX_AMOUNT}"
        if is_currency(limit.unit):
            call = 'usd("0.04")' if limit.unit == "USD" else f'money("0.04", "{limit.unit}")'
            reason = f"{reason}; money is in micro-units, such as {call}"
        return ValidationError(f"{field}[{name}]", amount, reason)
    capacity = format_with_unit(limit.capacity, limit.unit)
    reason = f"is more than the capacity of limit {name!r} ({capacity}): it can never be admitted"
    if limit.unit is not None:
        reason = f"{format_with_unit(amount, limit.unit)} {reason}"
    return AmountExceedsCapacityError((), f"{field}[{name}]", amount, reason)


def next_step(
    view: View[Any] | None, terms: EffectiveLimits, amounts: Amounts, now: TimeBounds, progress: Progress
) -> NextStep:
    """Return the next step for a request for these amounts, under these limits."""
    if view is None:
        return _without_view(progress)
    if progress.look_first and not progress.looked:
        return LOOK
    layout = view.layout
    if layout.terms is not terms:
        step = _unusual_step(view, terms, amounts, now, progress)
        if step is not None:
            return step
    # Decide by the time of the refused write. Otherwise retries would turn a rejection into a wait
    # for refill.
    if progress.asked is not None and _is_short(view, amounts, progress.asked):
        return Reject(progress.asked)
    bounds = take(view, amounts, now, progress.effort)
    if type(bounds) is list:
        shared = layout.shared
        if not terms.ttl_multiplier or shared.shard_count != 1:
            return Take(bounds, None, ())
        used_ms = now[1]
        if used_ms < layout.start_ms:
            used_ms = layout.start_ms
        # What ``expiry_s`` returns, written out: this is done for every acquire.
        expires_s = (used_ms + terms.ttl_multiplier * shared.fill_time_ms) // 1000 + 1
        if len(bounds) == len(shared.shares):
            return Take(bounds, expires_s, ())
        # Hazard: an expired bucket starts full again, which would forgive a debt. So no limit may
        # be in debt if the bucket is to expire, not even one that this take leaves out.
        floors = solvency(view, bounds, now)
        return Take(bounds, None if floors is None else expires_s, floors or ())
    return LOOK if bounds is UNSURE else _reject_if_trusted(view, now, progress, progress.trust_ms)


def _reject_if_trusted(view: View[Any], now: TimeBounds, progress: Progress, trust_ms: int) -> Reject | Look:
    """Reject by a view that is young enough, and read it again otherwise."""
    return Reject(now) if progress.looked or 0 <= now[1] - view.seen_ms < trust_ms else LOOK


def _unusual_step(
    view: View[Any], terms: EffectiveLimits, amounts: Amounts, now: TimeBounds, progress: Progress
) -> NextStep | None:
    """Return the step for a bucket on other limits, or with limits of several kinds; None for all others."""
    if not view.layout.follows(terms):
        return _on_other_limits(view, terms, amounts, now, progress.resolved_at)
    if view.layout.shared.is_mixed:
        return _mixed_step(view, terms, amounts, now, progress)
    return None


def _mixed_step(
    view: View[Any], terms: EffectiveLimits, amounts: Amounts, now: TimeBounds, progress: Progress
) -> NextStep:
    """Return the step for a bucket with limits of several kinds, on the client's limits."""
    assert isinstance(view, MixedView), "a view of a bucket with several kinds of limits has its cohorts"
    if progress.asked is not None and _is_short(view, amounts, progress.asked):
        return Reject(progress.asked)
    shared = view.layout.shared
    taken = take_slots(view, amounts, now) if shared.slots else (amounts, [])
    # A view of slots is no upper bound, because slots are returned at any time.
    trust_ms = progress.trust_ms if taken is not None else min(progress.trust_ms, LOCAL_TRUST_MS)
    rest, slots = taken or ((), [])
    tracked = take_tracked(view, rest, now, progress.effort)
    if taken is None or tracked is None:
        at_edge = tracked is None and is_at_edge(view, now)
        return _reject_if_trusted(view, now, progress, 0 if at_edge else trust_ms)
    bounds = UNSURE if tracked.unsure else take(view, tracked.rest, now, progress.effort)
    if isinstance(bounds, list):
        floors: Floors | None = None
        if terms.ttl_multiplier and shared.shard_count == 1:
            takes_all = len(bounds) + len(shared.slots) + len(shared.quotas) == len(shared.shares)
            floors = () if takes_all else solvency(view, bounds, now)
        if floors is None:
            return MixedTake(bounds, None, (), slots, tracked.takes)
        used_ms = max(now[1], view.layout.start_ms)
        expires_s = expiry_s(used_ms, view.layout.fill_time_ms, terms.ttl_multiplier)
        return MixedTake(bounds, item_expiry_s(view, expires_s), floors, slots, tracked.takes)
    return LOOK if bounds is UNSURE else _reject_if_trusted(view, now, progress, trust_ms)


def taken_by_step(view: View[Any], step: Take) -> Taken | None:
    """Return what a take claims and charges once it is applied; None if the bucket has only enforced rate limits."""
    if not isinstance(step, MixedTake):
        return None
    shard, shares = view.layout.shard, view.layout.shared.shares
    return Taken(claimed(shard, shares, step.slots), charged(shard, shares, step.tracked))


def _without_view(progress: Progress) -> NextStep:
    if not progress.looked:
        return LOOK
    # The bucket may have been deleted together with its entity. So the limits are read again before
    # a new bucket is created.
    return RESOLVE if progress.vanished and not progress.resolved else CREATE


def _on_other_limits(
    view: View[Any], terms: EffectiveLimits, amounts: Amounts, now: TimeBounds, resolved_at: int | None
) -> NextStep:
    """Return the step for a bucket that was built from other limits than the client's."""
    layout = view.layout
    newer = terms.stamp > layout.stamp or (terms.stamp == layout.stamp and terms.digest != layout.digest)
    # Hazard: two clients with different limits could rebase the bucket back and forth. So the
    # client with the older configuration reads it again before it writes.
    if not newer and resolved_at != layout.stamp:
        return RESOLVE
    rebasing = rebase(view, terms, amounts, now)
    if not isinstance(rebasing, Short):
        return Rebase(rebasing, takes=True)
    # The bucket lacks the tokens. Move it alone, and decide about the request on its new limits.
    bare = rebase(view, terms, (), now)
    assert not isinstance(bare, Short), "a rebase that takes nothing is never short"
    return Rebase(bare, takes=False)


def _effort(refusals: int) -> Effort:
    """Return how a take is written after the bucket has answered and has refused this often."""
    if refusals < GUESSES:
        return _SURE
    return _HALFWAY if refusals < GUESSES + HALVINGS else _UTMOST


def _is_short(view: View[Any], amounts: Amounts, at: TimeBounds) -> bool:
    shares = view.layout.shared.shares
    # A soft limit never rejects.
    return any(
        taken > view.level(position, at[0]) and shares[position].limit.enforce for position, taken in amounts if taken
    )


def is_fresh(view: View[Any], terms: EffectiveLimits, now_ms: int, trust_ms: int) -> bool:
    """Return whether a view may reject without a read: it has these limits and is younger than ``trust_ms``."""
    return 0 <= now_ms - view.seen_ms < trust_ms and view.layout.follows(terms)


def is_known_short(view: View[Any], terms: EffectiveLimits, amounts: Amounts, now: TimeBounds, trust_ms: int) -> bool:
    """Return whether a fresh view shows that a bucket lacks the tokens, so that no other bucket need be written."""
    if view.layout.shared.slots:
        trust_ms = min(trust_ms, LOCAL_TRUST_MS)
    if view.layout.shared.quotas and is_at_edge(view, now):
        return False
    return is_fresh(view, terms, now[1], trust_ms) and _is_short(view, amounts, now)
