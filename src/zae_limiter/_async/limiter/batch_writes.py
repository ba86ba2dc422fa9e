"""Takes and settlements of one bucket that are sent as one write.

``core.batch`` decides which requests of a batch a balance admits.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from zae_limiter._async.caches import BucketId, Remembered
from zae_limiter._async.limiter.networked import NetworkedClient, TakeResult
from zae_limiter._async.limiter.pair import Paired
from zae_limiter._async.limiter.request import AcquireRequest, Rejected
from zae_limiter._async.limiter.resolve import NoLimitsInForceError
from zae_limiter._async.limiter.write_batcher import WriteBatcher
from zae_limiter.core.acquire import LevelOfLimit
from zae_limiter.core.batch import admitted, capacities_of, fitting, room_of, together
from zae_limiter.core.bucket_changes import Settlement
from zae_limiter.core.errors import ValidationError, ZAELimiterError
from zae_limiter.core.view import EffectiveLimits, Grant

WRITES_IN_FLIGHT = 8
"""Writes to one bucket that a process has in flight; fewer would add queueing delay."""

MOST_TOGETHER = 1_000
_ROUNDS = 12
"""How often a batch is evaluated again while other clients take in between; each request left then is sent alone."""


class RetryLater:
    """The result of a request that the balance admits once the rejected requests of its batch are left out."""


RETRY_LATER = RetryLater()

BatchResult = TakeResult | ZAELimiterError | RetryLater


class TakeBatcher(WriteBatcher[AcquireRequest, TakeResult]):
    """The takes from one bucket; ``together`` False sends each of them alone."""

    def __init__(self, client: NetworkedClient, *, together: bool) -> None:
        super().__init__(client.monotonic_s)
        self._client = client
        self._caches = client.caches
        self._together = together

    def room(self, requests: Sequence[AcquireRequest], in_flight: int) -> int:
        """Return how many requests may be sent now: all that wait, so that none waits long to be rejected.

        While others are in flight, there must be enough for the first: otherwise they would be refused for nothing.
        """
        if not self._together or (not in_flight and len(requests) == 1):
            return len(requests)
        if in_flight >= WRITES_IN_FLIGHT:
            return 0
        known = self._known(requests[0].bucket)
        if known is None:
            return 0 if in_flight else 1
        remembered, terms = known
        everyone = min(len(requests), MOST_TOGETHER)
        view = remembered.expected()
        if not in_flight or view is None or remembered.sharded:
            return everyone
        return everyone if fitting((requests[0].consume,), room_of(view, terms, self._client.now())) else 0

    def _known(self, bucket: BucketId) -> tuple[Remembered, EffectiveLimits] | None:
        """Return what is remembered of a bucket, and its limits; None while these are not known."""
        remembered = self._caches.buckets.get(bucket)
        limits = None if remembered is None else remembered.limits
        if remembered is None or limits is None or limits.terms is None:
            return None
        return remembered, limits.terms

    def _most_at_once(self, requests: Sequence[AcquireRequest]) -> int:
        """Return how many requests, from the first, fit into one take: no more than the capacity."""
        known = self._known(requests[0].bucket)
        if known is None:
            return len(requests)
        return max(1, fitting([request.consume for request in requests], capacities_of(known[1])))

    def _expected_at_once(self, requests: Sequence[AcquireRequest]) -> int:
        """Return how many requests the bucket is expected to admit; all that fit, if not even the first."""
        most = self._most_at_once(requests)
        known = self._known(requests[0].bucket)
        view = None if known is None or known[0].sharded else known[0].expected()
        if known is None or view is None:
            return most
        enough = fitting([request.consume for request in requests], room_of(view, known[1], self._client.now()))
        return min(most, enough) or most

    async def carry(self, requests: Sequence[AcquireRequest]) -> Sequence[TakeResult | ZAELimiterError]:
        """Take for all requests in one write; where that is too much, for those that the balance admits."""
        if len(requests) == 1:
            return [await self._take_one(requests[0])]
        results: dict[int, TakeResult | ZAELimiterError] = {}
        waiting, count = list(range(len(requests))), self._expected_at_once(requests)
        for _ in range(_ROUNDS):
            together, later = await self._take_together([requests[number] for number in waiting], count), []
            for number, result in zip(waiting, together, strict=True):
                if isinstance(result, RetryLater):
                    later.append(number)
                else:
                    results[number] = result
            waiting = later
            if len(waiting) <= 1:
                break
            # Once some were admitted, the others are evaluated by what that has left, all of them in one write.
            count = self._most_at_once([requests[number] for number in waiting])
        for number in waiting:
            results[number] = await self._take_one(requests[number])
        return [results[number] for number in range(len(requests))]

    async def _take_together(self, requests: Sequence[AcquireRequest], count: int) -> Sequence[BatchResult]:
        """Take once for the first ``count``; where that is too much, all are judged by what there is.

        A request that may be tried again gets ``RETRY_LATER``.
        """
        first, later = requests[:count], len(requests) - count
        try:
            verdict = await self._client.take_alone(_as_one(first))
        except NoLimitsInForceError as error:
            return [error] * len(requests)
        except ValidationError as error:
            # One of them can never be admitted, or what was known of the limits has changed: fewer may travel.
            return [*await self._take_by_halves(first, error), *[RETRY_LATER] * later]
        except ZAELimiterError as error:
            return [error] * len(requests)
        if not isinstance(verdict, Rejected):
            return [*[verdict] * count, *[RETRY_LATER] * later]
        flags = _flags(requests, verdict)
        others = together(request.consume for request, flag in zip(requests, flags, strict=True) if flag)
        return [
            RETRY_LATER if flag else _rejection(request, verdict, others)
            for request, flag in zip(requests, flags, strict=True)
        ]

    async def _take_by_halves(
        self, requests: Sequence[AcquireRequest], error: ValidationError
    ) -> Sequence[TakeResult | ZAELimiterError]:
        middle = len(requests) // 2
        if not middle:
            return [error]
        return [*await self.carry(requests[:middle]), *await self.carry(requests[middle:])]

    async def _take_one(self, request: AcquireRequest) -> TakeResult | ZAELimiterError:
        try:
            return await self._client.take_alone(request)
        except ZAELimiterError as error:
            return error

    async def undo(self, request: AcquireRequest, verdict: TakeResult) -> None:
        """Credit what was taken for a caller that has left."""
        if isinstance(verdict, Paired):
            await self._credit(verdict.parent, request.consume, verdict.parent_grant)
            await self._credit(request.bucket, request.consume, verdict.grant)
        elif isinstance(verdict, Grant):
            await self._credit(request.bucket, request.consume, verdict)

    async def _credit(self, bucket: BucketId, consume: dict[str, int], grant: Grant) -> None:
        terms = grant.terms
        held = tuple((name, amount * 1000) for name, amount in consume.items() if amount and name in terms.positions)
        if held:
            await self._client.settler.settle(
                bucket, Settlement(credits=held, birth=grant.birth), terms, self._client.until_s()
            )


class Share(NamedTuple):
    """What a lease settles, by which limits, and until when."""

    settlement: Settlement
    terms: EffectiveLimits
    until_s: float


class SettlementBatcher(WriteBatcher[Share, bool]):
    """The settlements with one bucket; ``together`` False sends each of them alone."""

    def __init__(self, client: NetworkedClient, bucket: BucketId, *, together: bool) -> None:
        super().__init__(client.monotonic_s)
        self._client = client
        self._bucket = bucket
        self._together = together

    def room(self, requests: Sequence[Share], in_flight: int) -> int:
        """Return how many settlements may be sent now."""
        if not self._together:
            return len(requests)
        return min(len(requests), MOST_TOGETHER) if in_flight < WRITES_IN_FLIGHT else 0

    async def carry(self, requests: Sequence[Share]) -> Sequence[bool]:
        """Charge and credit all settlements in one write."""
        settle = self._client.settler.settle
        if len(requests) == 1:
            await settle(self._bucket, *requests[0])
        else:
            whole = _sum([one.settlement for one in requests])
            if whole.names:
                await settle(self._bucket, whole, requests[-1].terms, min(one.until_s for one in requests))
        return [True] * len(requests)

    async def undo(self, request: Share, outcome: bool) -> None:
        """Do nothing: a settlement is never undone."""


def _as_one(requests: Sequence[AcquireRequest]) -> AcquireRequest:
    """Return what several ask for in all, to be answered by when the first of them must be."""
    first = requests[0]
    until_s = min(request.until_s for request in requests)
    amounts = together(request.consume for request in requests)
    # What a parent gives belongs to one request: each of them asks it by itself.
    return first._replace(consume=amounts, until_s=until_s, with_parent=False)


def _flags(requests: Sequence[AcquireRequest], rejection: Rejected) -> list[bool]:
    available = {stand.name: stand.available_milli(rejection.judged) // 1000 for stand in rejection.stands}
    return admitted([request.consume for request in requests], available)


def _rejection(request: AcquireRequest, whole: Rejected, taken: Mapping[str, int]) -> Rejected:
    """Return the rejection of one of a group: what those that were admitted take is no longer there."""
    stands: list[LevelOfLimit] = [stand.less(taken.get(stand.name, 0) * 1000, whole.judged) for stand in whole.stands]
    places = {stand.name: position for position, stand in enumerate(stands)}
    amounts = [(places[name], amount * 1000) for name, amount in request.consume.items() if name in places]
    return Rejected(whole.bucket, whole.terms, stands, amounts, whole.judged, whole.now)


def _sum(settlements: Sequence[Settlement]) -> Settlement:
    """Return one settlement that does what several of one birth number do."""
    debits: dict[str, int] = {}
    credits: dict[str, int] = {}
    for settlement in settlements:
        for name, milli in settlement.debits:
            debits[name] = debits.get(name, 0) + milli
        for name, milli in settlement.credits:
            credits[name] = credits.get(name, 0) + milli
    return Settlement(tuple(debits.items()), tuple(credits.items()), settlements[0].birth)
