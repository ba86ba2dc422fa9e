"""Child and parent together or not at all: taking from both, and giving back where only one of them admits."""

import logging
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from zae_limiter._async.caches import BucketId
from zae_limiter._async.limiter.bucket_client import BucketClient
from zae_limiter._async.limiter.pair import ChildTaken, Paired
from zae_limiter._async.limiter.request import AcquireRequest, Rejected
from zae_limiter._async.limiter.resolve import NoLimitsInForceError
from zae_limiter._async.limiter.settle import Owed
from zae_limiter.core.bucket_changes import Settlement
from zae_limiter.core.cascade import BucketFailed, error_of
from zae_limiter.core.errors import RateLimitExceeded, ZAELimiterError
from zae_limiter.core.view import EffectiveLimits, Grant

_log = logging.getLogger("zae_limiter")

_PAIR = 2


@dataclass(slots=True)
class HeldBucket:
    """A bucket that was taken from, what admitted the take, and which of the requested limits it has."""

    bucket: BucketId
    grant: Grant
    names: Collection[str]

    def settlement(self, changes: dict[str, int]) -> Settlement | None:
        """Return what changes in tokens, up or down, mean for this bucket; None for nothing."""
        mine = [(name, amount * 1000) for name, amount in changes.items() if amount and name in self.names]
        if not mine:
            return None
        debits = tuple((name, milli) for name, milli in mine if milli > 0)
        credits = tuple((name, -milli) for name, milli in mine if milli < 0)
        return Settlement(debits, credits, self.grant.birth)


async def take(client: BucketClient, request: AcquireRequest) -> list[HeldBucket]:
    """Take from the entity's bucket and, where it cascades, from its parent's; both or none.

    They are written at once where that saves time and the parent is known; else in turn.

    Raises:
        RateLimitExceeded: One of them lacks the tokens; what the other gave was given back.
    """
    known = client.cascading_limits(request.bucket)
    if known is not None:
        return await _take_at_once(client, request, known)
    taken = await client.take(AcquireRequest(*request[:5], with_parent=True))
    if isinstance(taken, Rejected):
        raise await exceeded(client, request, [taken])
    if isinstance(taken, Paired):
        above = HeldBucket(taken.parent, taken.parent_grant, taken.parent_grant.terms.positions)
        return [HeldBucket(request.bucket, taken.grant, request.consume), above]
    planned = None
    if isinstance(taken, ChildTaken):
        taken, planned = taken
    child = HeldBucket(request.bucket, taken, request.consume)
    if not taken.terms.cascade:
        return [child]
    try:
        if planned is None:
            parent = await take_parent(client, taken.terms, client.with_time_to_give_back(request))
        else:
            parent = _holding(planned.bucket, await client.carry_out(planned))
    except BaseException:
        await give_back(client, [child], request.consume, request.until_s)
        raise
    if isinstance(parent, Rejected):
        await give_back(client, [child], request.consume, request.until_s)
        raise await exceeded(client, request, [parent])
    return [child] if parent is None else [child, parent]


async def _take_at_once(client: BucketClient, request: AcquireRequest, known: EffectiveLimits) -> list[HeldBucket]:
    bucket, consume = request.bucket, request.consume
    rejected = client.rejected_above(known, bucket[1], consume) or client.rejected_by_view(request)
    if rejected is not None:
        raise await exceeded(client, request, [rejected])
    taking = client.with_time_to_give_back(request)
    above = taking._replace(bucket=(known.parent_id or "", bucket[1]), own=None, partly=True)
    held: list[HeldBucket] = []
    try:
        outcomes = await client.parallel.both(
            lambda: _take_one(client, taking, held), lambda: _take_one(client, above, held)
        )
    except BaseException:
        await give_back(client, held, consume, request.until_s)
        raise
    rejections = [one for one in outcomes if isinstance(one, Rejected)]
    failures = [one.error for one in outcomes if isinstance(one, BucketFailed)]
    if rejections or failures:
        await give_back(client, held, consume, request.until_s)
        raise error_of(failures, rejected=bool(rejections)) or await exceeded(client, request, rejections)
    return sorted(held, key=lambda one: one.bucket != bucket)


