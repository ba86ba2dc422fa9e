"""Use several shards as one bucket: sum their levels, and divide a request or a debt among them.

A take from several shards is one transaction. This module decides what each shard contributes.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from zae_limiter.core.acquire import GUESSES, MixedTake, Take
from zae_limiter.core.add_or_set import HALFWAY, Add, Effort, Part, Reset
from zae_limiter.core.bucket import TimeBounds
from zae_limiter.core.bucket_changes import Settlement, Settling, take
from zae_limiter.core.lazy_dataclass import dataclass, replace
from zae_limiter.core.levels import LevelOfLimit, limit_levels
from zae_limiter.core.limit import Limit
from zae_limiter.core.reserve import Reserve, floor_milli_of
from zae_limiter.core.reserved_take import floors_on, lowered, raised
from zae_limiter.core.sharding import MOST_SHARDS
from zae_limiter.core.slots import MixedView, not_ended, released_across
from zae_limiter.core.tracked import proven, refunds_across, settle_tracked, take_covered, take_mixed
from zae_limiter.core.view import Amounts, EffectiveLimits, View

Views = Mapping[int, View[Any]]
"""The views of shards, by shard number."""

_SURE = Effort(sure=True)
# A take from several shards never gives away all that is left of them, even after many refusals.
_YIELDING = Effort(sure=True, yielding=HALFWAY)


@dataclass(frozen=True, slots=True)
class Combined:
    """One limit on all shards of a bucket. A shard in debt does not reduce what the others have."""

    parts: tuple[LevelOfLimit, ...]

    @property
    def name(self) -> str:
        """The limit's name."""
        return self.parts[0].name

    @property
    def limit(self) -> Limit:
        """The limit, undivided."""
        return self.parts[0].limit

    @property
    def is_exact(self) -> bool:
        """Whether the wait is exact if no other request takes from the limit."""
        return self.parts[0].is_exact

    def in_use_milli(self, now: TimeBounds) -> int | None:
        """Return the slots in use now, in millislots; None for a limit of another kind."""
        found = [part.in_use_milli(now) for part in self.parts]
        return None if found[0] is None else sum(milli or 0 for milli in found)

    def resets_s(self, now: TimeBounds) -> int | None:
        """Return when a quota is full on every shard, in seconds since the epoch; None for a limit of another kind."""
        found = [part.resets_s(now) for part in self.parts]
        return None if found[0] is None else max(at_s or 0 for at_s in found)

    def full_ms(self) -> int:
        """Return the millisecond at which the limit is full on every shard if nothing is taken from it."""
        return max(part.full_ms() for part in self.parts)

    def available_milli(self, now: TimeBounds) -> int:
        """Return the millitokens available now; negative if every shard is in debt."""
        levels = [part.available_milli(now) for part in self.parts]
        return sum(levels) if max(levels) < 0 else sum(level for level in levels if level > 0)

    def less(self, milli: int, at: TimeBounds) -> "Combined":
        """Return the limit after a take of ``milli`` millitokens, from the fullest shards first."""
        left = milli
        parts = []
        for part in sorted(self.parts, key=lambda one: -one.available_milli(at)):
            given = min(left, max(0, part.available_milli(at)))
            parts.append(part.less(given, at))
            left -= given
        return Combined(tuple(parts))

    def less_above(self, milli: int, at: TimeBounds, reserve: Reserve) -> "Combined":
        """Return the limit after a take that leaves every shard its part of a reserve."""
        left = milli
        parts = []
        for part in self.parts:
            given = min(left, max(0, part.above(reserve).available_milli(at)))
            parts.append(part.less(given, at))
            left -= given
        return Combined(tuple(parts))

    def wait_ms(self, needed_milli: int, now: TimeBounds) -> int:
        """Return the milliseconds until ``needed_milli`` are available, which must not exceed the capacity."""
        if not needed_milli or self.available_milli(now) >= needed_milli:
            return 0
        # There is no closed form for the sum of several shards: each stops at its own capacity and
        # counts only above zero. The sum never falls over time, so bisection finds the first
        # millisecond.
        early, late = now[0], self.full_ms()
        while late - early > 1:
            middle = (early + late) // 2
            reached = self.available_milli((middle, middle)) >= needed_milli
            early, late = (early, middle) if reached else (middle, late)
        return late - now[0]

    def above(self, reserve: Reserve) -> "Combined":
        """Return what the limit has above a reserve, of which every shard keeps its part."""
        return Combined(tuple([part.above(reserve) for part in self.parts]))


def combined(views: Sequence[View[Any]], terms: EffectiveLimits, now: TimeBounds) -> list[Combined]:
    """Return the level of each limit in force, over all shards."""
    now = proven(views, now)
    by_shard = [limit_levels(view, terms, now) for view in views]
    return [Combined(parts) for parts in zip(*by_shard, strict=True)]


