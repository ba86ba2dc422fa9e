"""The next step of an acquire, from what is known of the bucket.

Waiting code carries a step out and comes back with what it learnt. Contention alone is never a reason to reject: a
take that is refused for a wrong guess is tried again, each time giving more away, and the last can only be refused by
a bucket that lacks the tokens.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from zae_limiter.core.add_or_set import HALFWAY, UTMOST, Bounds, Effort
from zae_limiter.core.bucket import Baseline, TimeBounds
from zae_limiter.core.bucket_changes import UNSURE, Floors, Short, solvency, take
from zae_limiter.core.errors import ValidationError
from zae_limiter.core.limit import Limit
from zae_limiter.core.rebase import Rebasing, rebase
from zae_limiter.core.sharding import share
from zae_limiter.core.status import LimitStatus
from zae_limiter.core.view import Amounts, EffectiveLimits, View

GUESSES = 3
"""Refusals after which a take gives tokens away rather than be refused again."""

HALVINGS = 3
"""Refusals after that, after which a take gives away all it may."""

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
    """Take from the bucket; ``solvent`` are floors of limits that are not touched but must not owe.

    ``expires_s`` None: the bucket stays.
    """

    bounds: list[Bounds]
    expires_s: int | None
    solvent: Floors


@dataclass(slots=True)
class Rebase:
    """Put the bucket on the client's limits; ``takes`` says whether the request is taken in the same write."""

    rebasing: Rebasing
    takes: bool


@dataclass(slots=True)
class Reject:
    """Refuse the request; ``at`` is the time it was judged at."""

    at: TimeBounds


NextStep = Take | Rebase | Create | Look | Resolve | Reject

LOOK = Look()
RESOLVE = Resolve()
CREATE = Create()


@dataclass(frozen=True, slots=True)
class Progress:
    """What has been done for a request so far.

    ``looked``: the bucket was read or has answered since the request came. ``resolved``: its limits were read since,
    ``resolved_at``: for a bucket of that stamp. ``vanished``: a bucket that was seen before was gone. ``refusals``: for
    wrong guesses, not for limits that changed. ``asked``: the time of the last take that was refused.
    ``trust_ms``: how long a view may reject without a look; ``look_first``: read before any write. ``effort``: how
    much the next take gives away rather than be refused.
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
        """Return the progress once the bucket was read."""
        return replace(self, looked=True, effort=_effort(self.refusals))

    def after_resolve(self, stamp: int | None) -> "Progress":
        """Return the progress once the configuration was read, because of a bucket of that stamp."""
        return replace(self, resolved=True, resolved_at=stamp)

    def after_refusal(self, asked: TimeBounds, *, guessed: bool) -> "Progress":
        """Return the progress once a write that was judged at ``asked`` was refused; ``guessed``: by its bounds."""
        refusals = self.refusals + guessed
        return replace(self, looked=True, refusals=refusals, asked=asked, effort=_effort(refusals))

    def after_vanishing(self) -> "Progress":
        """Return the progress once a bucket that was seen before turned out to be gone."""
        return replace(self, looked=True, vanished=True, asked=None)


def amounts_of(consume: dict[str, int], terms: EffectiveLimits, field: str = "consume") -> Amounts:
    """Return a request's amounts by position; ``field`` is what errors call it.

    Raises:
        ValidationError: An unknown limit, an amount that is no whole number, or one that can never be admitted.
    """
    positions, limits = terms.positions, terms.limits
    amounts = []
    for name, amount in consume.items():
        position = positions.get(name)
        if position is None or type(amount) is not int or not 0 <= amount <= limits[position].capacity:
            raise _bad_amount(name, amount, terms, field)
        amounts.append((position, amount * 1000))
    return amounts


def _bad_amount(name: str, amount: object, terms: EffectiveLimits, field: str) -> ValidationError:
    if name not in terms.positions:
        known = ", ".join(limit.name for limit in terms.limits)
        return ValidationError(field, name, f"is not the name of a limit in force here; these are: {known}")
    capacity = terms.limits[terms.positions[name]].capacity
    if type(amount) is not int or amount < 0:
        return ValidationError(f"{field}[{name}]", amount, "must be a whole number, zero or more")
    return ValidationError(
        f"{field}[{name}]",
        amount,
        f"is more than the capacity of limit {name!r} ({capacity}): it can never be admitted",
    )


def next_step(
    view: View[Any] | None, terms: EffectiveLimits, amounts: Amounts, now: TimeBounds, progress: Progress
) -> NextStep:
    """Return what to do next for a request of so much, judged by these terms."""
    if view is None:
        return _without_view(progress)
    if progress.look_first and not progress.looked:
        return LOOK
    layout = view.layout
    if layout.terms is not terms and not layout.follows(terms):
        return _on_other_limits(view, terms, amounts, now, progress.resolved_at)
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
        # A limit that owes must not be forgotten, though this take does not touch it.
        floors = solvency(view, bounds, now)
        return Take(bounds, None if floors is None else expires_s, floors or ())
    if bounds is UNSURE:
        return LOOK
    trusted = progress.looked or 0 <= now[1] - view.seen_ms < progress.trust_ms
    return Reject(now) if trusted else LOOK


def _without_view(progress: Progress) -> NextStep:
    if not progress.looked:
        return LOOK
    # A bucket that is gone may have gone with its entity: its limits are asked for again before it is created.
    return RESOLVE if progress.vanished and not progress.resolved else CREATE


def _on_other_limits(
    view: View[Any], terms: EffectiveLimits, amounts: Amounts, now: TimeBounds, resolved_at: int | None
) -> NextStep:
    """Return the step for a bucket built from other limits than the client's."""
    layout = view.layout
    newer = terms.stamp > layout.stamp or (terms.stamp == layout.stamp and terms.digest != layout.digest)
    if not newer and resolved_at != layout.stamp:
        return RESOLVE
    rebasing = rebase(view, terms, amounts, now)
    if not isinstance(rebasing, Short):
        return Rebase(rebasing, takes=True)
    bare = rebase(view, terms, (), now)
    assert not isinstance(bare, Short), "a rebase that takes nothing is never short"
    return Rebase(bare, takes=False)


