"""Rules of a calendar quota that are broken on purpose, and the violation that each must lead to."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from tests.model.quotas_rules import REAL, Rules
from zae_limiter.core import quota
from zae_limiter.core.quota import BAND, MOST_SPENT, QuotaAdd, QuotaMerge, QuotaSet, QuotaSplit, QuotaView

_LEAST, _MOST = -(10**30), 10**30

# The real rows, because the simulation replaces those of the module.
_EPOCH_OF, _KNOWN_S, _CREATED, _RESET = quota.epoch_of, quota.known_s, quota.created, quota.reset
_TAKE, _DEBIT, _SPLIT, _MERGE = quota.take_and_settle, quota.debit, quota.split, quota.merge
_REBASE, _NET = quota.rebase_schedule, quota.debit_and_credit


@dataclass(frozen=True)
class QuotaMutation:
    """A broken rule: the configuration that notices, the invariant it violates, and the rules that are replaced."""

    name: str
    config: str
    breaks: str
    rules: Rules

    def __str__(self) -> str:
        return self.name


Change = Callable[[Any], Any]


def _unbounded(*sides: str, of: type = QuotaAdd) -> Change:
    """Return what drops bounds of an added or a set number."""

    def change(write: Any) -> Any:
        if isinstance(write, QuotaSplit):
            return QuotaSplit(write.new_qk, change(write.old_write))
        if isinstance(write, QuotaMerge):
            return QuotaMerge(change(write.staying_write), write.low, write.high)
        if not isinstance(write, of):
            return write
        for side in sides:
            value = None if side == "high" and of is QuotaSet else _LEAST if side == "low" else _MOST
            setattr(write, side, value)
        return write

    return change


def _after(row: Callable[..., Any], change: Change) -> Callable[..., Any]:
    """Return a row whose result is changed."""

    def mutated(*given: Any, **named: Any) -> Any:
        found = row(*given, **named)
        return None if found is None else change(found)

    return mutated


def _adding(row: Callable[..., Any]) -> Callable[..., Any]:
    """Return a row that adds to an older epoch instead of setting."""

    def mutated(view: QuotaView, *given: Any) -> Any:
        found = row(view, *given)
        if isinstance(found, QuotaSet) and not view.is_current:
            return QuotaAdd(found.qk - view.full, found.low, _MOST)
        return found

    return mutated


def _setting_full(row: Callable[..., Any]) -> Callable[..., Any]:
    """Return a rebase that forgets what was spent."""

    def mutated(view: QuotaView, *given: Any) -> Any:
        found = row(view, *given)
        if isinstance(found, QuotaAdd):
            return QuotaSet(-BAND * _EPOCH_OF(view.qk + found.change), found.low, found.high)
        return found

    return mutated


class _ViewWithoutTolerance(QuotaView):
    @property
    def least_of_older(self) -> int:
        return -BAND * max(self.epoch - 1, _EPOCH_OF(self.qk)) - quota.HALF_BAND + 1


class _ViewWithoutSeenBand(QuotaView):
    @property
    def least_of_older(self) -> int:
        return -BAND * (self.epoch - self.tolerance) - quota.HALF_BAND + 1


def _without_proof(low_s: int, numbers: Any) -> int:
    return low_s


def _proven_by_odd(low_s: int, numbers: Any) -> int:
    return max([low_s, *(_EPOCH_OF(qk) // 2 for qk in numbers)])


def _at_the_latest(low_s: int, numbers: Any) -> int:
    return _KNOWN_S(low_s + 3, numbers)


def _without_tolerance(qk: int, begin_s: int, tolerance: int) -> int:
    return max(_EPOCH_OF(qk), 2 * begin_s)


def _tolerant_of_actions(qk: int, begin_s: int, tolerance: int) -> int:
    band, edge = _EPOCH_OF(qk), 2 * begin_s
    return band if band >= edge or edge - band < tolerance else edge


def _late_edge(qk: int, begin_s: int, tolerance: int) -> int:
    """Keep an epoch until a whole second after the next edge."""
    band = _EPOCH_OF(qk)
    return band if 2 * begin_s - band <= 16 and begin_s else max(band, 2 * begin_s)


def _without_reserve(view: QuotaView, taken: int, debit: int, credit: int, reserve: int = 0) -> Any:
    return _TAKE(view, taken, debit, credit)


def _reserve_by_view(view: QuotaView, taken: int, debit: int, credit: int, reserve: int = 0) -> Any:
    found = _TAKE(view, taken, debit, credit, reserve)
    return QuotaAdd(found.change, found.low - reserve, found.high) if isinstance(found, QuotaAdd) else found


def _debit_uncut(view: QuotaView, debit: int) -> Any:
    if not view.is_current:
        return _DEBIT(view, debit)
    return QuotaAdd(-debit, view.full - quota.HALF_BAND + 1, view.full)


def _credit_anywhere(charged_epoch: int, credit: int) -> QuotaAdd:
    return QuotaAdd(credit, _LEAST, _MOST)


def _credit_saturated(charged_epoch: int, credit: int) -> QuotaAdd:
    full = -BAND * charged_epoch
    return QuotaAdd(credit, full - MOST_SPENT, full - credit)


def _credit_overfull(charged_epoch: int, credit: int) -> QuotaAdd:
    return QuotaAdd(credit, -BAND * charged_epoch - MOST_SPENT + 1, -BAND * charged_epoch)


def _credit_any_epoch(charged_epoch: int, credit: int) -> QuotaAdd:
    return QuotaAdd(credit, _LEAST, -BAND * charged_epoch - credit)


def _share_all(charged: Mapping[tuple[int, int], int], given: int, numbers: Mapping[int, int]) -> Any:
    """Give back to every shard what was charged to one."""
    return {shard: (max(epoch for _, epoch in charged), given) for shard in numbers}


def _split_whole(view: QuotaView, capacity: int) -> Any:
    found = _SPLIT(view, capacity)
    if found is not None:
        found.new_qk = view.full
    return found


def _split_debt(view: QuotaView, capacity: int) -> Any:
    found = _SPLIT(view, capacity)
    if found is not None and view.level < 0:
        return QuotaSplit(found.new_qk, QuotaAdd(capacity, _LEAST, view.full))
    return found


def _merge_early(staying: QuotaView, leaving: QuotaView) -> Any:
    found = _MERGE(staying, leaving)
    if found is None:
        return None
    full = -BAND * min(staying.epoch, leaving.epoch)
    return QuotaMerge(QuotaSet(full - staying.spent - leaving.spent, _LEAST), found.low, found.high)


def _merge_unseen(staying: QuotaView, leaving: QuotaView) -> Any:
    found = _MERGE(staying, leaving)
    return found and QuotaMerge(found.staying_write, _LEAST, None)


def _merge_full(staying: QuotaView, leaving: QuotaView) -> Any:
    found = _MERGE(staying, leaving)
    full = _MERGE(staying, QuotaView(leaving.full, leaving.epoch, leaving.capacity, leaving.tolerance))
    return QuotaMerge(full.staying_write, found.low, found.high) if found and full else None


def _reset_odd(views: Any, low_s: int, period: Any) -> Any:
    epoch = quota.action_epoch(low_s, max(view.epoch for view in views))
    return [QuotaSet(-BAND * epoch, view.least) for view in views]


def _reset_even(views: Any, low_s: int, period: Any) -> Any:
    after = max(view.epoch for view in views)
    return [QuotaSet(-BAND * max(2 * low_s, after + 2 - after % 2), view.least) for view in views]


def _reset_late(views: Any, low_s: int, period: Any) -> Any:
    return _RESET(views, low_s + 3, (0, 100))


def _reset_one(views: Any, low_s: int, period: Any) -> Any:
    found = _RESET(views, low_s, period)
    return [*found[:-1], QuotaSet(views[-1].qk, views[-1].qk, views[-1].qk)] if len(found) > 1 else found


def _late_creation(begin_s: int, taken: int) -> int:
    return _CREATED(begin_s + 8, taken)


def _full_creation(begin_s: int, taken: int) -> int:
    return _CREATED(begin_s, 0)


def _hard(view: QuotaView, debit: int) -> Any:
    return _TAKE(view, debit, 0, 0)


def _rebase_early(view: QuotaView, taken: int | None, capacity: int, high_s: int) -> Any:
    """Date the change by the edge of the period, so that the next edge is the same epoch."""
    return _even(_REBASE(view, taken, capacity, high_s))


def _even(write: Any) -> Any:
    if isinstance(write, QuotaAdd):
        return QuotaAdd(write.change - BAND, write.low, write.high)
    return QuotaSet(write.qk - BAND, write.low, write.high) if write is not None else None


def _mutation(name: str, config: str, breaks: str, **rules: Any) -> QuotaMutation:
    return QuotaMutation(name, config, breaks, replace(REAL, **rules))


MUTATIONS = (
    _mutation("take without its lower bound", "takes", "promise", settle_and_take=_after(_TAKE, _unbounded("low"))),
    _mutation("take that adds where it must set", "takes", "period", settle_and_take=_adding(_TAKE)),
    _mutation(
        "take that sets without a floor", "takes", "kept", settle_and_take=_after(_TAKE, _unbounded("low", of=QuotaSet))
    ),
    _mutation("take that ignores the reserve", "reserve", "reserved", settle_and_take=_without_reserve),
    _mutation("reserve by the view alone", "reserve", "reserved", settle_and_take=_reserve_by_view),
    _mutation("debit that adds where it must set", "debits", "period", debit=_adding(_DEBIT)),
    _mutation(
        "debit that sets without a floor", "debits", "kept", debit=_after(_DEBIT, _unbounded("low", of=QuotaSet))
    ),
    _mutation("debit beyond the band", "cut", "overfull", debit=_debit_uncut),
    _mutation("credit of a saturated quota", "cut", "kept", credit=_credit_saturated),
    _mutation("credit without its bounds", "credits", "crossed", credit=_credit_anywhere),
    _mutation("credit that crosses an edge", "credits", "crossed", credit=_credit_any_epoch),
    _mutation(
        "credit beyond what is spent", "shards credits", "overfull", credit=_credit_overfull, share_credit=_share_all
    ),
    _mutation("credit to every shard", "shards credits", "twice", share_credit=_share_all),
    _mutation("credit without its birth number", "created", "twice", credits_any=True),
    _mutation("credit sent again", "credits", "twice", resends_credits=True),
    _mutation("credit of an older epoch in a group", "groups", "twice", whole_group=False),
    _mutation(
        "group without its upper bound", "shards groups", "overfull", settle_and_take=_after(_TAKE, _unbounded("high"))
    ),
    _mutation("quota created in a later period", "created", "early", created=_late_creation),
    _mutation("create that takes nothing", "created", "kept", created=_full_creation),
    _mutation("period by the latest time", "clocks", "early", known_s=_at_the_latest),
    _mutation(
        "period by the client's clock alone",
        "clocks",
        "promise",
        current_epoch=lambda qk, begin_s, tolerance: 2 * begin_s,
        known_s=_without_proof,
    ),
    _mutation("edge without tolerance", "differing", "kept", current_epoch=_without_tolerance),
    _mutation("tolerance for actions", "resets", "refilled", current_epoch=_tolerant_of_actions),
    _mutation("edge that does not refill", "takes", "refilled", current_epoch=_late_edge),
    _mutation("older epochs without tolerance", "differing", "kept", view=_ViewWithoutTolerance),
    _mutation("older epochs without the one that was seen", "schedules", "live", view=_ViewWithoutSeenBand),
    _mutation("changed schedule that refills", "schedules", "kept", rebase_schedule=_setting_full(_REBASE)),
    _mutation("changed schedule by an even epoch", "schedules", "early", rebase_schedule=_rebase_early),
    _mutation(
        "changed schedule without its lower bound",
        "schedules",
        "promise",
        rebase_schedule=_after(_REBASE, _unbounded("low")),
        guards=False,
    ),
    _mutation(
        "changed schedule that sets without a floor",
        "schedules",
        "promise",
        rebase_schedule=_after(_REBASE, _unbounded("low", of=QuotaSet)),
    ),
    _mutation("soft quota that refuses", "soft", "live", debit=_hard),
    _mutation(
        "soft debits beyond what is spent", "shards soft", "overfull", debit_and_credit=_after(_NET, _unbounded("high"))
    ),
    _mutation("reset by an odd epoch after an edge", "resets differing", "promise", reset=_reset_odd),
    _mutation("reset by an even epoch before an edge", "resets differing", "period", reset=_reset_even),
    _mutation("reset at a later time", "resets", "early", reset=_reset_late),
    _mutation("reset of one shard", "shards reset", "kept", reset=_reset_one),
    _mutation("write without the hold", "shards", "reserved", guards=False),
    _mutation("split that gives both halves the whole", "shards", "kept", split=_split_whole),
    _mutation("split without its lower bound", "shards", "split debt", split=_after(_SPLIT, _unbounded("low"))),
    _mutation("split without its upper bound", "shards credits", "overfull", split=_after(_SPLIT, _unbounded("high"))),
    _mutation("split of another debt", "shards debt", "overfull", split=_split_debt),
    _mutation(
        "split that sets without a floor", "shards", "kept", split=_after(_SPLIT, _unbounded("low", of=QuotaSet))
    ),
    _mutation(
        "merge that sets without a floor", "shards", "kept", merge=_after(_MERGE, _unbounded("low", of=QuotaSet))
    ),
    _mutation("merge that deletes what was not seen", "shards", "kept", merge=_merge_unseen),
    _mutation("merge that brings a full quota", "shards", "kept", merge=_merge_full),
    _mutation("merge in the earlier epoch", "shards", "kept", merge=_merge_early),
    _mutation("transaction sent again with a new token", "shards credits", "twice", honours_tokens=False),
)
"""Every mutation that must be noticed."""

HARMLESS = (
    _mutation("take without its upper bound", "takes", "", settle_and_take=_after(_TAKE, _unbounded("high"))),
    _mutation("debit without its upper bound", "debits", "", debit=_after(_DEBIT, _unbounded("high"))),
    _mutation("merge without its upper bound", "shards", "", merge=_after(_MERGE, _unbounded("high"))),
    _mutation("period without what a bucket proves", "clocks", "", known_s=_without_proof),
    _mutation("period by what actions prove", "schedules soft", "", known_s=_proven_by_odd),
)
"""Broken rules that no invariant notices, because other rules prevent the same fault.

No write lowers an epoch, and the hold notices another bucket. So what is stored is never in an older band than what was
seen. Upper bounds that only exclude such bands are a second defence. A bucket whose band is later than the
period of a client's clock is written in that band, whether it proves the time or not.
"""
