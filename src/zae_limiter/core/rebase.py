"""Move a bucket to other limits in one write: decide what happens to each old and each new limit.

A level is cut to the smaller of the two capacities and never raised. A limit that is removed stays
in the bucket, dormant and hidden, until it is as full as it ever could be. So removing a limit and
adding it again refills nothing, whatever its capacity was in between.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple

from zae_limiter.core.add_or_set import Add, Part, Reset
from zae_limiter.core.bucket import Baseline, LimitShare, TimeBounds
from zae_limiter.core.bucket_changes import SHORT, Short, expiry_s
from zae_limiter.core.errors import ValidationError
from zae_limiter.core.lazy_dataclass import dataclass, field, replace
from zae_limiter.core.limit import Limit
from zae_limiter.core.sharding import share
from zae_limiter.core.slots import Claim, Cohorts, MixedView, claims_of, expired, item_expiry_s
from zae_limiter.core.tracked import (
    EpochCharge,
    Taken,
    charged_at_creation,
    first_balance,
    is_mixed,
    is_tracked,
    rebase_quota,
    retire_quota,
)
from zae_limiter.core.view import Amounts, BucketLayout, EffectiveLimits, View

MOST_REMEMBERED = 64
"""The largest number of limits in one bucket, dormant ones included."""


@dataclass(slots=True)
class Fresh:
    """A limit that the bucket does not have yet, with the balance it starts from."""

    baseline: Baseline
    balance: int
    spent: int


class JoinedCohort(NamedTuple):
    """Slots that a rebase takes: the limit, the end of their cohort in seconds, and millislots."""

    name: str
    end_s: int
    milli: int


@dataclass(slots=True)
class Rebasing:
    """A move of a bucket to other limits and a new baseline.

    ``parts`` are the limits that stay, and ``dormant`` the positions among them that are not in
    force. ``dropped`` are the limits that are removed, with the lowest balance they must have.
    ``highest`` is the largest capacity each limit ever had, where that is above the current one.
    ``joined`` are the slots that the same write takes, and ``freed`` the cohorts of limits that are removed.
    ``charges`` is what it charges to quotas and soft rate limits.
    The bucket never expires if ``expires_s`` is None. ``birth`` is the birth number to store, None
    to keep the current one.
    """

    terms: EffectiveLimits
    start_ms: int
    fill_time_ms: int
    expires_s: int | None
    parts: list[Part]
    added: list[Fresh]
    dropped: list[tuple[int, int]]
    dormant: list[int]
    highest: dict[str, int]
    birth: int | None = None
    joined: list[JoinedCohort] = field(default_factory=list)
    freed: list[tuple[int, Cohorts]] = field(default_factory=list)
    charges: list[EpochCharge] = field(default_factory=list)

    def taken(self, shard: int) -> Taken | None:
        """Return what the take of the same write claims and charges, None if all limits are enforced rate limits."""
        if not is_mixed(self.terms.limits):
            return None
        claims = [Claim(shard, joined.name, joined.end_s, joined.milli) for joined in self.joined]
        return Taken(tuple(claims), tuple(self.charges))


def missing_birth(layout: BucketLayout, first: BucketLayout | None, drawn: int) -> int | None:
    """Return the birth number that a rebase adds to a shard, None to add none.

    Shard 0 gets the number ``drawn``. Every other shard gets that of ``first``, shard 0 as it was
    last seen, because all shards of a bucket must have the same number.
    """
    if layout.birth is not None:
        return None
    if layout.shard == 0:
        return drawn
    return None if first is None else first.birth


def rebase(view: View[Any], terms: EffectiveLimits, amounts: Amounts, now: TimeBounds) -> Rebasing | Short:
    """Return the move of a bucket to other limits with a take in the same write, Short if it lacks the tokens.

    A rebase without amounts is never Short.

    Raises:
        ValidationError: The bucket has no room for the new limits beside its dormant ones.
    """
    layout = view.layout
    # Hazard: a baseline that moves back would earn the same time twice.
    start_ms = max(now[0], layout.start_ms)
    taken = {position: milli for position, milli in amounts if milli}
    wanted = {limit.name: (position, limit) for position, limit in enumerate(terms.limits)}
    expires_s = _expiry(view, terms, now)
    result = Rebasing(terms, start_ms, _fill_time(layout, terms), expires_s, [], [], [], [], {})
    for position, baseline in enumerate(layout.baselines):
        new = wanted.pop(baseline.name, None)
        part = (
            _retired(view, position, result, now[0])
            if new is None
            else _kept(view, position, (new[1], taken.get(new[0])), result, now)
        )
        if isinstance(part, Short):
            return SHORT
        if part is not None:
            result.parts.append(part)
    for position, limit in wanted.values():
        fresh = _added(view, limit, taken.get(position, 0), result, now)
        if fresh is None:
            return SHORT
        result.added.append(fresh)
    _check_room(result)
    claims = claims_of(layout.shard, terms.limits, amounts, now[1])
    result.joined.extend([JoinedCohort(claim.name, claim.end_s, claim.milli) for claim in claims])
    return result


def _added(view: View[Any], limit: Limit, spent: int, result: Rebasing, now: TimeBounds) -> Fresh | None:
    """Return a limit that the bucket gets, full but for what is taken; None if its share is smaller than that."""
    layout = view.layout
    added = Baseline.of(limit, result.start_ms, layout.shard, layout.shard_count)
    if spent > added.capacity_milli and limit.enforce:
        return None
    if not is_tracked(limit):
        return Fresh(added, added.capacity_milli - spent, spent)
    charges = charged_at_creation([added.share], [(0, spent)], now[1])
    result.charges.extend(charges)
    charged = sum(charge.milli for charge in charges)
    return Fresh(added, first_balance(added.share, charged, now[1]), spent)


def _kept(
    view: View[Any], position: int, new: tuple[Limit, int | None], result: Rebasing, now: TimeBounds
) -> Part | Short:
    """Return the part of a limit that stays in force. The amount in ``new`` is None if nothing is taken."""
    limit, taken = new
    layout = view.layout
    baseline = layout.baseline(position)
    if baseline.limit.kind != limit.kind:
        raise _changed_kind(baseline.limit, limit)
    if limit.hold_seconds:
        return _kept_slots(view, position, limit, taken)
    if limit.schedule is not None:
        moved = rebase_quota(view, position, (limit, taken), now)
        if moved is None:
            return SHORT
        if moved.charged:
            result.charges.append(EpochCharge(layout.shard, limit.name, moved.epoch, moved.charged))
        return moved.part
    highest = max(layout.highest[position], limit.capacity_milli)
    if highest > limit.capacity_milli:
        result.highest[limit.name] = highest
    capacity = min(baseline.capacity_milli, share(limit.capacity_milli, layout.shard, layout.shard_count))
    if limit.enforce or not taken:
        return _moved(view, (position, taken), capacity, result)
    soft = _moved(view, (position, taken), capacity, result)
    if isinstance(soft, Short):
        # A soft limit that lacks the tokens only counts.
        soft = _moved(view, (position, None), capacity, result)
        assert not isinstance(soft, Short), "a limit of which nothing is taken is never short"
        return replace(soft, spent=taken)
    result.charges.append(EpochCharge(layout.shard, limit.name, 0, taken))
    return soft


def _kept_slots(view: View[Any], position: int, limit: Limit, taken: int | None) -> Part | Short:
    """Return the part of slots that stay in force: the difference of the capacities is added to the free ones.

    These may become negative, because the slots in use stay in use. Expired slots are left to the next take.
    """
    layout = view.layout
    after = LimitShare.of(limit, layout.shard, layout.shard_count).capacity_milli
    more = after - layout.shared.shares[position].capacity_milli
    if taken is None or not limit.enforce:
        return Add(position, taken or 0, more - (taken or 0), None, None)
    low = taken - more
    return SHORT if view.numbers[position] < low else Add(position, taken, more - taken, low, None)


_KINDS = {"rate": "a rate limit", "slots": "slots", "quota": "a quota"}


def _changed_kind(before: Limit, after: Limit) -> ValidationError:
    old, new = _KINDS[before.kind], _KINDS[after.kind]
    reason = f"is {old} in this bucket and would become {new}. Choose another name, or delete the limit and wait"
    return ValidationError("limits", after.name, f"{reason} until it is full again")


def _retired_slots(view: MixedView[Any], position: int, result: Rebasing, early_ms: int) -> Part | None:
    """Return the part of slots that are no longer in force, None if all are free, so that they are removed."""
    # Hazard: a slot that may still be in use must not be forgotten. So this is decided at the earliest time and not at
    # the new baseline, which may be in the future.
    over = expired(view.cohorts[position], early_ms)
    floor = view.layout.shared.shares[position].capacity_milli - sum(milli for _, milli in over)
    if view.numbers[position] >= floor:
        result.dropped.append((position, floor))
        result.freed.append((position, view.cohorts[position]))
        return None
    result.dormant.append(position)
    return Add(position, 0, 0, None, None)


def _retired(view: View[Any], position: int, result: Rebasing, early_ms: int) -> Part | Short | None:
    """Return the part of a limit that is no longer in force, None if it is full enough to be removed."""
    layout = view.layout
    if isinstance(view, MixedView) and position in view.cohorts:
        return _retired_slots(view, position, result, early_ms)
    if position in layout.shared.quotas:
        least = retire_quota(view, position, early_ms)
        if least is not None:
            result.dropped.append((position, least))
            return None
        result.dormant.append(position)
        return Add(position, 0, 0, None, None)
    baseline = layout.baseline(position)
    # Hazard: a limit that is removed and added again starts full. So it may only be removed at the
    # largest capacity it ever had, or a smaller capacity in between would refill it.
    floor = share(layout.highest[position], layout.shard, layout.shard_count) - baseline.earned(result.start_ms)
    if view.numbers[position] >= floor:
        result.dropped.append((position, floor))
        return None
    result.dormant.append(position)
    return _moved(view, (position, None), baseline.capacity_milli, result)


def _moved(view: View[Any], spend: tuple[int, int | None], capacity: int, result: Rebasing) -> Part | Short:
    """Return the part that moves a limit to a new baseline and takes from it, Short if it has too few tokens."""
    position, taken = spend
    earned = view.layout.baseline(position).earned(result.start_ms)
    balance = view.numbers[position]
    spent = taken or 0
    if taken is not None and taken > min(capacity, balance + earned):
        return SHORT
    # The refill since the old baseline is added to the balance in the same write. The generation
    # number of the bucket protects it: a second rebase on the same view is refused.
    if balance > capacity - earned:
        return Reset(position, spent, capacity - spent, capacity - earned + 1)
    # A limit of which nothing is taken may be in debt, unless the bucket is to expire.
    low = None if taken is None and result.expires_s is None else spent - earned
    return Add(position, spent, earned - spent, low, capacity - earned)


def _check_room(result: Rebasing) -> None:
    if len(result.parts) + len(result.added) > MOST_REMEMBERED:
        names = [limit.name for limit in result.terms.limits]
        raise ValidationError(
            "limits",
            names,
            f"are too many for this bucket. It has room for {MOST_REMEMBERED}, and also keeps "
            f"{len(result.dormant)} removed limits that are not full again. Reuse the same names, or wait",
        )


def _expiry(view: View[Any], terms: EffectiveLimits, now: TimeBounds) -> int | None:
    layout = view.layout
    if not terms.ttl_multiplier or layout.shard_count != 1:
        return None
    for position, baseline in enumerate(layout.baselines):
        others = position in layout.shared.slots or position in layout.shared.quotas
        if not others and view.numbers[position] + baseline.earned(now[0]) < 0:
            return None
    return item_expiry_s(view, expiry_s(max(now[1], layout.start_ms), _fill_time(layout, terms), terms.ttl_multiplier))


def _fill_time(layout: BucketLayout, terms: EffectiveLimits) -> int:
    """Return the fill time of the slowest limit the bucket ever had, dormant ones up to their largest capacity."""
    retired = [
        -(-highest * part.period_ms // part.amount_milli) if part.amount_milli else part.limit.fill_time_ms
        for part, highest in zip(layout.shared.shares, layout.highest, strict=True)
        if part.name not in terms.positions
    ]
    return max(layout.fill_time_ms, longest_fill_ms(terms.limits), *retired)


def longest_fill_ms(limits: Iterable[Limit]) -> int:
    """Return the milliseconds that the slowest of the limits takes to fill from empty."""
    return max(limit.fill_time_ms for limit in limits)
