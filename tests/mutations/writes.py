"""Changes of writes: each drops a bound or a condition, or writes another value.

A change takes an operation and returns it changed. A writer with such a change is the protocol with one broken rule.
Operations that the rule does not concern are returned unchanged.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

from zae_limiter.core.add_or_set import Add, Reset
from zae_limiter.schema.operations import (
    AtLeast,
    AtMost,
    Between,
    Check,
    Condition,
    Delete,
    Equals,
    ItemAbsent,
    Matches,
    Put,
    Ranges,
    Update,
)

Bound = tuple[str, int | None, int | None]
Change = Callable[[Any], Any]
Writer = Callable[..., Any]

_FAR = 10**40
"""Every balance is above the negative of this."""


def with_bounds(operation: Update, change: Callable[[Bound], Bound]) -> Update:
    """Return the write with its ranges changed; ranges of one condition stay in one condition."""
    when: list[Condition] = []
    for condition in operation.when:
        if isinstance(condition, Ranges):
            changed = [change(one) for one in condition.ranges]
            when.append(Ranges([(name, -_FAR if low is None else low, high) for name, low, high in changed]))
            continue
        bound = _bound(condition)
        when += [condition] if bound is None else _conditions([change(bound)])
    return replace(operation, when=tuple(when))


def _bound(condition: Condition) -> Bound | None:
    """Return the range of a condition, or None for a condition of another kind."""
    match condition:
        case Between(name=name, low=low, high=high):
            return name, low, high
        case AtLeast(name=name, bound=bound):
            return name, bound, None
        case AtMost(name=name, bound=bound):
            return name, None, bound
    return None


def _conditions(bounds: Iterable[Bound]) -> Iterator[Condition]:
    for name, low, high in bounds:
        if low is not None:
            yield AtLeast(name, low)
        if high is not None:
            yield AtMost(name, high)


def without_bounds(write: Any, *, low: bool = False, high: bool = False, of: str = "add") -> Any:
    """Return the write without the lower or upper bounds of the balances that it adds to, or that it sets."""

    def change(bound: Bound) -> Bound:
        name, least, most = bound
        return (name, None if low else least, None if high else most) if name in getattr(write, of) else bound

    return with_bounds(write, change) if isinstance(write, Update) else write


def without_floor(write: Any) -> Any:
    """Return the write without the lower bounds where it adds: it may take tokens that do not exist."""
    return without_bounds(write, low=True)


def without_ceiling(write: Any) -> Any:
    """Return the write without the upper bounds where it adds: it may keep an overflow."""
    return without_bounds(write, high=True)


def without_floor_where_it_sets(write: Any) -> Any:
    """Return the write without the lower bounds where it sets: it may raise a balance."""
    return without_bounds(write, low=True, of="set")


def without(*kinds: type) -> Change:
    """Return the change that drops the conditions of these kinds."""
    return lambda write: replace(write, when=tuple(one for one in write.when if not isinstance(one, kinds)))


def holding_less(*attributes: str) -> Change:
    """Return a change after which a write requires all that was read except these attributes."""

    def less(guard: Matches) -> Condition:
        kept = {name: value for name, value in zip(guard.names, guard.values, strict=True) if name not in attributes}
        return Matches(tuple(kept), tuple(kept.values())) if len(kept) > 1 else Equals(*kept.popitem())

    def change(write: Any) -> Any:
        return replace(write, when=tuple(less(one) if isinstance(one, Matches) else one for one in write.when))

    return change


def changed(*changes: Change) -> Callable[[Writer], Writer]:
    """Return a wrapper of writers that changes each operation they return, one or two."""

    def around(writer: Writer) -> Writer:
        def write(*arguments: Any) -> Any:
            made = writer(*arguments)
            for change in changes:
                made = tuple(change(one) for one in made) if isinstance(made, tuple) else change(made)
            return made

        return write

    return around


def adding(write: Any) -> Any:
    """Return the write that adds to a balance where it must set it."""
    due = {name for name in write.set if name.endswith("_tk")}
    spent = {name: -write.add[f"{name[:-3]}_tc"] for name in due}
    kept = {name: value for name, value in write.set.items() if name not in due}
    return replace(write, set=kept, add={**write.add, **spent})


def resetting(name: str, value: Callable[[Any], Any]) -> Change:
    """Return a change that sets an attribute to another value."""
    return lambda one: replace(one, set={**one.set, name: value(one)}) if isinstance(one, Update) else one


def credited_twice(write: Any) -> Any:
    """Return the settlement with each credit doubled."""
    return replace(write, add={name: 2 * n if name.endswith("_tk") and n > 0 else n for name, n in write.add.items()})


def uncounted(write: Any) -> Any:
    """Return the write without its additions to the totals."""
    return replace(write, add={name: n for name, n in write.add.items() if name == "b_wcu_tc" or name[-3:] != "_tc"})


def keeping_expiry(write: Any) -> Any:
    """Return the write without its change of the expiry."""
    if not isinstance(write, Update):
        return write
    return replace(write, remove=tuple(name for name in write.remove if name != "ttl"))


def without_birth_number(one: Any) -> Any:
    """Return the new shard of a split, without a birth number."""
    if not isinstance(one, Put):
        return one
    return replace(one, item={name: value for name, value in one.item.items() if name != "bi"})


def both_whole(split: Writer) -> Writer:
    """Return a split that gives both shards the whole balance."""

    def write(view: Any, splitting: Any, nonce: int) -> Any:
        old, new = split(view, splitting, nonce)
        same = {name: 0 if name.endswith("_tk") else change for name, change in old.add.items()}
        whole = {name: view.numbers[at] for at, name in enumerate(view.layout.balance_names)}
        return replace(old, add=same), replace(new, item={**new.item, **whole})

    return write


def new_half_full(one: Any) -> Any:
    """Return the new shard of a split, full."""
    if not isinstance(one, Put):
        return one
    full = {name: one.item[f"{name[:-3]}_cp"] // 2 for name in one.item if name.endswith("_tk")}
    return replace(one, item={**one.item, **full})


def rebased_with_overflow(rebase: Writer) -> Writer:
    """Return a rebase that adds to a full balance, so that its overflow stays."""

    def write(view: Any, rebasing: Any, nonce: int) -> Any:
        def kept(part: Any) -> Any:
            if not isinstance(part, Reset):
                return part
            earned = view.layout.baselines[part.position].earned(rebasing.start_ms)
            return Add(part.position, part.spent, earned - part.spent, part.low, None)

        return rebase(view, replace(rebasing, parts=[kept(part) for part in rebasing.parts]), nonce)

    return write


def merged_with_overflow(merge: Writer) -> Writer:
    """Return a merge that also moves what the deleted shard earned beyond its share."""

    def write(staying: Any, leaving: Any, merging: Any, nonce: int) -> Any:
        def more(part: Any) -> Any:
            baseline = leaving.layout.baselines[part.position]
            earned = leaving.numbers[part.position] + baseline.earned(merging.start_ms)
            overflow = max(0, earned - baseline.capacity_milli)
            if isinstance(part, Add):
                return replace(part, change=part.change + overflow)
            return replace(part, balance=part.balance + overflow)

        return merge(staying, leaving, replace(merging, parts=[more(part) for part in merging.parts]), nonce)

    return write


def refilled(rebase: Writer) -> Writer:
    """Return a rebase after which all limits are full."""

    def write(view: Any, rebasing: Any, nonce: int) -> Any:
        made = rebase(view, rebasing, nonce)
        return _filled(made, [limit.name for limit in rebasing.terms.limits])

    return write


def refilled_if_dormant(rebase: Writer) -> Writer:
    """Return a rebase after which limits that were removed before are full."""

    def write(view: Any, rebasing: Any, nonce: int) -> Any:
        dormant = {baseline.name for baseline in view.layout.baselines[len(view.layout.limits) :]}
        made = rebase(view, rebasing, nonce)
        return _filled(made, [limit.name for limit in rebasing.terms.limits if limit.name in dormant])

    return write


def _filled(write: Update, names: Iterable[str]) -> Update:
    full = {f"b_{name}_tk": write.set[f"b_{name}_cp"] - write.add.get(f"b_{name}_tc", 0) for name in names}
    added = {name: change for name, change in write.add.items() if name not in full}
    return replace(write, add=added, set={**write.set, **full})


def dropping_unfilled_limits(write: Update) -> Update:
    """Return a rebase that drops a removed limit although it is not full."""
    going = tuple(f"b_{name[2:-3]}_" for name in write.set if name.endswith("_dm"))

    def kept(values: Any) -> dict[str, Any]:
        return {name: value for name, value in values.items() if not (going and name.startswith(going))}

    gone = tuple(f"{prefix}{field}" for prefix in going for field in ("tk", "cp", "ra", "rp", "tc", "dm", "hc"))
    removed = tuple(dict.fromkeys((*write.remove, *gone)))
    return replace(write, add=kept(write.add), set=kept(write.set), remove=removed)


def expiring_soon(create: Writer) -> Writer:
    """Return a create of a bucket that expires before it is full."""

    def write(owner: Any, terms: Any, spent: Any, now_ms: int, signature: Any) -> Any:
        made = create(owner, terms, spent, now_ms, signature)
        return replace(made, item={**made.item, "ttl": now_ms // 1000 - 1})

    return write


def only_first(writer: Writer) -> Writer:
    """Return a writer of two whose second write only checks its conditions."""

    def write(*arguments: Any) -> Any:
        first, second = writer(*arguments)
        nothing = Delete if isinstance(second, Put) else Check
        return first, nothing(second.key, second.when)

    return write


def of_deletes(change: Change) -> Change:
    """Apply a change to deletes only."""
    return lambda one: change(one) if isinstance(one, Delete) else one


def of_updates(change: Change) -> Change:
    """Apply a change to updates only."""
    return lambda one: change(one) if isinstance(one, Update) else one


def of_puts(change: Change) -> Change:
    """Apply a change to puts only."""
    return lambda one: change(one) if isinstance(one, Put) else one


without_hold = without(Matches)
without_absence = without(ItemAbsent)
moved_back = resetting("rf", lambda one: one.set["rf"] - 1_000 if "rf" in one.set else None)
