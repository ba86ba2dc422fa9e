"""Takes from buckets, in one round trip as a rule, and settles what was taken.

What to do next is decided in ``core.acquire``. What takes more than one step is an errand's business, and what takes
more than one shard that of the shard client.
"""

from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import replace

import zae_limiter.runtime.aio as runtime
from zae_limiter._async.caches import BucketId, Flight, Remembered
from zae_limiter._async.limiter.availability import chosen
from zae_limiter._async.limiter.group_commit import GroupCommit, TakeResult
from zae_limiter._async.limiter.pair import ChildTaken, FirstTouch, Paired, PlannedTake, plan_above
from zae_limiter._async.limiter.request import AcquireRequest, Rejected, about
from zae_limiter._async.limiter.resolve import NoLimitsInForceError, OwnLimits, Resolver
from zae_limiter._async.limiter.settle import Settler
from zae_limiter._async.limiter.shard_attempt import AttemptContext, ShardAttempt
from zae_limiter._async.limiter.shard_attempt import AttemptResult as ShardVerdict
from zae_limiter._async.limiter.shards import ShardClient
from zae_limiter._async.limiter.top_ups import TopUps
from zae_limiter._async.store.buckets import BucketStore, check_bucket
from zae_limiter._async.store.configs import ConfigStore
from zae_limiter._async.store.scope import Scope
from zae_limiter.core.acquire import (
    LevelOfLimit,
    Progress,
    Reject,
    Take,
    amounts_of,
    covers,
    is_fresh,
    is_known_short,
    limit_levels,
    next_step,
    statuses,
)
from zae_limiter.core.bucket import TimeBounds
from zae_limiter.core.bucket_changes import Settlement
from zae_limiter.core.errors import RateLimiterUnavailable
from zae_limiter.core.multi_shard import combined
from zae_limiter.core.outcome import Applied, Throttled, WriteOutcome
from zae_limiter.core.status import LimitStatus, OnUnavailable
from zae_limiter.core.view import EffectiveLimits, Grant
from zae_limiter.process import renew_in_copies
from zae_limiter.schema import bucket_writes
from zae_limiter.schema.bucket_item import view_after_take
from zae_limiter.schema.operations import Update

_UNKNOWN = Remembered()
"""What is remembered of a bucket that was never used. Nothing is ever kept in it."""

_TO_GIVE_BACK = 1 / 8
"""The part of a deadline that is kept for giving back to one bucket where another then gives nothing."""


