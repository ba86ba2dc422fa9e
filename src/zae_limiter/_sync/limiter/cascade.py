"""Several buckets in one acquire: the entity's own and those of its ancestors, taken from together or not at all.

First all cached views are evaluated, so that a rejection that is already known costs nothing. Then the buckets are
written. A networked table is written at the same time. An embedded one is written in turn, because waiting at the same
time saves nothing there. If one refuses, those that were taken from are credited.
"""  # generated from _async by tools/mirror.py; do not edit

import logging
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from zae_limiter._sync.limiter.client import BucketClient, DirectClient
from zae_limiter.caches.buckets import BucketId
from zae_limiter.caches.request import (
    AcquireRequest,
    Cascaded,
    HeldBucket,
    Owed,
    OwnLimits,
    Plan,
    Rejected,
    ancestors_of,
)
from zae_limiter.core.acquire import Take
from zae_limiter.core.cascade import BucketFailed, error_of
from zae_limiter.core.errors import (
    AmountExceedsCapacityError,
    NoLimitsInForceError,
    RateLimiterUnavailable,
    RateLimitExceeded,
    ZAELimiterError,
)
from zae_limiter.core.view import Admitted

if TYPE_CHECKING:
    from zae_limiter._sync.limiter.group_commit import BatchedClient

_log = logging.getLogger("zae_limiter")

_new_tuple = tuple.__new__


def take(client: "BatchedClient", request: AcquireRequest) -> Admitted | Cascaded:
    """Take from the entity's bucket and from those of its ancestors, in batches with other callers.

    If it is known that the entity cascades, all buckets are written at the same time. Otherwise the first result shows
    it, and the ancestors follow.

    Raises:
        RateLimitExceeded: One of them lacks the tokens; the others were credited.
    """
    terms = client.cascading_limits(request.bucket)
    if terms is not None:
        return _take_at_the_same_time(client, request, request.ancestors(terms))
    taken = client.take(request._replace(with_ancestors=True))
    if isinstance(taken, Rejected):
        raise exceeded(client, request, [taken])
    if isinstance(taken, Cascaded) or not taken.terms.cascade:
        return taken
    held = [HeldBucket(request.bucket, taken, request.consume)]
    taking = client.with_time_to_give_back(request)
    return _take_all(client, request, taking.ancestors(taken.terms), held)


def _take_at_the_same_time(
    client: "BatchedClient", request: AcquireRequest, above: Sequence[AcquireRequest]
) -> Cascaded:
    # Before any write: a bucket that is taken from in vain costs a write, and another one to credit it.
    for one in (*above, request):
        rejected = client.known_rejection(one)
        if rejected is not None:
            raise exceeded(client, request, [rejected])
    taking = client.with_time_to_give_back(request)
    return _take_all(client, request, [taking, *(one._replace(until_s=taking.until_s) for one in above)], [])


def _take_all(
    client: "BatchedClient", request: AcquireRequest, parts: Sequence[AcquireRequest], held: list[HeldBucket]
) -> Cascaded:
    """Take from several buckets at the same time; if one refuses, credit all that were taken from.

    ``held`` are buckets that were taken from before; those of this call are added.
    """
    try:
        outcomes = client.parallel.run([partial(_take_part, client, part, held) for part in parts])
    except BaseException:
        # Cancelled or interrupted: ``run`` has waited for all takes, so ``held`` is complete.
        give_back(client, held, request.consume, request.until_s)
        raise
    rejections = [one for one in outcomes if isinstance(one, Rejected)]
    failures = [one.error for one in outcomes if isinstance(one, BucketFailed)]
    if rejections or failures:
        give_back(client, held, request.consume, request.until_s)
        raise error_of(failures, rejected=bool(rejections)) or exceeded(client, request, rejections)
    # Takes end in any order. The request's own bucket comes first.
    own, *ancestors = sorted(held, key=lambda one: one.bucket != request.bucket)
    return Cascaded(own.admitted, ancestors)


