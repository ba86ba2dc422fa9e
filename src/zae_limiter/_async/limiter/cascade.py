"""Several buckets in one acquire: those of the entity and of the entities above it, taken from together or not at all.

First all cached views are evaluated, so that a rejection that is already known costs nothing. Then the buckets are
written. A networked table is written at the same time. An embedded one is written in turn, because waiting at the same
time saves nothing there. If one refuses, those that were taken from are credited.
"""

import logging
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from zae_limiter._async.limiter import bypass
from zae_limiter._async.limiter.client import BucketClient
from zae_limiter._async.limiter.direct_client import DirectClient
from zae_limiter._async.limiter.resolve import check_own_limits, no_limits
from zae_limiter.caches.buckets import BucketId
from zae_limiter.caches.request import (
    NOTHING_TAKEN,
    AcquireRequest,
    Cascaded,
    Charge,
    HeldBucket,
    Owed,
    Plan,
    Rejected,
    part_of,
)
from zae_limiter.core.batch import together
from zae_limiter.core.bucket_changes import summed
from zae_limiter.core.cascade import BucketFailed, check_buckets, error_of
from zae_limiter.core.errors import (
    AmountExceedsCapacityError,
    NoLimitsInForceError,
    RateLimiterUnavailable,
    RateLimitExceeded,
    ValidationError,
    ZAELimiterError,
)
from zae_limiter.core.tracked import AdmittedMixed
from zae_limiter.core.view import Admitted

if TYPE_CHECKING:
    from zae_limiter._async.limiter.group_commit import BatchedClient

_log = logging.getLogger("zae_limiter")


async def take(client: "BatchedClient", request: AcquireRequest) -> Admitted | Cascaded:
    """Take from all buckets of a request at the same time, in batches with other callers.

    Raises:
        RateLimitExceeded: One of them lacks the tokens; the others were credited.
    """
    if client.is_alone(request.bucket):
        return _admitted(await client.take(request))
    # Checked once: a caller's list may change, or return other limits when it is read again.
    request = request._replace(own=check_own_limits(request.own))
    chain = await client.unblocked_chain_of(request)
    parts = client.chains.requests(chain, request)
    if chain.bypass:
        # Every bucket ignores limits that it lacks, so the names are checked here.
        client.chains.require_names(chain, request)
        return await bypass.take(client, request, parts)
    if _is_only(request, parts):
        return _admitted(await client.take(parts[0]))
    return _together(request, await _take_parts(client, parts))


async def _take_parts(client: "BatchedClient", parts: Sequence[AcquireRequest]) -> list[HeldBucket]:
    """Take from several buckets, all or none.

    Raises:
        RateLimitExceeded: One of them lacks the tokens; the others were credited.
    """
    # Before any write: a bucket that is taken from in vain costs a write, and another one to credit it.
    for one in reversed(parts):
        rejected = client.known_rejection(one)
        if rejected is not None:
            raise await exceeded(client, parts, [rejected])
    taking = [client.with_time_to_give_back(one) for one in parts]
    held: list[HeldBucket] = []
    first = client.closest(taking)
    if first is not None:
        # Its refusal then costs one write. Written together with the others, it would cost two for each of them.
        await _take_all(client, parts, [first], held)
    await _take_all(client, parts, [one for one in taking if one is not first], held)
    return held


def _is_only(request: AcquireRequest, parts: Sequence[AcquireRequest]) -> bool:
    """Return whether a request takes only from the bucket of its own entity and resource."""
    return len(parts) == 1 and parts[0].bucket == request.bucket


def _admitted(result: Admitted | Rejected) -> Admitted:
    """Return the result of the only bucket of a request.

    Raises:
        RateLimitExceeded: It lacks the tokens.
    """
    if isinstance(result, Rejected):
        raise RateLimitExceeded(result)
    return result


def _together(request: AcquireRequest, held: Sequence[HeldBucket]) -> Cascaded:
    """Return the result of a request that all its buckets have admitted, in any order."""
    own = [one for one in held if one.bucket == request.bucket]
    others = [one for one in held if one.bucket != request.bucket]
    return Cascaded(own[0].admitted if own else NOTHING_TAKEN, others)