class BucketClient:
    """Takes from buckets and settles with them."""

    def __init__(self, scope: Scope, *, speculative: bool, together: bool) -> None:
        self._scope = scope
        self.buckets = BucketStore(scope)
        self.resolver = Resolver(scope)
        self.now = scope.table.now
        self.nonces: Iterator[int] = scope.client.nonces.current
        self._monotonic_s = scope.client.clock.monotonic_s
        self._deadline_s = scope.settings.deadline_s
        self._configs = ConfigStore(scope)
        self.inline = scope.table.inline
        self.parallel = scope.client.parallel
        self._write = scope.table.write
        self._remembered = scope.caches.buckets
        self._caches = scope.caches
        self._first = Progress(trust_ms=scope.settings.reject_locally_ms, look_first=not speculative)
        self._server_time = scope.table.server_time
        self._top_ups = TopUps(scope.table, self._monotonic_s)
        self._means = AttemptContext(scope.table, self.buckets, self.resolver, scope.client.nonces, self._top_ups)
        self.shards = ShardClient(scope, self._means, self._first)
        self.settler = Settler(scope, self._means, self.shards)
        self._splits = self.buckets.splits
        self.lease_mutex = runtime.Mutex()
        self._first_touch = FirstTouch(self._means, self._configs, self._first)
        self._wary = replace(self._first, trust_ms=0)
        clocks = self.now, self.until_s, self._monotonic_s
        self.group = GroupCommit(
            self._attempt_with_parent, self.settler.settle, self._caches, clocks, together=together
        )
        renew_in_copies(self)

    def renew(self, *, restored: bool) -> None:
        """Become the client of a copy of the process: threads that held a lock or led a group are not in it."""
        nonces = self._scope.client.nonces
        nonces.renew(restored=restored)
        self.nonces = nonces.current
        self.lease_mutex = runtime.Mutex()
        self.group.renew()
        self.shards.renew()
        self._top_ups.pending.clear()

    async def take(self, request: AcquireRequest) -> TakeResult | ChildTaken:
        """Take from a bucket and return what admitted it, with the parent's if that was taken from too.

        The rejection may be that of the parent, if its view shows that it would reject.

        Raises:
            ValidationError: The request can never be admitted.
            RateLimiterUnavailable: The table did not answer.
        """
        verdict = await (self.attempt(*request[:5]) if self.inline else self.group.take(request))
        if isinstance(verdict, Rejected) and self._server_time is not None and verdict.depends_on_the_clock():
            self._server_time.narrow()
        return verdict

    async def attempt(
        self, bucket: BucketId, consume: dict[str, int], own: OwnLimits, until_s: float | None, partly: bool = False
    ) -> Grant | ChildTaken | Rejected:
        """Take from a bucket in place, in one write as a rule, and return what admitted it, or the rejection.

        ``until_s`` None: the client's deadline from now on. ``partly``: take only from limits that the bucket has.
        Where the entity cascades, the parent is evaluated before anything is written. It raises as ``take`` does.
        """
        now = self.now()
        try:
            memory = self._remembered.get(bucket, _UNKNOWN)
        except TypeError:
            # A name that cannot be hashed is refused later, with all other names that are invalid.
            memory = _UNKNOWN
        known = memory.limits
        terms = None if known is None or own is not None or memory.shards is not None else known.terms
        # Not fresh, or read in the future of a clock that was set back since.
        stale = known is None or not known.read_ms <= now[0] < known.expires_ms
        if stale or terms is None or (partly and not consume.keys() <= terms.positions.keys()):
            return await self._take_cold(AcquireRequest(bucket, consume, own, until_s or self.until_s(), partly))
        self._caches.hits += 1
        amounts = amounts_of(consume, terms)
        planned = None
        if terms.cascade and not partly:
            found = plan_above(self._remembered, (terms.parent_id or "", bucket[1]), consume, now, self._first)
            found = found or self.rejected_above(terms, bucket[1], consume, now)
            if isinstance(found, Rejected):
                return found
            planned = found
        view = memory.view
        step = next_step(view, terms, amounts, now, self._first)
        if type(step) is not Take or view is None:
            if type(step) is Reject:
                return Rejected(bucket, terms, limit_levels(view, terms, step.at), amounts, step.at, now)
            request = AcquireRequest(bucket, consume, own, until_s or self.until_s(), partly)
            return await self._run(ShardAttempt(self._means, request, terms, self._first), request)
        update = bucket_writes.take(view, step, next(self.nonces))
        outcome = await self._write(update)
        if type(outcome) is Applied:
            after = view_after_take(view, outcome.new, amounts, now[1])
            if memory.view is view:
                memory.view = after
            else:
                self.buckets.learn_taken(bucket, after)
            layout = view.layout
            grant = layout if layout.terms is terms else layout.granted(terms)
            return grant if planned is None else ChildTaken(grant, planned)
        request = AcquireRequest(bucket, consume, own, until_s or self.until_s(), partly)
        return await self._go_on(request, terms, update, outcome, now)

    async def carry_out(self, planned: PlannedTake) -> Grant | Rejected:
        """Take from a bucket as it was planned, and return what admitted it, or the rejection.

        Raises:
            RateLimiterUnavailable: The table did not answer.
        """
        bucket, memory, view, terms, amounts, step, consume, now = planned
        update = bucket_writes.take(view, step, next(self.nonces))
        outcome = await self._write(update)
        if type(outcome) is Applied:
            after = view_after_take(view, outcome.new, amounts, now[1])
            if memory.view is view:
                memory.view = after
            else:
                self.buckets.learn_taken(bucket, after)
            layout = view.layout
            return layout if layout.terms is terms else layout.granted(terms)
        return await self._go_on(
            AcquireRequest(bucket, consume, None, self.until_s(), partly=True), terms, update, outcome, now
        )

    async def _go_on(
        self, request: AcquireRequest, terms: EffectiveLimits, update: Update, outcome: WriteOutcome, now: TimeBounds
    ) -> Grant | Rejected:
        """Go on with a request whose first write was not simply applied."""
        result = await self.buckets.result_of(update, outcome, update, request.until_s)
        shard_attempt = ShardAttempt(self._means, request, terms, self._first)
        return await self._run(shard_attempt, request, shard_attempt.hear(result, now))

    def rejected_above(
        self, terms: EffectiveLimits, resource: str, consume: dict[str, int], now: TimeBounds | None = None
    ) -> Rejected | None:
        """Return the rejection that a fresh view of the parent's bucket shows to come; None if it may admit.

        Before the child is written: a child that is taken from in vain costs two writes.

        Raises:
            ValidationError: The parent can never admit the request.
        """
        bucket = (terms.parent_id or "", resource)
        view = self.buckets.remembered(bucket)
        if view is None or covers(view, consume, (now or self.now())[0]):
            return None
        return self.rejected_by_view(AcquireRequest(bucket, consume, None, 0.0, partly=True))

    def rejected_by_view(self, request: AcquireRequest) -> Rejected | None:
        """Return the rejection that a fresh view of the bucket shows to come, without a call; None if it may admit.

        Raises:
            ValidationError: The bucket can never admit the request.
        """
        bucket = request.bucket
        memory = self._remembered.get(bucket)
        if memory is None or memory.view is None:
            return None
        terms = self.resolver.known_terms(bucket, request.own)
        if terms is None:
            return None
        amounts, now = request.amounts(terms), self.now()
        if memory.sharded:
            return self.shards.rejected_by_memory(memory, bucket, terms, amounts)
        if not is_known_short(memory.view, terms, amounts, now, self._first.trust_ms):
            return None
        return Rejected(bucket, terms, limit_levels(memory.view, terms, now), amounts, now, now)

    async def statuses_of(self, request: AcquireRequest) -> list[LimitStatus]:
        """Return how a bucket compares with a request that another bucket rejects; a view that is not fresh is read.

        Nothing if no limits are in force, or if the table does not answer and the bucket was never seen.

        Raises:
            ValidationError: The bucket can never admit the request.
        """
        bucket, until_s = request.bucket, request.until_s
        memory = self._caches.of(bucket)
        try:
            terms = await self.resolver.terms(bucket, request.own, until_s)
        except (NoLimitsInForceError, RateLimiterUnavailable):
            return []
        amounts = request.amounts(terms)
        try:
            stands = self._stands_in_memory(memory, terms) or await self._stands_now(bucket, terms, until_s)
        except RateLimiterUnavailable:
            if memory.view is None:
                return []
            stands = combined(list(memory.views().values()), terms, self.now())
        return statuses(bucket, stands, amounts, self.now(), self.now())

    def _stands_in_memory(self, memory: Remembered, terms: EffectiveLimits) -> Sequence[LevelOfLimit] | None:
        """Return how the limits of a bucket stand by fresh views; None if it must be read."""
        now = self.now()
        if memory.sharded:
            views = self.shards.fresh_views(memory, terms)
            return None if views is None else combined(views, terms, now)
        view = memory.view
        if view is None or not is_fresh(view, terms, now[1], self._first.trust_ms):
            return None
        return limit_levels(view, terms, now)

    async def _take_in_flight(
        self, request: AcquireRequest, memory: Remembered, terms: EffectiveLimits, now: TimeBounds
    ) -> Grant | Rejected:
        """Take where several takes may be under way: each reckons with those before it, but none rejects by them."""
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
            # A take that was due one deadline before this one began.
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

    async def _run(
        self, shard_attempt: ShardAttempt, request: AcquireRequest, verdict: ShardVerdict | None = None
    ) -> Grant | Rejected:
        """Run an errand on shard 0 to its end, and turn to the other shards where that is not all there is."""
        while True:
            verdict = await shard_attempt.run() if verdict is None else verdict
            sharded = shard_attempt.view is not None and shard_attempt.view.layout.shard_count > 1
            if isinstance(verdict, Grant):
                if self._splits:
                    await self.shards.watch((request.bucket, 0), shard_attempt.view, request.until_s)
                return verdict
            if isinstance(verdict, Rejected) and not sharded:
                return verdict
            if isinstance(verdict, Throttled):
                await self.shards.relieve_and_wait((request.bucket, 0), shard_attempt.terms, request.until_s, verdict)
                sharded = self._caches.of(request.bucket).sharded
            if sharded:
                return await self.shards.take(request, shard_attempt.terms)
            shard_attempt, verdict = ShardAttempt(self._means, request, shard_attempt.terms, self._first), None

    async def _take_cold(self, request: AcquireRequest) -> Grant | Rejected:
        """Take from a bucket whose terms are not at hand; where it was not seen either, both are read at once."""
        bucket, own, until_s = request.bucket, request.own, request.until_s
        check_bucket(bucket)
        first = self._first
        if self.buckets.remembered(bucket) is not None or self.resolver.is_known(bucket):
            terms = await self.resolver.terms(bucket, own, until_s)
        else:
            terms, first = (await self._first_touch.meet(request)).terms, first.after_look()
        if self.inline and terms.cascade and not request.partly:
            above = self.rejected_above(terms, bucket[1], request.consume)
            if above is not None:
                return above
        if self._caches.of(bucket).sharded:
            return await self.shards.take(request, terms)
        return await self._run(ShardAttempt(self._means, request, terms, first), request)

    async def _attempt_with_parent(self, request: AcquireRequest) -> TakeResult:
        """Take from a bucket, and from its parent too where neither was ever seen."""
        memory = self._remembered.get(request.bucket)
        if self.shards.holds and (memory is None or not memory.sharded):
            await self.shards.holds.wait((request.bucket, 0), request.until_s)
        if memory is not None and memory.shards is None and request.own is None:
            known, now = memory.limits, self.now()
            if known is not None and known.terms is not None and known.is_fresh(now[0]):
                self._caches.hits += 1
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

    def choice(self, asked: object) -> OnUnavailable:
        """Return what to do while the store is away."""
        return chosen(asked, self._scope)

    async def see_through(self, settling: Callable[[], Awaitable[None]]) -> None:
        """Settle once, to the end, even if the caller is cancelled."""
        await runtime.finish_in_place(settling)

    def until_s(self) -> float:
        """Return when the store must have answered what is begun now, by the clock that never goes back."""
        return self._monotonic_s() + self._deadline_s

    def with_time_to_give_back(self, request: AcquireRequest) -> AcquireRequest:
        """Return the same request, to be answered early enough to be undone by the time it is to be answered."""
        return request._replace(until_s=request.until_s - self._deadline_s * _TO_GIVE_BACK)

    async def settle(self, bucket: BucketId, settlement: Settlement, terms: EffectiveLimits, until_s: float) -> None:
        """Charge debits and give credits back, together with what others settle with the bucket.

        Raises:
            RateLimiterUnavailable: The table did not answer; a credit may have been given all the same.
        """
        settling = self.settler.settle if self.inline else self.group.settle
        await settling(bucket, settlement, terms, until_s)

    async def limit_levels(self, bucket: BucketId, own: OwnLimits) -> tuple[Sequence[LevelOfLimit], EffectiveLimits]:
        """Look at a bucket and return how its limits stand, and the terms."""
        until_s = self.until_s()
        try:
            terms = await self.resolver.terms(bucket, own, until_s)
            return await self._stands_now(bucket, terms, until_s), terms
        except RateLimiterUnavailable as away:
            raise about(away, bucket) from away.cause

    async def limit_levels_above(
        self, terms: EffectiveLimits, resource: str
    ) -> tuple[Sequence[LevelOfLimit], EffectiveLimits] | None:
        """Look at the parent's bucket as ``limit_levels`` does; None if an acquire would not take from it."""
        if not terms.cascade or terms.parent_id is None:
            return None
        try:
            return await self.limit_levels((terms.parent_id, resource), None)
        except NoLimitsInForceError:
            return None

    async def _stands_now(self, bucket: BucketId, terms: EffectiveLimits, until_s: float) -> Sequence[LevelOfLimit]:
        """Read a bucket and return how its limits stand."""
        view = await self.buckets.look((bucket, 0), terms, until_s)
        if view is not None and view.layout.shard_count > 1:
            shards = await self.shards.read_all(bucket, terms, until_s) or {0: view}
            return combined(list(shards.values()), terms, self.now())
        return limit_levels(view, terms, self.now())