def _take_part(
    client: "BatchedClient", request: AcquireRequest, held: list[HeldBucket]
) -> Rejected | BucketFailed | None:
    """Take from one of several buckets; return why nothing was taken, None if it was, or if it limits nothing.

    What was taken is added to ``held``: the result is lost if the caller is cancelled while it waits for the others.
    """
    try:
        taken = client.take(request)
    except NoLimitsInForceError as error:
        return None if request.partly else BucketFailed(error)
    except ZAELimiterError as error:
        return BucketFailed(error)
    if isinstance(taken, Rejected):
        return taken
    assert isinstance(taken, Admitted), "ancestors are taken from here"
    held.append(HeldBucket(request.bucket, taken, taken.terms.positions if request.partly else request.consume))
    return None


def take_planned(client: DirectClient, own: Plan) -> Admitted | Cascaded:
    """Take from a bucket as it was planned and from those of its ancestors, one after the other, in place.

    Raises:
        RateLimitExceeded: One of them lacks the tokens; the others were credited.
    """
    bucket, consume, _, _, _, _, _, terms, _, _, now, _ = own
    plans = []
    for above in ancestors_of(bucket, terms):
        plan = client.plan(above, consume, now, partly=True)
        if type(plan) is not Plan or type(plan.step) is not Take:
            # Not the usual case, in which all views are fresh and have the tokens.
            return take_in_turn(client, client.request_of(own))
        plans.append(plan)
    taken = client.carry_out(own)
    # Other terms: the limits were read again, and the entity may have another parent now, or none.
    if isinstance(taken, Rejected) or taken.terms is not terms:
        return take_in_turn(client, client.request_of(own), taken)
    return _take_above(client, own, taken, plans)


def take_in_turn(
    client: DirectClient, request: AcquireRequest, own: Admitted | Rejected | None = None
) -> Admitted | Cascaded:
    """Take from the entity's bucket and from those of its ancestors, one after the other, in place.

    ``own`` is the answer of the entity's own bucket, None if it was not taken from yet.

    Raises:
        RateLimitExceeded: One of them lacks the tokens; the others were credited.
    """
    planned: dict[BucketId, Plan] = {}
    if own is None:
        bucket, consume, limits, until_s, partly, _ = request
        plan = client.plan(bucket, consume, client.now(), limits, until_s, partly) or client.prepare(request)
        if isinstance(plan, Rejected):
            raise exceeded(client, request, [plan])
        for above in request.ancestors(plan.terms):
            found = _evaluate(client, above)
            if isinstance(found, Rejected):
                raise exceeded(client, request, [found])
            if found is not None:
                planned[above.bucket] = found
        own = client.carry_out(plan)
    if isinstance(own, Rejected):
        raise exceeded(client, request, [own])
    parts = [planned.get(one.bucket) or one for one in request.ancestors(own.terms)]
    return _take_above(client, request, own, parts) if parts else own


def _evaluate(client: DirectClient, request: AcquireRequest) -> Plan | Rejected | None:
    """Return the plan of an ancestor, or the rejection by its cached view; None if its limits must be read first."""
    plan = client.plan(request.bucket, request.consume, client.now(), None, request.until_s, partly=True)
    if isinstance(plan, Rejected) or (plan is not None and type(plan.step) is Take):
        return plan
    # A client that always reads first still rejects by a fresh view, before it takes from any bucket.
    return client.known_rejection(request) or plan


def _take_above(
    client: DirectClient, request: AcquireRequest | Plan, own: Admitted, parts: Sequence[Plan | AcquireRequest]
) -> Cascaded:
    """Take from the ancestors of a bucket that was taken from; credit all buckets if one refuses.

    Raises:
        RateLimitExceeded: One of them lacks the tokens.
    """
    held: list[HeldBucket] = []
    rejection = None
    try:
        rejection = _take_each(client, parts, held, request.own)
        if rejection is None:
            # The same as Cascaded(...), without the cost of calling its constructor.
            return _new_tuple(Cascaded, (own, held))
    except BaseException:
        _give_all_back(client, request, own, held)
        raise
    _give_all_back(client, request, own, held)
    whole = AcquireRequest(request.bucket, request.consume, request.own, client.until_s())
    raise exceeded(client, whole, [rejection])


