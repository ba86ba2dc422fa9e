"""The client of embedded tables, whose writes are made in place. This is the hot path of an acquire there."""  # generated from _async by tools/mirror.py; do not edit

from collections.abc import Sequence

from zae_limiter._sync.limiter.client import UNKNOWN
from zae_limiter._sync.limiter.prepared_client import PreparedClient
from zae_limiter.caches.buckets import BucketId, ChainLink
from zae_limiter.caches.request import (
    AcquireRequest,
    Cascaded,
    Owed,
    OwnLimits,
    Plan,
    Planned,
    Rejected,
    TakenChain,
    partial_amounts,
    with_slots,
)
from zae_limiter.caches.slot_holds import SlotHold
from zae_limiter.core.acquire import MixedTake, Reject, Take, amounts_of, next_step
from zae_limiter.core.bucket import TimeBounds
from zae_limiter.core.cascade import BucketFailed
from zae_limiter.core.config import BARE
from zae_limiter.core.outcome import Applied, Item
from zae_limiter.core.view import NO_LIMITS, Admitted
from zae_limiter.schema.bucket_item import view_after_take
from zae_limiter.schema.direct_writes import BucketTake
from zae_limiter.schema.operations import Update

_new_tuple = tuple.__new__


class DirectClient(PreparedClient):
    """Takes from buckets of an embedded table and settles with them, each in place."""

    def take(
        self, bucket: BucketId, consume: dict[str, int], own: OwnLimits
    ) -> Admitted | Cascaded | Rejected | SlotHold | None:
        """Take from the buckets of a request whose limits are cached; None if it takes more than one write.

        This does what ``plan`` and ``carry_out`` do, in one function: each call adds 1 to 2 % to an acquire.

        Raises:
            ValidationError: The request can never be admitted.
            RateLimiterUnavailable: The table did not answer.
        """
        now = self._table.now()
        try:
            memory = self._cached.get(bucket, UNKNOWN)
        except TypeError:
            # A name that cannot be hashed is refused by ``prepare``, with all other invalid names.
            return None
        known = memory.limits
        if known is None or own is not None or memory.shards is not None:
            return None
        if not known.is_plain:
            if known.links is not None:
                return self._take_chain(memory.chain, consume, now)
            taken = self._take_prepared(bucket, consume, memory, known, now[0])
            return self._take_unprepared(bucket, consume, memory, known, now) if taken is None else taken
        terms = known.terms
        if terms is None or not known.read_ms <= now[0] < known.expires_ms:
            return None
        self.caches.hits += 1
        amounts = amounts_of(consume, terms)
        view = memory.view
        step = next_step(view, terms, amounts, now, self._first)
        if type(step) is not Take or view is None:
            if type(step) is Reject:
                return Rejected(bucket, terms, view, amounts, step.at, now)
            plan = Plan(bucket, consume, own, None, False, memory, view, terms, amounts, step, now, self._first)
            return with_slots(self.carry_out(plan))
        update = BucketTake(view, step, next(self.nonces))
        outcome = self._table.write(update)
        if type(outcome) is not Applied:
            plan = Plan(bucket, consume, own, None, False, memory, view, terms, amounts, step, now, self._first)
            return with_slots(self._continue(plan, update, outcome))
        after = view_after_take(view, outcome.new, amounts, now[1])
        if memory.view is view:
            memory.view = after
        else:
            # Another task or thread has changed the view meanwhile, and its answer may be the newer one.
            memory.learn_taken(after)
        layout = view.layout
        return layout if layout.terms is terms else Admitted(terms, layout.birth)

    def _take_chain(self, link: ChainLink | None, consume: dict[str, int], now: TimeBounds) -> Cascaded | None:
        """Take from all buckets of a chain in one step, if their limits and views are cached and have the tokens.

        None if nothing was taken, because it is not that simple.

        Raises:
            ValidationError: The request can never be admitted.
        """
        first, together = self._first, self._together
        if link is None or together is None or not link.since_ms <= now[0] < link.until_ms or link.limits.links is BARE:
            return None
        positions = link.terms.positions
        if link.is_shared and not consume.keys() <= positions.keys():
            # A limit that only the bucket across resources has.
            return None
        own = amounts_of(consume, link.terms)
        nonce = next(self.nonces)
        planned: list[Planned] = []
        updates: list[Update] = []
        while link is not None:
            memory, terms = link.memory, link.terms
            view = memory.view
            if memory.limits is not link.limits or view is None or memory.shards is not None:
                if memory.limits is not link.limits or terms is not NO_LIMITS:
                    return None
                link = link.next
                continue
            amounts = own if terms.positions is positions else partial_amounts(consume, terms)
            step = next_step(view, terms, amounts, now, first)
            if type(step) is not Take or not amounts:
                return None
            updates.append(BucketTake(view, step, nonce))
            planned.append((link, view, amounts))
            link = link.next
        items = together.update_all(updates)
        if items is None:
            return None
        self._learn_chain(planned, items, now[1])
        # The same as Cascaded(...), without the cost of calling its constructor.
        return _new_tuple(Cascaded, (planned[0][1].layout.admitted_by(planned[0][0].terms), TakenChain(planned)))

    def _learn_chain(self, planned: Sequence[Planned], items: Sequence[Item], late_ms: int) -> None:
        """Cache the buckets of a chain as they are after a take."""
        self.caches.hits += 1
        for (link, view, amounts), item in zip(planned, items, strict=True):
            after = view_after_take(view, item, amounts, late_ms)
            memory = link.memory
            if memory.view is view:
                memory.view = after
            else:
                memory.learn_taken(after)
            if view.layout.shared.warned:
                self._warner.look(self._scope, link.bucket, after)

    def carry_out(self, plan: Plan) -> Admitted | Rejected:
        """Carry out a plan, in one write as a rule.

        Raises:
            RateLimiterUnavailable: The table did not answer.
        """
        _, _, _, _, _, memory, view, terms, amounts, step, now, _, _ = plan
        if type(step) is not Take or view is None:
            if type(step) is MixedTake and view is not None:
                return self._take_mixed(plan, view, step)
            return self.run(plan)
        update = BucketTake(view, step, next(self.nonces))
        outcome = self._table.write(update)
        if type(outcome) is not Applied:
            return self._continue(plan, update, outcome)
        after = view_after_take(view, outcome.new, amounts, now[1])
        if memory.view is view:
            memory.view = after
        else:
            # Another task or thread has changed the view meanwhile, and its answer may be the newer one.
            memory.learn_taken(after)
        layout = view.layout
        if layout.shared.warned:
            self._warner.look(self._scope, plan.bucket, after)
        return layout if layout.terms is terms else Admitted(terms, layout.birth)

    def take_part(self, request: AcquireRequest) -> Admitted | Rejected:
        """Take from one of several buckets.

        Raises:
            ValidationError: The request can never be admitted.
            RateLimiterUnavailable: The table did not answer.
        """
        plan = self.plan_request(request) or self.prepare(request)
        return plan if isinstance(plan, Rejected) else self.carry_out(plan)

    def settle_later(self, owed: Sequence[Owed]) -> None:
        """Settle with several buckets now."""
        # One bucket is the usual case. It is settled with here, because each further call adds 1 % to a settlement.
        if len(owed) != 1:
            return self.settle_all(owed)
        self.settler.settle(owed[0])
        if self.caches.waiting is not None:
            self.note_credit(owed[0])
        return None

    def settle_each(self, owed: Sequence[Owed]) -> list[BucketFailed | None]:
        """Settle with one bucket after the other; each is tried even if another fails."""
        settled = []
        for one in owed:
            settled.append(self.settle_one(one))
        return settled
