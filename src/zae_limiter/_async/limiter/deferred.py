"""Settlements that wait to share a write: with the next take from their bucket, or with the others of an interval.

A lease that ends adds what it owes to a sum per bucket, and makes no call. The next take from the bucket writes both at
the same time. What no take has written is written after ``settle_within`` seconds. It is written earlier if the
repository is closed, or if the loop or the program ends. A process that is killed loses what waits.
"""

import logging
from collections.abc import Sequence
from typing import assert_never

import zae_limiter.runtime.aio as runtime
from zae_limiter._async.limiter.client import BucketClient
from zae_limiter._async.limiter.direct_client import DirectClient
from zae_limiter._async.limiter.group_commit import BatchedClient
from zae_limiter._async.store.buckets import WriteResult
from zae_limiter._async.store.scope import Scope
from zae_limiter.caches.buckets import BucketId
from zae_limiter.caches.deferred import DeferredSettlements
from zae_limiter.caches.request import AcquireRequest, Cascaded, Owed, OwnLimits, Plan, Rejected, with_slots
from zae_limiter.caches.slot_holds import SlotHold
from zae_limiter.core.bucket_changes import Settlement
from zae_limiter.core.cascade import BucketFailed
from zae_limiter.core.lazy_dataclass import replace
from zae_limiter.core.outcome import Applied, Missing, Refused, RefusedInDoubt, Throttled, Unavailable
from zae_limiter.core.take_and_settle import TakeAndSettle, take_and_settle
from zae_limiter.core.view import Admitted
from zae_limiter.schema import bucket_writes

_log = logging.getLogger("zae_limiter")

_WRITTEN_TOGETHER = 64
"""The number of buckets that a flush settles with at the same time."""


