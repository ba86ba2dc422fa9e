"""Child and parent together or not at all: taking from both, and giving back where only one of them admits."""

import logging
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from typing import TypeVar

from zae_limiter._async.caches import BucketId
from zae_limiter._async.limiter.acquire import BucketClient
from zae_limiter._async.limiter.asking import Asking, Rejection
from zae_limiter._async.limiter.pair import ChildTaken, Paired
from zae_limiter._async.limiter.resolve import NoLimitsInForceError
from zae_limiter.core.cascade import Denied, Failed, Taken, verdict
from zae_limiter.core.composite import Settlement
from zae_limiter.core.errors import RateLimitExceeded, ZAELimiterError
from zae_limiter.core.view import Grant, Terms

_log = logging.getLogger("zae_limiter")

_PAIR = 2

T = TypeVar("T")


@dataclass(slots=True)
class Holding:
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


async def take(client: BucketClient, asking: Asking) -> list[Holding]:
    """Take from the entity's bucket and, where it cascades, from its parent's; both or none.

    They are written at once where that saves time and the parent is known; else in turn.

    Raises:
        RateLimitExceeded: One of them lacks the tokens; what the other gave was given back.
    """
    known = None if client.inline else client.resolver.cascading_terms(asking.bucket)
    if known is not None:
        return await _take_at_once(client, asking, known)
    taken = await client.take(Asking(*asking[:5], with_parent=True))
    if isinstance(taken, Rejection):
        raise await exceeded(client, asking, [taken])
    if isinstance(taken, Paired):
        above = Holding(taken.parent, taken.parent_grant, taken.parent_grant.terms.positions)
        return [Holding(asking.bucket, taken.grant, asking.consume), above]
    planned = None
    if isinstance(taken, ChildTaken):
        taken, planned = taken
    child = Holding(asking.bucket, taken, asking.consume)
    if not taken.terms.cascade:
        return [child]
    try:
        if planned is None:
            parent = await take_parent(client, taken.terms, client.with_time_to_give_back(asking))
        else:
            parent = _holding(planned.bucket, await client.carry_out(planned))
    except BaseException:
        await give_back(client, [child], asking.consume, asking.until_s)
        raise
    if isinstance(parent, Rejection):
        await give_back(client, [child], asking.consume, asking.until_s)
        raise await exceeded(client, asking, [parent])
    return [child] if parent is None else [child, parent]


async def _take_at_once(client: BucketClient, asking: Asking, known: Terms) -> list[Holding]:
    bucket, consume = asking.bucket, asking.consume
    rejected = client.rejected_above(known, bucket[1], consume) or client.rejected_by_view(asking)
    if rejected is not None:
        raise await exceeded(client, asking, [rejected])
    taking = client.with_time_to_give_back(asking)
    holdings: list[Holding] = []
    rejections: list[Rejection] = []

    async def take_child() -> None:
        taken = _alone(await client.take(taking))
        if isinstance(taken, Rejection):
            rejections.append(taken)
            raise RateLimitExceeded(())
        holdings.append(Holding(bucket, taken, consume))

    async def take_above() -> None:
        parent = await take_parent(client, known, taking)
        if isinstance(parent, Rejection):
            rejections.append(parent)
            raise RateLimitExceeded(())
        if parent is not None:
            holdings.append(parent)

    try:
        child, parent = await client.parallel.both(lambda: _outcome(take_child), lambda: _outcome(take_above))
    except BaseException:
        await give_back(client, holdings, consume, asking.until_s)
        raise
    holdings.sort(key=lambda holding: holding.bucket != bucket)
    judged = verdict(child, parent)
    if isinstance(judged, Denied):
        await give_back(client, holdings, consume, asking.until_s)
        is_exceeded = isinstance(judged.error, RateLimitExceeded)
        raise await exceeded(client, asking, rejections) if is_exceeded else judged.error
    return holdings


