"""Takes from a chain of buckets that this client has never seen, in one transaction.

An entity that cascades and its ancestors are read one after the other and then taken from together. So a first touch
costs one round trip less than taking from each in turn. A crash cannot charge one of them without the others. The
first caller of the entity's bucket does this while later callers queue, so these find all of it cached.
"""

from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from zae_limiter.caches.request import AcquireRequest, Cascaded, Evaluated, HeldBucket, Plan, Rejected
from zae_limiter.core.acquire import LOOK, Create, Take
from zae_limiter.core.errors import NoLimitsInForceError, RateLimiterUnavailable
from zae_limiter.core.outcome import Cancelled, Committed, Refused, TransactOutcome, Unavailable
from zae_limiter.core.view import Admitted
from zae_limiter.schema import attributes, bucket_writes
from zae_limiter.schema.operations import Put, Update

if TYPE_CHECKING:
    from zae_limiter._async.limiter.client import NetworkedClient


async def take_new(client: "NetworkedClient", request: AcquireRequest) -> Admitted | Cascaded | Rejected:
    """Take from a bucket of which nothing is cached, and from those of its ancestors if they are new too.

    If an ancestor is known already, or another client was faster, only the request's own bucket is taken from.

    Raises:
        ValidationError: The request can never be admitted.
        RateLimiterUnavailable: The table did not answer.
    """
    plan = await client.prepare(request)
    above = request.ancestors(plan.terms)
    if isinstance(plan, Rejected):
        await _read_new(client, above)
        return plan
    if above:
        taken = await _take_chain(client, plan, above)
        if taken is not None:
            return taken
        # The transaction may have been refused: the cached views are newer than the plan.
        again = _plan_again(client, request, Evaluated(plan.terms, plan.progress))
        if isinstance(again, Rejected):
            return again
        plan = again
    if plan.step is None:
        # The bucket has several shards. Shard 0 was just read; another one would have to be read first.
        plan = plan._replace(step=LOOK)
    return await client.carry_out(plan)


async def _read_new(client: "NetworkedClient", above: Sequence[AcquireRequest]) -> None:
    """Read ancestors of which nothing is cached, each in one call: the error reports their levels too."""
    for request in above:
        if client.is_new(request.bucket):
            with suppress(NoLimitsInForceError, RateLimiterUnavailable):
                await client.prepare(request)


async def _take_chain(
    client: "NetworkedClient", plan: Plan, above: Sequence[AcquireRequest]
) -> Cascaded | Rejected | None:
    """Take from all buckets of a chain in one transaction.

    None if an ancestor is known already, limits nothing, or needs more than one step, or if another client was faster.
    """
    plans = [plan]
    for request in above:
        if client.buckets.remembered(request.bucket) is not None:
            return client.known_rejection(request)
        try:
            found = await _prepare_unseen(client, request)
        except NoLimitsInForceError:
            return None
        if isinstance(found, Rejected):
            return found
        plans.append(found)
    # Hazard: each response may correct the server's time. A bucket that is created with an earlier time has earned
    # tokens since, and the take is forgotten. So all buckets are planned again, for the time after the last read.
    now = client.now()
    again = [
        client.plan(one.bucket, one.consume, now, one.own, one.until_s, one.partly, Evaluated(one.terms, one.progress))
        for one in plans
    ]
    plans = [one for one in again if isinstance(one, Plan)]
    for one in again:
        if isinstance(one, Rejected):
            return one
    writes = [write for one in plans if (write := _write_of(client, one)) is not None]
    return await _transact(client, plans, writes) if len(writes) == len(plans) else None


async def _prepare_unseen(client: "NetworkedClient", request: AcquireRequest) -> Plan | Rejected:
    """Plan a request to a bucket that was never seen; read the bucket even if its limits are cached."""
    plan = await client.prepare(request)
    if isinstance(plan, Rejected) or plan.progress.looked or not plan.amounts:
        return plan
    await client.buckets.look((request.bucket, 0), plan.terms, request.until_s)
    return _plan_again(client, request, Evaluated(plan.terms, plan.progress.after_look()))


def _plan_again(client: "NetworkedClient", request: AcquireRequest, known: Evaluated) -> Plan | Rejected:
    bucket, consume, own, until_s, partly, _ = request
    plan = client.plan(bucket, consume, client.now(), own, until_s, partly, known)
    assert plan is not None, "the limits were read"
    return plan


async def _transact(
    client: "NetworkedClient", plans: Sequence[Plan], writes: Sequence[Put | Update]
) -> Cascaded | None:
    context, until_s = client.context, plans[0].until_s
    token = f"chain-{next(context.nonces)}"
    whole = [*writes, *context.buckets.creation_checks(*writes)]
    outcome = await context.table.transact(whole, token, until_s=until_s)
    if isinstance(outcome, Unavailable):
        raise RateLimiterUnavailable(outcome.cause)
    _cache_views(client, plans, writes, outcome)
    if isinstance(outcome, Cancelled):
        context.buckets.require_namespace(outcome.reasons[len(writes) :])
    if not isinstance(outcome, Committed):
        return None
    admitted = [_admitted(plan, write) for plan, write in zip(plans, writes, strict=True)]
    held = [HeldBucket(plan.bucket, one, one.terms.positions) for plan, one in zip(plans, admitted, strict=True)]
    return Cascaded(admitted[0], held[1:])


def _write_of(client: "NetworkedClient", plan: Plan) -> Put | Update | None:
    """Return the write of a plan that needs one step; None if it needs more, or takes nothing."""
    buckets, nonces = client.context.buckets, client.context.nonces
    match plan.step:
        case Take() as take if plan.view is not None and plan.amounts:
            return bucket_writes.take(plan.view, take, next(nonces))
        case Create() if plan.amounts:
            spent = {plan.terms.limits[position].name: taken for position, taken in plan.amounts}
            owner = buckets.owner(plan.bucket)
            return bucket_writes.create(owner, plan.terms, spent, plan.now[1], buckets.signature())
    return None


def _cache_views(
    client: "NetworkedClient", plans: Sequence[Plan], writes: Sequence[Put | Update], outcome: TransactOutcome
) -> None:
    """Cache the views of buckets that were created, or that refused their write."""
    reasons = outcome.reasons[: len(plans)] if isinstance(outcome, Cancelled) else [None] * len(plans)
    for plan, write, reason in zip(plans, writes, reasons, strict=True):
        shard_id = (plan.bucket, 0)
        if reason is not None:
            old = reason.old if isinstance(reason, Refused) else None
            client.buckets.learn(shard_id, old, plan.terms)
        elif isinstance(outcome, Committed) and isinstance(write, Put):
            client.buckets.learn(shard_id, write.item, plan.terms)


def _admitted(plan: Plan, write: Put | Update) -> Admitted:
    if isinstance(write, Put):
        return Admitted(plan.terms, write.item[attributes.BIRTH])
    assert plan.view is not None, "only a bucket that was seen is updated"
    return plan.view.layout.admitted_by(plan.terms)
