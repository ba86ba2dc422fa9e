"""Mutations of settlements that are put off, and of writes that take and settle."""

from tests.model.invariants import PROMISE
from tests.mutations import functions, writes
from tests.mutations.mutation import MISCOUNTED, OVER, model, mutation, patch, simulation, written
from tests.simulation.plan import COPY, DEFER
from tests.simulation.port import LOST_RESPONSE
from zae_limiter._async.limiter import deferred
from zae_limiter._async.limiter.deferred import DeferringClient
from zae_limiter.caches.deferred import DeferredSettlements

COMBINED = (
    mutation(
        "take and settle without its lower bound",
        "`tk >= n+d-E` or `tk >= n-c-E` where a take that settles adds",
        written(writes.without_floor, "take_and_settle"),
        simulation(OVER, DEFER),
        model("combined", PROMISE, 3),
    ),
    mutation(
        "take and settle without its upper bound",
        "`tk <= cap-E` or `tk <= cap-c-E` where a take that settles adds",
        written(writes.without_ceiling, "take_and_settle"),
        simulation(OVER, DEFER),
        model("combined", PROMISE, 5),
    ),
    mutation(
        "take and settle that sets without a floor",
        "`tk >= T-E` or `tk >= T-E-c` where a take that settles sets",
        written(writes.without_floor_where_it_sets, "take_and_settle"),
        simulation(OVER, DEFER),
        model("combined", PROMISE, 5),
    ),
    mutation(
        "take and settle sent again with its credit",
        "a take that settles is sent again without its credits",
        patch(deferred, "take_and_settle", functions.sent_again_with_credits),
        simulation(OVER | MISCOUNTED | {"reborn"}, DEFER, LOST_RESPONSE),
        model("combined", PROMISE, 5, resends_credits=True),
    ),
    mutation(
        "credit kept after a lost answer",
        "after a lost answer only debits wait again, or are written before the take",
        patch(deferred, "replace", functions.unchanged),
        simulation(OVER | MISCOUNTED | {"reborn"}, DEFER, LOST_RESPONSE),
    ),
    mutation(
        "debit dropped with a refused take",
        "a settlement whose combined write was refused is written before the take",
        patch(DeferringClient, "_settle_before", functions.nothing),
        simulation(MISCOUNTED, DEFER),
    ),
    mutation(
        "settlement that waits and is written",
        "a settlement is removed from those that wait before it is written",
        patch(DeferredSettlements, "take_out", functions.left_waiting),
        simulation(MISCOUNTED | OVER | {"reborn"}, DEFER),
    ),
    mutation(
        "settlements copied with a process",
        "a copy of a process drops the settlements that wait",
        patch(DeferredSettlements, "renew", functions.nothing_now),
        simulation(MISCOUNTED | OVER | {"reborn"}, DEFER, COPY),
    ),
)
