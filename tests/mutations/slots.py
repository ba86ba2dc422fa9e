"""Mutations of the writers of limits of concurrent use."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tests.model import slots_decisions
from tests.model.slots_invariants import BACKED, PROMISED, SUM
from tests.model.slots_world import World
from tests.mutations import functions, writes
from tests.mutations.mutation import Mutation, Patch, mutation, patch, redundant, slot_model, written
from zae_limiter._async.limiter import renewals
from zae_limiter.core import acquire, rebase, splitting
from zae_limiter.core.bucket_changes import Add
from zae_limiter.schema import attributes, bucket_writes, slot_writes
from zae_limiter.schema.operations import AbsentOrAtMost, AtLeast, Equals, Ranges

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


def updates_without_bounds(write: Any) -> Any:
    """Return the write without the lowest balance of slots."""
    return writes.without_floor(write)


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


def at_the_early_end(real: Real) -> Real:
    """Let a take join the cohort of the earliest time."""
    return lambda view, amounts, now: real(view, amounts, (now[0], now[0]))


def relied_on_for_longer(real: Real) -> Real:
    """Let a lease rely on a later end than that of its cohort."""
    return lambda *given: tuple([one._replace(end_s=one.end_s + 3) for one in real(*given)])


def returned_twice(real: Real) -> Real:
    """Let a take require fewer free slots than it takes."""

    def taken(view: Any, amounts: Any, now: Any) -> Any:
        found = real(view, amounts, now)
        if found is not None:
            for one in found[1]:
                one.low = one.low - 1000
        return found

    return taken


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


def all_live(real: Real) -> Real:
    """Treat no cohort as ended."""
    return lambda cohorts, at_ms: ()


def late_end(real: Real) -> Real:
    """Bring over the cohorts of a merge as if more time had passed."""
    return lambda leaving, position, start_ms, result: real(leaving, position, start_ms + 60_000, result)


def earlier_expiry(real: Real) -> Real:
    """Let a take bring the expiry of an item forward."""
    return lambda view, expires_s: expires_s


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


def any_fit(real: Real) -> Real:
    """Treat every shard as having the slots."""
    return lambda *arguments: True


_COSTLY = ("late take that brings the expiry forward", "late renewal that brings the expiry forward")
_BIRTH, _COUNT = attributes.BIRTH, attributes.SHARD_COUNT

_RENEW = "renew"


def renewing(*changes: writes.Change) -> tuple[Patch, ...]:
    """Return the patches that change the write of a renewal."""
    return patch(slot_writes, "renew", writes.changed(*changes))


def slot_mutation(name: str, rule: str, patches: tuple[Patch, ...], where: str, breaks: str, steps: int) -> Mutation:
    """Return a mutation that the model of slots notices."""
    return mutation(name, rule, patches, slot_model(where, breaks, steps, costly=name in _COSTLY))


SLOTS: tuple[Mutation, ...] = (
    slot_mutation(
        "slots taken without their lower bound",
        "take: `tk >= n-F`",
        written(without_ranges, "take"),
        "takes",
        PROMISED,
        4,
    ),
    mutation(
        "slots taken without the hold",
        "take: guard",
        written(writes.without(writes.Matches), "take"),
        redundant("`tk >= n-F` and the cohorts as seen are absolute: they hold for any layout"),
    ),
    slot_mutation(
        "expired cohort returned as it was not seen",
        "take: per x: `h{x}` as seen",
        written(without_cohorts(Equals, AbsentOrAtMost), "take"),
        "clocks",
        SUM,
        7,
    ),
    slot_mutation(
        "expired cohort not removed", "take: `REMOVE h{x}`", written(keeping_cohorts, "take"), "clocks", SUM, 6
    ),
    slot_mutation(
        "cohort expired by the late end",
        "X: `end <= lo`",
        patch(acquire, "take_slots", at_the_late_end),
        "clocks",
        BACKED,
        5,
    ),
    slot_mutation(
        "lease that relies on a later end than its cohort",
        "a take joins the cohort of its end",
        patch(acquire, "claimed", relied_on_for_longer),
        "takes",
        BACKED,
        2,
    ),
    slot_mutation(
        "slots released that the cohort lacks",
        "release: `h{e} >= m`",
        written(without_cohorts(AtLeast), "settle"),
        "clocks",
        SUM,
        7,
    ),
    slot_mutation(
        "slots released to another bucket",
        "release: `bi` equals the birth number seen at the take",
        written(without_attribute(_BIRTH), "settle"),
        "deleted",
        BACKED,
        4,
    ),
    slot_mutation(
        "release sent again",
        "a release is never resent",
        (
            *patch(slots_decisions.Decisions, "resends_releases", lambda real: True),
            *patch(bucket_writes, "sent_again", lambda real: lambda write, birth: write),
        ),
        "takes",
        BACKED,
        6,
    ),
    slot_mutation(
        "create with slots resent with its birth number",
        "create: every attempt draws a new `bi`",
        patch(bucket_writes, "sent_again", functions.birth_kept),
        "deleted",
        BACKED,
        6,
    ),
    slot_mutation(
        "slots renewed that the cohort lacks",
        "renew: each `h{e} >= m`",
        renewing(without_cohorts(AtLeast)),
        "slow",
        SUM,
        10,
    ),
    mutation(
        "slots renewed in another bucket",
        "renew: `bi`",
        renewing(without_attribute(_BIRTH)),
        redundant("it moves another lease's slots to a later end, and a release requires `bi`"),
    ),
    mutation(
        "slots renewed without the shard count",
        "renew: `shard_count`",
        renewing(without_attribute(_COUNT)),
        redundant("each `h{e} >= m` refuses what was moved"),
    ),
    slot_mutation(
        "renewal that keeps the expiry", "renew: ttl", patch(slot_writes, "renew", expiry_kept), "expiry", BACKED, 37
    ),
    slot_mutation(
        "late take that brings the expiry forward",
        "ttl only grows: absent or at most the new value",
        written(without_attribute(attributes.TTL), "take"),
        "expiry late",
        BACKED,
        14,
    ),
    slot_mutation(
        "late renewal that brings the expiry forward",
        "ttl only grows: at most the new value",
        renewing(without_attribute(attributes.TTL)),
        "expiry renewed late",
        BACKED,
        15,
    ),
    slot_mutation(
        "expiry without the hold",
        "`tf` includes hold + W",
        (
            *patch(acquire, "expiry_s", no_hold),
            *patch(bucket_writes, "expiry_s", no_hold),
            *patch(renewals, "expiry_s", no_hold),
        ),
        "expiry",
        BACKED,
        5,
    ),
    slot_mutation(
        "capacity changed without the free slots",
        "rebase: `ADD tk d`",
        patch(rebase, "_kept_slots", unchanged_balance),
        "lowered",
        SUM,
        4,
    ),
    slot_mutation(
        "rebase that takes slots without a lower bound",
        "rebase with a take: `tk >= n-d`",
        patch(rebase, "_kept_slots", kept_without_floor),
        "lowered",
        PROMISED,
        6,
    ),
    slot_mutation(
        "rebase of slots without the hold",
        "rebase: guard",
        written(writes.without(writes.Matches), "rebase"),
        "lowered",
        SUM,
        9,
    ),
    slot_mutation(
        "slots removed that are in use",
        "removed limit: `tk >= share(cp)`",
        written(without_bounds_of_dropped, "rebase"),
        "removed",
        SUM,
        6,
    ),
    slot_mutation(
        "limit removed while slots are in use",
        "removed limit: dormant until all are free",
        patch(rebase, "_retired_slots", dropped_in_use),
        "removed",
        BACKED,
        6,
    ),
    slot_mutation(
        "removed slots judged at the baseline",
        "removed limit: cohorts that ended at lo",
        patch(rebase, "_retired_slots", at_the_baseline),
        "created ahead",
        BACKED,
        8,
    ),
    slot_mutation(
        "limit removed without its cohorts",
        "removed limit: REMOVE with all cohorts",
        written(keeping_cohorts, "rebase"),
        "removed",
        SUM,
        8,
    ),
    slot_mutation(
        "split that moves free slots only",
        "split: cohorts until j has its share",
        patch(splitting, "_split_slots", free_slots_to_the_new_shard),
        "shards lost",
        PROMISED,
        6,
    ),
    slot_mutation(
        "split that loses slots in use",
        "split: cohorts until j has its share",
        patch(splitting, "_split_slots", only_free_slots),
        "shards",
        SUM,
        4,
    ),
    slot_mutation(
        "split without the free slots that it moves",
        "split: `tk >= x`",
        written(writes.without_floor, "split"),
        "shards",
        SUM,
        5,
    ),
    slot_mutation(
        "split without the slots in use that it moves",
        "split: each `h{e} >= y_e`",
        written(without_cohorts(AtLeast), "split"),
        "shards",
        SUM,
        5,
    ),
    slot_mutation(
        "split of slots without the hold",
        "split: guard",
        written(writes.of_updates(writes.without(writes.Matches)), "split"),
        "shards lowered",
        SUM,
        7,
    ),
    slot_mutation(
        "merge without the free slots that it brings",
        "merge: tk of j equals the view",
        patch(bucket_writes, "merge", of_second(without_ranges)),
        "merged",
        BACKED,
        3,
    ),
    slot_mutation(
        "merge without the slots in use that it brings",
        "merge: every seen cohort of j equals the view",
        patch(bucket_writes, "merge", of_second(without_cohorts(Equals, AbsentOrAtMost))),
        "merged",
        BACKED,
        6,
    ),
    slot_mutation(
        "merge that frees slots in use",
        "merge: `F_j` are cohorts that ended at lo",
        patch(splitting, "_merge_slots", late_end),
        "shards",
        BACKED,
        5,
    ),
    slot_mutation(
        "merge of slots without the holds",
        "merge: both guards",
        written(writes.without(writes.Matches), "merge"),
        "merged lowered",
        SUM,
        5,
    ),
    slot_mutation(
        "slots taken across shards without conditions",
        "take across shards: each shard's own conditions",
        written(writes.without(writes.Matches, Ranges), "take"),
        "across",
        PROMISED,
        5,
    ),
    mutation(
        "renewal sent again with a new token",
        "a renewal is resent with its token",
        patch(World, "honours_tokens", lambda real: False),
        redundant("each `h{e} >= m` makes it move other slots to a later end at most"),
    ),
    slot_mutation(
        "two limits returned from one",
        "two slot limits on one item",
        patch(slot_writes, "remove_cohorts", lambda real: lambda name, cohorts, removed, when: None),
        "two limits",
        SUM,
        6,
    ),
)
"""In the order of ``docs/protocol.md``."""
