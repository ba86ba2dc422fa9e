"""The part of the client of embedded tables that takes from buckets with slots, quotas or soft limits.

The usual take was prepared by the one before it. It is made in one function, as the usual take of rate limits is.
"""  # generated from _async by tools/mirror.py; do not edit

import logging

import zae_limiter.runtime.threads as runtime
from zae_limiter._sync.limiter.client import UNKNOWN, BucketClient
from zae_limiter._sync.store.scope import Scope
from zae_limiter.caches.buckets import BucketId, KnownLimits, Remembered
from zae_limiter.caches.request import Cascaded, Owed, Plan, Rejected, with_slots
from zae_limiter.caches.slot_holds import SlotHold
from zae_limiter.core.acquire import MixedTake, Reject, amounts_of, next_step, taken_by_step
from zae_limiter.core.bucket import TimeBounds
from zae_limiter.core.bucket_changes import Settlement
from zae_limiter.core.errors import ZAELimiterError
from zae_limiter.core.outcome import Applied, Item
from zae_limiter.core.slots import Claim, SlotRelease
from zae_limiter.core.view import Admitted
from zae_limiter.schema import attributes
from zae_limiter.schema.bucket_item import BucketView, view_after_write
from zae_limiter.schema.direct_writes import BucketMixedTake, SlotReturn
from zae_limiter.schema.item_view import ItemView
from zae_limiter.schema.prepared_takes import PreparedAdmitted, PreparedReturn, PreparedTake, PreparedTakes, prepare

_log = logging.getLogger("zae_limiter")

_OWN = ((0, 0),)
"""What a write has taken that returns slots: nothing, but it was made by this client."""

_WRITE_COUNTER = attributes.WRITE_COUNTER


