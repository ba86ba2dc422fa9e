"""Decide the next step of an acquire from what is known about the bucket.

The caller carries out the step and calls again with what it learned. Contention alone never
rejects: a take that is refused because of a wrong estimate is retried. Each retry gives more tokens
away. The last one is refused only by a bucket that lacks the tokens.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from zae_limiter.core.add_or_set import HALFWAY, UTMOST, Bounds, Effort
from zae_limiter.core.bucket import Baseline, TimeBounds
from zae_limiter.core.bucket_changes import UNSURE, Floors, Short, solvency, take
from zae_limiter.core.errors import AmountExceedsCapacityError, ValidationError
from zae_limiter.core.lazy_dataclass import dataclass, replace
from zae_limiter.core.limit import Limit
from zae_limiter.core.names import MAX_AMOUNT
from zae_limiter.core.rebase import Rebasing, rebase
from zae_limiter.core.sharding import share
from zae_limiter.core.status import LimitStatus
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
            raise _bad_amount(name, amount, terms, field)
        amounts.append((position, amount * 1000))
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
    capacity = terms.limits[terms.positions[name]].capacity
    if type(amount) is not int or not 0 <= amount <= MAX_AMOUNT:
        return ValidationError(f"{field}[{name}]", amount, f"must be a whole number from 0 to {MAX_AMOUNT}")
    return AmountExceedsCapacityError(
        (),
        f"{field}[{name}]",
        amount,
        f"is more than the capacity of limit {name!r} ({capacity}): it can never be admitted",
    )


def next_step(
    view: View[Any] | None, terms: EffectiveLimits, amounts: Amounts, now: TimeBounds, progress: Progress
) -> NextStep:
    """Return the next step for a request for these amounts, under these limits."""
    if view is None:
        return _without_view(progress)
    if progress.look_first and not progress.looked:
        return LOOK
    layout = view.layout
    if layout.terms is not terms and not layout.follows(terms):
        return _on_other_limits(view, terms, amounts, now, progress.resolved_at)
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
    if bounds is UNSURE:
        return LOOK
    trusted = progress.looked or 0 <= now[1] - view.seen_ms < progress.trust_ms
    return Reject(now) if trusted else LOOK


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
    layout, numbers = view.layout, view.numbers
    return any(
        taken > layout.baseline(position).level(numbers[position], at[0]) for position, taken in amounts if taken
    )


def is_fresh(view: View[Any], terms: EffectiveLimits, now_ms: int, trust_ms: int) -> bool:
    """Return whether a view may reject without a read: it has these limits and is younger than ``trust_ms``."""
    return 0 <= now_ms - view.seen_ms < trust_ms and view.layout.follows(terms)


def is_known_short(view: View[Any], terms: EffectiveLimits, amounts: Amounts, now: TimeBounds, trust_ms: int) -> bool:
    """Return whether a fresh view shows that a bucket lacks the tokens, so that no other bucket need be written."""
    return is_fresh(view, terms, now[1], trust_ms) and _is_short(view, amounts, now)


@dataclass(slots=True)
class LimitLevel:
    """One limit of a bucket, as the next request would find it."""

    baseline: Baseline
    balance_milli: int

    @property
    def name(self) -> str:
        """The limit's name."""
        return self.baseline.name

    @property
    def limit(self) -> Limit:
        """The limit, undivided."""
        return self.baseline.limit

    def available_milli(self, now: TimeBounds) -> int:
        """Return the millitokens available now."""
        return self.baseline.level(self.balance_milli, now[0])

    def less(self, milli: int, at: TimeBounds) -> "LimitLevel":
        """Return the limit after a take of ``milli`` millitokens."""
        ceiling = self.baseline.capacity_milli - self.baseline.earned(at[0])
        return LimitLevel(self.baseline, min(ceiling, self.balance_milli) - milli) if milli else self

    def wait_ms(self, needed_milli: int, now: TimeBounds) -> int:
        """Return the milliseconds until ``needed_milli`` are available; 0 if nothing is needed, even in debt."""
        return max(0, self.baseline.ready_ms(self.balance_milli, needed_milli) - now[0]) if needed_milli else 0


