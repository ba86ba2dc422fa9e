"""The client of an embedded table, and its lease. A write is made in place, so nothing is gained by batching it.

This is the hot path: on memory and SQLite, a warm acquire is decided and written by ``DirectClient.attempt``.
"""  # generated from _async by tools/mirror.py; do not edit

from collections.abc import Sequence
from typing import NoReturn

from zae_limiter._sync.caches import BucketId, Remembered
from zae_limiter._sync.limiter import cascade
from zae_limiter._sync.limiter.bucket_client import BucketClient
from zae_limiter._sync.limiter.lease import ENTERED, SyncLease
from zae_limiter._sync.limiter.pair import ChildTaken, PlannedTake, plan_above
from zae_limiter._sync.limiter.request import AcquireRequest, Rejected
from zae_limiter._sync.limiter.resolve import OwnLimits
from zae_limiter._sync.limiter.settle import Owed
from zae_limiter._sync.limiter.shard_attempt import ShardAttempt
from zae_limiter.core.acquire import Reject, Take, amounts_of, limit_levels, next_step
from zae_limiter.core.bucket import TimeBounds
from zae_limiter.core.bucket_changes import Settlement
from zae_limiter.core.cascade import BucketFailed
from zae_limiter.core.errors import RateLimiterUnavailable, RateLimitExceeded
from zae_limiter.core.outcome import Applied, WriteOutcome
from zae_limiter.core.view import EffectiveLimits, Grant
from zae_limiter.schema import bucket_writes
from zae_limiter.schema.bucket_item import view_after_take
from zae_limiter.schema.operations import Update

_UNKNOWN = Remembered()
"""What is remembered of a bucket that was never used. Nothing is ever kept in it."""


