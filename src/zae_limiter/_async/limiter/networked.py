"""The client of a table that is reached over a network, for one caller at a time.

Several takes from one bucket may be in flight. ``group_commit`` sends takes that wait as one.
"""

from dataclasses import replace

from zae_limiter._async.caches import BucketId, Flight, Remembered
from zae_limiter._async.limiter.bucket_client import BucketClient
from zae_limiter._async.limiter.pair import Paired
from zae_limiter._async.limiter.request import AcquireRequest, Rejected
from zae_limiter._async.limiter.shard_attempt import ShardAttempt
from zae_limiter._async.store.buckets import check_bucket
from zae_limiter._async.store.scope import Scope
from zae_limiter.core.acquire import Reject, Take, limit_levels, next_step
from zae_limiter.core.bucket import TimeBounds
from zae_limiter.core.outcome import Applied
from zae_limiter.core.view import EffectiveLimits, Grant
from zae_limiter.schema import bucket_writes
from zae_limiter.schema.bucket_item import view_after_take

TakeResult = Grant | Paired | Rejected


class NetworkedClient(BucketClient):
    """Takes from buckets of a networked table, in one round trip as a rule."""

    def __init__(self, scope: Scope, *, speculative: bool) -> None:
        super().__init__(scope, speculative=speculative)
        # A view with takes in flight is a guess, so it never rejects.
        self._wary = replace(self._first, trust_ms=0)

    def cascading_limits(self, bucket: BucketId) -> EffectiveLimits | None:
        """Return the limits of a bucket whose entity cascades, if they are known without reading."""
        return self.resolver.cascading_terms(bucket)

    async def take_alone(self, request: AcquireRequest) -> TakeResult:
        """Take from a bucket without other callers, and from its parent too where neither was ever seen.

        Raises:
            ValidationError: The request can never be admitted.
            RateLimiterUnavailable: The table did not answer.
        """
        memory = self._remembered.get(request.bucket)
        if self.shards.holds and (memory is None or not memory.sharded):
            await self.shards.holds.wait((request.bucket, 0), request.until_s)
        if memory is not None and memory.shards is None and request.own is None:
            known, now = memory.limits, self.now()
            if known is not None and known.terms is not None and known.is_fresh(now[0]):
                self.caches.hits += 1
                return await self._take_in_flight(request, memory, known.terms, now)
        check_bucket(request.bucket)
        new = memory is None or (memory.view is None and memory.limits is None)
        if not request.with_parent or not new:
            return await self._take_cold(request)
        met = await self._first_touch.meet(request)
        if met.terms.cascade:
            both: Paired | Rejected | None
            if self.buckets.remembered((met.terms.parent_id or "", request.bucket[1])) is None:
                both = await self._first_touch.take_both(met)
            else:
                both = self.rejected_above(met.terms, request.bucket[1], request.consume)
            if both is not None:
                return both
        return await self._run(ShardAttempt(self._means, request, met.terms, self._first.after_look()), request)

    async def _take_in_flight(
        self, request: AcquireRequest, memory: Remembered, terms: EffectiveLimits, now: TimeBounds
    ) -> Grant | Rejected:
        """Take while other takes may be in flight: count these as spent, but never reject because of them."""
        amounts = request.amounts(terms)
        if not amounts:
            return Grant(terms, None)
        view, until_s = memory.expected(), request.until_s
        first = self._wary if memory.in_flight else self._first
        step = next_step(view, terms, amounts, now, first)
        if type(step) is not Take or view is None:
            if self._top_ups.pending and view is not None and not memory.in_flight:
                topping = self._top_ups.due(request.bucket, view, terms, amounts, now)
                if topping is not None:
                    shard_attempt = ShardAttempt(self._means, request, terms, first)
                    return await self._run(shard_attempt, request, await shard_attempt.top_up(topping, now))
            if type(step) is Reject:
                stands = limit_levels(view, terms, step.at)
                return Rejected(request.bucket, terms, stands, amounts, step.at, now)
            return await self._run(ShardAttempt(self._means, request, terms, first), request)
        update = bucket_writes.take(view, step, next(self.nonces))
        changes = [
            (position, -taken if balance is None else balance - view.numbers[position])
            for position, taken, _, _, balance in step.bounds
        ]
        flight = Flight(view.layout, changes, until_s)
        try:
            # Takes that were due a whole deadline ago are lost: their callers were interrupted.
            memory.send(flight, until_s - 2 * self._deadline_s)
            outcome = await self._write(update, until_s)
        finally:
            memory.arrive(flight)
        if type(outcome) is not Applied:
            result = await self.buckets.result_of(update, outcome, update, until_s)
            shard_attempt = ShardAttempt(self._means, request, terms, first)
            return await self._run(shard_attempt, request, shard_attempt.hear(result, now))
        before = view if memory.view is None or memory.view.layout is not view.layout else memory.view
        after = view_after_take(before, outcome.new, amounts, now[1])
        self.buckets.learn_taken(request.bucket, after)
        if self._top_ups.pending:
            self._top_ups.note(request.bucket, after, amounts)
        if self._splits:
            await self.shards.watch((request.bucket, 0), after, until_s)
        return view.layout.granted(terms)
