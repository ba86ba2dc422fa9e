"""Group commit: while writes to a bucket are in flight, later takes and settlements queue and are sent as one write.

A request to a bucket without writes in flight is sent immediately. ``core.batch`` decides which requests of a batch a
balance admits.
"""  # generated from _async by tools/mirror.py; do not edit

from collections.abc import Mapping, Sequence
from functools import partial

from zae_limiter._sync.limiter.chains import Chain
from zae_limiter._sync.limiter.client import NetworkedClient
from zae_limiter._sync.limiter.write_batcher import WriteBatcher
from zae_limiter._sync.store.buckets import check_bucket
from zae_limiter._sync.store.scope import Scope
from zae_limiter.caches.buckets import Bounded, BucketId, KnownLimits, Remembered
from zae_limiter.caches.request import AcquireRequest, FallbackLimits, HeldBucket, Owed, Rejected, part_of
from zae_limiter.core.add_or_set import shortfall
from zae_limiter.core.batch import admitted, capacities_of, fitting, room_of, together
from zae_limiter.core.bucket_changes import summed
from zae_limiter.core.cascade import BucketFailed
from zae_limiter.core.errors import NoLimitsInForceError, ValidationError, ZAELimiterError
from zae_limiter.core.levels import LevelOfLimit
from zae_limiter.core.multi_shard import Combined, combined
from zae_limiter.core.reserve import Reserve
from zae_limiter.core.reserved_take import with_floors
from zae_limiter.core.sharding import is_complete
from zae_limiter.core.view import Admitted, EffectiveLimits

_BATCHERS = 4096
"""Buckets whose queues are kept, idle or not. A busy queue that is dropped ends by itself."""

_WRITES_IN_FLIGHT = 8
"""Maximum concurrent writes per bucket and process; fewer would add queueing delay."""

_MOST_TOGETHER = 1_000
"""Maximum requests of one batch."""

_ROUNDS = 12
"""A batch is tried this many times while other clients take in between; then each request left is sent alone."""


class RetryLater:
    """The result of a request that the balance admits once the rejected requests of its batch are left out."""


RETRY_LATER = RetryLater()

TakeResult = Admitted | Rejected
TakeKey = tuple[BucketId, bool, Reserve | None]
"""A bucket, whether limits that it lacks are ignored, and the reserve: the requests of one batch leave the same."""

SettlementKey = tuple[BucketId, str, int | None, int | None]
"""A bucket, the digest of own limits, the birth number, and the shard that it is bound to, None if to none."""

BatchResult = TakeResult | ZAELimiterError | RetryLater