async def _take_all(
    client: "BatchedClient",
    parts: Sequence[AcquireRequest],
    taking: Sequence[AcquireRequest],
    held: list[HeldBucket],
) -> None:
    """Take from some of the buckets of a request at the same time; if one refuses, credit all that were taken from.

    ``held`` are buckets that were taken from before; those of this call are added.
    """
    try:
        outcomes = await client.parallel.run([partial(_take_part, client, part, held) for part in taking])
    except BaseException:
        # Cancelled or interrupted: ``run`` has waited for all takes, so ``held`` is complete.
        await _give_all_back(client, parts, held)
        raise
    rejections = [one for one in outcomes if isinstance(one, Rejected)]
    failures = [one.error for one in outcomes if isinstance(one, BucketFailed)]
    if rejections or failures:
        await _give_all_back(client, parts, held)
        raise error_of(failures, rejected=bool(rejections)) or await exceeded(client, parts, rejections)


async def _take_part(
    client: "BatchedClient", request: AcquireRequest, held: list[HeldBucket]
) -> Rejected | BucketFailed | None:
    """Take from one of several buckets, and return why that failed.

    None if the bucket was taken from, or if it has no limits. What was taken is added to ``held``, because a caller
    that is cancelled while it waits for the other buckets loses the result.
    """
    try:
        taken = await client.take(request)
    except NoLimitsInForceError as error:
        return None if request.partly else BucketFailed(error)
    except ZAELimiterError as error:
        return BucketFailed(error)
    if isinstance(taken, Rejected):
        return taken
    held.append(HeldBucket(request.bucket, taken, taken.terms.positions))
    return None


async def take_in_turn(client: DirectClient, request: AcquireRequest) -> Admitted | Cascaded:
    """Take from all buckets of a request one after the other, in place.

    Raises:
        RateLimitExceeded: One of them lacks the tokens; the others were credited.
    """
    # Checked once: a caller's list may change, or return other limits when it is read again.
    request = request._replace(own=check_own_limits(request.own))
    chain = await client.unblocked_chain_of(request)
    parts = client.chains.requests(chain, request)
    if chain.bypass:
        # Every bucket ignores limits that it lacks, so the names are checked here.
        client.chains.require_names(chain, request)
        return await bypass.take(client, request, parts)
    plans = await _plan_all(client, parts)
    if not plans:
        # The limits of the only bucket were deleted since the chain was read.
        raise no_limits(request.bucket)
    if _is_only(request, parts):
        return _admitted(await client.carry_out(plans[0]))
    held = await _carry_out_all(client, parts, plans)
    if request.own is None and chain.is_free():
        client.caches.remember_chain(chain.buckets(request.bucket[1]))
    return _together(request, held)


async def _carry_out_all(
    client: DirectClient, parts: Sequence[AcquireRequest], plans: Sequence[Plan]
) -> list[HeldBucket]:
    """Carry out the plans of several buckets in turn, all or none.

    Raises:
        RateLimitExceeded: One of them lacks the tokens; the others were credited.
    """
    held: list[HeldBucket] = []
    try:
        rejection = await _carry_out_each(client, plans, held)
    except BaseException:
        await _give_all_back(client, parts, held)
        raise
    if rejection is not None:
        await _give_all_back(client, parts, held)
        raise await exceeded(client, parts, [rejection])
    return held


class PartedRequest(NamedTuple):
    """One of several requests, and the requests to all buckets that it takes from."""

    request: AcquireRequest
    parts: Sequence[AcquireRequest]
    bypass: bool


async def take_several(client: "BatchedClient", requests: Sequence[AcquireRequest]) -> list[Cascaded]:
    """Take from all buckets of several requests at the same time, all or none, and return the result of each request.

    Raises:
        RateLimitExceeded: A bucket lacks the tokens; the others were credited.
    """
    asked = await _ask_each(client, requests)
    parts = _summed([one.parts for one in asked if not one.bypass])
    return await _with_bypasses(client, asked, await _take_parts(client, parts) if parts else [])


async def take_several_in_turn(client: DirectClient, requests: Sequence[AcquireRequest]) -> list[Cascaded]:
    """Take from all buckets of several requests one after the other, as ``take_several`` does.

    Raises:
        RateLimitExceeded: A bucket lacks the tokens; the others were credited.
    """
    asked = await _ask_each(client, requests)
    parts = _summed([one.parts for one in asked if not one.bypass])
    held = await _carry_out_all(client, parts, await _plan_all(client, parts))
    return await _with_bypasses(client, asked, held)


