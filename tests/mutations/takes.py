"""Mutations of the hold, of take and create, and of the top-up."""

from dataclasses import replace
from typing import Any

from tests.model.invariants import DEBT, PROMISE, TOTALS
from tests.model.rules import create_without_birth, topped_up
from tests.mutations import functions, writes
from tests.mutations.mutation import (
    MISCOUNTED,
    ONE_BUCKET,
    OVER,
    SHARDED_BUCKET,
    model,
    mutation,
    patch,
    promise,
    simulation,
    writer,
    written,
)
from tests.simulation.needs import OFTEN_OWN, SOON_EXPIRED
from tests.simulation.plan import CONFIG, DELETE
from tests.simulation.port import LATE
from zae_limiter._async.limiter import top_ups
from zae_limiter.core.top_up import Creation, Known
from zae_limiter.schema import bucket_writes
from zae_limiter.schema.operations import Equals

HOLDING = ("take", "settle", "rebase", "split", "merge")
"""Writers that require the hold: the item is as it was read."""


def _taking(change: writes.Change) -> writes.Writer:
    """Return a changed take, for rules of the model in which all other writers still require the hold."""
    return writes.changed(change)(bucket_writes.take)


def _after_other_writes(creation: Creation, view: Any, *rest: Any) -> Any:
    """Assume that the bucket has no other writers."""
    return topped_up(replace(creation, writes=view.writes), view, *rest)


def _too_early(creation: Creation, view: Any, terms: Any, amounts: Any, known: Known) -> Any:
    """Assume that the bucket was created at the earliest possible time."""
    return topped_up(creation, view, terms, amounts, known._replace(created_ms=creation.earliest_ms))


def _overflowing(creation: Creation, view: Any, terms: Any, amounts: Any, known: Known) -> Any:
    """Assume that the bucket was never full."""
    never_full = replace(creation, room=[0] * len(creation.room), received_ms=known.local_ms)
    return topped_up(never_full, view, terms, amounts, known)


def _unearned(creation: Creation, view: Any, terms: Any, amounts: Any, known: Known) -> Any:
    """Return everything that is withheld before the baseline, as if it were earned."""
    start_ms = max(known.now[0], view.layout.start_ms)
    return topped_up(creation, view, terms, amounts, known._replace(now=(start_ms, max(start_ms, known.now[1]))))


HOLDS = (
    mutation(
        "hold on nothing",
        "a write requires all of it as it was seen",
        written(writes.without_hold, *HOLDING),
        simulation(OVER | {"expiry"}, CONFIG),
        model("own", PROMISE, 7),
        model("own", PROMISE, 7, take=_taking(writes.without_hold)),
        promise(ONE_BUCKET, SHARDED_BUCKET),
    ),
    mutation(
        "hold without bi",
        "a write requires `bi` as it was seen",
        written(writes.holding_less("bi"), *HOLDING),
        simulation(OVER | {"expiry"}, SOON_EXPIRED),
        model("expiry", DEBT, 11),
        model("expiry", DEBT, 11, take=_taking(writes.holding_less("bi"))),
        promise(ONE_BUCKET, SHARDED_BUCKET),
    ),
    mutation(
        "hold without gn",
        "a write requires `gn` as it was seen",
        written(writes.holding_less("gn"), *HOLDING),
        simulation(OVER | {"shards"}, OFTEN_OWN),
        model("own", PROMISE, 7),
        model("own", PROMISE, 7, take=_taking(writes.holding_less("gn"))),
        promise(ONE_BUCKET, SHARDED_BUCKET),
    ),
    mutation(
        "hold of an older item without rf",
        "a write to an item without `bi` requires `rf` as it was seen",
        (),
        model(
            "expiry",
            DEBT,
            11,
            create=create_without_birth,
            take=_taking(writes.holding_less("rf")),
        ),
    ),
)

TAKES = (
    mutation(
        "take without its lower bound",
        "`n-E <= tk`",
        written(writes.without_floor, "take"),
        simulation("overdrawn"),
        model("takes", PROMISE, 4),
        promise(ONE_BUCKET, SHARDED_BUCKET),
    ),
    mutation(
        "take without its upper bound",
        "`tk <= cap-E` where it adds",
        written(writes.without_ceiling, "take"),
        simulation(OVER),
        model("settle", PROMISE, 6),
        promise(ONE_BUCKET, SHARDED_BUCKET),
    ),
    mutation(
        "take that adds where it must set",
        "`tk <= cap-E` where it adds",
        written(writes.adding, "take"),
        simulation(OVER),
        model("takes", PROMISE, 5),
        promise(ONE_BUCKET, SHARDED_BUCKET),
    ),
    mutation(
        "take that sets without a floor",
        "`tk >= T-E` where it sets",
        written(writes.without_floor_where_it_sets, "take"),
        simulation(OVER),
        model("takes", PROMISE, 5),
        promise(ONE_BUCKET, SHARDED_BUCKET),
    ),
    mutation(
        "take that is not counted",
        "`tc` is added to in the same write",
        written(writes.uncounted, "take"),
        simulation(MISCOUNTED),
        model("takes", TOTALS, 2),
        promise(ONE_BUCKET, SHARDED_BUCKET),
    ),
    mutation(
        "create that draws no birth number",
        "every create draws a new `bi`, also one that is sent again",
        writer("create", functions.one_birth),
        simulation(OVER | {"reborn"}, DELETE),
        model("deleted", PROMISE, 7),
        model("deleted", PROMISE, 7, birth=lambda fresh, nonce: 1),
        promise(ONE_BUCKET, SHARDED_BUCKET),
    ),
    mutation(
        "create resent with its birth number",
        "every create draws a new `bi`, also one that is sent again",
        patch(bucket_writes, "sent_again", functions.birth_kept),
        simulation("reborn", DELETE, LATE),
    ),
    mutation(
        "create over another",
        "create only if absent",
        written(writes.without_absence, "create"),
        simulation(OVER | MISCOUNTED),
        model("takes", PROMISE, 2),
        promise(ONE_BUCKET),
    ),
)

TOP_UPS = (
    mutation(
        "top-up without the write counter",
        "the write counter is as seen",
        written(writes.without(Equals), "top_up"),
        model("top-ups late", PROMISE, 6),
    ),
    mutation(
        "top-up after other writes",
        "all writes are takes of the creator",
        patch(Creation, "is_certain", functions.top_up_after_other_writes),
        simulation(OVER),
        model("top-ups", PROMISE, 9, topped_up=_after_other_writes),
    ),
    mutation(
        "top-up of what would have overflowed",
        "`room`",
        (),
        model("top-ups", PROMISE, 9, topped_up=_overflowing),
    ),
    mutation(
        "top-up from before the creation",
        "`c` is the latest time of the creation",
        patch(top_ups, "top_up", functions.top_up_too_early),
        simulation(OVER),
        model("top-ups", PROMISE, 5, topped_up=_too_early),
    ),
    mutation(
        "top-up of what is not earned yet",
        "before `rf`, only what is earned by the earliest time now",
        (),
        model("top-ups", PROMISE, 4, topped_up=_unearned),
    ),
)
