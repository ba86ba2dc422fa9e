"""Mutations of the writers of limits of concurrent use."""

from tests.model import slots_decisions
from tests.model.slots_invariants import BACKED, PROMISED, SUM
from tests.model.slots_world import World
from tests.mutations import functions, slot_functions, writes
from tests.mutations.mutation import Mutation, Patch, mutation, patch, redundant, slot_model, written
from zae_limiter._async.limiter import renewals
from zae_limiter.core import acquire, rebase, splitting
from zae_limiter.schema import attributes, bucket_writes, slot_writes
from zae_limiter.schema.operations import AbsentOrAtMost, AtLeast, Equals, Ranges

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
        written(slot_functions.without_ranges, "take"),
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
        written(slot_functions.without_cohorts(Equals, AbsentOrAtMost), "take"),
        "clocks",
        SUM,
        7,
    ),
    slot_mutation(
        "expired cohort not removed",
        "take: `REMOVE h{x}`",
        written(slot_functions.keeping_cohorts, "take"),
        "clocks",
        SUM,
        6,
    ),
    slot_mutation(
        "cohort expired by the late end",
        "X: `end <= lo`",
        patch(acquire, "take_slots", slot_functions.at_the_late_end),
        "clocks",
        BACKED,
        5,
    ),
    slot_mutation(
        "lease that relies on a later end than its cohort",
        "a take joins the cohort of its end",
        patch(acquire, "claimed", slot_functions.relied_on_for_longer),
        "takes",
        BACKED,
        2,
    ),
    slot_mutation(
        "slots released that the cohort lacks",
        "release: `h{e} >= m`",
        written(slot_functions.without_cohorts(AtLeast), "settle"),
        "clocks",
        SUM,
        7,
    ),
    slot_mutation(
        "slots released to another bucket",
        "release: `bi` equals the birth number seen at the take",
        written(slot_functions.without_attribute(_BIRTH), "settle"),
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
        renewing(slot_functions.without_cohorts(AtLeast)),
        "slow",
        SUM,
        10,
    ),
    mutation(
        "slots renewed in another bucket",
        "renew: `bi`",
        renewing(slot_functions.without_attribute(_BIRTH)),
        redundant("it moves another lease's slots to a later end, and a release requires `bi`"),
    ),
    mutation(
        "slots renewed without the shard count",
        "renew: `shard_count`",
        renewing(slot_functions.without_attribute(_COUNT)),
        redundant("each `h{e} >= m` refuses what was moved"),
    ),
    slot_mutation(
        "renewal that keeps the expiry",
        "renew: ttl",
        patch(slot_writes, "renew", slot_functions.expiry_kept),
        "expiry",
        BACKED,
        37,
    ),
    slot_mutation(
        "late take that brings the expiry forward",
        "ttl only grows: absent or at most the new value",
        written(slot_functions.without_attribute(attributes.TTL), "take"),
        "expiry late",
        BACKED,
        14,
    ),
    slot_mutation(
        "late renewal that brings the expiry forward",
        "ttl only grows: at most the new value",
        renewing(slot_functions.without_attribute(attributes.TTL)),
        "expiry renewed late",
        BACKED,
        15,
    ),
    slot_mutation(
        "expiry without the hold",
        "`tf` includes hold + W",
        (
            *patch(acquire, "expiry_s", slot_functions.no_hold),
            *patch(bucket_writes, "expiry_s", slot_functions.no_hold),
            *patch(renewals, "expiry_s", slot_functions.no_hold),
        ),
        "expiry",
        BACKED,
        5,
    ),
    slot_mutation(
        "capacity changed without the free slots",
        "rebase: `ADD tk d`",
        patch(rebase, "_kept_slots", slot_functions.unchanged_balance),
        "lowered",
        SUM,
        4,
    ),
    slot_mutation(
        "rebase that takes slots without a lower bound",
        "rebase with a take: `tk >= n-d`",
        patch(rebase, "_kept_slots", slot_functions.kept_without_floor),
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
        written(slot_functions.without_bounds_of_dropped, "rebase"),
        "removed",
        SUM,
        6,
    ),
    slot_mutation(
        "limit removed while slots are in use",
        "removed limit: dormant until all are free",
        patch(rebase, "_retired_slots", slot_functions.dropped_in_use),
        "removed",
        BACKED,
        6,
    ),
    slot_mutation(
        "removed slots judged at the baseline",
        "removed limit: cohorts that ended at lo",
        patch(rebase, "_retired_slots", slot_functions.at_the_baseline),
        "created ahead",
        BACKED,
        8,
    ),
    slot_mutation(
        "limit removed without its cohorts",
        "removed limit: REMOVE with all cohorts",
        written(slot_functions.keeping_cohorts, "rebase"),
        "removed",
        SUM,
        8,
    ),
    slot_mutation(
        "split that moves free slots only",
        "split: cohorts until j has its share",
        patch(splitting, "_split_slots", slot_functions.free_slots_to_the_new_shard),
        "shards lost",
        PROMISED,
        6,
    ),
    slot_mutation(
        "split that loses slots in use",
        "split: cohorts until j has its share",
        patch(splitting, "_split_slots", slot_functions.only_free_slots),
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
        written(slot_functions.without_cohorts(AtLeast), "split"),
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
        patch(bucket_writes, "merge", slot_functions.of_second(slot_functions.without_ranges)),
        "merged",
        BACKED,
        3,
    ),
    slot_mutation(
        "merge without the slots in use that it brings",
        "merge: every seen cohort of j equals the view",
        patch(bucket_writes, "merge", slot_functions.of_second(slot_functions.without_cohorts(Equals, AbsentOrAtMost))),
        "merged",
        BACKED,
        6,
    ),
    slot_mutation(
        "merge that frees slots in use",
        "merge: `F_j` are cohorts that ended at lo",
        patch(splitting, "_merge_slots", slot_functions.late_end),
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