class BatchedClient(NetworkedClient):
    """Takes from buckets of a networked table and settles with them, together with other callers of the process."""

    def __init__(self, scope: Scope, *, speculative: bool, together: bool) -> None:
        super().__init__(scope, speculative=speculative)
        self._server_time = scope.table.server_time
        self._reads: Bounded[BucketId, ChainBatcher] = Bounded(_BATCHERS)
        self._takes: Bounded[TakeKey, TakeBatcher] = Bounded(_BATCHERS)
        self._settlements: Bounded[SettlementKey, SettlementBatcher] = Bounded(_BATCHERS)
        self._together = together

    def renew(self, *, restored: bool) -> None:
        """Drop all queues in a copy of the process: their leaders run in the original."""
        super().renew(restored=restored)
        self._reads.clear()
        self._takes.clear()
        self._settlements.clear()

    def is_alone(self, bucket: BucketId) -> bool:
        """Return whether a request takes from this bucket only; False if that must be read first."""
        try:
            memory = self.caches.buckets.get(bucket)
        except TypeError:
            # A name that cannot be hashed is refused later, with all other invalid names.
            return False
        known = None if memory is None else memory.limits
        # The same as ``is_fresh``, written out: this is done for every acquire.
        return known is not None and known.links is None and known.read_ms <= self.now()[0] < known.expires_ms

    def chain_of(self, request: AcquireRequest) -> Chain:
        """Return the entities that a request takes from; callers of the same bucket share what is read.

        Raises:
            ValidationError: A name is invalid, or the chain is too long.
            RateLimiterUnavailable: The table did not answer.
        """
        known = self.chains.known(request.bucket)
        if known is not None:
            return known
        if not self._together or request.own is not None:
            return self.chains.read(request)
        batcher = self._reads.get(request.bucket)
        if batcher is None:
            batcher = ChainBatcher(self)
            self._reads.keep(request.bucket, batcher)
        return batcher.join(request)

    def closest(self, parts: Sequence[AcquireRequest]) -> AcquireRequest | None:
        """Return the request whose bucket is most likely to lack the tokens; None if all buckets surely have them."""
        lacking = [(self._shortfall(part), number) for number, part in enumerate(parts)]
        most, number = max(lacking)
        return parts[number] if most > 0 else None

    def _shortfall(self, part: AcquireRequest) -> float:
        """Return how many tokens a bucket may lack for a request, by its cached view, as a fraction of its capacity."""
        memory = self.caches.of(part.bucket)
        view = memory.expected()
        terms = part.known.terms if part.known is not None else self.resolver.known_terms(part.bucket, part.own)
        if view is None or terms is None:
            return 0.0
        now, limits = self.now(), terms.limits
        if memory.sharded:
            if not is_complete(memory.counts()):
                return 0.0
            # What others take from each shard is not estimated: a request may take from any of them.
            levels, reserve = combined(list(memory.views().values()), terms, now), part.reserve
            spare = levels if reserve is None else [level.above(reserve) for level in levels]
            lacking = (
                (milli - spare[position].available_milli(now)) / limits[position].capacity_milli
                for position, milli in part.amounts(terms)
                if limits[position].enforce
            )
            return max([0.0, *lacking])
        if not view.layout.follows(terms):
            return 0.0
        return max(
            (
                shortfall(view, position, milli, now) / limits[position].capacity_milli
                for position, milli in with_floors(view, terms, part.amounts(terms), part.reserve)
                if limits[position].enforce
            ),
            default=0.0,
        )

    def take(self, request: AcquireRequest) -> TakeResult:
        """Take from a bucket, together with other callers if there are any.

        Raises:
            ValidationError: The request can never be admitted.
            RateLimiterUnavailable: The table did not answer.
        """
        if isinstance(request.own, FallbackLimits) and self.resolver.has_stored_limits(request.bucket):
            # They do not apply, so this take may travel with others.
            try:
                return self.take(request._replace(own=None))
            except NoLimitsInForceError:
                # The stored limits were deleted meanwhile, so they do apply.
                pass
        taken = self._batcher(request).join(request)
        if isinstance(taken, Rejected) and self._server_time is not None and taken.depends_on_the_clock():
            self._server_time.narrow()
        return taken

    def take_part(self, request: AcquireRequest) -> Admitted | Rejected:
        """Take from one of several buckets.

        Raises:
            ValidationError: The request can never be admitted.
            RateLimiterUnavailable: The table did not answer.
        """
        return self.take(request)

    def _batcher(self, request: AcquireRequest) -> "TakeBatcher":
        """Return the queue of a request. An invalid request gets a queue of its own, so that it fails alone."""
        key = (request.bucket, request.partly, request.reserve)
        try:
            batcher = self._takes.get(key)
        except TypeError:
            # A name that cannot be hashed is invalid.
            check_bucket(request.bucket)
            raise
        if not self._together or request.own is not None:
            return TakeBatcher(self, together=False)
        for amount in request.consume.values():
            if type(amount) is not int or amount < 0:
                return TakeBatcher(self, together=False)
        if batcher is None:
            batcher = TakeBatcher(self, together=True)
            self._takes.keep(key, batcher)
        elif batcher.busy:
            self._check(request)
        return batcher

    def _check(self, request: AcquireRequest) -> None:
        """Refuse a request that can never be admitted before it joins a batch, if the cached limits are fresh."""
        known = self.caches.limits(request.bucket)
        if known is not None and known.terms is not None and known.is_fresh(self.now()[0]):
            request.amounts(known.terms)

    def settle(self, owed: Owed) -> None:
        """Charge debits and give credits back, together with other callers if there are any.

        Raises:
            RateLimiterUnavailable: The table did not answer; a credit may still have been given.
        """
        # A bucket that is gone is created again by the limits of the settlement, so a caller's own limits stay apart.
        # Credits of another birth number are for another bucket under the same name. What is given back of slots and
        # quotas is bound to one shard.
        settlement = owed.settlement
        key = (owed.bucket, owed.terms.digest, settlement.birth, settlement.shard if settlement.is_bound else None)
        batcher = self._settlements.get(key) if self._together else None
        if batcher is None:
            batcher = SettlementBatcher(self, together=self._together)
            if self._together:
                self._settlements.keep(key, batcher)
        batcher.join(owed)

    def settle_each(self, owed: Sequence[Owed]) -> list[BucketFailed | None]:
        """Settle with all buckets at the same time; each is tried even if another fails."""
        return self.parallel.run_to_end([partial(self.settle_one, one) for one in owed])