def share_out(
    views: Views, amounts: Amounts, now: TimeBounds, reserve: Reserve | None = None, *, evenly: bool = False
) -> dict[int, list[tuple[int, int]]] | None:
    """Return what each shard contributes to a request, None if together they have too few tokens.

    The fullest shards contribute first, as much as they have above their part of ``reserve``. With ``evenly``, each
    contributes in proportion to that.
    """
    parts: dict[int, list[tuple[int, int]]] = {}
    now = proven(views.values(), now)
    for position, needed in amounts:
        if not needed:
            continue
        left = needed
        levels = _fullest_first(views, position, now[0], reserve)
        if not _is_enforced(views, position):
            # A soft limit never rejects: one shard has the tokens, or counts the use.
            parts.setdefault(levels[0][0], []).append((position, needed))
            continue
        whole = sum(level for _, level in levels if level > 0)
        unit = _unit(views, position)
        for shard, level in levels:
            # Round up to the next millitoken, so that the shards that follow have enough for the
            # rest.
            part = -(-needed * level // (whole * unit)) * unit if evenly and whole else level
            given = min(left, level, part)
            if given > 0:
                parts.setdefault(shard, []).append((position, given))
                left -= given
            if not left:
                break
        if left:
            return None
    return parts


def take_across(
    views: Views, amounts: Amounts, now: TimeBounds, refusals: int, reserve: Reserve | None = None
) -> dict[int, Take] | None:
    """Return how each shard's part of a request is written, None if together they have too few tokens.

    Every shard that contributes keeps its part of ``reserve``; None if all of it may be taken.
    ``refusals`` is how often other clients were faster. A shard that is emptied completely leaves
    them no margin, so after a refusal every shard contributes a part.
    """
    effort = _SURE if refusals < GUESSES else _YIELDING
    now = proven(views.values(), now)
    parts = share_out(views, amounts, now, reserve, evenly=refusals > 0)
    if parts is None:
        return None
    if reserve is None:
        return {shard: _taking(views[shard], given, now, effort) for shard, given in parts.items()}
    takes = {}
    for shard, given in parts.items():
        view = views[shard]
        limits = view.layout.limits
        floors = floors_on(view, limits, given, reserve)
        takes[shard] = lowered(_taking(view, raised(given, floors), now, effort), floors, limits)
    return takes


def _taking(view: View[Any], given: Amounts, now: TimeBounds, effort: Effort) -> Take:
    """Return how one shard's part of a request is written. A bucket with several shards never expires."""
    parts = take_mixed(view, given, now, effort)
    assert parts is not None, "a shard contributes at most what it has"
    bounds = take(view, parts.rest, now, effort)
    assert isinstance(bounds, list), "a shard contributes at most its level"
    if isinstance(view, MixedView):
        return MixedTake(bounds, None, (), parts.slots, parts.tracked)
    return Take(bounds, None, ())


def _is_enforced(views: Views, position: int) -> bool:
    return any(view.layout.shared.shares[position].limit.enforce for view in views.values())


def _unit(views: Views, position: int) -> int:
    """Return the smallest amount of a limit, in millitokens.

    A part of a slot would be left on a shard when the rest of it is returned, and a quota stores whole units.
    """
    shared = [view.layout.shared for view in views.values()]
    return 1000 if any(position in one.slots or position in one.quotas for one in shared) else 1


def due_across(views: Views, settlement: Settlement) -> Settlement:
    """Return what all shards together are charged or credited."""
    births = {view.layout.birth for view in views.values()}
    # An older version creates shards without a birth number. Then each shard decides on the credits
    # by itself.
    return settlement.due(births.pop()) if len(births) == 1 else settlement


def credit_across(views: Views, settlement: Settlement, now: TimeBounds) -> dict[int, Settling]:
    """Return how credits are divided among all shards: each gets what it has room for, one gets the rest."""
    given: dict[int, Settling] = {}
    reached = {shard: view for shard, view in views.items() if settlement.credits_reach(view.layout.birth)}
    for name, milli in settlement.credits:
        # Only rate limits: slots and quotas get back what they have given by other rules, and in other units.
        places = {
            shard: position
            for shard, view in reached.items()
            if (position := view.layout.position(name)) is not None
            and position not in view.layout.shared.slots
            and position not in view.layout.shared.quotas
        }
        rooms = {shard: _room(views[shard], position, now[0]) for shard, position in places.items()}
        left = milli
        for shard in sorted(rooms, key=lambda one: -rooms[one]):
            rooms[shard] = part = min(left, rooms[shard])
            left -= part
        for shard, part in rooms.items():
            # The first shard also gets what fits nowhere. The next take from it cuts that off.
            amount, left = part + left, 0
            if amount:
                credit = Add(places[shard], -amount, amount, None, None)
                given.setdefault(shard, Settling([], held=False, birth=settlement.birth)).parts.append(credit)
    return given


def given_back_across(views: Views, settlement: Settlement, now: TimeBounds) -> dict[int, Settlement]:
    """Return what each shard gets back of slots and charges that a split or a merge has moved."""
    released = released_across(views, not_ended(settlement.releases, now[0]))
    refunded = refunds_across(views, [(settlement.shard, refund) for refund in settlement.refunds])
    found = {}
    for shard in {**released, **refunded}:
        releases, refunds = tuple(released.get(shard, ())), tuple(refunded.get(shard, ()))
        found[shard] = Settlement((), (), settlement.birth, releases, shard, refunds)
    return found


def _room(view: View[Any], position: int, at_ms: int) -> int:
    """Return the millitokens that a shard lacks to be full."""
    capacity: int = view.layout.shared.shares[position].capacity_milli
    return capacity - _level(view, position, at_ms)


def lacks(view: View[Any] | None, settlement: Settlement, now_ms: int, refusals: int) -> bool:
    """Return whether debits go to all shards: one shard lacks the tokens, or others changed it more than once."""
    if view is None or refusals > 1:
        return True
    for name, debt in settlement.debits:
        position = view.layout.position(name)
        if position is not None and _level(view, position, now_ms) < debt:
            return True
    return False


def has_no_room(view: View[Any] | None, settlement: Settlement, now_ms: int) -> bool:
    """Return whether credits go to all shards, because one shard has no room for them."""
    if view is None:
        return True
    for name, milli in settlement.credits:
        position = view.layout.position(name)
        if position is not None and _room(view, position, now_ms) < milli:
            return True
    return False


def if_covered(view: View[Any], settling: Settling, now_ms: int) -> Settling:
    """Return a settlement that a shard refuses if it lacks the tokens for a debit. All shards are charged then."""
    parts = [_covered(view, part, now_ms) for part in settling.parts]
    return Settling(parts, settling.held, settling.birth, settling.releases)


def _covered(view: View[Any], part: Part, now_ms: int) -> Part:
    """Return a part that a shard refuses if it lacks the tokens. A soft limit is charged without asking."""
    if part.spent <= 0 or not isinstance(part, Add):
        return part
    if part.position in view.layout.shared.tracked:
        return take_covered(view, part, now_ms)
    return replace(part, low=part.spent - view.layout.baseline(part.position).earned(now_ms))


def debit_across(views: Views, debits: Sequence[tuple[str, int]], now: TimeBounds) -> dict[int, Settling]:
    """Return how a debt is charged to all shards: first to their levels, the rest in proportion to their shares."""
    charged: dict[int, Settling] = {}
    now = proven(views.values(), now)
    for name, debt in debits:
        having = {
            shard: position for shard, view in views.items() if (position := view.layout.position(name)) is not None
        }
        levels = {shard: _level(views[shard], position, now[0]) for shard, position in having.items()}
        unit = max(_unit({shard: views[shard]}, position) for shard, position in having.items()) if having else 1
        for shard, part in _charges({shard: views[shard] for shard in having}, levels, debt, unit).items():
            if part:
                parts = charged.setdefault(shard, Settling([], held=True)).parts
                parts.append(_charge(views[shard], having[shard], part, now))
    return charged


def _charges(views: Views, levels: Mapping[int, int], debt: int, unit: int) -> dict[int, int]:
    """Return the part of a debt that each shard is charged."""
    charges = {}
    left = debt
    for shard in sorted(levels, key=lambda one: -levels[one]):
        charges[shard] = min(left, max(0, levels[shard]))
        left -= charges[shard]
    left //= unit
    weights = {shard: MOST_SHARDS // view.layout.shard_count for shard, view in views.items()}
    whole, before = sum(weights.values()), 0
    for shard, weight in weights.items():
        # The rest becomes debt, in proportion to the share of each shard, because a shard earns in
        # that proportion. Differences of running sums are charged, so rounding loses no millitoken.
        charges[shard] += (left * (before + weight) // whole - left * before // whole) * unit
        before += weight
    return charges


def _charge(view: View[Any], position: int, debt: int, now: TimeBounds) -> Part:
    if position in view.layout.shared.tracked:
        return settle_tracked(view, position, debt, (), now)
    baseline = view.layout.baseline(position)
    ceiling = baseline.capacity_milli - baseline.earned(now[1])
    # An overflow must not pay the debt. So a shard that is full is set to its capacity minus the
    # debt.
    if view.numbers[position] <= ceiling:
        return Add(position, debt, -debt, None, ceiling)
    return Reset(position, debt, ceiling - debt, ceiling + 1)


def _fullest_first(views: Views, position: int, at_ms: int, reserve: Reserve | None) -> list[tuple[int, int]]:
    """Return the level of a limit on each shard above its part of a reserve, the largest first."""
    levels = [(shard, _level(view, position, at_ms) - _floor(view, position, reserve)) for shard, view in views.items()]
    return sorted(levels, key=lambda one: -one[1])


def _floor(view: View[Any], position: int, reserve: Reserve | None) -> int:
    if reserve is None:
        return 0
    share = view.layout.shared.shares[position]
    return floor_milli_of(share.limit, reserve, share.shard, share.shard_count)


def _level(view: View[Any], position: int, at_ms: int) -> int:
    level: int = view.level(position, at_ms)
    return level
