"""Rules with a fault each, and what must come of it: what every bound, guard and clamp is there to prevent."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from tests.model import invariants
from tests.model.configs import Config, config
from tests.model.rules import REAL, Rules
from tests.promise.spoilers import Bound, rebound
from zae_limiter.schema import bucket_writes
from zae_limiter.schema.operations import Check, Delete, ItemAbsent, Matches, Put, Ranges, Update

Change = Callable[[Any], Any]


@dataclass(frozen=True)
class Weakened:
    """Rules with one fault: the configuration it shows in, the invariant it breaks, and in how few steps."""

    name: str
    rules: Rules
    config: Config
    breaks: str
    steps: int


def _unbound(write: Any, *, low: bool = False, high: bool = False, of: str = "add") -> Any:
    """The write without the lower or the upper bounds of the balances that it adds to, or that it sets."""

    def change(bound: Bound) -> Bound:
        name, least, most = bound
        return (name, None if low else least, None if high else most) if name in getattr(write, of) else bound

    return rebound(write, change) if isinstance(write, Update) else write


def _without(kind: type) -> Change:
    """The write without the conditions of a kind."""
    return lambda write: replace(write, when=tuple(one for one in write.when if not isinstance(one, kind)))


def _holding_less(attribute: str) -> Change:
    """The write that holds on to all that was seen but one attribute."""

    def change(write: Any) -> Any:
        when = tuple(_less(one, attribute) if isinstance(one, Matches) else one for one in write.when)
        return replace(write, when=when)

    return change


def _less(guard: Matches, attribute: str) -> Matches:
    kept = [(name, value) for name, value in zip(guard.names, guard.values, strict=True) if name != attribute]
    return Matches(tuple(name for name, _ in kept), tuple(value for _, value in kept))


def _changed(writer: Callable[..., Any], change: Change) -> Callable[..., Any]:
    """The writer whose operations, one or two, are changed."""

    def write(*arguments: Any) -> Any:
        made = writer(*arguments)
        return tuple(change(one) for one in made) if isinstance(made, tuple) else change(made)

    return write


def _adding(write: Any) -> Any:
    """The write that adds to a balance where it must set it."""
    due = {name for name in write.set if name.endswith("_tk")}
    spent = {name: -write.add[f"{name[:-3]}_tc"] for name in due}
    kept = {name: value for name, value in write.set.items() if name not in due}
    return replace(write, set=kept, add={**write.add, **spent})


def _resetting(name: str, value: Callable[[Any], Any]) -> Change:
    """The update that sets an attribute to another value."""
    return lambda one: replace(one, set={**one.set, name: value(one)}) if isinstance(one, Update) else one


def _both_whole(view: Any, splitting: Any, nonce: int) -> Any:
    """A split that halves nothing."""
    old, new = bucket_writes.split(view, splitting, nonce)
    same = {name: 0 if name.endswith("_tk") else change for name, change in old.add.items()}
    whole = {name: view.numbers[at] for at, name in enumerate(view.frame.balance_names)}
    return replace(old, add=same), replace(new, item={**new.item, **whole})


def _new_half_full(one: Any) -> Any:
    """The new shard of a split, as full as a bucket is that is created."""
    if not isinstance(one, Put):
        return one
    full = {name: one.item[f"{name[:-3]}_cp"] // 2 for name in one.item if name.endswith("_tk")}
    return replace(one, item={**one.item, **full})


def _refilled(view: Any, rebasing: Any, nonce: int) -> Any:
    """A rebase that starts all limits full."""
    write = bucket_writes.rebase(view, rebasing, nonce)
    full = {
        f"b_{limit.name}_tk": limit.capacity_milli - write.add.get(f"b_{limit.name}_tc", 0)
        for limit in rebasing.terms.limits
    }
    added = {name: change for name, change in write.add.items() if name not in full}
    return replace(write, add=added, set={**write.set, **full})


def _forgetful(view: Any, rebasing: Any, nonce: int) -> Any:
    """A rebase that forgets a limit that is taken out though it is not full."""
    write = bucket_writes.rebase(view, rebasing, nonce)
    going = tuple(f"b_{name[2:-3]}_" for name in write.set if name.endswith("_dm"))

    def kept(values: Any) -> dict[str, Any]:
        return {name: value for name, value in values.items() if not (going and name.startswith(going))}

    gone = tuple(f"{prefix}{field}" for prefix in going for field in ("tk", "cp", "ra", "rp", "tc", "dm", "hc"))
    return replace(write, add=kept(write.add), set=kept(write.set), remove=write.remove + gone)


def _expiring_soon(owner: Any, terms: Any, spent: Any, now_ms: int, nonce: int) -> Any:
    """A bucket that is created to expire before it is full."""
    write = bucket_writes.create(owner, terms, spent, now_ms, nonce)
    return replace(write, item={**write.item, "ttl": now_ms // 1000 - 1})


def _keeping_expiry(view: Any, settling: Any, nonce: int) -> Any:
    """A debit that leaves the expiry as it is."""
    return replace(bucket_writes.settle(view, settling, nonce), remove=())


def _uncounted(write: Any) -> Any:
    return replace(write, add={name: n for name, n in write.add.items() if name == "b_wcu_tc" or name[-3:] != "_tc"})


def _only_first(writer: Callable[..., Any]) -> Callable[..., Any]:
    """A transaction whose second write does nothing, though its conditions hold."""

    def write(*arguments: Any) -> Any:
        first, second = writer(*arguments)
        nothing = Delete if isinstance(second, Put) else Check
        return first, nothing(second.key, second.when)

    return write


_TAKES, _SETTLE, _OWN, _SHARDS = config("takes"), config("settle"), config("own"), config("shards")
_TORN, _ACROSS, _REFUNDS, _EXPIRY = config("torn"), config("across"), config("refunds"), config("expiry")
_RIVALS = config("rivals")
_TORN_RIVALS = replace(_RIVALS, lossy=(1,))
_OWN_REFUNDS = replace(_OWN, refunds=({"fast": 1},), lossy=())
_PROMISE, _BELIEF, _KEPT = invariants.PROMISE, invariants.BELIEF, invariants.KEPT
_take, _settle, _rebase = bucket_writes.take, bucket_writes.settle, bucket_writes.rebase
_split, _merge, _create = bucket_writes.split, bucket_writes.merge, bucket_writes.create


def _weakened(name: str, where: Config, breaks: str, steps: int, **rules: Any) -> Weakened:
    return Weakened(name, replace(REAL, **rules), where, breaks, steps)


def _floorless(write: Any) -> Any:
    return _unbound(write, low=True)


def _ceilingless(write: Any) -> Any:
    return _unbound(write, high=True)


def _baseless(write: Any) -> Any:
    return _unbound(write, low=True, of="set")


_back = _resetting("rf", lambda one: one.set["rf"] - 1_000 if "rf" in one.set else None)

WEAKENED = (
    _weakened("take without its lower bound", _TAKES, _PROMISE, 4, take=_changed(_take, _floorless)),
    _weakened("take without its upper bound", _SETTLE, _PROMISE, 6, take=_changed(_take, _ceilingless)),
    _weakened("take that sets without a floor", _TAKES, _PROMISE, 5, take=_changed(_take, _baseless)),
    _weakened("take that adds where it must set", _TAKES, _PROMISE, 5, take=_changed(_take, _adding)),
    _weakened("take that is not counted", _TAKES, invariants.TOTALS, 2, take=_changed(_take, _uncounted)),
    _weakened("create over another", _TAKES, _PROMISE, 2, create=_changed(_create, _without(ItemAbsent))),
    _weakened("take resent without its nonce", _TAKES, _BELIEF, 4, sent_again=lambda write: write),
    _weakened("nonce not recognised", _TAKES, _BELIEF, 2, is_mine=lambda write, item: False),
    _weakened("any refusal taken for one's own", _TAKES, _BELIEF, 3, is_mine=lambda write, item: True),
    _weakened("debit without its upper bound", _SETTLE, _PROMISE, 9, settle=_changed(_settle, _ceilingless)),
    _weakened("debit that adds where it must set", _SETTLE, _PROMISE, 7, settle=_changed(_settle, _adding)),
    _weakened("credit resent", _SETTLE, _PROMISE, 7, resends_credits=True),
    _weakened("take without its hold", _OWN, _PROMISE, 7, take=_changed(_take, _without(Matches))),
    _weakened("rebase without its hold", _OWN, _PROMISE, 8, rebase=_changed(_rebase, _without(Matches))),
    _weakened("rebase without its lower bound", _OWN, _PROMISE, 5, rebase=_changed(_rebase, _floorless)),
    _weakened("rebase without its upper bound", _OWN_REFUNDS, _KEPT, 4, rebase=_changed(_rebase, _ceilingless)),
    _weakened("rebase that moves the baseline back", _OWN, _PROMISE, 5, rebase=_changed(_rebase, _back)),
    _weakened("rebase that refills", _OWN, _PROMISE, 5, rebase=_refilled),
    _weakened("limit taken out without a trace", config("added"), _PROMISE, 6, rebase=_forgetful),
    _weakened("item that expires before it is full", _EXPIRY, _PROMISE, 5, create=_expiring_soon),
    _weakened("hold without the baseline", _EXPIRY, invariants.DEBT, 11, take=_changed(_take, _holding_less("rf"))),
    _weakened("debit that leaves the expiry", _EXPIRY, _PROMISE, 12, settle=_keeping_expiry),
    _weakened("split that gives both halves the whole", _SHARDS, _PROMISE, 8, split=_both_whole),
    _weakened("split with a new half that is full", _SHARDS, _PROMISE, 7, split=_changed(_split, _new_half_full)),
    _weakened("split without its lower bound", _SHARDS, invariants.DEBT, 5, split=_changed(_split, _floorless)),
    _weakened("split without its upper bound", _REFUNDS, _KEPT, 5, split=_changed(_split, _ceilingless)),
    _weakened("split without its hold", _RIVALS, _KEPT, 6, split=_changed(_split, _without(Matches))),
    _weakened("split without a new half", _SHARDS, invariants.SHARDS, 2, split=_only_first(_split)),
    _weakened("merge without its upper bound", _REFUNDS, _KEPT, 7, merge=_changed(_merge, _ceilingless)),
    _weakened("merge that deletes what was not seen", _SHARDS, _PROMISE, 8, merge=_changed(_merge, _without(Ranges))),
    _weakened("merge without its hold", _TORN_RIVALS, _KEPT, 9, merge=_changed(_merge, _without(Matches))),
    _weakened("merge that moves the baseline back", _SHARDS, _PROMISE, 8, merge=_changed(_merge, _back)),
    _weakened("merge without the delete", _SHARDS, invariants.SHARDS, 3, merge=_only_first(_merge)),
    _weakened("transaction resent without its token", _TORN, _BELIEF, 3, honours_tokens=False),
    _weakened("take across resent without its token", _ACROSS, _BELIEF, 6, honours_tokens=False),
)