class DirectClient(BucketClient):
    """Takes from buckets of an embedded table and settles with them, each in place."""

    def cascading_limits(self, bucket: BucketId) -> EffectiveLimits | None:
        """Return None: a bucket and its parent are taken from in turn."""
        return None

    def take(self, request: AcquireRequest) -> Grant | ChildTaken | Rejected:
        """Take from a bucket and return what admitted it.

        The rejection may be that of the parent, if its view shows that it would reject.

        Raises:
            ValidationError: The request can never be admitted.
            RateLimiterUnavailable: The table did not answer.
        """
        return self.attempt(*request[:5])

    def attempt(
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
        terms = None
        if known is not None and own is None and memory.shards is None:
            # Fresh, and not read in the future of a clock that was set back since.
            terms = known.terms if known.read_ms <= now[0] < known.expires_ms else None
        if terms is None or (partly and not consume.keys() <= terms.positions.keys()):
            return self._take_cold(AcquireRequest(bucket, consume, own, until_s or self.until_s(), partly))
        self.caches.hits += 1
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
            return self._run(ShardAttempt(self._means, request, terms, self._first), request)
        update = bucket_writes.take(view, step, next(self.nonces))
        outcome = self._write(update)
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
        return self._go_on(request, terms, update, outcome, now)

    def carry_out(self, planned: PlannedTake) -> Grant | Rejected:
        """Take from a bucket as it was planned, and return what admitted it, or the rejection.

        Raises:
            RateLimiterUnavailable: The table did not answer.
        """
        bucket, memory, view, terms, amounts, step, consume, now = planned
        update = bucket_writes.take(view, step, next(self.nonces))
        outcome = self._write(update)
        if type(outcome) is Applied:
            after = view_after_take(view, outcome.new, amounts, now[1])
            if memory.view is view:
                memory.view = after
            else:
                self.buckets.learn_taken(bucket, after)
            layout = view.layout
            return layout if layout.terms is terms else layout.granted(terms)
        return self._go_on(
            AcquireRequest(bucket, consume, None, self.until_s(), partly=True), terms, update, outcome, now
        )

    def _go_on(
        self, request: AcquireRequest, terms: EffectiveLimits, update: Update, outcome: WriteOutcome, now: TimeBounds
    ) -> Grant | Rejected:
        """Go on with a request whose first write was not simply applied."""
        result = self.buckets.result_of(update, outcome, update, request.until_s)
        shard_attempt = ShardAttempt(self._means, request, terms, self._first)
        return self._run(shard_attempt, request, shard_attempt.hear(result, now))

    def _evaluate_ancestors(self, request: AcquireRequest, terms: EffectiveLimits) -> Rejected | None:
        """Return the rejection by the parent that its view shows to come: the child is written first, and alone."""
        if not terms.cascade or request.partly:
            return None
        return self.rejected_above(terms, request.bucket[1], request.consume)

    def settle(self, bucket: BucketId, settlement: Settlement, terms: EffectiveLimits, until_s: float) -> None:
        """Charge debits and give credits back.

        Raises:
            RateLimiterUnavailable: The table did not answer; a credit may have been given all the same.
        """
        self.settler.settle(bucket, settlement, terms, until_s)

    def settle_each(self, owed: Sequence[Owed]) -> list[BucketFailed | None]:
        """Settle with one bucket after the other; each is tried though another fails."""
        settled = []
        for one in owed:
            settled.append(cascade.settle_one(self, one))
        return settled


class DirectLease(SyncLease):
    """A lease that takes in place."""

    __slots__ = ()

    _client: DirectClient

    def __enter__(self) -> "SyncLease":
        """Take, or raise."""
        consume = self._consume
        if type(consume) is not dict or not consume or self._taken is not None or self._on_unavailable is not None:
            self._check_entry()
        # The caller's dictionary may change while the take is in flight.
        self._taken = taken = consume.copy()
        client = self._client
        # A copy of the process gets another one.
        self._mutex = client.lease_mutex
        self._grant = self._parent = None
        try:
            verdict = client.attempt(self._bucket, taken, self._own, None)
            if isinstance(verdict, Rejected):
                # Where there is no parent, the rejection is all there is to say.
                alone = verdict.bucket is self._bucket and not verdict.terms.cascade
                raise RateLimitExceeded(verdict.statuses()) if alone else self._exceeded(verdict)
            if isinstance(verdict, ChildTaken):
                self._grant, planned = verdict
                above = client.carry_out(planned)
                if isinstance(above, Rejected):
                    self._rejected_above(above)
                self._parent = cascade.HeldBucket(planned.bucket, above, above.terms.positions)
            else:
                self._grant = verdict
                if verdict.terms.cascade:
                    self._parent = self._take_parent(verdict.terms)
        except RateLimiterUnavailable as error:
            self._give_child_back()
            self._go_without_store(error)
        except BaseException:
            self._give_child_back()
            raise
        self._stage = ENTERED
        return self

    def _rejected_above(self, rejection: Rejected) -> NoReturn:
        """Give the child's tokens back, then raise what the parent's rejection amounts to.

        Raises:
            RateLimitExceeded: Always.
        """
        self._give_child_back()
        raise self._exceeded(rejection)

    def _exceeded(self, rejection: Rejected) -> RateLimitExceeded:
        return cascade.exceeded(self._client, self._request(self._held()), [rejection])

    def _take_parent(self, terms: EffectiveLimits) -> cascade.HeldBucket | None:
        """Take from a parent whose view was not known when the child was taken; None if it limits nothing.

        Raises:
            RateLimitExceeded: It lacks the tokens.
        """
        parent = cascade.take_parent(self._client, terms, self._request(self._held()))
        return self._rejected_above(parent) if isinstance(parent, Rejected) else parent

    def _give_child_back(self) -> None:
        """Give back what was taken of the child, where the parent then refused."""
        if self._grant is not None:
            child = cascade.HeldBucket(self._bucket, self._grant, self._held())
            self._grant = None
            cascade.give_back(self._client, [child], self._held(), self._client.until_s())
