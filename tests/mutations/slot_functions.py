"""Mutated functions and writers of limits of concurrent use. Each breaks one rule."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tests.mutations import writes
from zae_limiter.core.add_or_set import Add
from zae_limiter.schema import attributes
from zae_limiter.schema.operations import AtLeast, Equals, Ranges

Real = Callable[..., Any]


def _cohort(name: str) -> bool:
    return attributes.parse_cohort_attribute(name) is not None


def without_cohorts(*kinds: type) -> writes.Change:
    """Return the change that drops conditions on cohorts."""

    def change(write: Any) -> Any:
        kept = [one for one in write.when if not (isinstance(one, kinds) and _cohort(one.name))]
        return replace(write, when=tuple(kept))

    return change


def without_attribute(name: str) -> writes.Change:
    """Return the change that drops the conditions on one attribute."""
    return lambda write: replace(write, when=tuple(one for one in write.when if getattr(one, "name", "") != name))


def keeping_cohorts(write: Any) -> Any:
    """Return the write that leaves expired cohorts in the item, although it returns their slots."""
    return replace(write, remove=tuple(name for name in write.remove if not _cohort(name)))


def of_second(change: writes.Change) -> Callable[[Real], Real]:
    """Return a wrapper of a writer of two operations that changes the second one."""

    def around(real: Real) -> Real:
        def write(*arguments: Any) -> Any:
            first, second = real(*arguments)
            return first, change(second)

        return write

    return around


def without_ranges(write: Any) -> Any:
    """Return the write without the conditions on its balances."""
    return replace(write, when=tuple(one for one in write.when if not isinstance(one, Ranges)))


def at_the_late_end(real: Real) -> Real:
    """Let a take return cohorts that have ended at the latest time."""
    return lambda view, amounts, now: real(view, amounts, (now[1], now[1]))


def relied_on_for_longer(real: Real) -> Real:
    """Let a lease rely on a later end than that of its cohort."""
    return lambda *given: tuple([one._replace(end_s=one.end_s + 3) for one in real(*given)])


def unchanged_balance(real: Real) -> Real:
    """Leave the free slots as they are if the capacity changes."""

    def kept(view: Any, position: int, limit: Any, taken: Any) -> Any:
        found = real(view, position, limit, taken)
        return replace(found, change=-(taken or 0)) if isinstance(found, Add) else found

    return kept


def kept_without_floor(real: Real) -> Real:
    """Let a rebase take slots without requiring that they are free."""

    def kept(view: Any, position: int, limit: Any, taken: Any) -> Any:
        found = real(view, position, limit, taken)
        return replace(found, low=None) if isinstance(found, Add) else found

    return kept


def at_the_baseline(real: Real) -> Real:
    """Judge at the new baseline which cohorts of a removed limit have ended."""
    return lambda view, position, result, early_ms: real(view, position, result, result.start_ms)


def dropped_in_use(real: Real) -> Real:
    """Remove a limit although slots of it are in use."""

    def retired(view: Any, position: int, result: Any, early_ms: int) -> Any:
        result.dropped.append((position, -(10**40)))
        result.freed.append((position, view.cohorts[position]))

    return retired


def only_free_slots(real: Real) -> Real:
    """Let a split move free slots only."""

    def split(view: Any, position: int, result: Any) -> None:
        real(view, position, result)
        result.cohorts[position] = ()

    return split


def free_slots_to_the_new_shard(real: Real) -> Real:
    """Let a split give the new shard free slots for its whole share, and move no slots in use."""

    def split(view: Any, position: int, result: Any) -> None:
        real(view, position, result)
        new = result.new_balances[position] + sum(milli for _, milli in result.cohorts[position])
        result.new_balances[position], result.cohorts[position] = new, ()
        result.parts[position] = Add(position, 0, -new, None, None)

    return split


def late_end(real: Real) -> Real:
    """Bring over the cohorts of a merge as if more time had passed."""
    return lambda leaving, position, start_ms, result: real(leaving, position, start_ms + 60_000, result)


def no_hold(real: Real) -> Real:
    """Let the expiry of an item depend on one second of the hold only."""
    return lambda used_ms, fill_time_ms, multiplier: real(used_ms, 0, multiplier)


def expiry_kept(real: Real) -> Real:
    """Leave the expiry as it is when slots are renewed."""
    return lambda view, wanted, expires_s, nonce: real(view, wanted, None, nonce)


def without_bounds_of_dropped(write: Any) -> Any:
    """Return the rebase without the lowest balance of limits that it removes."""
    kept = [one for one in write.when if not (isinstance(one, AtLeast) and one.name in _dropped(write))]
    return replace(write, when=tuple(one for one in kept if not (isinstance(one, Equals) and _cohort(one.name))))


def _dropped(write: Any) -> set[str]:
    return {name for name in write.remove if name.endswith("_tk")}


def reborn(real: Real) -> Real:
    """Give the new shard of a split a birth number of its own."""
    return lambda *arguments: {**real(*arguments), attributes.BIRTH: 77}
