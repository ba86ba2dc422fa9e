"""Rules with a fault each, and what must come of it: what every bound, guard and clamp is there to prevent."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from tests import mutating as weak
from tests.model import invariants
from tests.model.configs import Config, config
from tests.model.rules import REAL, Rules, create_without_birth, topped_up
from zae_limiter.core.top_up import Creation, Known
from zae_limiter.schema import bucket_writes
from zae_limiter.schema.operations import Equals, Ranges


@dataclass(frozen=True)
class Weakened:
    """Rules with one fault: the configuration it shows in, the invariant it breaks, and in how few steps."""

    name: str
    rules: Rules
    config: Config
    breaks: str
    steps: int


_TAKES, _SETTLE, _OWN, _SHARDS = config("takes"), config("settle"), config("own"), config("shards")
_TORN, _ACROSS, _REFUNDS, _EXPIRY = config("torn"), config("across"), config("refunds"), config("expiry")
_RIVALS, _DELETED = config("rivals"), config("deleted")
_TOP_UPS, _LATE_TOP_UPS = config("top-ups"), config("top-ups late")
_TORN_RIVALS = replace(_RIVALS, lossy=(1,))
_OWN_REFUNDS = replace(_OWN, refunds=({"fast": 1},), lossy=())
_PROMISE, _BELIEF, _KEPT = invariants.PROMISE, invariants.BELIEF, invariants.KEPT
_take, _settle, _rebase = bucket_writes.take, bucket_writes.settle, bucket_writes.rebase
_split, _merge, _create = bucket_writes.split, bucket_writes.merge, bucket_writes.create
_top_up = bucket_writes.top_up


def _weakened(name: str, where: Config, breaks: str, steps: int, **rules: Any) -> Weakened:
    return Weakened(name, replace(REAL, **rules), where, breaks, steps)


_ADDED, _unseen = config("added"), weak.without(Ranges)


def _changed(writer: Callable[..., Any], change: weak.Change) -> Callable[..., Any]:
    return weak.changed(change)(writer)


def _in_company(creation: Creation, view: Any, *rest: Any) -> Any:
    """The bucket is taken to have no other writers."""
    return topped_up(replace(creation, writes=view.writes), view, *rest)


def _too_early(creation: Creation, view: Any, terms: Any, amounts: Any, known: Known) -> Any:
    """The bucket is taken to have been created at the earliest time that is possible."""
    return topped_up(creation, view, terms, amounts, known._replace(created_ms=creation.earliest_ms))


def _overflowing(creation: Creation, view: Any, terms: Any, amounts: Any, known: Known) -> Any:
    """The bucket is taken to have never been full."""
    never_full = replace(creation, room=[0] * len(creation.room), received_ms=known.local_ms)
    return topped_up(never_full, view, terms, amounts, known)


def _unearned(creation: Creation, view: Any, terms: Any, amounts: Any, known: Known) -> Any:
    """All that is withheld is returned before the baseline, as if it were earned."""
    start_ms = max(known.now[0], view.layout.start_ms)
    return topped_up(creation, view, terms, amounts, known._replace(now=(start_ms, max(start_ms, known.now[1]))))


WEAKENED = (
    _weakened("take without its lower bound", _TAKES, _PROMISE, 4, take=_changed(_take, weak.floorless)),
    _weakened("take without its upper bound", _SETTLE, _PROMISE, 6, take=_changed(_take, weak.ceilingless)),
    _weakened("take that sets without a floor", _TAKES, _PROMISE, 5, take=_changed(_take, weak.baseless)),
    _weakened("take that adds where it must set", _TAKES, _PROMISE, 5, take=_changed(_take, weak.adding)),
    _weakened("take that is not counted", _TAKES, invariants.TOTALS, 2, take=_changed(_take, weak.uncounted)),
    _weakened(
        "top-up without the write counter", _LATE_TOP_UPS, _PROMISE, 6, top_up=_changed(_top_up, weak.without(Equals))
    ),
    _weakened("top-up though others have written", _TOP_UPS, _PROMISE, 9, topped_up=_in_company),
    _weakened("top-up from before the creation", _TOP_UPS, _PROMISE, 5, topped_up=_too_early),
    _weakened("top-up of what would have overflowed", _TOP_UPS, _PROMISE, 9, topped_up=_overflowing),
    _weakened("top-up of what is not earned yet", _TOP_UPS, _PROMISE, 4, topped_up=_unearned),
    _weakened("create over another", _TAKES, _PROMISE, 2, create=_changed(_create, weak.over_another)),
    _weakened("take resent without its nonce", _TAKES, _BELIEF, 4, sent_again=lambda write, birth: write),
    _weakened("nonce not recognised", _TAKES, _BELIEF, 2, is_mine=lambda write, item: False),
    _weakened("any refusal taken for one's own", _TAKES, _BELIEF, 3, is_mine=lambda write, item: True),
    _weakened("debit without its upper bound", _SETTLE, _PROMISE, 9, settle=_changed(_settle, weak.ceilingless)),
    _weakened("debit that adds where it must set", _SETTLE, _PROMISE, 7, settle=_changed(_settle, weak.adding)),
    _weakened("credit resent", _SETTLE, _PROMISE, 7, resends_credits=True),
    _weakened("take without its hold", _OWN, _PROMISE, 7, take=_changed(_take, weak.unguarded)),
    _weakened("rebase without its hold", _OWN, _PROMISE, 8, rebase=_changed(_rebase, weak.unguarded)),
    _weakened("rebase without its lower bound", _OWN, _PROMISE, 5, rebase=_changed(_rebase, weak.floorless)),
    _weakened("rebase without its upper bound", _OWN_REFUNDS, _KEPT, 4, rebase=_changed(_rebase, weak.ceilingless)),
    _weakened("rebase that moves the baseline back", _OWN, _PROMISE, 5, rebase=_changed(_rebase, weak.moved_back)),
    _weakened("rebase that refills", _OWN, _PROMISE, 5, rebase=weak.refilled(_rebase)),
    _weakened(
        "limit taken out without a trace", config("added"), _PROMISE, 6, rebase=_changed(_rebase, weak.forgetful)
    ),
    _weakened("item that expires before it is full", _EXPIRY, _PROMISE, 5, create=weak.expiring_soon(_create)),
    _weakened(
        "hold without the birth number", _EXPIRY, invariants.DEBT, 11, take=_changed(_take, weak.holding_less("bi"))
    ),
    _weakened("hold without the generation", _OWN, _PROMISE, 7, take=_changed(_take, weak.holding_less("gn"))),
    _weakened("credit to another bucket of the name", _DELETED, _PROMISE, 6, credits_any=True),
    _weakened(
        "credit that does not require its birth number",
        _DELETED,
        _PROMISE,
        6,
        settle=_changed(_settle, weak.without(Equals)),
    ),
    _weakened("create that draws no birth number", _DELETED, _PROMISE, 7, birth=lambda fresh, nonce: 1),
    _weakened(
        "hold of an older item without the baseline",
        _EXPIRY,
        invariants.DEBT,
        11,
        create=create_without_birth,
        take=_changed(_take, weak.holding_less("rf")),
    ),
    _weakened("debit that leaves the expiry", _EXPIRY, _PROMISE, 12, settle=_changed(_settle, weak.keeping_expiry)),
    _weakened("split that gives both halves the whole", _SHARDS, _PROMISE, 8, split=weak.both_whole(_split)),
    _weakened("split with a new half that is full", _SHARDS, _PROMISE, 7, split=_changed(_split, weak.new_half_full)),
    _weakened("split without its lower bound", _SHARDS, invariants.DEBT, 5, split=_changed(_split, weak.floorless)),
    _weakened("split without its upper bound", _REFUNDS, _KEPT, 5, split=_changed(_split, weak.ceilingless)),
    _weakened("split without its hold", _RIVALS, _KEPT, 6, split=_changed(_split, weak.unguarded)),
    _weakened("split without a new half", _SHARDS, invariants.SHARDS, 2, split=weak.only_first(_split)),
    _weakened("merge without its upper bound", _REFUNDS, _KEPT, 7, merge=_changed(_merge, weak.ceilingless)),
    _weakened(
        "merge that deletes what was not seen", _SHARDS, _PROMISE, 8, merge=_changed(_merge, weak.without(Ranges))
    ),
    _weakened("merge without its hold", _TORN_RIVALS, _KEPT, 8, merge=_changed(_merge, weak.unguarded)),
    _weakened("merge that moves the baseline back", _SHARDS, _PROMISE, 8, merge=_changed(_merge, weak.moved_back)),
    _weakened("merge without the delete", _SHARDS, invariants.SHARDS, 3, merge=weak.only_first(_merge)),
    _weakened("transaction resent without its token", _TORN, _BELIEF, 3, honours_tokens=False),
    _weakened("take across resent without its token", _ACROSS, _BELIEF, 6, honours_tokens=False),
)
