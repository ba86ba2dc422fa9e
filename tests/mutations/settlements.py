"""Mutations of debit and credit, and of what happens when an answer is lost."""

from tests.model.invariants import BELIEF, KEPT, PROMISE
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
    soak,
    written,
)
from tests.simulation.needs import CONSTANT_RESHARDING, OWN_MISSING_ONE, SOON_EXPIRED
from tests.simulation.plan import CANCEL, CANCEL_SETTLING, COPY, DELETE, SHARDS
from tests.simulation.port import LOST_REQUEST, LOST_RESPONSE
from tests.simulation.server import Server
from tests.soak.watching import CREDIT_TWICE, UNWRITTEN
from zae_limiter._async.limiter.client import BucketClient
from zae_limiter._async.limiter.group_commit import BatchedClient, TakeBatcher
from zae_limiter._async.limiter.lease_part import LeasePart
from zae_limiter._async.limiter.settle import Settler
from zae_limiter._async.limiter.shards import ShardClient
from zae_limiter._async.store import buckets
from zae_limiter._async.store.scope import Nonces
from zae_limiter.core.bucket_changes import Settlement
from zae_limiter.schema import bucket_writes
from zae_limiter.schema.operations import AttributeExists, Equals

SETTLEMENTS = (
    mutation(
        "debit without its upper bound",
        "`tk <= cap-E` where a debit adds",
        written(writes.without_ceiling, "settle"),
        simulation(OVER, SOON_EXPIRED),
        model("settle", PROMISE, 9),
        promise(ONE_BUCKET, SHARDED_BUCKET),
    ),
    mutation(
        "debit that adds where it must set",
        "`tk <= cap-E` where a debit adds",
        written(writes.adding, "settle"),
        simulation(OVER),
        model("settle", PROMISE, 7),
        promise(ONE_BUCKET, SHARDED_BUCKET),
    ),
    mutation(
        "debit that sets without a floor",
        "`tk >= T-E` where a debit sets",
        written(writes.without_floor_where_it_sets, "settle"),
        simulation(OVER),
        model("settle", KEPT, 6),
        promise(ONE_BUCKET, SHARDED_BUCKET),
    ),
    mutation(
        "debit not sent again",
        "a debit whose answer was lost is sent again",
        patch(Settler, "_settle_with", functions.debit_sent_once),
        simulation(MISCOUNTED, LOST_REQUEST),
    ),
    mutation(
        "credit sent again",
        "a credit whose answer was lost is **never** sent again",
        patch(Settler, "_settle_with", functions.credit_sent_again),
        # The second credit may exceed what was ever taken from the bucket.
        simulation(MISCOUNTED | {"reborn"}, LOST_RESPONSE),
        model("settle", PROMISE, 7, resends_credits=True),
    ),
    mutation(
        "credit of a take that was not seen",
        "a credit follows only a take that was seen to be applied",
        patch(BatchedClient, "take", functions.credit_unseen),
        simulation(MISCOUNTED, LOST_REQUEST),
    ),
    mutation(
        "lease that credits twice",
        "a lease gives back at most what it holds, once",
        patch(LeasePart, "_settle", functions.credited_again),
        simulation(MISCOUNTED),
        promise(ONE_BUCKET, SHARDED_BUCKET, by=written(writes.credited_twice, "settle")),
        soak(CREDIT_TWICE, "were used that the table has not counted"),
    ),
    mutation(
        "settlement repeated as a whole after a cancellation",
        "a settlement whose caller is cancelled continues, and is never repeated as a whole",
        patch(BucketClient, "see_through", functions.settled_again),
        simulation(MISCOUNTED, CANCEL_SETTLING),
    ),
    mutation(
        "take of a cancelled caller is kept",
        "the client that sent the take of a cancelled caller credits it back",
        patch(TakeBatcher, "undo", functions.nothing),
        simulation(MISCOUNTED, CANCEL),
    ),
    mutation(
        "credit without its birth number",
        "a credit requires the birth number of the bucket that was charged",
        (
            *written(writes.of_updates(writes.without(Equals)), "settle"),
            *patch(Settlement, "credits_reach", functions.any_birth),
        ),
        simulation("reborn", DELETE),
        model("deleted", PROMISE, 6),
        model("deleted", PROMISE, 6, credits_any=True),
    ),
    mutation(
        "credit to a limit that is absent",
        "a credit needs the limit to be there",
        written(writes.without(AttributeExists), "settle"),
        simulation("limits", OWN_MISSING_ONE),
    ),
)

LOST_ANSWERS = (
    mutation(
        "take resent without its nonce",
        "a resend requires `op` to differ",
        patch(bucket_writes, "sent_again", lambda real: lambda write, birth: write),
        simulation("twice", LOST_RESPONSE),
        model("takes", BELIEF, 4),
    ),
    mutation(
        "nonce not recognised",
        "one's own `op` means applied",
        (),
        model("takes", BELIEF, 2, is_mine=lambda write, item: False),
    ),
    mutation(
        "any refusal taken for an applied write",
        "only one's own `op` means applied",
        patch(buckets, "_is_mine", lambda real: lambda write, old: True),
        simulation(MISCOUNTED, LOST_REQUEST),
        model("takes", BELIEF, 3, is_mine=lambda write, item: True),
        soak(UNWRITTEN, "were used that the table has not counted"),
    ),
    mutation(
        "transaction sent again with a new token",
        "a transaction keeps its token",
        patch(Server, "prepare", functions.forgetting_tokens),
        simulation(OVER | MISCOUNTED | {"twice"}, LOST_RESPONSE, SHARDS),
        model("torn", BELIEF, 3, honours_tokens=False),
        model("resets", BELIEF, 3, honours_tokens=False),
        model("across", BELIEF, 6, honours_tokens=False),
    ),
    mutation(
        "copied process that keeps its nonces",
        "a copy of a process, forked or restored, draws new numbers before it writes",
        patch(Nonces, "renew", lambda real: lambda self, *, restored: None),
        simulation(MISCOUNTED | {"nonce", "twice", "reborn"}, COPY),
    ),
    mutation(
        "ambiguous credit across shards sent in another form",
        "a give-back across shards that was sent without an answer is not given in another form",
        patch(ShardClient, "commit", functions.credited_in_another_form),
        # The second credit may exceed what was ever taken from the bucket.
        simulation(MISCOUNTED | OVER | {"reborn"}, CONSTANT_RESHARDING),
    ),
)
