"""Writers of several shards with a fault each: what their bounds, guards and halves are there to prevent."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from tests.many_shards import Item, offered
from tests.mutating import unbound as _unbound
from tests.promise.shard_world import Operations, Sent, Spoiler
from zae_limiter.schema.operations import Delete, ItemAbsent, Matches, Put, Ranges, Update

Items = Mapping[int, Item]


def _each(sent: Sent, kinds: tuple[str, ...], change: Callable[[Any], Any]) -> Operations:
    """Every operation of writes of these kinds, changed."""
    if sent.use.kind not in kinds:
        return sent.operations
    return [(shard, change(operation)) for shard, operation in sent.operations]


def _without(operation: Any, kind: type) -> Any:
    return replace(operation, when=tuple(one for one in operation.when if not isinstance(one, kind)))


def split_without_lower_bound(sent: Sent, items: Items) -> Operations:
    """The new shard gets half of what is no longer there."""
    return _each(sent, ("split",), lambda one: _unbound(one, low=True, high=False))


def split_without_upper_bound(sent: Sent, items: Items) -> Operations:
    """What was given back meanwhile does not fit the share that is left."""
    return _each(sent, ("split",), lambda one: _unbound(one, low=False, high=True))


def split_unguarded(sent: Sent, items: Items) -> Operations:
    """A shard is split that was split, or put on another baseline, before."""
    return _each(sent, ("split",), lambda one: _without(_without(one, Matches), ItemAbsent))


def the_old_half_stays_as_it_was(sent: Sent, items: Items) -> Operations:
    """A balance that was the whole shard's is taken for that of its half."""

    def change(one: Any) -> Any:
        if not isinstance(one, Update):
            return one
        return replace(one, add={name: 0 if name.endswith("_tk") else n for name, n in one.add.items()})

    return _each(sent, ("split",), change)


def the_new_half_starts_full(sent: Sent, items: Items) -> Operations:
    """As a bucket does that is created."""

    def change(one: Any) -> Any:
        if not isinstance(one, Put):
            return one
        full = {name: one.item[f"{name[:-3]}_cp"] // 2 for name in one.item if name.endswith("_tk")}
        return replace(one, item={**one.item, **full})

    return _each(sent, ("split",), change)


def a_split_without_a_new_half(sent: Sent, items: Items) -> Operations:
    """Two writes that are not one transaction."""
    return sent.operations[:1] if sent.use.kind == "split" else sent.operations


def a_split_leaves_the_expiry(sent: Sent, items: Items) -> Operations:
    """One shard of several may go, and come back whole."""
    return _each(sent, ("split",), lambda one: replace(one, remove=()) if isinstance(one, Update) else one)


def merge_deletes_what_was_not_seen(sent: Sent, items: Items) -> Operations:
    """What was taken from it meanwhile comes back."""
    return _each(sent, ("merge",), lambda one: _without(one, Ranges) if isinstance(one, Delete) else one)


def merge_deletes_unguarded(sent: Sent, items: Items) -> Operations:
    """A shard goes that was split again, or is on another baseline."""
    return _each(sent, ("merge",), lambda one: _without(one, Matches) if isinstance(one, Delete) else one)


def merge_stays_unguarded(sent: Sent, items: Items) -> Operations:
    """What it has earned on one baseline is added to it on another."""
    return _each(sent, ("merge",), lambda one: _without(one, Matches) if isinstance(one, Update) else one)


def merge_without_upper_bound(sent: Sent, items: Items) -> Operations:
    """An overflow of one spills into the room of the other."""
    return _each(sent, ("merge",), lambda one: _unbound(one, low=False, high=True))


def merge_brings_an_overflow(sent: Sent, items: Items) -> Operations:
    """All the one that goes has ever earned is given to the one that stays."""
    if sent.use.kind != "merge":
        return sent.operations
    (shard, stays), (leaving, goes) = sent.operations
    item = items.get(leaving)
    if item is None:
        return sent.operations
    start_ms = stays.set["rf"]
    extra = {
        name: max(0, offered(item, name[2:-3], start_ms) - item[f"{name[:-3]}_cp"])
        for name in item
        if name.endswith("_tk")
    }
    more = {name: n + extra.get(name, 0) for name, n in stays.add.items()}
    put = {name: n + extra[name] if name in extra else n for name, n in stays.set.items()}
    return [(shard, replace(stays, add=more, set=put)), (leaving, goes)]


def merge_moves_the_baseline_back(sent: Sent, items: Items) -> Operations:
    """What was earned is earned again."""

    def change(one: Any) -> Any:
        return replace(one, set={**one.set, "rf": one.set["rf"] - 1_000}) if isinstance(one, Update) else one

    return _each(sent, ("merge",), change)


def a_merge_without_the_delete(sent: Sent, items: Items) -> Operations:
    """Two writes that are not one transaction."""
    return sent.operations[:1] if sent.use.kind == "merge" else sent.operations


def take_across_without_lower_bound(sent: Sent, items: Items) -> Operations:
    """A shard gives what it no longer has."""
    if len(sent.operations) < 2:
        return sent.operations
    return _each(sent, ("take",), lambda one: _unbound(one, low=True, high=False))


def take_across_without_upper_bound(sent: Sent, items: Items) -> Operations:
    """A shard gives of what it could not hold."""
    if len(sent.operations) < 2:
        return sent.operations
    return _each(sent, ("take",), lambda one: _unbound(one, low=False, high=True))


def take_across_unguarded(sent: Sent, items: Items) -> Operations:
    """A shard gives by the share it had before it was split."""
    return _each(sent, ("take",), lambda one: _without(one, Matches)) if len(sent.operations) > 1 else sent.operations


def take_across_in_part(sent: Sent, items: Items) -> Operations:
    """Some of the shards give, and the request is admitted."""
    return sent.operations[:1] if sent.use.kind == "take" else sent.operations


def debit_across_without_upper_bound(sent: Sent, items: Items) -> Operations:
    """A debit is paid from an overflow that was not seen."""
    return _each(sent, ("debit",), lambda one: _unbound(one, low=False, high=True))


def debit_across_in_part(sent: Sent, items: Items) -> Operations:
    """Some of the shards are charged, and the rest is forgotten."""
    return sent.operations[:1] if sent.use.kind == "debit" else sent.operations


SPOILERS: tuple[Spoiler, ...] = (
    split_without_lower_bound,
    split_without_upper_bound,
    split_unguarded,
    the_old_half_stays_as_it_was,
    the_new_half_starts_full,
    a_split_without_a_new_half,
    a_split_leaves_the_expiry,
    merge_deletes_what_was_not_seen,
    merge_deletes_unguarded,
    merge_stays_unguarded,
    merge_without_upper_bound,
    merge_brings_an_overflow,
    merge_moves_the_baseline_back,
    a_merge_without_the_delete,
    take_across_without_lower_bound,
    take_across_without_upper_bound,
    take_across_unguarded,
    take_across_in_part,
    debit_across_without_upper_bound,
    debit_across_in_part,
)
