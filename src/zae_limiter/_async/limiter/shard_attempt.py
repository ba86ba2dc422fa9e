"""Carries out one request on one shard, where that takes more than one step.

``core.acquire`` decides the next step. This module carries it out and returns what was learned.
"""

from collections.abc import Iterator
from typing import assert_never

from zae_limiter._async.limiter.resolve import Resolver
from zae_limiter._async.limiter.top_ups import TopUps
from zae_limiter._async.store.buckets import BucketStore, ShardId, WriteResult
from zae_limiter._async.table import Table
from zae_limiter.caches.request import AcquireRequest, Rejected, contended
from zae_limiter.core.acquire import (
    Create,
    Look,
    NextStep,
    Progress,
    Rebase,
    Reject,
    Resolve,
    Take,
    next_step,
    taken_by_step,
)
from zae_limiter.core.bucket import TimeBounds
from zae_limiter.core.lazy_dataclass import dataclass, replace
from zae_limiter.core.outcome import Applied, Missing, Refused, Throttled
from zae_limiter.core.rebase import Rebasing, missing_birth
from zae_limiter.core.reserved_take import next_step_above
from zae_limiter.core.top_up import TopUp
from zae_limiter.core.tracked import Taken, taken_at_creation
from zae_limiter.core.view import Admitted, EffectiveLimits
from zae_limiter.schema import bucket_writes
from zae_limiter.schema.bucket_item import BucketView
from zae_limiter.schema.operations import Put, Update

MOST_STEPS = 64

AttemptResult = Admitted | Rejected | Missing | Throttled
"""What admitted a request, or that the shard lacks the tokens, does not exist, or takes no writes for now."""


@dataclass(frozen=True, slots=True)
class AttemptContext:
    """What the attempts of one client share; ``first`` is the progress of a request that was not tried yet."""

    table: Table
    buckets: BucketStore
    resolver: Resolver
    nonces: Iterator[int]
    top_ups: TopUps
    first: Progress