async def _take_one(
    client: BucketClient, request: AcquireRequest, held: list[HeldBucket]
) -> Rejected | BucketFailed | None:
    """Take from one of several buckets; return why nothing was taken, None if it was, or if it limits nothing.

    What was taken is added to ``held``: the result is lost if the caller is cancelled while it waits for the others.
    """
    try:
        taken = _alone(await client.take(request))
    except NoLimitsInForceError as error:
        return None if request.partly else BucketFailed(error)
    except ZAELimiterError as error:
        return BucketFailed(error)
    if isinstance(taken, Rejected):
        return taken
    held.append(HeldBucket(request.bucket, taken, taken.terms.positions if request.partly else request.consume))
    return None


async def exceeded(client: BucketClient, request: AcquireRequest, rejections: Sequence[Rejected]) -> RateLimitExceeded:
    """Return the error of a request, with the status of every limit of every bucket that it takes from.

    What a bucket that did not reject has is known, or read once.
    """
    known = {rejection.bucket: rejection.statuses() for rejection in rejections}
    first = rejections[0]
    if first.bucket == request.bucket and not first.terms.cascade:
        return RateLimitExceeded(known[first.bucket])
    if request.bucket not in known:
        known = {request.bucket: await client.statuses_of(request), **known}
    parent_id = first.terms.parent_id if first.bucket == request.bucket else first.bucket[0]
    above = (parent_id or "", request.bucket[1])
    if above not in known:
        known[above] = await client.statuses_of(request._replace(bucket=above, own=None, partly=True))
    return RateLimitExceeded([status for bucket in (request.bucket, above) for status in known[bucket]])


def _alone(taken: Grant | Paired | ChildTaken | Rejected) -> Grant | Rejected:
    """Return what admitted a take without the parent, as it was requested."""
    assert not isinstance(taken, Paired | ChildTaken), "the parent is taken from only where that was requested"
    return taken


async def take_parent(
    client: BucketClient, terms: EffectiveLimits, request: AcquireRequest
) -> HeldBucket | Rejected | None:
    """Take from the parent what it limits of the request; None if it limits nothing at all."""
    assert terms.parent_id is not None, "what cascades has a parent"
    above = (terms.parent_id, request.bucket[1])
    try:
        taken = _alone(await client.take(AcquireRequest(above, request.consume, None, request.until_s, partly=True)))
    except NoLimitsInForceError:
        return None
    return _holding(above, taken)


def _holding(bucket: BucketId, taken: Grant | Rejected) -> HeldBucket | Rejected:
    return taken if isinstance(taken, Rejected) else HeldBucket(bucket, taken, taken.terms.positions)


async def give_back(client: BucketClient, holdings: list[HeldBucket], amounts: dict[str, int], until_s: float) -> None:
    """Credit every bucket, once, with the tokens that were taken from it, even if the caller is cancelled.

    If the store is unavailable or closed, this is logged: the caller hears why the request failed.
    """
    changes = {name: -amount for name, amount in amounts.items()}
    try:
        await client.see_through(lambda: settle(client, holdings, changes, until_s))
    except ZAELimiterError as error:
        buckets = [holding.bucket for holding in holdings]
        _log.warning("Not given back: %s of %s: %s", amounts, buckets, error)


async def settle(
    client: BucketClient, holdings: list[HeldBucket], changes: dict[str, int], until_s: float | None = None
) -> None:
    """Charge or credit every bucket with changes, in tokens; each is tried though another fails.

    Raises:
        RateLimiterUnavailable: The table did not answer for one of them.
    """
    by_s = until_s or client.until_s()
    owed = [
        Owed(one.bucket, settlement, one.grant.terms, by_s)
        for one in holdings
        if (settlement := one.settlement(changes)) is not None
    ]
    if len(owed) == 1:
        return await client.settle(*owed[0])
    for failed in await client.settle_each(owed):
        if failed is not None:
            raise failed.error
    return None


async def settle_one(client: BucketClient, owed: Owed) -> BucketFailed | None:
    """Settle with one of several buckets; return the failure, if any, so that the others are settled too."""
    try:
        await client.settle(*owed)
    except ZAELimiterError as error:
        return BucketFailed(error)
    return None


async def settle_in_parallel(client: BucketClient, owed: Sequence[Owed]) -> list[BucketFailed | None]:
    """Settle with two buckets at the same time, with more of them in turn."""
    if len(owed) != _PAIR:
        return [await settle_one(client, one) for one in owed]
    first, second = owed
    return [*await client.parallel.both_to_end(lambda: settle_one(client, first), lambda: settle_one(client, second))]
