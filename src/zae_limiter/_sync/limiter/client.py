"""The clients of the buckets of one namespace. This is the hot path of an acquire.

A take has two halves. ``plan`` evaluates what is cached and never waits. ``carry_out`` writes the plan, in one call as
a rule. So several buckets can be evaluated before the first of them is written (``cascade``). A plan that needs more
than one step is run by ``ShardAttempt``.

``DirectClient`` in ``direct_client`` is for embedded tables, where a write is made in place. ``NetworkedClient`` is for
tables behind a network, where other takes may be in flight. ``group_commit`` extends it with batches.
"""  # generated from _async by tools/mirror.py; do not edit

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import zae_limiter.runtime.threads as runtime
from zae_limiter._sync.limiter.chains import Chain, ChainReader
from zae_limiter._sync.limiter.levels import BucketLevels
from zae_limiter._sync.limiter.renewals import Renewals
from zae_limiter._sync.limiter.resolve import Resolver
from zae_limiter._sync.limiter.settle import Settler
from zae_limiter._sync.limiter.shard_attempt import AttemptContext, AttemptResult, ShardAttempt
from zae_limiter._sync.limiter.shards import ShardClient
from zae_limiter._sync.limiter.top_ups import TopUps
from zae_limiter._sync.store.buckets import BucketStore
from zae_limiter._sync.store.scope import Scope
from zae_limiter.caches.buckets import BucketId, Flight, Remembered
from zae_limiter.caches.request import (
    AcquireRequest,
    Evaluated,
    Owed,
    OwnLimits,
    Plan,
    Rejected,
    check_reserve,
    partial_amounts,
)
from zae_limiter.core.acquire import (
    LOOK,
    MixedTake,
    NextStep,
    Progress,
    Reject,
    Take,
    amounts_of,
    next_step,
    taken_by_step,
)
from zae_limiter.core.bucket import TimeBounds
from zae_limiter.core.cascade import BucketFailed
from zae_limiter.core.errors import ZAELimiterError
from zae_limiter.core.lazy_dataclass import replace
from zae_limiter.core.outcome import Applied, Item, Throttled, WriteOutcome
from zae_limiter.core.reserved_take import next_step_above
from zae_limiter.core.sharding import LOOK_APART_MS
from zae_limiter.core.slots import SlotTake
from zae_limiter.core.status import OnUnavailable, check_on_unavailable
from zae_limiter.core.tracked import changes_of
from zae_limiter.core.view import Admitted, Amounts
from zae_limiter.process import renew_in_copies
from zae_limiter.schema import bucket_writes
from zae_limiter.schema.bucket_item import BucketView, view_after_write
from zae_limiter.schema.operations import Update

if TYPE_CHECKING:
    from zae_limiter.caches.waiting import WaitingQueues

_GIVE_BACK_PART = 1 / 8
"""The part of a deadline that is reserved for crediting some buckets after another one has refused."""

UNKNOWN = Remembered()
"""The cache entry of a bucket that is not cached. It is never changed."""

_new_tuple = tuple.__new__