class DeferringClient(BucketClient):
    """Puts settlements off, and writes them with takes: what the two clients that do so share."""

    def _defer_settlements(self, scope: Scope) -> None:
        self._deferred = DeferredSettlements()
        self._within_s = scope.settings.settle_within_s
        self._put_off = scope.client.put_off
        self._later = runtime.Later(self._write_due, self._end_timer)
        self._flushing = runtime.Lock()

    def renew(self, *, restored: bool) -> None:
        """Drop what was put off in a copy of the process: the original writes it."""
        super().renew(restored=restored)
        self._deferred.renew()
        self._flushing = runtime.Lock()

    async def settle_later(self, owed: Sequence[Owed]) -> None:
        """Add settlements to what waits; if the repository is closed, they are written now.

        Raises:
            RateLimiterUnavailable: The repository is closed.
        """
        if self._put_off.closed:
            return await self.settle_all(owed)
        # Slots are returned now, with all that is settled with their bucket.
        now = [one for one in owed if one.settlement.is_bound]
        if now:
            await self.settle_all(now)
            owed = [one for one in owed if not one.settlement.is_bound]
            if not owed:
                return None
        starts = self._deferred.add(owed, self.monotonic_s(), self._within_s)
        for one in owed:
            # A take writes what waits to be settled, so a request may be admitted now.
            self.note_credit(one)
        # After the settlements were added: a flush that removes this client also finds them.
        if not self._put_off.add(self):
            return await self.flush()
        if starts:
            await self._later.start(self._within_s)
        return None

    async def flush(self) -> None:
        """Write everything that waits, and wait for a flush that has begun. Failures are logged."""
        async with self._flushing:
            self._put_off.discard(self)
            await self.see_through(self._write_all)

    async def finish(self) -> None:
        """Write everything that waits, and end the timer."""
        await self.flush()
        await self._later.stop()

    async def _write_due(self) -> float | None:
        """Write what has waited for the interval; return in how many seconds more is due, None if nothing waits."""
        async with self._flushing:
            due, next_s = self._deferred.take_due(self.monotonic_s(), self._within_s)
            await self.see_through(lambda: self._write_and_log(due))
            if next_s is None:
                # In this order: a settlement that is added meanwhile is either seen here, or adds this client itself.
                self._put_off.discard(self)
                if self._deferred and not self._put_off.add(self):
                    await self.see_through(self._write_all)
            return next_s

    async def _end_timer(self) -> None:
        """Write everything that waits, because the timer ends early."""
        self._deferred.end_timer()
        await self.flush()

    async def _write_all(self) -> None:
        await self._write_and_log(self._deferred.take_all())

    async def _write_and_log(self, waiting: Sequence[Owed]) -> None:
        for first in range(0, len(waiting), _WRITTEN_TOGETHER):
            some = waiting[first : first + _WRITTEN_TOGETHER]
            for one, failed in await self._write(some, self.until_s()):
                _log.warning("Not settled: %s of %s: %s", one.settlement, one.bucket, failed.error)

    async def _write(self, owed: Sequence[Owed], until_s: float) -> list[tuple[Owed, BucketFailed]]:
        """Write settlements without a take, each even if another fails; return those that failed."""
        results = await self.settle_each([one._replace(until_s=until_s) for one in owed])
        return [(one, failed) for one, failed in zip(owed, results, strict=True) if failed is not None]

    def known_rejection(self, request: AcquireRequest) -> Rejected | None:
        """Return the rejection by a fresh view; None if settlements of the bucket wait, because they change its level.

        Raises:
            ValidationError: The bucket can never admit the request.
        """
        return super().known_rejection(request) if self.rejects_by_view(request.bucket) else None

    def rejects_by_view(self, bucket: BucketId) -> bool:
        """Return whether the cached view of a bucket may reject: not while settlements wait that change its level."""
        return not self._deferred.owes(bucket)

    async def carry_out(self, plan: Plan) -> Admitted | Rejected:
        """Carry out a plan, with what waits to be settled with its bucket, in one write if possible.

        Raises:
            RateLimiterUnavailable: The table did not answer.
        """
        owed = self._deferred.take_out(plan.bucket) if self._deferred else []
        if not owed:
            return await super().carry_out(plan)
        combined = _combined(plan, owed)
        if combined is None:
            await self._settle_before(owed, self.request_of(plan).until_s)
        else:
            taken = await self._take_and_settle(plan, owed[0], combined)
            if taken is not None:
                return taken
        return await self.run(plan)

    async def _settle_before(self, owed: Sequence[Owed], until_s: float) -> None:
        """Write settlements before a take, by its deadline, even if the take is cancelled."""
        await self.see_through(lambda: self._write_or_wait(owed, until_s))

    async def _write_or_wait(self, owed: Sequence[Owed], until_s: float) -> None:
        """Write settlements without a take. Debits that could not be written wait again."""
        for one, _ in await self._write(owed, until_s):
            await self._wait_again(one, replace(one.settlement, credits=()))

    async def _wait_again(self, owed: Owed, left: Settlement) -> None:
        """Let the rest of a settlement wait again, if there is any."""
        if left.names:
            await self.settle_later([owed._replace(settlement=left)])

    async def _take_and_settle(self, plan: Plan, owed: Owed, combined: TakeAndSettle) -> Admitted | None:
        """Write a take and a settlement as one; None if it was refused. The settlement was then written, or waits."""
        view, nonce = plan.view, next(self.nonces)
        assert view is not None, "a combined write has a view"
        update = bucket_writes.take_and_settle(view, combined.taking, combined.parts, nonce)
        # Hazard: once the answer is lost, the credits may have been given. Only debits may be charged again.
        left = replace(owed.settlement, credits=())
        until_s = self.request_of(plan).until_s
        try:
            outcome = await self.write_take(plan, update, combined.taking)
            if type(outcome) is Applied:
                await self.gauge(plan, self.learn_taken(plan, outcome.new, combined.changed))
                return view.layout.admitted_by(plan.terms)
            if not (isinstance(outcome, Unavailable) and outcome.ambiguous):
                left = owed.settlement
            again = bucket_writes.take_and_settle(view, combined.again, combined.debit_parts, nonce)
            result = await self.buckets.result_of(update, outcome, again, until_s)
        except GeneratorExit:
            # The loop has ended, so nothing can be awaited any more.
            raise
        except BaseException:
            await self._wait_again(owed, left)
            raise
        return await self._after_refusal(plan, owed._replace(settlement=left), result)

    async def _after_refusal(self, plan: Plan, left: Owed, result: WriteResult) -> Admitted | None:
        """Settle what a combined write that was not applied at first has left; return its result if a repeat was."""
        shard_id = (plan.bucket, 0)
        match result:
            case Applied(new=new):
                self.buckets.learn(shard_id, new, plan.terms)
                return Admitted(plan.terms, None if plan.view is None else plan.view.layout.birth)
            case Throttled():
                await self._wait_again(left, left.settlement)
                return None
            case Refused(old=old):
                if isinstance(result, RefusedInDoubt):
                    # The first try may have given the credits.
                    left = left._replace(settlement=replace(left.settlement, credits=()))
                self.buckets.learn(shard_id, old, plan.terms)
            case Missing():
                self.buckets.learn(shard_id, None, plan.terms)
            case never:
                assert_never(never)
        if left.settlement.names:
            await self._settle_before([left], self.request_of(plan).until_s)
        return None


class DeferringBatchedClient(DeferringClient, BatchedClient):
    """A client of a networked table that puts settlements off."""

    def __init__(self, scope: Scope, *, speculative: bool, together: bool) -> None:
        self._defer_settlements(scope)
        BatchedClient.__init__(self, scope, speculative=speculative, together=together)


class DeferringDirectClient(DeferringClient, DirectClient):
    """A client of an embedded table that puts settlements off."""

    def __init__(self, scope: Scope, *, speculative: bool) -> None:
        self._defer_settlements(scope)
        DirectClient.__init__(self, scope, speculative=speculative)

    async def take(
        self, bucket: BucketId, consume: dict[str, int], own: OwnLimits
    ) -> Admitted | Cascaded | Rejected | SlotHold | None:
        """Take from a bucket whose limits are cached, with what waits to be settled with it.

        Raises:
            ValidationError: The request can never be admitted.
            RateLimiterUnavailable: The table did not answer.
        """
        if not self._deferred:
            return await super().take(bucket, consume, own)
        known = self.caches.limits(bucket)
        if known is None or known.links is not None:
            return None
        plan = self.plan(bucket, consume, self.now(), own)
        return with_slots(await self.carry_out(plan)) if isinstance(plan, Plan) else plan


def _combined(plan: Plan, owed: Sequence[Owed]) -> TakeAndSettle | None:
    """Return the write that takes and settles; None if that takes more than one."""
    if plan.view is None or plan.memory.sharded or len(owed) > 1:
        return None
    settlement = owed[0].settlement
    return take_and_settle(plan.view, plan.terms, plan.amounts, settlement, plan.now, plan.progress, plan.reserve)
