"""A bucket of several shards: which one is asked, when one is split, and what is taken from or charged to several.

Which shard, whether to split, and what each gives is decided in ``core``; here it is done.
"""

from collections.abc import Sequence
from contextlib import suppress
from random import Random

from zae_limiter._async.caches import Bounded, BucketId, Remembered
from zae_limiter._async.limiter.asking import Asking, Rejection, contended
from zae_limiter._async.limiter.errand import Errand, Means
from zae_limiter._async.limiter.holds import Holds
from zae_limiter._async.pauses import Pauses
from zae_limiter._async.store.buckets import Place
from zae_limiter._async.store.scope import Scope
from zae_limiter.core.acquire import Progress, Take, is_fresh
from zae_limiter.core.across import combined, share_out, take_across
from zae_limiter.core.bucket import Moment
from zae_limiter.core.errors import RateLimiterUnavailable
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
from zae_limiter.core.splitting import merge, split
from zae_limiter.core.view import Amounts, Grant, Terms
from zae_limiter.schema import bucket_writes
from zae_limiter.schema.bucket_item import BucketView
from zae_limiter.schema.operations import Operation

_SHARDS_TRIED = 3
_READS_OF_ALL = 6
# More than fit a deadline, which is what ends the tries.
TRANSACTIONS = 64
_PAUSES_S = (0.005, 0.1)
# Of many clients that a throttle hits at once, some split and the others find it done.
_SPLITTERS = 0.25
_TO_LOOK = 0.125
"""The part of what is left of a deadline in which a shard that takes no writes must have been read."""

Shards = dict[int, BucketView]


