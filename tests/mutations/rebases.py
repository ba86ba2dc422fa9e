"""Mutations of rebase and expiry."""

from dataclasses import replace

from tests.model.configs import config
from tests.model.invariants import CLAMP, KEPT, PROMISE
from tests.model.invariants import SHARDS as EVERY_SHARD
from tests.mutations import functions, writes
from tests.mutations.mutation import (
    ONE_BUCKET,
    OVER,
    SHARDED_BUCKET,
    Patch,
    model,
    mutation,
    patch,
    promise,
    redundant,
    simulation,
    writer,
    written,
)
from tests.simulation.needs import MANY_CLIENTS, OFTEN_OWN, OWN_BEFORE_QUIET, SEVERAL_LIMITS, SOON_EXPIRED
from tests.simulation.plan import CONFIG, EXPIRY, OWN, SHARDS, STEP
from zae_limiter.core import acquire, rebase
from zae_limiter.schema import bucket_writes
from zae_limiter.schema.operations import AttributeAbsent

_OWN_REFUNDS = replace(config("own"), refunds=({"fast": 1},), lossy=())

REBASES = (
    mutation(
        "rebase without its lower bound",
        "`n-E <= tk`",
        written(writes.without_floor, "rebase"),
        simulation(OVER, OFTEN_OWN),
        model("own", PROMISE, 5),
        promise(ONE_BUCKET, SHARDED_BUCKET),
    ),
    mutation(
        "rebase without its upper bound",
        "`tk <= C-E` where it adds",
        written(writes.without_ceiling, "rebase"),
        simulation(OVER, OFTEN_OWN),
        model(_OWN_REFUNDS, KEPT, 4),
        promise(ONE_BUCKET),
    ),
    mutation(
        "rebase that adds where it must set",
        "`tk <= C-E` where it adds",
        writer("rebase", writes.rebased_with_overflow),
        model("own", CLAMP, 4),
        promise(ONE_BUCKET, SHARDED_BUCKET),
    ),
    mutation(
        "rebase that sets without a floor",
        "`tk > C-E` where it sets",
        written(writes.without_floor_where_it_sets, "rebase"),
        simulation(OVER, OFTEN_OWN),
        model("own", KEPT, 6),
        promise(ONE_BUCKET, SHARDED_BUCKET),
    ),
    mutation(
        "rebase without its hold",
        "the hold",
        written(writes.without_hold, "rebase"),
        simulation(OVER, OFTEN_OWN),
        model("own", PROMISE, 8),
        promise(ONE_BUCKET, SHARDED_BUCKET),
    ),
    mutation(
        "rebase that refills",
        "a level is never raised",
        writer("rebase", writes.refilled),
        simulation(OVER, CONFIG),
        model("own", PROMISE, 5),
        promise(ONE_BUCKET, SHARDED_BUCKET),
    ),
    mutation(
        "rebase that moves rf back",
        "`rf` never moves back",
        written(writes.moved_back, "rebase"),
        simulation(OVER, CONFIG),
        model("own", PROMISE, 5),
        promise(ONE_BUCKET, SHARDED_BUCKET),
    ),
    mutation(
        "limit dropped that is not full",
        "a limit that is removed stays, dormant, unless `tk` is at the largest capacity it ever had",
        written(writes.dropping_unfilled_limits, "rebase"),
        simulation("dropped", CONFIG),
        model("added", PROMISE, 6),
        promise(ONE_BUCKET, SHARDED_BUCKET),
    ),
    mutation(
        "limit dropped without its floor",
        "a limit that is removed stays, dormant, unless `tk` is at the largest capacity it ever had",
        writer("rebase", functions.dropped_without_floor),
        simulation("dropped", OFTEN_OWN, SEVERAL_LIMITS),
        model("added", PROMISE, 8),
        promise(ONE_BUCKET),
    ),
    mutation(
        "limit added again full",
        "a limit that is removed stays, dormant, unless `tk` is at the largest capacity it ever had",
        writer("rebase", writes.refilled_if_dormant),
        simulation(OVER, CONFIG),
        model("added", KEPT, 5),
        promise(ONE_BUCKET, SHARDED_BUCKET),
    ),
    mutation(
        "limit added that already exists",
        "a limit is added only if it is absent",
        written(writes.without(AttributeAbsent), "rebase"),
        redundant("only a rebase adds a limit, and every rebase raises gn, which the hold requires", CONFIG),
    ),
)

EXPIRIES = (
    mutation(
        "debit that leaves the expiry",
        "a debit removes `ttl`",
        written(writes.keeping_expiry, "settle"),
        simulation("expiry", SOON_EXPIRED),
        model("expiry", PROMISE, 12),
        promise(ONE_BUCKET),
    ),
    mutation(
        "take that sets an expiry in debt",
        "a take or rebase sets `ttl` only if no other limit owes, and requires so",
        patch(acquire, "solvency", functions.always_solvent),
        simulation("expiry", SOON_EXPIRED, SEVERAL_LIMITS),
        promise(ONE_BUCKET, SHARDED_BUCKET),
    ),
    mutation(
        "take that sets an expiry without requiring no debt",
        "a take or rebase sets `ttl` only if no other limit owes, and requires so",
        writer("take", functions.without_solvency),
        # Another client must charge the other limit between the view and the write.
        simulation("expiry", SOON_EXPIRED, SEVERAL_LIMITS, MANY_CLIENTS),
        promise(ONE_BUCKET),
    ),
    mutation(
        "rebase that sets an expiry in debt",
        "a take or rebase sets `ttl` only if no other limit owes, and requires so",
        (
            *writer("rebase", functions.without_solvent_parts),
            *patch(rebase, "_expiry", functions.expiry_in_debt),
        ),
        simulation("expiry", SOON_EXPIRED, OWN_BEFORE_QUIET),
        promise(ONE_BUCKET, SHARDED_BUCKET),
    ),
    mutation(
        "expiry before the bucket is full",
        "`ttl` waits for at least twice the longest time to fill",
        (
            *(Patch(owner, "expiry_s", functions.expiry_too_soon) for owner in (bucket_writes, rebase)),
            Patch(acquire, "Take", functions.take_expired),
        ),
        simulation("expiry", SOON_EXPIRED),
        model("expiry", PROMISE, 5, create=writes.expiring_soon(bucket_writes.create)),
        promise(ONE_BUCKET, SHARDED_BUCKET),
    ),
    mutation(
        "rebase that sets an expiry before the baseline",
        "`ttl` counts from `rf` where the client's clock is before it",
        patch(rebase, "_expiry", functions.expiry_by_the_clock),
        simulation("expiry", STEP, OWN),
    ),
    mutation(
        "shard of several that expires",
        "a shard of several never expires",
        writer("take", functions.shard_with_expiry),
        simulation("expiry", SHARDS),
        model("rivals", EVERY_SHARD, 3),
        promise(SHARDED_BUCKET),
    ),
    mutation(
        "split that leaves the expiry",
        "a shard of several never expires",
        written(writes.keeping_expiry, "split"),
        simulation("expiry", SHARDS, EXPIRY),
        promise(SHARDED_BUCKET),
    ),
)