class TakeBatcher(WriteBatcher[AcquireRequest, TakeResult]):
    """The takes from one bucket; each is sent alone if ``together`` is False."""

    def __init__(self, client: NetworkedClient, *, together: bool) -> None:
        super().__init__(client.monotonic_s)
        self._client = client
        self._caches = client.caches
        self._together = together

    @property
    def busy(self) -> bool:
        """Whether requests are in flight or queued."""
        return bool(self._in_flight or self._queue)

    def room(self, requests: Sequence[AcquireRequest], in_flight: int) -> int:
        """Return how many requests may be sent now: as a rule the whole queue, or none.

        The queue includes requests that will be rejected, because these must not wait either.
        """
        if not self._together or (not in_flight and len(requests) == 1):
            return len(requests)
        if in_flight >= _WRITES_IN_FLIGHT:
            return 0
        known = self._known(requests[0].bucket)
        if known is None:
            # The limits are unknown, so the capacity is too. One request reads them, and the others wait for it.
            return 0 if in_flight else 1
        remembered, terms = known
        everyone = min(len(requests), _MOST_TOGETHER)
        view = remembered.expected()
        if not in_flight or view is None or remembered.sharded:
            return everyone
        # Writes in flight may leave too little for the first request. A take that is sent now would be refused, and
        # the answers that are about to arrive tell whether there is enough. So the queue waits for them.
        room = room_of(view, terms, self._client.now(), requests[0].reserve)
        return everyone if fitting((requests[0].consume,), room) else 0

    def _known(self, bucket: BucketId) -> tuple[Remembered, EffectiveLimits] | None:
        """Return what is cached of a bucket, and its limits; None if the limits are not cached."""
        remembered = self._caches.buckets.get(bucket)
        limits = None if remembered is None else remembered.limits
        if remembered is None or limits is None or limits.terms is None:
            return None
        return remembered, limits.terms

    def _most_at_once(self, requests: Sequence[AcquireRequest]) -> int:
        """Return how many requests, from the first, fit into one take: their sum must not exceed a capacity."""
        known = self._known(requests[0].bucket)
        if known is None:
            return len(requests)
        most = capacities_of(known[1], requests[0].reserve)
        return max(1, fitting([request.consume for request in requests], most))

    def _expected_at_once(self, requests: Sequence[AcquireRequest]) -> int:
        """Return how many requests the bucket is expected to admit; all that fit into one take if it admits none."""
        most = self._most_at_once(requests)
        known = self._known(requests[0].bucket)
        view = None if known is None or known[0].sharded else known[0].expected()
        if known is None or view is None:
            return most
        # What a soft limit does not have any more goes out in a write of its own. Together with the rest, none of it
        # would be charged.
        room = room_of(view, known[1], self._client.now(), requests[0].reserve, of_soft=True)
        enough = fitting([request.consume for request in requests], room)
        return min(most, enough) or most

    def send_all(self, requests: Sequence[AcquireRequest]) -> Sequence[TakeResult | ZAELimiterError]:
        """Take for all requests in one write; if that is too much, take for those that the balance admits."""
        if len(requests) == 1:
            return [self._take_one(requests[0])]
        results: dict[int, TakeResult | ZAELimiterError] = {}
        waiting, count = list(range(len(requests))), self._expected_at_once(requests)
        for _ in range(_ROUNDS):
            together, later = self._take_together([requests[number] for number in waiting], count), []
            for number, result in zip(waiting, together, strict=True):
                if isinstance(result, RetryLater):
                    later.append(number)
                else:
                    results[number] = result
            waiting = later
            if len(waiting) <= 1:
                break
            # The others are tried in one write, without an estimate of how many fit. A refusal shows the balance, which
            # decides about all of them.
            count = self._most_at_once([requests[number] for number in waiting])
        for number in waiting:
            results[number] = self._take_one(requests[number])
        return [results[number] for number in range(len(requests))]

    def _take_together(self, requests: Sequence[AcquireRequest], count: int) -> Sequence[BatchResult]:
        """Take once for the first ``count``; if that is too much, decide about all by the balance.

        The result of a request that is to be tried again is ``RETRY_LATER``.
        """
        first, later = requests[:count], len(requests) - count
        before = self._caches.limits(first[0].bucket)
        try:
            result = self._client.take_alone(_as_one(first))
        except NoLimitsInForceError as error:
            return [error] * len(requests)
        except ValidationError as error:
            # One of them can never be admitted, or the sum exceeds a lowered capacity. The others must not fail
            # with it. If the cached limits do not show which one it is, halves isolate it.
            invalid = self._without_invalid(first, before) or self._take_by_halves(first, error)
            return [*invalid, *[RETRY_LATER] * later]
        except ZAELimiterError as error:
            return [error] * len(requests)
        if not isinstance(result, Rejected):
            return [*part_of(result, [request.consume for request in first]), *[RETRY_LATER] * later]
        # Requests are admitted in order, as far as the balance reaches. The rejections report what is left after the
        # admitted ones, though these are sent again only in the next round.
        flags = _flags(requests, result)
        others = together(request.consume for request, flag in zip(requests, flags, strict=True) if flag)
        return [
            RETRY_LATER if flag else _rejection(request, result, others)
            for request, flag in zip(requests, flags, strict=True)
        ]

    def _without_invalid(self, requests: Sequence[AcquireRequest], before: KnownLimits | None) -> Sequence[BatchResult]:
        """Return the errors of requests that known limits can never admit; nothing if there are none.

        Cached limits decide if they are fresh, or if the failed take has read them: they were ``before`` until then.
        Otherwise each request is judged by the limits that were read for it. Neither takes a call.
        """
        known = self._caches.limits(requests[0].bucket)
        usable = known is not None and (known is not before or known.is_fresh(self._client.now()[0]))
        cached = known.terms if known is not None and usable else None
        results = [_error_of(request, cached) or RETRY_LATER for request in requests]
        return [] if all(result is RETRY_LATER for result in results) else results

    def _take_by_halves(
        self, requests: Sequence[AcquireRequest], error: ValidationError
    ) -> Sequence[TakeResult | ZAELimiterError]:
        middle = len(requests) // 2
        if not middle:
            return [error]
        return [*self.send_all(requests[:middle]), *self.send_all(requests[middle:])]

    def _take_one(self, request: AcquireRequest) -> TakeResult | ZAELimiterError:
        try:
            return self._client.take_alone(request)
        except ZAELimiterError as error:
            return error

    def undo(self, request: AcquireRequest, result: TakeResult) -> None:
        """Credit what was taken for a caller that has left.

        The credit is written directly, not through the queue of settlements.
        """
        if isinstance(result, Rejected):
            return
        changes = {name: -amount for name, amount in request.consume.items()}
        until_s = self._client.until_s()
        for settlement in HeldBucket(request.bucket, result, result.terms.positions).settlements(changes):
            owed = Owed(request.bucket, settlement, result.terms, until_s)
            self._client.settler.settle(owed)
            self._client.note_credit(owed)