async def limited_parts(client: BucketClient, requests: Sequence[AcquireRequest]) -> list[AcquireRequest]:
    """Return the requests to all buckets that may refuse several requests.

    Raises:
        ValidationError: A name is invalid, a limit is not in force, or there are too many buckets.
        EntityBlockedError: An entity is blocked.
        RateLimiterUnavailable: The table did not answer.
    """
    return _summed([one.parts for one in await _ask_each(client, requests) if not one.bypass])


async def _ask_each(client: BucketClient, requests: Sequence[AcquireRequest]) -> list[PartedRequest]:
    """Return the requests to all buckets of each request.

    Raises:
        ValidationError: A name is invalid, a limit is not in force, or there are too many buckets.
    """
    asked: list[PartedRequest] = []
    for one in requests:
        request = one._replace(own=check_own_limits(one.own))
        chain = await client.unblocked_chain_of(request)
        asked.append(PartedRequest(request, client.chains.requests(chain, request), chain.bypass))
        # A bucket that occurs twice ignores limits that it lacks, so the names are checked here.
        client.chains.require_names(chain, request)
        # For each request, so that a long list is refused before all of its chains are read.
        check_buckets(requests[0].bucket[0], len(_summed([one.parts for one in asked])))
    return asked


async def _with_bypasses(
    client: BucketClient, asked: Sequence[PartedRequest], held: Sequence[HeldBucket]
) -> list[Cascaded]:
    """Take for the requests with a bypass, which nothing rejects, and return the result of every request.

    ``held`` are the buckets of the other requests. If this fails, they and what was taken before are credited.
    """
    found = _by_request(asked, held)
    results: list[Cascaded] = []
    charged: list[Charge] = []
    try:
        for number, (request, parts, passes) in enumerate(asked):
            if passes:
                taken = await bypass.take(client, request, parts)
                charged += bypass.charges_of(request, taken)
            else:
                taken = _together(
                    request, [found[number, one.bucket] for one in parts if (number, one.bucket) in found]
                )
            results.append(taken)
    except BaseException:
        try:
            await bypass.give_back(client, charged)
        finally:
            await _give_all_back(client, _summed([one.parts for one in asked if not one.bypass]), held)
        raise
    return results


def _by_request(asked: Sequence[PartedRequest], held: Sequence[HeldBucket]) -> dict[tuple[int, BucketId], HeldBucket]:
    """Return what each request holds of each bucket, by its number: requests for one bucket divide its slots."""
    found: dict[tuple[int, BucketId], HeldBucket] = {}
    for one in held:
        of_bucket = [
            (number, part.consume)
            for number, (_, parts, passes) in enumerate(asked)
            for part in parts
            if not passes and part.bucket == one.bucket
        ]
        results = part_of(one.admitted, [consume for _, consume in of_bucket])
        for (number, _), admitted in zip(of_bucket, results, strict=True):
            found[number, one.bucket] = one._replace(admitted=admitted)
    return found


def _summed(asked: Sequence[Sequence[AcquireRequest]]) -> list[AcquireRequest]:
    """Return one request for each bucket; one that occurs several times is asked for the sum."""
    found: dict[BucketId, AcquireRequest] = {}
    for part in (part for parts in asked for part in parts):
        before = found.get(part.bucket)
        if before is not None:
            part = before._replace(consume=together([before.consume, part.consume]), partly=True)
        found[part.bucket] = part
    return list(found.values())


def _negative(amounts: dict[str, int]) -> dict[str, int]:
    return {name: -amount for name, amount in amounts.items()}


async def _plan_all(client: DirectClient, parts: Sequence[AcquireRequest]) -> list[Plan]:
    """Plan the takes from all buckets, before the first of them is written.

    Raises:
        RateLimitExceeded: A cached view shows that a bucket lacks the tokens.
    """
    plans: list[Plan] = []
    for part in parts:
        try:
            plan = client.plan_request(part) or await client.prepare(part)
        except NoLimitsInForceError:
            # Its limits were deleted meanwhile. An ancestor without limits admits everything.
            if not part.partly:
                raise
            continue
        # A client that always reads first still rejects by a fresh view, before it takes from any bucket.
        rejected = plan if isinstance(plan, Rejected) else client.known_rejection(part)
        if rejected is not None:
            raise RateLimitExceeded(rejected) if len(parts) == 1 else await exceeded(client, parts, [rejected])
        assert isinstance(plan, Plan), "a plan is carried out or rejects"
        plans.append(plan)
    return plans


