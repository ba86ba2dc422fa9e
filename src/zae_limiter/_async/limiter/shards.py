"""Takes from buckets of several shards, and splits shards that are written to too often.

A take goes to one shard. If that lacks the tokens, it goes to a few others, and then to all of them in one transaction.
So no request is rejected while all shards together have the tokens. ``core.sharding``, ``core.splitting`` and
``core.multi_shard`` decide; this module reads and writes.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from random import Random

from zae_limiter._async.backoff import Backoff, Pauses
from zae_limiter._async.limiter.shard_attempt import AttemptContext, ShardAttempt
from zae_limiter._async.limiter.throttle_cooldown import ThrottleCooldowns
from zae_limiter._async.store.buckets import ShardId
from zae_limiter._async.store.scope import Scope
from zae_limiter.caches.buckets import Bounded, BucketId, Remembered
from zae_limiter.caches.request import AcquireRequest, Rejected, contended
from zae_limiter.core.acquire import Take, is_fresh, taken_by_step
from zae_limiter.core.bucket import TimeBounds
from zae_limiter.core.errors import RateLimiterUnavailable
from zae_limiter.core.levels import lacks
from zae_limiter.core.multi_shard import combined, share_out, take_across
from zae_limiter.core.outcome import (
    Cancelled,
    Committed,
    Conflict,
    Missing,
    Refused,
    Throttled,
    TransactOutcome,
    Unavailable,
)
from zae_limiter.core.reserve import Reserve
from zae_limiter.core.reserved_take import with_floors
from zae_limiter.core.sharding import (
    LOOK_APART_MS,
    MOST_SHARDS,
    Gauge,
    ancestor,
    is_complete,
    may_relieve,
    route,
    splits_for_throttle,
    wants_split,
    write_rate,
)
from zae_limiter.core.splitting import split
from zae_limiter.core.tracked import Taken, is_at_edge
from zae_limiter.core.view import Admitted, Amounts, EffectiveLimits
from zae_limiter.schema import bucket_writes
from zae_limiter.schema.bucket_item import BucketView
from zae_limiter.schema.operations import Operation

_SHARDS_TRIED = 3
"""Shards that are tried one by one before all of them are read."""

_READS_OF_ALL = 6
"""Reads of all shards while these split or merge."""

TRANSACTIONS = 64
"""Tries of a transaction: more than fit into a deadline, so the deadline ends them."""

_PAUSES = Pauses(0.005, 0.1)

_SPLIT_CHANCE = 0.25
"""The chance that a throttled client splits the shard. A throttle hits many clients at the same time, and if all of
them split, their transactions conflict."""

_READ_PART = 0.125
"""The part of the remaining deadline for the read of a throttled shard. The rest is for the retries of the write."""

Shards = dict[int, BucketView]


class ShardClient:
    """Takes from buckets of several shards, and splits those that are written to too often."""

    def __init__(self, scope: Scope, context: AttemptContext) -> None:
        self._scope = scope
        self._context = context
        self._buckets = context.buckets
        self._table = scope.table
        self._random: Random = scope.client.random
        self._first = context.first
        self._most_per_s = scope.table.capabilities.partition_writes_per_second
        self._gauges: Bounded[object, Gauge] = Bounded()
        self._relieved: Bounded[ShardId, int] = Bounded()
        self._splitting: set[ShardId] = set()
        self.cooldowns = ThrottleCooldowns(scope.client.clock, self._random.random)

    def renew(self) -> None:
        """Drop, in a copy of the process, the splits in flight, the write rates and the cooldowns of the original."""
        self._splitting.clear()
        self._gauges.clear()
        self._relieved.clear()
        self.cooldowns.clear()

    async def take(self, request: AcquireRequest, terms: EffectiveLimits) -> Admitted | Rejected:
        """Take from one shard, from another if that lacks the tokens, or from several in one transaction."""
        memory = self._scope.caches.of(request.bucket)
        amounts = request.amounts(terms)
        rejection = self.rejected_by_memory(memory, request, terms, amounts)
        if rejection is not None:
            return rejection
        tried: set[int] = set()
        while len(tried) < _SHARDS_TRIED and _may_fit(memory, terms, amounts, request.reserve):
            shard = await self._next_shard(request, memory, tried)
            if shard is None:
                break
            attempt = ShardAttempt(self._context, request, terms, self._first, shard)
            result = await attempt.run()
            match result:
                case Admitted():
                    await self.split_if_busy((request.bucket, shard), attempt.view, request.until_s)
                    return result
                case Rejected():
                    tried.add(shard)
                case Throttled():
                    # The shard may still have the tokens, so it does not count as tried. It is cooling down now.
                    await self.relieve((request.bucket, shard), terms, request.until_s, result)
                case Missing():
                    # The shard was merged into one of its ancestors, whose cached view is too old. Read it again.
                    merged = ancestor(shard, memory.views())
                    await self._buckets.look((request.bucket, merged), attempt.terms, request.until_s)
            if attempt.terms is not terms:
                # Other limits are in force now, at other positions.
                terms = attempt.terms
                amounts = request.amounts(terms)
        return await self._take_across(request, terms)

    async def _next_shard(self, request: AcquireRequest, memory: Remembered, tried: set[int]) -> int | None:
        """Return a shard that was not tried yet, None if all were. If the others are cooling down, wait for one.

        Raises:
            RateLimiterUnavailable: The cooldown lasts longer than the deadline.
        """
        cooling = {shard for shard in memory.counts() if self.cooldowns.has((request.bucket, shard))}
        shard = self._choose(memory, tried | cooling)
        if shard is None and (shard := self._choose(memory, tried)) is not None:
            await self.cooldowns.wait((request.bucket, shard), request.until_s)
        return shard

    def _choose(self, memory: Remembered, avoided: set[int]) -> int | None:
        """Return a random shard, weighted by its share; None if all are avoided."""
        counts = memory.counts()
        # At random: a client that always used the same shard would exhaust it while others have tokens.
        shard = route(self._random.randrange(MOST_SHARDS), counts)
        if shard not in avoided:
            return shard
        others = [other for number in range(MOST_SHARDS) if (other := route(number, counts)) not in avoided]
        return self._random.choice(others) if others else None

    def rejected_by_memory(
        self, memory: Remembered, request: AcquireRequest, terms: EffectiveLimits, amounts: Amounts
    ) -> Rejected | None:
        """Reject a request without a read if fresh views of all shards lack the tokens; None if it may be admitted."""
        views = self.fresh_views(memory, terms)
        if views is None:
            return None
        now = self._table.now()
        if any(is_at_edge(view, now) for view in views):
            # A quota may be full by now.
            return None
        levels = combined(views, terms, now)
        rejected = Rejected(request.bucket, terms, None, amounts, now, now, levels, request.reserve)
        spare = rejected.spare_levels
        return rejected if any(lacks(spare[position], milli, now) for position, milli in amounts) else None

    def fresh_views(self, memory: Remembered, terms: EffectiveLimits) -> list[BucketView] | None:
        """Return the cached views of all shards; None if one is not fresh, not on these limits, or not cached."""
        views = memory.views()
        now_ms = self._table.now()[1]
        if not all(is_fresh(view, terms, now_ms, self._first.trust_ms) for view in views.values()):
            return None
        complete = is_complete({shard: view.layout.shard_count for shard, view in views.items()})
        return list(views.values()) if complete else None

    async def _take_across(self, request: AcquireRequest, terms: EffectiveLimits) -> Admitted | Rejected:
        """Take from as many shards as needed in one transaction, or reject if all of them together lack the tokens.

        A request that loses the race for the remaining tokens is rejected; it does not wait for refill.
        """
        bucket = request.bucket
        backoff = self.backoff(request.until_s)
        refusals = 0
        asked: TimeBounds | None = None
        for attempt in range(TRANSACTIONS):
            shards = await self.read_all(bucket, terms, request.until_s, again=attempt > 0)
            terms, agreed = await self._rebase_all(request, terms, shards)
            if shards is None or not agreed:
                continue
            amounts, now = request.amounts(terms), self._table.now()
            asked = now if asked is None else asked
            # Hazard: between two tries the bucket refills, and retries would turn a rejection into a wait. So the
            # request is also judged at the time of the first try.
            for judged in (asked, now):
                if share_out(shards, amounts, judged, request.reserve) is None:
                    levels = combined(list(shards.values()), terms, judged)
                    return Rejected(bucket, terms, None, amounts, judged, now, levels, request.reserve)
            written = take_across(shards, amounts, now, refusals, request.reserve)
            assert written is not None, "the shards have the tokens, as share_out has shown"
            nonces = self._context.nonces
            takes = {
                shard: bucket_writes.take(shards[shard], taking, next(nonces)) for shard, taking in written.items()
            }
            # A request of 0 has nothing to write.
            if not takes or await self.commit(bucket, takes, terms, request.until_s):
                return _admitted(terms, [(shards[shard], taking) for shard, taking in written.items()])
            refusals += 1
            await backoff.wait_or_give_up()
        raise contended(bucket)

    async def _rebase_all(
        self, request: AcquireRequest, terms: EffectiveLimits, shards: Shards | None
    ) -> tuple[EffectiveLimits, bool]:
        """Move every shard to the limits in force, or create the bucket if it does not exist.

        Return these limits, and whether all shards are on them. If not, the shards must be read again.
        """
        if shards is None:
            nothing = request._replace(consume=dict.fromkeys(request.consume, 0))
            attempt = ShardAttempt(self._context, nothing, terms, self._first)
            await attempt.run()
            return attempt.terms, False
        for shard in [number for number, view in shards.items() if not view.layout.follows(terms)]:
            attempt = ShardAttempt(self._context, request, terms, self._first, shard)
            view = await attempt.rebase()
            if view is None or attempt.terms is not terms:
                return attempt.terms, False
            shards[shard] = view
        return terms, True

    async def commit(
        self,
        bucket: BucketId,
        writes: Mapping[int, Operation],
        terms: EffectiveLimits,
        until_s: float,
        *,
        once: bool = False,
    ) -> bool:
        """Carry out one write for each shard of ``writes``, or none of them; False if one was refused.

        ``once``: a refusal after a lost answer raises. The first try may still be applied, so another transaction might
        apply the same writes twice.

        Raises:
            RateLimiterUnavailable: The table did not answer.
        """
        token = f"shards-{next(self._context.nonces)}"
        outcome = await self._table.transact(list(writes.values()), token, until_s=until_s)
        self._learn_from(outcome, list(writes), bucket, terms)
        if isinstance(outcome, Unavailable):
            raise RateLimiterUnavailable(outcome.cause)
        if once and isinstance(outcome, Cancelled) and outcome.in_doubt:
            raise RateLimiterUnavailable(TimeoutError("no answer, and the transaction may still be applied"))
        return isinstance(outcome, Committed)

    def _learn_from(
        self, outcome: TransactOutcome, shards: Sequence[int], bucket: BucketId, terms: EffectiveLimits | None
    ) -> None:
        if isinstance(outcome, Cancelled):
            for shard, reason in zip(shards, outcome.reasons, strict=True):
                if reason is not None:
                    self._buckets.learn((bucket, shard), reason.old if isinstance(reason, Refused) else None, terms)

    def backoff(self, until_s: float) -> Backoff:
        """Return the pauses between tries that fail because of other clients or of throttles."""
        return self._scope.client.backoff(_PAUSES, until_s)

    async def read_all(
        self, bucket: BucketId, terms: EffectiveLimits | None, until_s: float, *, again: bool = False
    ) -> Shards | None:
        """Read all shards of a bucket, None if it does not exist; the read is consistent if ``again``.

        Raises:
            RateLimiterUnavailable: The table did not answer, or the shards kept changing.
        """
        memory = self._scope.caches.of(bucket)
        shard_count = max(1, *memory.counts().values())
        backoff = self.backoff(until_s)
        for attempt in range(_READS_OF_ALL):
            keys = [self._buckets.key(bucket, shard) for shard in range(shard_count)]
            items = await self._table.batch_get(keys, consistent=again or attempt > 0, until_s=until_s)
            for shard, item in enumerate(items):
                # A shard that is neither stored nor cached was never split off: it need not be cached as absent.
                if item is not None or shard in memory.counts():
                    self._buckets.learn((bucket, shard), item, terms)
            views = memory.views()
            if not views:
                return None
            counts = {shard: view.layout.shard_count for shard, view in views.items()}
            if is_complete(counts):
                return views
            # The views show more shards than were read: read these immediately. Otherwise a split or a merge became
            # visible halfway, and a moment later all of it is.
            if max(counts.values()) <= shard_count:
                await backoff.wait_or_give_up()
            shard_count = max(shard_count, *counts.values())
        raise contended(bucket)

    async def split_if_busy(self, shard_id: ShardId, view: BucketView | None, until_s: float) -> None:
        """Split a shard if its write counter shows too many writes per second, by all clients."""
        if self._most_per_s is None or view is None:
            return
        rate = self._rate(view)
        if rate is not None and wants_split(rate, self._most_per_s, view.layout.shard_count):
            # The request was admitted, so a failed split is not the caller's concern.
            with suppress(RateLimiterUnavailable):
                await self.split(shard_id, view, until_s)

    def _rate(self, view: BucketView) -> float | None:
        """Return a shard's writes per second since the last reading, None if there is none or it is too recent."""
        # A split halves the writes to a shard. So readings before the split must not be compared with later ones.
        key = (view.layout.pk, view.layout.shard_count)
        before = self._gauges.get(key)
        if before is not None and view.seen_ms - before.at_ms < LOOK_APART_MS:
            return None
        now = Gauge(view.seen_ms, view.writes)
        self._gauges.keep(key, now)
        return None if before is None else write_rate(before, now)

    def _should_split(self, throttle: Throttled, view: BucketView) -> bool:
        """Return whether a throttled shard should be split."""
        if self._most_per_s is None:
            return False
        return splits_for_throttle(throttle.partition, self._rate(view), self._most_per_s, view.layout.shard_count)

    async def split(self, shard_id: ShardId, view: BucketView, until_s: float) -> TransactOutcome | None:
        """Split a shard in two, and cache both; None if it cannot be split further.

        If another client was faster, its result is cached instead.
        """
        bucket, shard = shard_id
        splitting = split(view, self._table.now())
        if splitting is None:
            return None
        operations = bucket_writes.split(view, splitting, next(self._context.nonces))
        token = f"split-{next(self._context.nonces)}"
        outcome = await self._table.transact(operations, token, until_s=until_s)
        both = (shard, splitting.new_shard)
        terms = view.layout.seen_terms
        self._learn_from(outcome, both, bucket, terms)
        if isinstance(outcome, Committed):
            await self._read_shards(bucket, both, terms, until_s)
            self.cooldowns.end(shard_id)
        return outcome

    async def _split_in_time(self, shard_id: ShardId, view: BucketView | None, until_s: float) -> None:
        """Retry the split of a throttled shard until it succeeds, another client has split it, or the deadline.

        Raises:
            RateLimiterUnavailable: The table did not answer.
        """
        backoff = self.backoff(until_s)
        self._splitting.add(shard_id)
        try:
            while view is not None:
                outcome = await self.split(shard_id, view, until_s)
                if not isinstance(outcome, Throttled | Cancelled | Conflict) or not await backoff.wait():
                    return
                before, view = view, self._buckets.remembered(*shard_id)
                if view is not None and view.layout.shard_count != before.layout.shard_count:
                    return
        finally:
            self._splitting.discard(shard_id)

    async def _read_shards(
        self, bucket: BucketId, shards: Sequence[int], terms: EffectiveLimits | None, until_s: float
    ) -> None:
        keys = [self._buckets.key(bucket, shard) for shard in shards]
        for shard, item in zip(
            shards, await self._table.batch_get(keys, consistent=True, until_s=until_s), strict=True
        ):
            self._buckets.learn((bucket, shard), item, terms)

    async def relieve_and_wait(
        self, shard_id: ShardId, terms: EffectiveLimits, until_s: float, throttle: Throttled
    ) -> None:
        """Relieve a throttled shard, and wait for the end of its cooldown.

        Raises:
            RateLimiterUnavailable: The cooldown lasts longer than the deadline.
        """
        await self.relieve(shard_id, terms, until_s, throttle)
        await self.cooldowns.wait(shard_id, until_s)

    async def relieve(
        self, shard_id: ShardId, terms: EffectiveLimits | None, until_s: float, throttle: Throttled
    ) -> None:
        """Begin the cooldown of a throttled shard, read whether it was split, and split it if that helps.

        Of many requests that are throttled at the same time, one does this. The others use its result.
        """
        self.cooldowns.begin(shard_id)
        bucket, shard = shard_id
        now_ms = self._table.now()[0]
        # The whole table is throttled (``partition`` is False), or this client splits or has just read the shard.
        if (
            throttle.partition is False
            or shard_id in self._splitting
            or not may_relieve(self._relieved.get(shard_id), now_ms)
        ):
            return
        self._relieved.keep(shard_id, now_ms)
        before = self._buckets.remembered(bucket, shard)
        now_s = self._scope.client.clock.monotonic_s()
        read_until_s = now_s + (until_s - now_s) * _READ_PART
        try:
            view = await self._buckets.look(shard_id, terms, read_until_s)
        except RateLimiterUnavailable:
            # The reads of the shard may be throttled too. If shard 0 was ever split, shard 1 exists and has the count.
            if shard == 0:
                await self._buckets.look((bucket, 1), terms, until_s)
            return
        split_since = before is not None and view is not None and before.layout.shard_count != view.layout.shard_count
        if view is None or split_since or not self._should_split(throttle, view):
            return
        if self._random.random() < _SPLIT_CHANCE:
            with suppress(RateLimiterUnavailable):
                await self._split_in_time(shard_id, view, until_s)


def _admitted(terms: EffectiveLimits, charged: Sequence[tuple[BucketView, Take]]) -> Admitted:
    """Return the result of a take from several shards, with their birth number, None if none of them has one."""
    births = [view.layout.birth for view, _ in charged if view.layout.birth is not None]
    birth = births[0] if births else None
    found = [taken_by_step(view, taking) for view, taking in charged]
    taken = [one for one in found if one is not None]
    if not taken:
        return Admitted(terms, birth)
    claims = tuple([claim for one in taken for claim in one.claims])
    return Taken(claims, tuple([charge for one in taken for charge in one.charges])).admitted(terms, birth)


def _may_fit(memory: Remembered, terms: EffectiveLimits, amounts: Amounts, reserve: Reserve | None) -> bool:
    """Return whether the capacity of any shard is large enough for a request; True if no view can tell."""
    views = memory.views()
    fits = [
        all(
            milli <= view.layout.shared.shares[position].capacity_milli
            for position, milli in with_floors(view, terms, amounts, reserve)
        )
        for view in views.values()
        if len(view.layout.limits) > max((position for position, _ in amounts), default=0)
    ]
    return any(fits) or not fits