class ChainBatcher(WriteBatcher[AcquireRequest, Chain]):
    """The reads of the chain of one bucket: callers that wait for a read share its result."""

    def __init__(self, client: NetworkedClient) -> None:
        super().__init__(client.monotonic_s)
        self._client = client

    def room(self, requests: Sequence[AcquireRequest], in_flight: int) -> int:
        """Return how many requests may be sent now: all of them, if no read is in flight."""
        return 0 if in_flight else len(requests)

    def send_all(self, requests: Sequence[AcquireRequest]) -> Sequence[Chain]:
        """Read once for all requests."""
        return [self._client.chains.read(requests[0])] * len(requests)

    def undo(self, request: AcquireRequest, outcome: Chain) -> None:
        """Do nothing: a read has no effect."""


class SettlementBatcher(WriteBatcher[Owed, bool]):
    """The settlements with one bucket; each is sent alone if ``together`` is False."""

    def __init__(self, client: NetworkedClient, *, together: bool) -> None:
        super().__init__(client.monotonic_s)
        self._client = client
        self._together = together

    def room(self, requests: Sequence[Owed], in_flight: int) -> int:
        """Return how many settlements may be sent now."""
        if not self._together:
            return len(requests)
        return min(len(requests), _MOST_TOGETHER) if in_flight < _WRITES_IN_FLIGHT else 0

    def send_all(self, requests: Sequence[Owed]) -> Sequence[bool]:
        """Charge and credit all settlements in one write."""
        settler = self._client.settler
        if len(requests) == 1:
            settler.settle(requests[0])
        else:
            whole = summed([one.settlement for one in requests])
            if whole.names or whole.is_bound:
                until_s = min(one.until_s for one in requests)
                settler.settle(requests[-1]._replace(settlement=whole, until_s=until_s))
        for one in requests:
            self._client.note_credit(one)
        return [True] * len(requests)

    def undo(self, request: Owed, outcome: bool) -> None:
        """Do nothing: a settlement is never undone."""