def _give_all_back(
    client: DirectClient, request: AcquireRequest | Plan, own: Admitted, above: Sequence[HeldBucket]
) -> None:
    held = [HeldBucket(request.bucket, own, request.consume), *above]
    give_back(client, held, request.consume, client.until_s())


def _take_each(
    client: DirectClient, parts: Sequence[Plan | AcquireRequest], held: list[HeldBucket], own: OwnLimits
) -> Rejected | None:
    """Take from buckets in turn, and add each to ``held``; return the first rejection, None if all admitted."""
    for part in parts:
        try:
            taken = _take_one(client, part, own)
        except NoLimitsInForceError:
            # An ancestor without limits admits everything.
            continue
        if isinstance(taken, Rejected):
            return taken
        held.append(HeldBucket(part.bucket, taken, taken.terms.positions))
    return None


def _take_one(client: DirectClient, part: Plan | AcquireRequest, own: OwnLimits) -> Admitted | Rejected:
    if isinstance(part, Plan):
        try:
            return client.carry_out(part)
        except NoLimitsInForceError:
            if own is None:
                raise
            # The stored limits were deleted since the plan, so those of the caller apply.
            part = client.request_of(part)._replace(own=own).to_ancestor(part.bucket)
    plan = client.prepare(part)
    return plan if isinstance(plan, Rejected) else client.carry_out(plan)


def exceeded(client: BucketClient, request: AcquireRequest, rejections: Sequence[Rejected]) -> RateLimitExceeded:
    """Return the error of a request, with the status of every limit of every bucket that it takes from.

    The statuses of a bucket that did not reject are cached, or read once.
    """
    known = {rejection.bucket: rejection.statuses() for rejection in rejections}
    first = rejections[0]
    is_own = first.bucket == request.bucket
    above = request.ancestors(first.terms) if is_own else [request.to_ancestor(first.bucket)]
    for one in (request, *above):
        if one.bucket not in known:
            known[one.bucket] = client.levels.statuses_of(one)
    return RateLimitExceeded([status for one in (request, *above) for status in known[one.bucket]])


def never_admitted(
    client: BucketClient, request: AcquireRequest, error: AmountExceedsCapacityError
) -> AmountExceedsCapacityError:
    """Return the same error with the status of every limit of every bucket that the request takes from.

    The statuses are cached, or read once.
    """
    statuses = client.levels.statuses_of_too_much(request)
    try:
        terms = client.resolver.terms(request.bucket, request.own, request.until_s)
    except (NoLimitsInForceError, RateLimiterUnavailable):
        return AmountExceedsCapacityError(statuses, error.field, error.value, error.reason)
    for above in request.ancestors(terms):
        statuses += client.levels.statuses_of_too_much(above)
    return AmountExceedsCapacityError(statuses, error.field, error.value, error.reason)


def give_back(client: BucketClient, held: Sequence[HeldBucket], amounts: dict[str, int], until_s: float) -> None:
    """Credit every bucket, once, with the tokens that were taken from it, even if the caller is cancelled.

    If the store is unavailable or closed, this is logged: the caller gets the reason why the request failed.
    """
    changes = {name: -amount for name, amount in amounts.items()}
    try:
        client.see_through(lambda: client.settle_all(owed(client, held, changes, until_s)))
    except ZAELimiterError as error:
        buckets = [one.bucket for one in held]
        _log.warning("Not given back: %s of %s: %s", amounts, buckets, error)


def owed(
    client: BucketClient, held: Sequence[HeldBucket], changes: dict[str, int], until_s: float | None = None
) -> list[Owed]:
    """Return what a lease settles with every bucket after changes in tokens, up or down."""
    by_s = until_s or client.until_s()
    return [
        Owed(one.bucket, settlement, one.admitted.terms, by_s)
        for one in held
        if (settlement := one.settlement(changes)) is not None
    ]