class ShardAttempt:
    """One request to one shard."""

    def __init__(
        self,
        context: AttemptContext,
        request: AcquireRequest,
        terms: EffectiveLimits,
        progress: Progress,
        shard: int = 0,
    ) -> None:
        self._context = context
        self._buckets = context.buckets
        self._request = request
        self._shard_id: ShardId = (request.bucket, shard)
        self._until_s = request.until_s
        self.terms = terms
        self._amounts = request.amounts(terms)
        self._progress = progress
        self.view: BucketView | None = context.buckets.remembered(*self._shard_id)
        # What the write in flight takes, None if the bucket has only enforced rate limits.
        self.sent: Taken | None = None

    async def run(self) -> AttemptResult:
        """Carry out one step after the other, until the request is admitted, or cannot be admitted by this shard.

        Raises:
            RateLimiterUnavailable: The table did not answer, or other clients kept changing the shard.
        """
        for _ in range(MOST_STEPS):
            if not self._amounts:
                return Admitted(self.terms, None)
            now = self._context.table.now()
            step = next_step_above(self.view, self.terms, self._amounts, now, self._progress, self._request.reserve)
            result = await self._carry_out(step, now)
            if result is not None:
                return result
        raise contended(self._request.bucket)

    async def top_up(self, topping: TopUp, now: TimeBounds) -> AttemptResult | None:
        """Take, and top up what the creation of the bucket withheld, in one write; return None if more steps follow."""
        self.sent = taken_by_step(self._known_view(), topping.taking)
        write = bucket_writes.top_up(self._known_view(), topping, next(self._context.nonces))
        return await self._send(write, now)

    async def rebase(self) -> BucketView | None:
        """Move the shard to the limits in force without a take, and return it; None if it is absent or throttled."""
        for _ in range(MOST_STEPS):
            if self.view is None or self.view.layout.follows(self.terms):
                return self.view
            now = self._context.table.now()
            step = next_step(self.view, self.terms, (), now, self._progress)
            if isinstance(await self._carry_out(step, now), Missing | Throttled):
                return None
        raise contended(self._request.bucket)

    async def _carry_out(self, step: NextStep, now: TimeBounds) -> AttemptResult | None:
        """Carry out a step; return None if more steps follow."""
        nonces = self._context.nonces
        match step:
            case Reject(at=at):
                bucket, reserve = self._request.bucket, self._request.reserve
                return Rejected(bucket, self.terms, self.view, self._amounts, at, now, None, reserve)
            case Look():
                return await self._look()
            case Resolve():
                await self._resolve()
                return None
            case Create():
                return Missing() if self._shard_id[1] else await self._create(now)
            case Take():
                view = self._known_view()
                self.sent = taken_by_step(view, step)
                return await self._send(bucket_writes.take(view, step, next(nonces)), now)
            case Rebase(rebasing=rebasing, takes=takes):
                self.sent = rebasing.taken(self._shard_id[1]) if takes else None
                rebased = await self._send(self._rebase_update(rebasing), now)
                return rebased if takes or isinstance(rebased, Missing | Throttled) else None
            case never:
                assert_never(never)

    async def _look(self) -> AttemptResult | None:
        seen, self.view = self.view, await self._buckets.look(self._shard_id, self.terms, self._until_s)
        gone = seen is not None and self.view is None
        self._progress = self._progress.after_vanishing() if gone else self._progress.after_look()
        return None

    async def _resolve(self) -> None:
        request = self._request
        self.terms = await self._context.resolver.terms_again(request.bucket, request.own, self._until_s)
        self._amounts = request.amounts(self.terms)
        self._progress = self._progress.after_resolve(None if self.view is None else self.view.layout.stamp)

    async def _create(self, asked: TimeBounds) -> AttemptResult | None:
        self.sent = taken_at_creation(self.terms.limits, self._amounts, asked[1])
        result = self.learn_from(await self._buckets.create(self._creation(asked), self._until_s), asked)
        if isinstance(result, Admitted):
            self._context.top_ups.created(self._request.bucket, self._known_view(), asked)
        return result

    async def _send(self, operation: Put | Update, asked: TimeBounds) -> AttemptResult | None:
        return self.learn_from(await self._buckets.send(operation, self._until_s), asked)

    def learn_from(self, result: WriteResult, asked: TimeBounds) -> AttemptResult | None:
        """Cache the result of a write that was decided at ``asked``; return None if more steps follow."""
        match result:
            case Applied(new=new):
                self.view = self._buckets.learn(self._shard_id, new, self.terms, self._amounts)
                self._progress = self._progress.after_look()
                if self._context.top_ups.pending:
                    self._context.top_ups.note(self._request.bucket, self._known_view(), self._amounts)
                layout = self._known_view().layout
                if self.sent is not None:
                    return self.sent.admitted(self.terms, layout.birth)
                return layout.admitted_by(self.terms)
            case Refused(old=old):
                guessed = self.view is not None and self.view.layout.describes(old)
                self.view = self._buckets.learn(self._shard_id, old, self.terms)
                self._progress = self._progress.after_refusal(asked, guessed=guessed)
            case Missing():
                self.view = self._buckets.learn(self._shard_id, None, self.terms)
                self._progress = self._progress.after_vanishing()
                return result if self._shard_id[1] else None
            case Throttled():
                return result
            case never:
                assert_never(never)
        return None

    def _rebase_update(self, rebasing: Rebasing) -> Update:
        view, first = self._known_view(), self._buckets.remembered(self._request.bucket)
        if view.layout.birth is None:
            birth = missing_birth(view.layout, None if first is None else first.layout, self._buckets.draw_birth())
            rebasing = replace(rebasing, birth=birth)
        return bucket_writes.rebase(view, rebasing, next(self._context.nonces))

    def _creation(self, now: TimeBounds) -> Put:
        terms = self.terms
        spent = {terms.limits[position].name: taken for position, taken in self._amounts}
        owner = self._buckets.owner(self._request.bucket)
        return bucket_writes.create(owner, terms, spent, now[1], self._buckets.signature())

    def _known_view(self) -> BucketView:
        assert self.view is not None, "a shard is written to only once it was seen"
        return self.view