def limit_levels(view: View[Any] | None, terms: EffectiveLimits, now: TimeBounds) -> list[LimitLevel]:
    """Return the level of each limit in force, as if the bucket had been created or moved to these limits now."""
    if view is None:
        return [_full(limit, now) for limit in terms.limits]
    layout = view.layout
    if layout.follows(terms):
        numbers = view.numbers
        return [LimitLevel(layout.baseline(position), numbers[position]) for position in range(len(layout.limits))]
    result = []
    for limit in terms.limits:
        position = layout.position(limit.name)
        if position is None:
            result.append(_full(limit, now, layout.shard, layout.shard_count))
            continue
        level = layout.baseline(position).level(view.numbers[position], now[0])
        capacity = share(limit.capacity_milli, layout.shard, layout.shard_count)
        start_ms = max(now[0], layout.start_ms)
        baseline = Baseline.of(limit, start_ms, layout.shard, layout.shard_count)
        result.append(LimitLevel(baseline, min(level, capacity)))
    return result


def _full(limit: Limit, now: TimeBounds, shard: int = 0, shard_count: int = 1) -> LimitLevel:
    baseline = Baseline.of(limit, now[1], shard, shard_count)
    return LimitLevel(baseline, baseline.capacity_milli)


class LevelOfLimit(Protocol):
    """The level of one limit, on one shard or on all."""

    @property
    def name(self) -> str:
        """The limit's name."""
        ...

    @property
    def limit(self) -> Limit:
        """The limit, undivided."""
        ...

    def available_milli(self, now: TimeBounds) -> int:
        """Return the millitokens available now."""
        ...

    def less(self, milli: int, at: TimeBounds) -> "LevelOfLimit":
        """Return the limit after a take of ``milli`` millitokens."""
        ...

    def wait_ms(self, needed_milli: int, now: TimeBounds) -> int:
        """Return the milliseconds until ``needed_milli`` are available."""
        ...


def statuses(
    bucket: tuple[str, str], levels: Sequence[LevelOfLimit], amounts: Amounts, judged: TimeBounds, now: TimeBounds
) -> list[LimitStatus]:
    """Return the status of every limit of a bucket (entity, resource) as of ``judged``, with the wait from ``now``."""
    entity_id, resource = bucket
    requested = dict(amounts)
    result = []
    for position, level in enumerate(levels):
        wanted, limit, wait_s = requested.get(position, 0), level.limit, 0.0
        available = level.available_milli(judged)
        # A request for 0 tokens is never too much, even for a limit in debt.
        exceeded = available < wanted and wanted > 0
        if exceeded:
            # More than the capacity is never available; the wait is the time until the bucket is full.
            wait_s = level.wait_ms(min(wanted, limit.capacity_milli), now) / 1000
        result.append(
            LimitStatus(
                entity_id=entity_id,
                resource=resource,
                limit_name=limit.name,
                limit=limit,
                available=available // 1000,
                requested=wanted // 1000,
                exceeded=exceeded,
                retry_after_seconds=wait_s,
            )
        )
    return result


def held_statuses(
    bucket: tuple[str, str],
    levels: Sequence[LevelOfLimit],
    held: Mapping[str, int],
    pending: Mapping[str, int],
    now: TimeBounds,
) -> list[LimitStatus]:
    """Return the status of every limit of a bucket for a request that was admitted, none of them exceeded.

    ``held`` are the tokens of the request, adjustments included. ``pending`` are its adjustments, up or down.
    """
    entity_id, resource = bucket
    result = []
    for level in levels:
        limit = level.limit
        name = limit.name
        left = level.available_milli(now) // 1000
        if pending:
            left = min(limit.capacity, left - pending.get(name, 0))
        # Positional, because a response with headers makes one for each limit.
        result.append(LimitStatus(entity_id, resource, name, limit, left, held.get(name, 0), False, 0.0))
    return result


def held_statuses_of(
    bucket: tuple[str, str],
    view: View[Any],
    terms: EffectiveLimits,
    held: Mapping[str, int],
    pending: Mapping[str, int],
    now: TimeBounds,
) -> list[LimitStatus]:
    """Return the ``held_statuses`` of an unsharded bucket by its view."""
    layout = view.layout
    if not layout.follows(terms):
        return held_statuses(bucket, limit_levels(view, terms, now), held, pending, now)
    entity_id, resource = bucket
    low_ms = now[0]
    numbers, grids = view.numbers, layout.grids
    has_earned = low_ms > layout.start_ms
    result = []
    # The same as by ``limit_levels``, without an object for each level: a response with headers does this.
    for position, (part, limit) in enumerate(zip(layout.shared.shares, layout.shared.limits, strict=False)):
        milli = numbers[position]
        if has_earned:
            milli += part.offered(low_ms) - grids[position]
        capacity = part.capacity_milli
        left = (milli if milli < capacity else capacity) // 1000
        name = part.name
        if pending:
            left = min(limit.capacity, left - pending.get(name, 0))
        result.append(LimitStatus(entity_id, resource, name, limit, left, held.get(name, 0), False, 0.0))
    return result