class BucketClient:
    """The part that clients of embedded and of networked tables share."""

    def __init__(self, scope: Scope, *, speculative: bool) -> None:
        self._scope = scope
        self._table = scope.table
        self.stack_name = scope.client.stack_name
        self._deadline_s = scope.settings.deadline_s
        self._first = Progress(trust_ms=scope.settings.reject_locally_ms, look_first=not speculative)
        # With takes in flight a view is an estimate: one of them may fail. So such a view never rejects.
        self._no_trust = replace(self._first, trust_ms=0)
        self._top_ups = TopUps(scope.table, scope.client.clock.monotonic_s)
        self.nonces: Iterator[int] = scope.client.nonces.current
        self.now = scope.table.now
        self.monotonic_s = scope.client.clock.monotonic_s
        self.parallel = scope.client.parallel
        self.caches = scope.caches
        self._cached = scope.caches.buckets
        self.buckets = BucketStore(scope)
        self.resolver = Resolver(scope)
        self.context = AttemptContext(
            scope.table, self.buckets, self.resolver, scope.client.nonces, self._top_ups, self._first
        )
        self.chains = ChainReader(scope, self.resolver, self.buckets, self._first)
        self.shards = ShardClient(scope, self.context)
        self.settler = Settler(scope, self.context, self.shards)
        self.levels = BucketLevels(scope, self.context, self.shards, self.chains)
        self.slots = Renewals(scope)
        self.lease_mutex = runtime.Mutex()
        renew_in_copies(self)

    def renew(self, *, restored: bool) -> None:
        """Replace what a copy of the process must not share: nonces, and a lock that the original may hold."""
        nonces = self._scope.client.nonces
        nonces.renew(restored=restored)
        self.nonces = nonces.current
        self.lease_mutex = runtime.Mutex()
        self.shards.renew()
        self.slots.renew()
        self._top_ups.pending.clear()

    def plan(
        self,
        bucket: BucketId,
        consume: dict[str, int],
        now: TimeBounds,
        own: OwnLimits = None,
        until_s: float | None = None,
        partly: bool = False,
        known: Evaluated | None = None,
    ) -> Plan | Rejected | None:
        """Return how a request is carried out, or its rejection by the cached view; None if limits must be read.

        ``known`` are limits that were just read; None for cached ones. For the others see ``AcquireRequest``. It raises
        ``ValidationError`` if the request can never be admitted.
        """
        if known is not None:
            memory = self.caches.of(bucket)
            terms, progress = known
        else:
            try:
                memory = self._cached.get(bucket, UNKNOWN)
            except TypeError:
                # A name that cannot be hashed is refused by ``prepare``, with all other invalid names.
                return None
            limits = memory.limits
            if limits is None or limits.terms is None or own is not None:
                return None
            if not limits.read_ms <= now[0] < limits.expires_ms:
                return None
            self.caches.hits += 1
            terms, progress = limits.terms, self._first
        view = memory.view
        if memory.flights is not None:
            view, progress = memory.expected(), self._no_trust
        lacks_some = partly and not consume.keys() <= terms.positions.keys()
        amounts = partial_amounts(consume, terms) if lacks_some else amounts_of(consume, terms)
        step: NextStep | None = None
        if memory.shards is not None:
            rejected = self.shards.rejected_by_memory(memory, AcquireRequest(bucket, consume, own, 0.0), terms, amounts)
            if rejected is not None and self.rejects_by_view(bucket):
                return rejected
        else:
            # A request that asks nothing of this bucket is admitted by ShardAttempt, without a call.
            step = next_step(view, terms, amounts, now, progress) if amounts else LOOK
            if type(step) is Reject and self.rejects_by_view(bucket):
                return Rejected(bucket, terms, view, amounts, step.at, now)
        # The same as Plan(...), without the cost of calling its constructor.
        parts = (bucket, consume, own, until_s, partly, memory, view, terms, amounts, step, now, progress, None)
        return _new_tuple(Plan, parts)

    def plan_request(self, request: AcquireRequest) -> Plan | Rejected | None:
        """Return how a request is carried out, as ``plan`` does, also if it must leave a reserve."""
        bucket, consume, own, until_s, partly, known, reserve = request
        plan = self.plan(bucket, consume, self._table.now(), own, until_s, partly, known)
        if reserve is None or plan is None:
            return plan
        check_reserve(plan.amounts, plan.terms, reserve)
        if isinstance(plan, Rejected):
            return replace(plan, reserve=reserve)
        _, _, _, _, _, memory, view, terms, amounts, step, now, progress, _ = plan
        rejected: Rejected | None = None
        if memory.shards is not None:
            rejected = self.shards.rejected_by_memory(memory, request, terms, amounts)
        elif amounts:
            step = next_step_above(view, terms, amounts, now, progress, reserve)
            if type(step) is Reject:
                rejected = Rejected(bucket, terms, view, amounts, step.at, now, None, reserve)
        if rejected is not None and self.rejects_by_view(bucket):
            return rejected
        return plan._replace(step=step, reserve=reserve)

    def rejects_by_view(self, bucket: BucketId) -> bool:
        """Return whether the cached view of a bucket may reject a request."""
        return True

    def prepare(self, request: AcquireRequest) -> Plan | Rejected:
        """Read the limits of a request that are missing to plan it.

        Raises:
            NoLimitsInForceError: No limits are in force.
            ValidationError: A name is invalid, or the request can never be admitted.
            RateLimiterUnavailable: The table did not answer.
        """
        terms = self.resolver.terms(request.bucket, request.own, request.until_s)
        plan = self.plan_request(request._replace(known=Evaluated(terms, self._first)))
        assert plan is not None, "the limits were read"
        return plan

    def chain_of(self, request: AcquireRequest) -> Chain:
        """Return the entities that a request takes from, from the cache if possible.

        Raises:
            ValidationError: A name is invalid, or the chain is too long.
            RateLimiterUnavailable: The table did not answer.
        """
        return self.chains.find(request)

    def unblocked_chain_of(self, request: AcquireRequest) -> Chain:
        """Return the entities that a request takes from, if none of them is blocked.

        Raises:
            EntityBlockedError: The entity, or one that it cascades to, is blocked.
            ValidationError: A name or a limit is invalid, or the chain is too long.
            KindNotAllowedError: The limits of the caller are of a kind that the table does not allow yet.
            RateLimiterUnavailable: The table did not answer.
        """
        chain = self.chain_of(request)
        self.chains.require_unblocked(chain, request.bucket[1])
        # After the chain, which is read together with the kinds that the table allows.
        if request.own is not None:
            self.resolver.allow_own(request.own)
        return chain

    def take_part(self, request: AcquireRequest) -> Admitted | Rejected:
        """Take from one of several buckets.

        Raises:
            ValidationError: The request can never be admitted.
            RateLimiterUnavailable: The table did not answer.
        """
        raise NotImplementedError

    def carry_out(self, plan: Plan) -> Admitted | Rejected:
        """Carry out a plan, in one write as a rule.

        Raises:
            RateLimiterUnavailable: The table did not answer.
        """
        raise NotImplementedError

    def known_rejection(self, request: AcquireRequest) -> Rejected | None:
        """Return the rejection by a fresh view of the bucket, without a call; None if it may admit."""
        return self.levels.known_rejection(request)

    def settle_all(self, owed: Sequence[Owed]) -> None:
        """Settle with several buckets now; each is tried even if another fails.

        Raises:
            RateLimiterUnavailable: The table did not answer for one of them.
        """
        if len(owed) == 1:
            return self.settle(owed[0])
        for failed in self.settle_each(owed):
            if failed is not None:
                raise failed.error
        return None

    def settle_later(self, owed: Sequence[Owed]) -> None:
        """Settle with several buckets as ``settle_all`` does; a client that puts settlements off returns at once."""
        self.settle_all(owed)

    def flush(self) -> None:
        """Write settlements that were put off; this client puts none off."""

    def settle_each(self, owed: Sequence[Owed]) -> list[BucketFailed | None]:
        """Settle with several buckets; each is tried even if another fails."""
        raise NotImplementedError

    def settle(self, owed: Owed) -> None:
        """Charge debits and give credits back.

        Raises:
            RateLimiterUnavailable: The table did not answer; a credit may still have been given.
        """
        self.settler.settle(owed)
        self.note_credit(owed)

    def note_credit(self, owed: Owed) -> None:
        """Let a request that waits for a bucket ask again, if it got tokens or slots back."""
        if owed.settlement.credits or owed.settlement.is_bound:
            self.caches.note_change(owed.bucket)

    def settle_one(self, owed: Owed) -> BucketFailed | None:
        """Settle with one of several buckets; return the failure, so that the others are settled too."""
        try:
            self.settle(owed)
        except ZAELimiterError as error:
            return BucketFailed(error)
        return None

    def learn_taken(self, plan: Plan, item: Item, amounts: Amounts) -> BucketView:
        """Cache the answer to a take of these amounts, and return it as a view."""
        memory, view = plan.memory, plan.view
        assert view is not None, "a planned take has a view"
        # The pace of other clients is measured from the cached view: that of a plan is an estimate if takes were in
        # flight.
        before = view if memory.view is None or memory.view.layout is not view.layout else memory.view
        after = view_after_write(before, item, amounts, plan.now[1])
        memory.learn_taken(after)
        if after.layout.shared.warned and self._scope.client.warner is not None:
            self._scope.client.warner.look(self._scope, plan.bucket, after)
        return after

    def write_take(self, plan: Plan, update: Update, step: Take) -> WriteOutcome:
        """Write a take."""
        return self._table.write(update, plan.until_s)

    def gauge(self, plan: Plan, after: BucketView) -> None:
        """Split the bucket if it is written too often; an embedded table never splits."""

    def run(self, plan: Plan) -> Admitted | Rejected:
        """Carry out a plan that takes more than one step."""
        request = self.request_of(plan)
        if plan.step is None:
            return self.shards.take(request, plan.terms)
        return self._run(ShardAttempt(self.context, request, plan.terms, plan.progress), request)

    def _continue(self, plan: Plan, update: Update, outcome: WriteOutcome) -> Admitted | Rejected:
        """Continue a plan whose first write was refused, throttled or lost, or found no bucket."""
        request = self.request_of(plan)
        result = self.buckets.result_of(update, outcome, update, request.until_s)
        attempt = ShardAttempt(self.context, request, plan.terms, plan.progress)
        if isinstance(plan.step, MixedTake) and plan.view is not None:
            attempt.sent = taken_by_step(plan.view, plan.step)
        return self._run(attempt, request, attempt.learn_from(result, plan.now))

    def _run(
        self, attempt: ShardAttempt, request: AcquireRequest, result: AttemptResult | None = None
    ) -> Admitted | Rejected:
        """Run an attempt on shard 0 to its end, and continue on the other shards if there are any."""
        while True:
            result = attempt.run() if result is None else result
            sharded = attempt.view is not None and attempt.view.layout.shard_count > 1
            if isinstance(result, Admitted):
                if self.buckets.splits:
                    self.shards.split_if_busy((request.bucket, 0), attempt.view, request.until_s)
                return result
            if isinstance(result, Rejected) and not sharded:
                return result
            if isinstance(result, Throttled):
                # Meanwhile this client or another one may have split the bucket.
                self.shards.relieve_and_wait((request.bucket, 0), attempt.terms, request.until_s, result)
                sharded = self.caches.of(request.bucket).sharded
            if sharded:
                return self.shards.take(request, attempt.terms)
            attempt, result = ShardAttempt(self.context, request, attempt.terms, self._first), None

    def request_of(self, plan: Plan) -> AcquireRequest:
        """Return the request that a plan carries out."""
        until_s = self.until_s() if plan.until_s is None else plan.until_s
        return AcquireRequest(plan.bucket, plan.consume, plan.own, until_s, plan.partly, None, plan.reserve)

    def choice(self, requested: object) -> OnUnavailable:
        """Return what to do while the store is unavailable.

        The call decides, else the repository, else the stored system defaults; the default is to block.

        Raises:
            ValidationError: The call says neither allow nor block.
        """
        return (
            check_on_unavailable(requested)
            or self._scope.settings.on_unavailable
            or self.caches.on_unavailable
            or OnUnavailable.BLOCK
        )

    def see_through(self, settling: Callable[[], None]) -> None:
        """Settle once, to the end, even if the caller is cancelled."""
        runtime.finish_in_place(settling)

    def queues(self) -> "WaitingQueues":
        """Return the queues of the requests that wait for buckets of the namespace."""
        waiting = self.caches.waiting
        return self.caches.queues(self.monotonic_s, self._deadline_s) if waiting is None else waiting

    def until_s(self) -> float:
        """Return the deadline of a call that begins now, on the monotonic clock."""
        return self.monotonic_s() + self._deadline_s

    def with_time_to_give_back(self, request: AcquireRequest) -> AcquireRequest:
        """Return the same request with an earlier deadline, so that it can be undone by the original one."""
        return request._replace(until_s=request.until_s - self._deadline_s * _GIVE_BACK_PART)


