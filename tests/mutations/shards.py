"""Mutations of split and merge, and of writes to several shards."""

from dataclasses import replace

from tests.model.configs import config
from tests.model.invariants import DEBT, KEPT, PROMISE
from tests.model.invariants import SHARDS as EVERY_SHARD
from tests.mutations import functions, writes
from tests.mutations.mutation import (
    OVER,
    SHARDED_BUCKET,
    model,
    mutation,
    patch,
    promise,
    redundant,
    simulation,
    soak,
    writer,
    written,
)
from tests.promise.mutations import across, in_part
from tests.simulation.needs import ALL_CREDITED, OFTEN_OWN
from tests.simulation.plan import SHARDS
from tests.soak.watching import SPLIT_WHOLE
from zae_limiter._async.limiter.shards import ShardClient
from zae_limiter.schema.operations import Ranges

_TORN_RIVALS = replace(config("rivals"), lossy=(1,))

SPLITS = (
    mutation(
        "split that gives both halves the whole",
        "split: both halves add up to the whole",
        writer("split", writes.both_whole),
        simulation(OVER, SHARDS),
        model("shards", PROMISE, 8),
        promise(SHARDED_BUCKET),
    ),
    mutation(
        "split with a new half that is full",
        "split: both halves add up to the whole",
        written(writes.new_half_full, "split"),
        simulation(OVER, SHARDS),
        model("shards", PROMISE, 7),
        promise(SHARDED_BUCKET),
        soak(SPLIT_WHOLE, "were made from nothing"),
    ),
    mutation(
        "split without its lower bound",
        "split: `h-E <= tk`",
        writer("split", functions.split_without_floor),
        simulation(OVER, SHARDS),
        model("shards", DEBT, 5),
        promise(SHARDED_BUCKET),
    ),
    mutation(
        "split without its upper bound",
        "split: `tk <= cap-E`, and what is left fits",
        written(writes.without_ceiling, "split"),
        simulation(OVER, SHARDS),
        model("refunds", KEPT, 5),
        promise(SHARDED_BUCKET),
    ),
    mutation(
        "split without its upper bound in debt",
        "split: in debt, `tk` is what was seen",
        writer("split", functions.split_in_debt),
        simulation(OVER, ALL_CREDITED),
    ),
    mutation(
        "split that sets without a floor",
        "split: `tk > cap-E` where it sets",
        written(writes.without_floor_where_it_sets, "split"),
        simulation(OVER, SHARDS),
        model("shards", KEPT, 5),
        promise(SHARDED_BUCKET),
    ),
    mutation(
        "split without its hold",
        "split: the hold, and both items or none",
        written(writes.without_hold, "split"),
        simulation(OVER | {"shards"}, SHARDS),
        model("rivals", KEPT, 6),
        promise(SHARDED_BUCKET),
    ),
    mutation(
        "split without a new half",
        "split: the hold, and both items or none",
        writer("split", writes.only_first),
        simulation("shards", SHARDS),
        model("shards", EVERY_SHARD, 2),
        promise(SHARDED_BUCKET),
    ),
    mutation(
        "split that drops the birth number",
        "split: both halves keep `bi`",
        written(writes.without_birth_number, "split"),
        simulation("unborn", SHARDS),
    ),
    mutation(
        "split over another shard",
        "split: the new shard is absent",
        written(writes.of_puts(writes.without_absence), "split"),
        redundant("the split holds on the old shard; while that has its count, the new shard does not exist", SHARDS),
    ),
)

MERGES = (
    mutation(
        "merge without its upper bound",
        "merge: `tk <= cap-E` where it adds",
        written(writes.without_ceiling, "merge"),
        simulation(OVER, SHARDS),
        model("refunds", KEPT, 7),
        promise(SHARDED_BUCKET),
    ),
    mutation(
        "merge that sets without a floor",
        "merge: `tk > cap-E` where it sets",
        written(writes.without_floor_where_it_sets, "merge"),
        simulation(OVER, SHARDS),
        model("shards", KEPT, 6),
        promise(SHARDED_BUCKET),
    ),
    mutation(
        "merge that keeps an overflow",
        "merge: L is at most the share of j",
        writer("merge", writes.merged_with_overflow),
        model("shards", KEPT, 6),
        promise(SHARDED_BUCKET),
    ),
    mutation(
        "merge that deletes what was not seen",
        "merge: j goes only as it was seen",
        written(writes.of_deletes(writes.without(Ranges)), "merge"),
        simulation(OVER, SHARDS),
        model("shards", PROMISE, 8),
        promise(SHARDED_BUCKET),
    ),
    mutation(
        "merge without the delete",
        "merge: both or none, and the hold",
        writer("merge", writes.only_first),
        simulation(OVER | {"shards"}, SHARDS),
        model("shards", EVERY_SHARD, 3),
        promise(SHARDED_BUCKET),
    ),
    mutation(
        "merge without its hold",
        "merge: both or none, and the hold",
        written(writes.without_hold, "merge"),
        simulation(OVER | {"shards"}, SHARDS, OFTEN_OWN),
        model(_TORN_RIVALS, KEPT, 8),
        promise(SHARDED_BUCKET),
    ),
    mutation(
        "merge without the hold of the shard that stays",
        "merge: both or none, and the hold",
        written(writes.of_updates(writes.without_hold), "merge"),
        promise(SHARDED_BUCKET),
    ),
    mutation(
        "merge without the hold of the shard that goes",
        "merge: both or none, and the hold",
        written(writes.of_deletes(writes.without_hold), "merge"),
        promise(SHARDED_BUCKET),
    ),
    mutation(
        "merge that moves rf back",
        "merge: `rf` never moves back",
        written(writes.moved_back, "merge"),
        simulation(OVER, SHARDS),
        model("shards", PROMISE, 8),
        promise(SHARDED_BUCKET),
    ),
)

ACROSS = (
    mutation(
        "take across shards without conditions",
        "what is taken across shards is taken by each shard's own conditions",
        patch(ShardClient, "commit", functions.unconditional),
        simulation(OVER, SHARDS),
        promise(SHARDED_BUCKET, by=across("take", writes.without_floor)),
    ),
    mutation(
        "take across shards without its upper bounds",
        "what is taken across shards is taken by each shard's own conditions",
        (),
        promise(SHARDED_BUCKET, by=across("take", writes.without_ceiling)),
    ),
    mutation(
        "take across shards without its hold",
        "what is taken across shards is taken by each shard's own conditions",
        (),
        promise(SHARDED_BUCKET, by=across("take", writes.without_hold)),
    ),
    mutation(
        "partial take across shards",
        "what is taken or charged across shards is one transaction",
        (),
        promise(SHARDED_BUCKET, by=in_part("take")),
    ),
    mutation(
        "partial debit across shards",
        "what is taken or charged across shards is one transaction",
        (),
        promise(SHARDED_BUCKET, by=in_part("debit")),
    ),
)