class ShardClient:
    """Takes from buckets of several shards, and splits those that are written to too often."""

    def __init__(self, scope: Scope, means: Means, first: Progress) -> None:
        self._scope = scope
        self._means = means
        self._buckets = means.buckets
        self._table = scope.table
        self._random: Random = scope.client.random
        self._first = first
        self._most_per_s = scope.table.capabilities.partition_writes_per_second
        self._gauges: Bounded[object, Gauge] = Bounded()
        self._relieved: Bounded[Place, int] = Bounded()
        self._splitting: set[Place] = set()
        self.holds = Holds(scope.client.clock, self._random.random)

    def renew(self) -> None:
        """Forget, in a copy of the process, what the original has in flight and when it did it."""
        self._splitting.clear()
        self._gauges.clear()
        self._relieved.clear()
        self.holds.clear()

    async def take(self, asking: Asking, terms: Terms) -> Grant | Rejection:
        """Take from one of the shards, from another if that lacks the tokens, or from several at once."""
        memory = self._scope.caches.of(asking.bucket)
        amounts = asking.amounts(terms)
        rejection = self.rejected_by_memory(memory, asking.bucket, terms, amounts)
        if rejection is not None:
            return rejection
        tried: set[int] = set()
        while len(tried) < _SHARDS_TRIED and _may_fit(memory, amounts):
            shard = await self._next_shard(asking, memory, tried)
            if shard is None:
                break
            errand = Errand(self._means, asking, terms, self._first, shard)
            verdict = await errand.run()
            match verdict:
                case Grant():
                    await self.watch((asking.bucket, shard), errand.view, asking.until_s)
                    return verdict
                case Rejection():
                    tried.add(shard)
                case Throttled():
                    # It may have the tokens all the same, so this is no reason to ask all of them at once.
                    await self.relieve((asking.bucket, shard), terms, asking.until_s, verdict)
                case Missing():
                    # It was merged into one that it was split off, of which too much is remembered.
                    merged = ancestor(shard, memory.views())
                    await self._buckets.look((asking.bucket, merged), errand.terms, asking.until_s)
            terms = errand.terms
        return await self._take_across(asking, terms)

    async def _next_shard(self, asking: Asking, memory: Remembered, tried: set[int]) -> int | None:
        """Return a shard that was not tried yet, None if there is none; where all are left alone for now, wait.

        Raises:
            RateLimiterUnavailable: That would be too long.
        """
        holds = {shard for shard in memory.counts() if self.holds.has((asking.bucket, shard))} if self.holds else set()
        shard = self._choose(memory, tried | holds)
        if shard is None and (shard := self._choose(memory, tried)) is not None:
            await self.holds.wait((asking.bucket, shard), asking.until_s)
        return shard

    def _choose(self, memory: Remembered, avoided: set[int]) -> int | None:
        """Return a shard by chance, each as often as its share is large; None if there is none but those avoided."""
        counts = memory.counts()
        shard = route(self._random.randrange(MOST_SHARDS), counts)
        if shard not in avoided:
            return shard
        others = [other for number in range(MOST_SHARDS) if (other := route(number, counts)) not in avoided]
        return self._random.choice(others) if others else None

    def rejected_by_memory(
        self, memory: Remembered, bucket: BucketId, terms: Terms, amounts: Amounts
    ) -> Rejection | None:
        """Reject without a look what all shards together lacked a moment ago."""
        views = self.fresh_views(memory, terms)
        if views is None:
            return None
        now = self._table.now()
        stands = combined(views, terms, now)
        lacking = any(stands[position].available_milli(now) < milli for position, milli in amounts if milli)
        return Rejection(bucket, terms, stands, amounts, now, now) if lacking else None

    def fresh_views(self, memory: Remembered, terms: Terms) -> list[BucketView] | None:
        """Return the shards as they were seen a moment ago, on these terms; None if they must be read."""
        views = memory.views()
        now_ms = self._table.now()[1]
        if not all(is_fresh(view, terms, now_ms, self._first.trust_ms) for view in views.values()):
            return None
        complete = is_complete({shard: view.frame.shard_count for shard, view in views.items()})
        return list(views.values()) if complete else None

    async def _take_across(self, asking: Asking, terms: Terms) -> Grant | Rejection:
        """Take from as many shards as it needs, in one transaction, or reject by what all of them have.

        Whoever comes too late for what there was is rejected, and does not wait for what comes after it.
        """
        bucket = asking.bucket
        pauses = self.pauses(asking.until_s)
        refusals = 0
        asked: Moment | None = None
        for attempt in range(TRANSACTIONS):
            shards = await self.read_all(bucket, terms, asking.until_s, again=attempt > 0)
            terms, agreed = await self._agreed(asking, terms, shards)
            if shards is None or not agreed:
                continue
            amounts, now = asking.amounts(terms), self._table.now()
            asked = now if asked is None else asked
            for judged in (asked, now):
                if share_out(shards, amounts, judged) is None:
                    stands = combined(list(shards.values()), terms, judged)
                    return Rejection(bucket, terms, stands, amounts, judged, now)
            written = take_across(shards, amounts, now, refusals)
            assert written is not None, "they have enough"
            nonces = self._means.nonces
            takes = [
                bucket_writes.take(shards[shard], Take(bounds, None, ()), next(nonces))
                for shard, bounds in written.items()
            ]
            # Of limits that nothing is asked of there is nothing to write.
            if not takes or await self.commit(takes, list(written), (bucket, terms), asking.until_s):
                return _granted(terms, [shards[shard] for shard in written])
            refusals += 1
            await pauses.wait_or_give_up()
        raise contended(bucket)

    async def _agreed(self, asking: Asking, terms: Terms, shards: Shards | None) -> tuple[Terms, bool]:
        """Put every shard on the limits in force, or create the bucket where it is gone.

        Return these limits, and whether the shards are on them; else all is to be read again.
        """
        if shards is None:
            nothing = asking._replace(consume=dict.fromkeys(asking.consume, 0))
            errand = Errand(self._means, nothing, terms, self._first)
            await errand.run()
            return errand.terms, False
        for shard in [number for number, view in shards.items() if not view.frame.follows(terms)]:
            errand = Errand(self._means, asking, terms, self._first, shard)
            view = await errand.agree()
            if view is None or errand.terms is not terms:
                return errand.terms, False
            shards[shard] = view
        return terms, True

    async def commit(
        self,
        operations: Sequence[Operation],
        shards: Sequence[int],
        of: tuple[BucketId, Terms],
        until_s: float,
        *,
        once: bool = False,
    ) -> bool:
        """Carry out writes to several shards, or none of them; False if one was refused, and learnt from.

        ``once``: they must not be carried out in another form if these still may be.

        Raises:
            RateLimiterUnavailable: The table did not answer.
        """
        bucket, terms = of
        token = f"shards-{next(self._means.nonces)}"
        outcome = await self._table.transact(operations, token, until_s=until_s)
        self._learn_from(outcome, shards, bucket, terms)
        if isinstance(outcome, Unavailable):
            raise RateLimiterUnavailable(outcome.cause)
        if once and isinstance(outcome, Cancelled) and outcome.in_doubt:
            raise RateLimiterUnavailable(TimeoutError("no answer, and what was sent may be carried out yet"))
        return isinstance(outcome, Committed)

    def _learn_from(
        self, outcome: TransactOutcome, shards: Sequence[int], bucket: BucketId, terms: Terms | None
    ) -> None:
        if isinstance(outcome, Cancelled):
            for shard, reason in zip(shards, outcome.reasons, strict=True):
                if reason is not None:
                    self._buckets.learn((bucket, shard), reason.old if isinstance(reason, Refused) else None, terms)

    def pauses(self, until_s: float) -> Pauses:
        """Return the pauses between tries that others, or throttles, stand in the way of."""
        return Pauses(self._scope.client.clock, self._random.random, until_s, _PAUSES_S)

    async def read_all(
        self, bucket: BucketId, terms: Terms | None, until_s: float, *, again: bool = False
    ) -> Shards | None:
        """Read all shards of a bucket, None if there is none; ``again``: it must be the newest.

        Raises:
            RateLimiterUnavailable: The table did not answer, or the shards kept changing.
        """
        memory = self._scope.caches.of(bucket)
        widest = max(1, *memory.counts().values())
        pauses = self.pauses(until_s)
        for attempt in range(_READS_OF_ALL):
            keys = [self._buckets.key(bucket, shard) for shard in range(widest)]
            items = await self._table.batch_get(keys, consistent=again or attempt > 0, until_s=until_s)
            for shard, item in enumerate(items):
                if item is not None or shard in memory.counts():
                    self._buckets.learn((bucket, shard), item, terms)
            views = memory.views()
            if not views:
                return None
            counts = {shard: view.frame.shard_count for shard, view in views.items()}
            if is_complete(counts):
                return views
            if max(counts.values()) <= widest:
                await pauses.wait_or_give_up()
            widest = max(widest, *counts.values())
        raise contended(bucket)

    async def watch(self, place: Place, view: BucketView | None, until_s: float) -> None:
        """Split a shard that is written to too often, as its own write counter tells."""
        if self._most_per_s is None or view is None:
            return
        rate = self._rate(view)
        if rate is not None and wants_split(rate, self._most_per_s, view.frame.shard_count):
            # Whoever has got what was asked for is not to hear of what the split ran into.
            with suppress(RateLimiterUnavailable):
                await self.split(place, view, until_s)

    def _rate(self, view: BucketView) -> float | None:
        """Return a shard's writes per second since it was last measured, None if that is too short to tell."""
        # What a shard was written before it was split says nothing of what it is written since.
        gauged = (view.frame.pk, view.frame.shard_count)
        before = self._gauges.get(gauged)
        if before is not None and view.seen_ms - before.at_ms < LOOK_APART_MS:
            return None
        now = Gauge(view.seen_ms, view.writes)
        self._gauges.keep(gauged, now)
        return None if before is None else write_rate(before, now)

    def _splits_for(self, throttle: Throttled, view: BucketView) -> bool:
        """Say whether a throttled shard is to be split."""
        if self._most_per_s is None:
            return False
        return splits_for_throttle(throttle.partition, self._rate(view), self._most_per_s, view.frame.shard_count)

    async def split(self, place: Place, view: BucketView, until_s: float) -> TransactOutcome | None:
        """Make two shards of one; where another was faster, learn from it. None: it is as small as it gets."""
        bucket, shard = place
        splitting = split(view, self._table.now())
        if splitting is None:
            return None
        operations = bucket_writes.split(view, splitting, next(self._means.nonces))
        token = f"split-{next(self._means.nonces)}"
        outcome = await self._table.transact(operations, token, until_s=until_s)
        both = (shard, splitting.new_shard)
        self._learn_from(outcome, both, bucket, view.frame.terms)
        if isinstance(outcome, Committed):
            await self._read_again(bucket, both, view.frame.terms, until_s)
            self.holds.end(place)
        return outcome

    async def _split_in_time(self, place: Place, view: BucketView | None, until_s: float) -> None:
        """Split a shard that takes no writes for now, as soon as it takes one, unless another is faster.

        Raises:
            RateLimiterUnavailable: The table did not answer.
        """
        pauses = self.pauses(until_s)
        self._splitting.add(place)
        try:
            while view is not None:
                outcome = await self.split(place, view, until_s)
                if not isinstance(outcome, Throttled | Cancelled | Conflict) or not await pauses.wait():
                    return
                before, view = view, self._buckets.remembered(*place)
                if view is not None and view.frame.shard_count != before.frame.shard_count:
                    return
        finally:
            self._splitting.discard(place)

    async def merge(self, bucket: BucketId, staying: int, leaving: int, until_s: float) -> bool:
        """Make one shard of two; False if they are not one shard's halves, or others were faster."""
        shards = await self.read_all(bucket, None, until_s)
        if shards is None or staying not in shards or leaving not in shards:
            return False
        merging = merge(shards[staying], shards[leaving], self._table.now())
        if merging is None:
            return False
        operations = bucket_writes.merge(shards[staying], shards[leaving], merging, next(self._means.nonces))
        token = f"merge-{next(self._means.nonces)}"
        outcome = await self._table.transact(operations, token, until_s=until_s)
        if isinstance(outcome, Committed):
            await self._read_again(bucket, (leaving, staying), None, until_s)
        return isinstance(outcome, Committed)

    async def _read_again(self, bucket: BucketId, shards: Sequence[int], terms: Terms | None, until_s: float) -> None:
        keys = [self._buckets.key(bucket, shard) for shard in shards]
        for shard, item in zip(
            shards, await self._table.batch_get(keys, consistent=True, until_s=until_s), strict=True
        ):
            self._buckets.learn((bucket, shard), item, terms)

    async def relieve_and_wait(self, place: Place, terms: Terms, until_s: float, throttle: Throttled) -> None:
        """Do what may help a throttled shard, and wait until it may be written to again.

        Raises:
            RateLimiterUnavailable: No time is left.
        """
        await self.relieve(place, terms, until_s, throttle)
        await self.holds.wait(place, until_s)

    async def relieve(self, place: Place, terms: Terms | None, until_s: float, throttle: Throttled) -> None:
        """Leave a throttled shard alone for a while, and find out that it was split, or split it, if that may help.

        Of many requests that are throttled at the same time one does something, and the others find it done.
        """
        self.holds.begin(place)
        bucket, shard = place
        now_ms = self._table.now()[0]
        # Every shard of the table is throttled as well: neither a look nor a split helps.
        if (
            throttle.partition is False
            or place in self._splitting
            or not may_relieve(self._relieved.get(place), now_ms)
        ):
            return
        self._relieved.keep(place, now_ms)
        before = self._buckets.remembered(bucket, shard)
        now_s = self._scope.client.clock.monotonic_s()
        soon_s = now_s + (until_s - now_s) * _TO_LOOK
        try:
            view = await self._buckets.look(place, terms, soon_s)
        except RateLimiterUnavailable:
            # Its reads may be throttled too; the shard that it was split into first, if it was, knows of the others.
            if shard == 0:
                await self._buckets.look((bucket, 1), terms, until_s)
            return
        split_since = before is not None and view is not None and before.frame.shard_count != view.frame.shard_count
        if view is None or split_since or not self._splits_for(throttle, view):
            return
        if self._random.random() < _SPLITTERS:
            with suppress(RateLimiterUnavailable):
                await self._split_in_time(place, view, until_s)


def _granted(terms: Terms, charged: Sequence[BucketView]) -> Grant:
    """Return what admitted a take from several shards: the birth number that one of them has."""
    births = [view.frame.birth for view in charged if view.frame.birth is not None]
    return Grant(terms, births[0] if births else None)


def _may_fit(memory: Remembered, amounts: Amounts) -> bool:
    """Say whether the share of any shard is large enough for a request."""
    views = memory.views()
    fits = [
        all(milli <= view.frame.baseline(position).capacity_milli for position, milli in amounts)
        for view in views.values()
        if len(view.frame.limits) > max((position for position, _ in amounts), default=0)
    ]
    return any(fits) or not fits