class PreparedClient(BucketClient):
    """Takes from buckets with several kinds of limits, and returns slots, each in place."""

    def __init__(self, scope: Scope, *, speculative: bool) -> None:
        super().__init__(scope, speculative=speculative)
        self._together = scope.table.together
        warner = scope.client.warner
        assert warner is not None, "an embedded table has no aggregator"
        self._warner = warner
        # A prepared take is for one time, and needs a bucket that may be written without a read.
        self._prepares = speculative and scope.table.server_time is None

    def _take_prepared(
        self, bucket: BucketId, consume: dict[str, int], memory: Remembered, known: KnownLimits, now_ms: int
    ) -> Admitted | SlotHold | None:
        """Take from a bucket as its last take has prepared; None if that is not possible, and nothing was taken."""
        view, together, terms = memory.view, self._together, known.terms
        if type(view) is not ItemView or together is None or not known.read_ms <= now_ms < known.expires_ms:
            return None
        prepared, seen = view.prepared, view.item
        if prepared is None or prepared.terms is not terms or not prepared.from_ms <= now_ms <= prepared.until_ms:
            return None
        nonce = next(self.nonces)
        taken = prepared.after_take(seen, consume, now_ms, nonce)
        if taken is None:
            return None
        outcome = together.write_now(PreparedTake(prepared, consume, now_ms, nonce, seen, taken))
        if type(outcome) is not Applied:
            return None
        self.caches.hits += 1
        new = outcome.new
        if new is taken and view.pace is None and memory.view is view:
            memory.view = ItemView(view.layout, new, now_ms, None, prepared)
        else:
            memory.learn_taken(view.after_write(new, amounts_of(consume, prepared.terms), now_ms))
        if view.layout.shared.warned and memory.view is not None:
            self._warner.look(self._scope, bucket, memory.view)
        result = PreparedAdmitted(prepared, consume)
        if prepared.slot_name not in consume:
            return result
        hold = SlotHold(bucket, result, now_ms)
        slots, earliest_ms = self.slots, now_ms + prepared.joined.half_hold_ms
        slots.holds.keep(hold)
        if earliest_ms < slots.wakes_ms:
            slots.wake(earliest_ms)
        return hold

    def return_prepared(self, hold: SlotHold) -> bool:
        """Return the slots of a prepared take; False if that is not possible, and nothing was returned."""
        result, together = hold.admitted, self._together
        memory = self._cached.get(hold.bucket, UNKNOWN)
        view = memory.view
        if type(result) is not PreparedAdmitted or type(view) is not ItemView or together is None:
            return False
        prepared, now_ms = result.prepared, self._table.now()[0]
        holds = self.slots.holds
        if view.layout is not prepared.layout or prepared.joined.end_s * 1000 <= now_ms or not holds.close(hold, None):
            return False
        # Hazard: an interrupt may come after the write. So the claim is forgotten before, and its cohort returns it.
        milli = result.consume[prepared.slot_name] * 1000
        outcome = together.write_now(PreparedReturn(prepared, milli, next(self.nonces)))
        if type(outcome) is not Applied:
            holds.open_again(hold)
            return False
        new = outcome.new
        if memory.view is view and view.pace is None and new[_WRITE_COUNTER] == view.item[_WRITE_COUNTER] + 1:
            memory.view = ItemView(view.layout, new, now_ms, None, view.prepared)
        else:
            self._learn_return(hold.bucket, view, new, now_ms)
        if self.caches.waiting is not None:
            self.caches.note_change(hold.bucket)
        return True

    def _take_unprepared(
        self, bucket: BucketId, consume: dict[str, int], memory: Remembered, known: KnownLimits, now: TimeBounds
    ) -> Admitted | Cascaded | Rejected | None:
        """Take by plan, and prepare the takes that follow; None if limits must be read first.

        Raises:
            ValidationError: The request can never be admitted.
            RateLimiterUnavailable: The table did not answer.
        """
        terms = known.terms
        if terms is None or not known.read_ms <= now[0] < known.expires_ms:
            return None
        self.caches.hits += 1
        view, amounts = memory.view, amounts_of(consume, terms)
        step = next_step(view, terms, amounts, now, self._first)
        if type(step) is Reject:
            return Rejected(bucket, terms, view, amounts, step.at, now)
        plan = Plan(bucket, consume, None, None, False, memory, view, terms, amounts, step, now, self._first)
        return with_slots(self.carry_out(plan))

    def _take_mixed(self, plan: Plan, view: BucketView, step: MixedTake) -> Admitted | Rejected:
        update = BucketMixedTake(view, step, next(self.nonces))
        outcome = self._table.write(update)
        if type(outcome) is not Applied:
            return self._continue(plan, update, outcome)
        self._learn_mixed(plan, view, outcome.new)
        taken = taken_by_step(view, step)
        assert taken is not None, "the bucket has limits of several kinds"
        return taken.admitted(plan.terms, view.layout.birth)

    def _learn_mixed(self, plan: Plan, view: BucketView, item: Item) -> None:
        """Cache the answer to a take of a plan, and prepare the next one."""
        now_ms = plan.now[1]
        after = view_after_write(view, item, plan.amounts, now_ms)
        before = view.prepared if type(view) is ItemView else None
        if before is not None and before.from_ms <= now_ms <= before.until_ms and before.fits(item):
            prepared: PreparedTakes | None = before
        else:
            prepared = prepare(view.layout, plan.terms, item, now_ms) if self._prepares else None
        if prepared is not None:
            after = ItemView(after.layout, item, now_ms, after.pace, prepared)
        plan.memory.learn_taken(after)
        if view.layout.shared.warned:
            self._warner.look(self._scope, plan.bucket, after)

    def return_slots(self, hold: SlotHold) -> bool:
        """Return all slots of a lease in one write; False if it takes more than that, and nothing was written."""
        bucket, changed = hold.bucket, hold.changed_claims
        claims = hold.admitted.claims if changed is None else changed
        memory = self._cached.get(bucket, UNKNOWN)
        view = memory.view
        if view is None or memory.shards is not None:
            return False
        if len(claims) != 1 or claims[0].shard or view.layout.birth != hold.birth:
            return False
        if not self.slots.holds.close(hold, changed):
            return False
        name, end_s, milli = claims[0][1:]
        now = self._table.now()
        if end_s * 1000 <= now[0]:
            # Others may use the slots by now.
            hold.is_lost = True
            return True
        try:
            outcome = self._table.write(SlotReturn(view, SlotRelease(name, end_s, milli), next(self.nonces)))
        except runtime.CANCELLED:
            # The caller was cancelled while the file was busy, so nothing was written. After an interrupt that is not
            # known, and a release is never sent again: the cohort returns the slots.
            self.see_through(lambda: self._return_again(hold, claims[0]))
            raise
        if type(outcome) is Applied:
            self._learn_return(bucket, view, outcome.new, now[1])
            self.caches.note_change(bucket)
        else:
            self.see_through(lambda: self._return_again(hold, claims[0]))
        return True

    def _learn_return(self, bucket: BucketId, view: BucketView, item: Item, now_ms: int) -> None:
        """Cache the answer to a return of slots."""
        # Hazard: a return does not hold. If another client has changed the limits, the view does not describe the item.
        if view.layout.describes(item):
            self.caches.of(bucket).learn_taken(view_after_write(view, item, _OWN, now_ms))
        else:
            self.buckets.learn((bucket, 0), item, None)

    def _return_again(self, hold: SlotHold, claim: Claim) -> None:
        """Return slots whose write was not applied; a failure is logged, and their cohort ends by itself."""
        settlement = Settlement((), (), hold.birth, (SlotRelease(*claim[1:]),), claim.shard)
        try:
            self.settle(Owed(hold.bucket, settlement, hold.terms, self.until_s()))
        except ZAELimiterError as error:
            _log.warning("Slots are free at the end of their hold: %s of %s: %s", claim, hold.bucket, error)