async def exceeded(client: BucketClient, asking: Asking, rejections: Sequence[Rejection]) -> RateLimitExceeded:
    """Return the error of a request, with the status of every limit of every bucket that it takes from.

    What a bucket that did not reject has is known, or read once.
    """
    known = {rejection.bucket: rejection.statuses() for rejection in rejections}
    first = rejections[0]
    if first.bucket == asking.bucket and not first.terms.cascade:
        return RateLimitExceeded(known[first.bucket])
    if asking.bucket not in known:
        known = {asking.bucket: await client.statuses_of(asking), **known}
    parent_id = first.terms.parent_id if first.bucket == asking.bucket else first.bucket[0]
    above = (parent_id or "", asking.bucket[1])
    if above not in known:
        known[above] = await client.statuses_of(asking._replace(bucket=above, own=None, partly=True))
    return RateLimitExceeded([status for bucket in (asking.bucket, above) for status in known[bucket]])


def _alone(taken: Grant | Paired | ChildTaken | Rejection) -> Grant | Rejection:
    """Return what admitted a take without the parent, as it was requested."""
    assert not isinstance(taken, Paired | ChildTaken), "the parent is taken from only where that was requested"
    return taken


async def take_parent(client: BucketClient, terms: Terms, asking: Asking) -> Holding | Rejection | None:
    """Take from the parent what it limits of the request; None if it limits nothing at all."""
    assert terms.parent_id is not None, "what cascades has a parent"
    above = (terms.parent_id, asking.bucket[1])
    try:
        taken = _alone(await client.take(Asking(above, asking.consume, None, asking.until_s, partly=True)))
    except NoLimitsInForceError:
        return None
    return _holding(above, taken)


async def take_parent_in_place(
    client: BucketClient, terms: Terms, resource: str, consume: dict[str, int]
) -> Holding | Rejection | None:
    """Take from the parent, where a write is done in place, what it limits of the request; None for nothing at all."""
    assert terms.parent_id is not None, "what cascades has a parent"
    above = (terms.parent_id, resource)
    try:
        return _holding(above, _alone(await client.attempt(above, consume, None, None, partly=True)))
    except NoLimitsInForceError:
        return None


def _holding(bucket: BucketId, taken: Grant | Rejection) -> Holding | Rejection:
    return taken if isinstance(taken, Rejection) else Holding(bucket, taken, taken.terms.positions)


async def give_back(client: BucketClient, holdings: list[Holding], amounts: dict[str, int], until_s: float) -> None:
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
    client: BucketClient, holdings: list[Holding], changes: dict[str, int], until_s: float | None = None
) -> None:
    """Charge or credit every bucket with changes, in tokens; each is tried though another fails.

    Raises:
        RateLimiterUnavailable: The table did not answer for one of them.
    """
    by_s = until_s or client.until_s()
    owed = [(one, settlement) for one in holdings if (settlement := one.settlement(changes)) is not None]
    if len(owed) == 1:
        ((one, settlement),) = owed
        return await client.settle(one.bucket, settlement, one.grant.terms, by_s)
    calls = [_settling(client, one, settlement, by_s) for one, settlement in owed]
    if len(calls) == _PAIR and not client.inline:
        outcomes = [*await client.parallel.both_to_end(*calls)]
    else:
        outcomes = []
        for call in calls:
            outcomes.append(await call())
    for outcome in outcomes:
        if isinstance(outcome, Failed):
            raise outcome.error
    return None


def _settling(
    client: BucketClient, holding: Holding, settlement: Settlement, until_s: float
) -> Callable[[], Awaitable[Taken[None] | Failed]]:
    """Return a call that settles with one bucket and tells what came of it."""

    async def settle_one() -> None:
        await client.settle(holding.bucket, settlement, holding.grant.terms, until_s)

    return lambda: _outcome(settle_one)


async def _outcome(call: Callable[[], Awaitable[T]]) -> Taken[T] | Failed:
    """Make a call and return what came of it, so that the other side's outcome is never lost."""
    try:
        return Taken(await call())
    except ZAELimiterError as error:
        return Failed(error)