def _error_of(request: AcquireRequest, cached: EffectiveLimits | None) -> ValidationError | None:
    """Return why limits can never admit a request; None if they can, or if none are known."""
    terms = request.known.terms if cached is None and request.known is not None else cached
    try:
        if terms is not None:
            request.amounts(terms)
    except ValidationError as error:
        return error
    return None


def _as_one(requests: Sequence[AcquireRequest]) -> AcquireRequest:
    """Return one request for the sum of several, with the earliest of their deadlines."""
    first = requests[0]
    until_s = min(request.until_s for request in requests)
    amounts = together(request.consume for request in requests)
    return first._replace(consume=amounts, until_s=until_s)


def _flags(requests: Sequence[AcquireRequest], rejection: Rejected) -> list[bool]:
    # A soft limit rejects nothing.
    levels = [level for level in rejection.spare_levels if level.limit.enforce]
    available = {level.name: level.available_milli(rejection.judged) // 1000 for level in levels}
    return admitted([request.consume for request in requests], available)


def _rejection(request: AcquireRequest, whole: Rejected, taken: Mapping[str, int]) -> Rejected:
    """Return the rejection of one request of a batch, with the levels after the admitted requests have taken."""
    levels = [_after(level, taken.get(level.name, 0) * 1000, whole) for level in whole.levels]
    positions = {level.name: position for position, level in enumerate(levels)}
    amounts = [(positions[name], amount * 1000) for name, amount in request.consume.items() if name in positions]
    return Rejected(whole.bucket, whole.terms, None, amounts, whole.judged, whole.now, levels, whole.reserve)


def _after(level: LevelOfLimit, milli: int, whole: Rejected) -> LevelOfLimit:
    """Return a level after a take by requests that leave the same reserve as the rejected one."""
    if whole.reserve is None or not isinstance(level, Combined):
        return level.less(milli, whole.judged)
    return level.less_above(milli, whole.judged, whole.reserve)