def _effort(refusals: int) -> Effort:
    """Return how a take is written once the bucket has answered, and refused so often."""
    if refusals < GUESSES:
        return _SURE
    return _HALFWAY if refusals < GUESSES + HALVINGS else _UTMOST


def _is_short(view: View[Any], amounts: Amounts, at: TimeBounds) -> bool:
    layout, numbers = view.layout, view.numbers
    return any(
        taken > layout.baseline(position).level(numbers[position], at[0]) for position, taken in amounts if taken
    )


def is_fresh(view: View[Any], terms: EffectiveLimits, now_ms: int, trust_ms: int) -> bool:
    """Return whether a view may reject without a look: on these terms, and seen less than ``trust_ms`` ago."""
    return 0 <= now_ms - view.seen_ms < trust_ms and view.layout.follows(terms)


def covers(view: View[Any], consume: dict[str, int], low_ms: int) -> bool:
    """Return whether a view surely has the tokens, by the earliest time; limits that it lacks ask nothing of it.

    A quick test that goes before ``is_known_short``: False only means that the exact test is needed.
    """
    layout = view.layout
    shared = layout.shared
    if shared.shard_count != 1 or low_ms < layout.start_ms:
        return False
    positions, numbers = shared.positions, view.numbers
    for name, amount in consume.items():
        position = positions.get(name)
        if position is not None:
            if type(amount) is not int:
                return False
            share, needed = shared.shares[position], amount * 1000
            lacking = needed - numbers[position] + layout.grids[position]
            # Written out, because this is done for every acquire that cascades.
            if needed > share.capacity_milli or lacking > low_ms * share.amount_milli // share.period_ms:
                return False
    return True


def is_known_short(view: View[Any], terms: EffectiveLimits, amounts: Amounts, now: TimeBounds, trust_ms: int) -> bool:
    """Return whether a fresh view shows that a bucket lacks the tokens, so that a write to any other is in vain."""
    return is_fresh(view, terms, now[1], trust_ms) and _is_short(view, amounts, now)


@dataclass(slots=True)
class LimitLevel:
    """One limit of a bucket as it would be judged now."""

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
        """Return what is available now."""
        return self.baseline.level(self.balance_milli, now[0])

    def less(self, milli: int, at: TimeBounds) -> "LimitLevel":
        """Return how the limit stands once so much was taken from it."""
        ceiling = self.baseline.capacity_milli - self.baseline.earned(at[0])
        return LimitLevel(self.baseline, min(ceiling, self.balance_milli) - milli) if milli else self

    def wait_ms(self, needed_milli: int, now: TimeBounds) -> int:
        """Return how long it takes until ``needed_milli`` are available; 0 if nothing is needed, even in debt."""
        return max(0, self.baseline.ready_ms(self.balance_milli, needed_milli) - now[0]) if needed_milli else 0


def limit_levels(view: View[Any] | None, terms: EffectiveLimits, now: TimeBounds) -> list[LimitLevel]:
    """Return how each limit in force stands, as if a bucket on other limits, or none, had been brought up to date."""
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
    """How one limit stands, on one shard or on all."""

    @property
    def name(self) -> str:
        """The limit's name."""
        ...

    @property
    def limit(self) -> Limit:
        """The limit, undivided."""
        ...

    def available_milli(self, now: TimeBounds) -> int:
        """Return what is available now."""
        ...

    def less(self, milli: int, at: TimeBounds) -> "LevelOfLimit":
        """Return how the limit stands once so much was taken from it."""
        ...

    def wait_ms(self, needed_milli: int, now: TimeBounds) -> int:
        """Return how long it takes until ``needed_milli`` are available."""
        ...


def statuses(
    bucket: tuple[str, str], stands: Sequence[LevelOfLimit], amounts: Amounts, judged: TimeBounds, now: TimeBounds
) -> list[LimitStatus]:
    """Return the status of every limit of a bucket (entity and resource), as it was judged, with the wait from now."""
    entity_id, resource = bucket
    requested = dict(amounts)
    result = []
    for position, standing in enumerate(stands):
        wanted, limit = requested.get(position, 0), standing.limit
        available = standing.available_milli(judged)
        # Nothing is never too much, not even of a limit in debt.
        exceeded = available < wanted and wanted > 0
        result.append(
            LimitStatus(
                entity_id=entity_id,
                resource=resource,
                limit_name=limit.name,
                limit=limit,
                available=available // 1000,
                requested=wanted // 1000,
                exceeded=exceeded,
                retry_after_seconds=standing.wait_ms(wanted, now) / 1000 if exceeded else 0.0,
            )
        )
    return result
