"""Writers with a fault each: what the bounds, guards and clamps of a bucket's writes are there to prevent."""

from dataclasses import replace
from typing import Any

from tests.mutating import rebound
from tests.promise.ledger import offered
from tests.promise.world import Item, Meddle, Operation, Sent
from zae_limiter.core.acquire import Create, Rebase, Take
from zae_limiter.schema.operations import ItemAbsent, Matches, Put, Update


def _added(operation: Update, name: str) -> bool:
    return name.endswith("_tk") and name in operation.add


def _set(operation: Update, name: str) -> bool:
    return name.endswith("_tk") and name in operation.set


def take_without_lower_bound(sent: Sent, item: Item) -> Operation:
    """Tokens that are not there are taken."""
    write = sent.operation
    if not isinstance(sent.step, Take) or isinstance(write, Put):
        return write
    return rebound(write, lambda one: (one[0], None, one[2]) if _added(write, one[0]) else one)


def take_without_upper_bound(sent: Sent, item: Item) -> Operation:
    """An overflow is spent as if the bucket held it."""
    write = sent.operation
    if not isinstance(sent.step, Take) or isinstance(write, Put):
        return write
    return rebound(write, lambda one: (one[0], one[1], None) if _added(write, one[0]) else one)


def reset_without_floor(sent: Sent, item: Item) -> Operation:
    """A bucket is thought full that is not."""
    write = sent.operation
    if not isinstance(sent.step, Take) or isinstance(write, Put):
        return write
    return rebound(write, lambda one: (one[0], None, one[2]) if _set(write, one[0]) else one)


def no_guard(sent: Sent, item: Item) -> Operation:
    """A write decided on one baseline is applied to another."""
    write = sent.operation
    if isinstance(write, Put) or not item:
        return write
    return replace(write, when=tuple(one for one in write.when if not isinstance(one, Matches)))


def _add_instead_of_set(sent: Sent, spent: dict[str, int]) -> Operation:
    write = sent.operation
    assert isinstance(write, Update)
    due = {f"b_{name}_tk": milli for name, milli in spent.items() if f"b_{name}_tk" in write.set}
    kept = {name: value for name, value in write.set.items() if name not in due}
    return replace(write, set=kept, add={**write.add, **{name: -milli for name, milli in due.items()}})


def take_adds_where_it_must_set(sent: Sent, item: Item) -> Operation:
    """A take from a bucket that overflows leaves the overflow."""
    return _add_instead_of_set(sent, dict(sent.use.takes)) if isinstance(sent.step, Take) else sent.operation


def debit_adds_where_it_must_set(sent: Sent, item: Item) -> Operation:
    """A debit is paid from an overflow."""
    settles = sent.use.kind == "debit" and isinstance(sent.operation, Update)
    return _add_instead_of_set(sent, dict(sent.use.debits)) if settles else sent.operation


def debit_without_upper_bound(sent: Sent, item: Item) -> Operation:
    """A debit is paid from an overflow that was not seen."""
    write = sent.operation
    if sent.use.kind != "debit" or isinstance(write, Put):
        return write
    return rebound(write, lambda one: (one[0], one[1], None) if _added(write, one[0]) else one)


def limit_comes_back_full(sent: Sent, item: Item) -> Operation:
    """A limit that was taken out and put back is refilled."""
    write = sent.operation
    if not isinstance(sent.step, Rebase) or isinstance(write, Put):
        return write
    names = [name[2:-3] for name in write.remove if name.endswith("_dm") and name in item]
    names = [name for name in names if f"b_{name}_tk" in write.set or f"b_{name}_tk" in write.add]
    full = {f"b_{name}_tk": write.set[f"b_{name}_cp"] - sent.use.takes.get(name, 0) for name in names}
    added = {name: change for name, change in write.add.items() if name not in full}
    return replace(write, add=added, set={**write.set, **full})


def limit_goes_without_a_trace(sent: Sent, item: Item) -> Operation:
    """A limit that is taken out is forgotten though it was not full."""
    write = sent.operation
    if not isinstance(sent.step, Rebase) or isinstance(write, Put):
        return write
    going = tuple(f"b_{name[2:-3]}_" for name in write.set if name.endswith("_dm"))
    if not going:
        return write
    gone = tuple(name for name in item if name.startswith(going))

    def without(values: Any) -> dict[str, Any]:
        return {name: value for name, value in values.items() if not name.startswith(going)}

    return replace(write, add=without(write.add), set=without(write.set), remove=write.remove + gone)


def debit_leaves_expiry(sent: Sent, item: Item) -> Operation:
    """A bucket in debt expires, and the debt with it."""
    write = sent.operation
    if sent.use.kind != "debit" or isinstance(write, Put):
        return write
    return replace(write, remove=())


def expiry_without_solvency(sent: Sent, item: Item) -> Operation:
    """A take dates the expiry of a bucket though another limit owes."""
    write = sent.operation
    if not isinstance(sent.step, Take) or isinstance(write, Put) or not item:
        return write
    touched = rebound(write, lambda one: one if _added(write, one[0]) or _set(write, one[0]) else (one[0], None, None))
    removed = tuple(name for name in write.remove if name != "ttl")
    return replace(touched, set={**write.set, "ttl": (sent.moment[1] + 2 * item["tf"]) // 1000 + 1}, remove=removed)


def credit_twice(sent: Sent, item: Item) -> Operation:
    """More is given back than was taken."""
    write = sent.operation
    if not sent.use.credits or isinstance(write, Put):
        return write
    twice = {f"b_{name}_tk": 2 * milli for name, milli in sent.use.credits.items()}
    return replace(write, add={**write.add, **twice})


def baseline_moves_back(sent: Sent, item: Item) -> Operation:
    """What was earned is earned again."""
    write = sent.operation
    if not isinstance(sent.step, Rebase) or isinstance(write, Put):
        return write
    return replace(write, set={**write.set, "rf": min(item.get("rf", 0), write.set["rf"])})


def create_over_another(sent: Sent, item: Item) -> Operation:
    """A bucket is made new while another client uses it."""
    write = sent.operation
    if not isinstance(sent.step, Create) or not isinstance(write, Put):
        return write
    return replace(write, when=tuple(one for one in write.when if not isinstance(one, ItemAbsent)))


def rebase_keeps_an_overflow(sent: Sent, item: Item) -> Operation:
    """An overflow is carried over to the new baseline."""
    write = sent.operation
    if not isinstance(sent.step, Rebase) or isinstance(write, Put):
        return write
    kept = {
        name: offered(item, name[2:-3], write.set["rf"]) - sent.use.takes.get(name[2:-3], 0)
        for name in write.set
        if name.endswith("_tk") and name in item
    }
    return replace(write, set={**write.set, **kept})


def use_not_counted(sent: Sent, item: Item) -> Operation:
    """What is taken does not show in the total."""
    write = sent.operation
    if isinstance(write, Put):
        return write
    return replace(write, add={name: n for name, n in write.add.items() if name == "b_wcu_tc" or name[-3:] != "_tc"})


SPOILERS: tuple[Meddle, ...] = (
    take_without_lower_bound,
    take_without_upper_bound,
    reset_without_floor,
    no_guard,
    take_adds_where_it_must_set,
    debit_adds_where_it_must_set,
    debit_without_upper_bound,
    limit_comes_back_full,
    limit_goes_without_a_trace,
    debit_leaves_expiry,
    expiry_without_solvency,
    credit_twice,
    baseline_moves_back,
    create_over_another,
    rebase_keeps_an_overflow,
    use_not_counted,
)