class NetworkedClient(BucketClient):
    """Takes from buckets of a networked table, each request by itself. Several takes may be in flight."""

    def take_alone(self, request: AcquireRequest) -> Admitted | Rejected:
        """Take from a bucket without other callers, in one round trip as a rule.

        Raises:
            ValidationError: The request can never be admitted.
            RateLimiterUnavailable: The table did not answer.
        """
        if self.shards.cooldowns.active:
            self._wait_for_cooldown(request)
        plan, known = self.plan_request(request), request.known
        if plan is None:
            plan = self.prepare(request)
        elif known is not None and isinstance(plan, Plan) and plan.step is None and known.progress.looked:
            # The bucket has several shards. Shard 0 was just read; another one would have to be read first.
            plan = plan._replace(step=LOOK)
        if self._top_ups.pending:
            topped_up = self._top_up(request, plan)
            if topped_up is not None:
                return topped_up
        return plan if isinstance(plan, Rejected) else self.carry_out(plan)

    def carry_out(self, plan: Plan) -> Admitted | Rejected:
        """Carry out a plan, in one write as a rule. Until its answer arrives, other plans count it as spent.

        Raises:
            RateLimiterUnavailable: The table did not answer.
        """
        bucket, _, _, until_s, _, _, view, terms, amounts, step, _, _, _ = plan
        if not isinstance(step, Take) or view is None or until_s is None:
            return self.run(plan)
        update = bucket_writes.take(view, step, next(self.nonces))
        outcome = self.write_take(plan, update, step)
        if type(outcome) is not Applied:
            return self._continue(plan, update, outcome)
        after = self.learn_taken(plan, outcome.new, amounts)
        if self._top_ups.pending:
            self._top_ups.note(bucket, after, amounts)
        self.gauge(plan, after)
        layout = view.layout
        taken = taken_by_step(view, step) if type(step) is MixedTake else None
        if taken is not None:
            return taken.admitted(terms, layout.birth)
        return layout if layout.terms is terms else Admitted(terms, layout.birth)

    def write_take(self, plan: Plan, update: Update, step: Take) -> WriteOutcome:
        """Write a take. Until its answer arrives, other plans count it as spent."""
        memory, view, until_s = plan.memory, plan.view, plan.until_s
        assert view is not None, "a planned take has a view"
        assert until_s is not None, "a plan for a networked table has a deadline"
        # A take subtracts from a balance, or sets it if the bucket is full.
        changes = [
            (position, -taken if balance is None else balance - view.numbers[position])
            for position, taken, _, _, balance in step.bounds
        ]
        slots: Sequence[SlotTake] = ()
        if isinstance(step, MixedTake):
            changes += changes_of(view, step.tracked)
            slots = step.slots
        flight = Flight(view.layout, changes, until_s, slots)
        try:
            # A take whose deadline has passed for longer than a deadline is lost: its caller was interrupted. It must
            # not count as spent forever.
            memory.send(flight, until_s - 2 * self._deadline_s)
            return self._table.write(update, until_s)
        finally:
            flights = memory.flights
            if flights is not None:
                flights.pop(flight, None)
                if not flights:
                    # Another thread may note a take at this moment, and it is lost here. The next answer shows its
                    # effect.
                    memory.flights = None

    def gauge(self, plan: Plan, after: BucketView) -> None:
        """Split the bucket if it is written too often."""
        # A write rate needs readings at least a second apart, so most takes skip the check.
        if after.seen_ms - plan.memory.gauged_ms >= LOOK_APART_MS:
            plan.memory.gauged_ms = after.seen_ms
            self.shards.split_if_busy((plan.bucket, 0), after, self.request_of(plan).until_s)

    def _wait_for_cooldown(self, request: AcquireRequest) -> None:
        """Wait while shard 0 takes no writes; a bucket of several shards waits where it chooses one."""
        memory = self.caches.buckets.get(request.bucket)
        if memory is None or not memory.sharded:
            self.shards.cooldowns.wait((request.bucket, 0), request.until_s)

    def _top_up(self, request: AcquireRequest, plan: Plan | Rejected) -> Admitted | Rejected | None:
        """Take what the creation of the bucket withheld, if the request lacks tokens; None if it withheld nothing."""
        if isinstance(plan, Plan) and (isinstance(plan.step, Take) or not plan.amounts):
            return None
        memory = self.caches.of(request.bucket)
        if request.own is not None or memory.view is None or memory.in_flight or memory.sharded:
            return None
        topping = self._top_ups.due(request, memory.view, plan.terms, plan.amounts, plan.now)
        if topping is None:
            return None
        attempt = ShardAttempt(self.context, request, plan.terms, self._first)
        return self._run(attempt, request, attempt.top_up(topping, plan.now))