async def _carry_out_each(client: DirectClient, plans: Sequence[Plan], held: list[HeldBucket]) -> Rejected | None:
    """Carry out plans in turn, and add each bucket to ``held``; return the first rejection, None if all admitted."""
    for plan in plans:
        try:
            taken = await client.carry_out(plan)
        except NoLimitsInForceError:
            if not plan.partly:
                raise
            continue
        if isinstance(taken, Rejected):
            return taken
        held.append(HeldBucket(plan.bucket, taken, taken.terms.positions))
    return None


async def exceeded(
    client: BucketClient, parts: Sequence[AcquireRequest], rejections: Sequence[Rejected]
) -> RateLimitExceeded:
    """Return the error of a request, with the status of every limit of every bucket that it takes from.

    The statuses of the buckets that did not reject are cached, or are read in one call.
    """
    known = {rejection.bucket: rejection.statuses() for rejection in rejections}
    others = [one for one in parts if one.bucket not in known]
    known.update(zip((one.bucket for one in others), await client.levels.statuses_of(others), strict=True))
    return RateLimitExceeded([status for one in parts for status in known[one.bucket]])


async def never_admitted(
    client: BucketClient, requests: Sequence[AcquireRequest], error: AmountExceedsCapacityError
) -> AmountExceedsCapacityError:
    """Return the same error with the status of every limit of every bucket that the requests take from.

    The statuses are cached, or are read in one call.
    """
    try:
        parts = _summed([one.parts for one in await _ask_each(client, requests)])
    except (ValidationError, RateLimiterUnavailable):
        parts = list(requests)
    statuses = [status for found in await client.levels.statuses_of_too_much(parts) for status in found]
    return AmountExceedsCapacityError(statuses, error.field, error.value, error.reason)


async def _give_all_back(client: BucketClient, parts: Sequence[AcquireRequest], held: Sequence[HeldBucket]) -> None:
    """Credit every bucket that a request has taken from, by the deadline of the request."""
    if not held:
        return
    consumed = {part.bucket: part.consume for part in parts}
    taken = [Charge(one, _negative(consumed[one.bucket])) for one in held]
    await give_back(client, taken, parts[0].until_s)


async def give_back(client: BucketClient, taken: Sequence[Charge], until_s: float) -> None:
    """Credit buckets, once, with the tokens that were taken from them, even if the caller is cancelled.

    If the store is unavailable or closed, this is logged: the caller gets the reason why the request failed.
    """
    if not taken:
        return
    try:
        await client.see_through(lambda: client.settle_all(owed(client, taken, until_s)))
    except ZAELimiterError as error:
        _log.warning("Not given back: %s: %s", [(one.held.bucket, one.changes) for one in taken], error)


def owed(client: BucketClient, charges: Sequence[Charge], until_s: float | None = None) -> list[Owed]:
    """Return what is settled with each bucket; one that occurs several times is settled with once."""
    by_s = until_s or client.until_s()
    if len(charges) == 1:
        # The usual case, without the search for others of the same bucket.
        held, changes, claims = charges[0]
        if claims is None and not isinstance(held.admitted, AdmittedMixed):
            only = held.settlement(changes)
            return [] if only is None else [Owed(held.bucket, only, held.admitted.terms, by_s)]
        return [Owed(held.bucket, one, held.admitted.terms, by_s) for one in charges[0].settlements()]
    found: dict[tuple[BucketId, int | None, int | None], Owed] = {}
    for charge in charges:
        held = charge.held
        for settlement in charge.settlements():
            key = (held.bucket, held.admitted.birth, settlement.shard if settlement.is_bound else None)
            before = found.get(key)
            if before is not None:
                settlement = summed([before.settlement, settlement])
            found[key] = Owed(held.bucket, settlement, held.admitted.terms, by_s)
    return list(found.values())
