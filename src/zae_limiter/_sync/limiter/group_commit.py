"""Acquires of one bucket that travel as one write, and what ended leases settle with it.

A bucket that nobody else of this process writes to is written to at once. Which of a group a balance admits is
decided in ``core.batch``.
"""  # generated from _async by tools/mirror.py; do not edit

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from zae_limiter._sync.caches import Bounded, BucketId, NamespaceCaches, Remembered
from zae_limiter._sync.limiter.pair import Paired
from zae_limiter._sync.limiter.request import AcquireRequest, Rejected
from zae_limiter._sync.limiter.resolve import NoLimitsInForceError
from zae_limiter._sync.limiter.write_batcher import WriteBatcher
from zae_limiter._sync.store.buckets import check_bucket
from zae_limiter.core.acquire import LevelOfLimit
from zae_limiter.core.batch import admitted, are_amounts, capacities_of, fitting, room_of, together
from zae_limiter.core.bucket import TimeBounds
from zae_limiter.core.bucket_changes import Settlement
from zae_limiter.core.errors import RateLimiterUnavailable, ValidationError, ZAELimiterError
from zae_limiter.core.view import EffectiveLimits, Grant

TakeResult = Grant | Paired | Rejected
Attempt = Callable[[AcquireRequest], TakeResult]
Settle = Callable[[BucketId, Settlement, EffectiveLimits, float], None]

Times = tuple[Callable[[], TimeBounds], Callable[[], float], Callable[[], float]]
"""The time, the deadline of a call that begins now, and the monotonic clock that deadlines are on."""

_WRITES_UNDER_WAY = 8
"""Writes to one bucket that a process has under way: with fewer, who waits for the next would wait for long."""
_MOST_TOGETHER = 1_000
_ROUNDS = 12
"""How often a group is judged anew while others take in between; who is left then goes alone."""
_CONVOYS = 4096
"""Buckets whose queues are kept, idle or not; one that is forgotten while it is busy ends by itself."""

_AGAIN = RateLimiterUnavailable(TimeoutError("to be tried again"))
"""The verdict on a request that what there is admits, once those of its group that it does not admit are left out."""


class Share(NamedTuple):
    """What a lease settles, by which terms, and until when."""

    settlement: Settlement
    terms: EffectiveLimits
    until_s: float


class GroupCommit:
    """The writes of one process to the buckets of one namespace."""

    def __init__(
        self, attempt: Attempt, settle: Settle, caches: NamespaceCaches, times: Times, *, together: bool = True
    ) -> None:
        self._attempt = attempt
        self._settle = settle
        self._caches = caches
        self._now, self._until_s, self._monotonic_s = times
        self._takes: Bounded[tuple[BucketId, bool], WriteBatcher[AcquireRequest, TakeResult]] = Bounded(_CONVOYS)
        self._settlements: Bounded[tuple[BucketId, str, int | None], WriteBatcher[Share, bool]] = Bounded(_CONVOYS)
        self._together = together

    def renew(self) -> None:
        """Wait for nothing, in a copy of the process, that the original has in flight."""
        self._takes.clear()
        self._settlements.clear()

    def take(self, request: AcquireRequest) -> TakeResult:
        """Take from a bucket, together with others if there are any.

        Raises:
            ZAELimiterError: As an attempt that goes alone.
        """
        # What is no request at all is told so alone: it must not be summed up with others.
        shared = self._together and request.own is None and are_amounts(request.consume)
        key = (request.bucket, request.partly)
        try:
            batcher = self._takes.get(key)
        except TypeError:
            # A name that cannot even be hashed is none.
            check_bucket(request.bucket)
            raise
        if batcher is None or not shared:
            batcher = WriteBatcher(self._take_all, self._room_for_takes if shared else _always, self._monotonic_s)
            if shared:
                self._takes.keep(key, batcher)
        elif not batcher.idle:
            self._check(request)
        return batcher.join(request, lambda verdict: self._give_back(request, verdict))

    def settle(self, bucket: BucketId, settlement: Settlement, terms: EffectiveLimits, until_s: float) -> None:
        """Charge debits and give credits back, together with others if there are any.

        Raises:
            ZAELimiterError: As a settlement that goes alone.
        """
        # A bucket that is gone is made anew by the terms of those who settle: a caller's own are for its own.
        # Credits of another birth number are for another bucket under the same name.
        key = (bucket, terms.digest, settlement.birth)
        batcher = self._settlements.get(key) if self._together else None
        if batcher is None:
            room = _some_under_way if self._together else _always
            batcher = WriteBatcher(lambda some: self._settle_all(bucket, some), room, self._monotonic_s)
            if self._together:
                self._settlements.keep(key, batcher)
        batcher.join(Share(settlement, terms, until_s), _nothing)

    def _check(self, request: AcquireRequest) -> None:
        """Refuse what can never be admitted before it travels with others; limits to be read again refuse nothing."""
        known = self._caches.limits(request.bucket)
        if known is not None and known.terms is not None and known.is_fresh(self._now()[0]):
            request.amounts(known.terms)

    def _room_for_takes(self, requests: Sequence[AcquireRequest], under_way: int) -> int:
        """Say how many may set out: all who wait, so that nobody waits for long to be told that there is too little.

        While others are under way, there must be enough for the first of them: else they would ask in vain.
        """
        if not under_way and len(requests) == 1:
            return 1
        if under_way >= _WRITES_UNDER_WAY:
            return 0
        known = self._known(requests[0].bucket)
        if known is None:
            return 0 if under_way else 1
        remembered, terms = known
        everyone = min(len(requests), _MOST_TOGETHER)
        view = remembered.expected()
        if not under_way or view is None or remembered.sharded:
            return everyone
        return everyone if fitting((requests[0].consume,), room_of(view, terms, self._now())) else 0

    def _known(self, bucket: BucketId) -> tuple[Remembered, EffectiveLimits] | None:
        """Return what is remembered of a bucket, and its limits; None while these are not known."""
        remembered = self._caches.buckets.get(bucket)
        limits = None if remembered is None else remembered.limits
        if remembered is None or limits is None or limits.terms is None:
            return None
        return remembered, limits.terms

    def _most_at_once(self, requests: Sequence[AcquireRequest]) -> int:
        """Say how many, from the first, may be asked for in one: no more than the bucket can ever give at once."""
        known = self._known(requests[0].bucket)
        if known is None:
            return len(requests)
        return max(1, fitting([request.consume for request in requests], capacities_of(known[1])))

    def _expected_at_once(self, requests: Sequence[AcquireRequest]) -> int:
        """Say how many of them the bucket is thought to have enough for; most, where not even for the first."""
        most = self._most_at_once(requests)
        known = self._known(requests[0].bucket)
        view = None if known is None or known[0].sharded else known[0].expected()
        if known is None or view is None:
            return most
        enough = fitting([request.consume for request in requests], room_of(view, known[1], self._now()))
        return min(most, enough) or most

    def _take_all(self, requests: Sequence[AcquireRequest]) -> Sequence[TakeResult | ZAELimiterError]:
        """Take for all in one write; where that is too much, for those that what there is admits."""
        if len(requests) == 1:
            return [self._take_one(requests[0])]
        verdicts: dict[int, TakeResult | ZAELimiterError] = {}
        waiting, count = list(range(len(requests))), self._expected_at_once(requests)
        for _ in range(_ROUNDS):
            some = [requests[number] for number in waiting]
            verdicts.update(zip(waiting, self._take_together(some, count), strict=True))
            waiting = [number for number in waiting if verdicts[number] is _AGAIN]
            if len(waiting) <= 1:
                break
            # Once some were admitted, the others are judged by what that has left, all of them at once.
            count = self._most_at_once([requests[number] for number in waiting])
        for number in waiting:
            verdicts[number] = self._take_one(requests[number])
        return [verdicts[number] for number in range(len(requests))]

    def _take_together(
        self, requests: Sequence[AcquireRequest], count: int
    ) -> Sequence[TakeResult | ZAELimiterError]:
        """Take once for the first ``count``; where that is too much, all are judged by what there is.

        Those who may try again are told so.
        """
        first, later = requests[:count], len(requests) - count
        try:
            verdict = self._attempt(_as_one(first))
        except NoLimitsInForceError as error:
            return [error] * len(requests)
        except ValidationError as error:
            # One of them can never be admitted, or what was known of the limits has changed: fewer may travel.
            return [*self._take_by_halves(first, error), *[_AGAIN] * later]
        except ZAELimiterError as error:
            return [error] * len(requests)
        if not isinstance(verdict, Rejected):
            return [*[verdict] * count, *[_AGAIN] * later]
        flags = _flags(requests, verdict)
        others = together(request.consume for request, flag in zip(requests, flags, strict=True) if flag)
        return [
            _AGAIN if flag else _rejection(request, verdict, others)
            for request, flag in zip(requests, flags, strict=True)
        ]

    def _take_by_halves(
        self, requests: Sequence[AcquireRequest], error: ValidationError
    ) -> Sequence[TakeResult | ZAELimiterError]:
        middle = len(requests) // 2
        if not middle:
            return [error]
        return [*self._take_all(requests[:middle]), *self._take_all(requests[middle:])]

    def _take_one(self, request: AcquireRequest) -> TakeResult | ZAELimiterError:
        try:
            return self._attempt(request)
        except ZAELimiterError as error:
            return error

    def _settle_all(self, bucket: BucketId, some: Sequence[Share]) -> Sequence[bool]:
        """Charge and credit what all of them settle, in one write."""
        if len(some) == 1:
            self._settle(bucket, *some[0])
        else:
            whole = _sum([one.settlement for one in some])
            if whole.names:
                self._settle(bucket, whole, some[-1].terms, min(one.until_s for one in some))
        return [True] * len(some)

    def _give_back(self, request: AcquireRequest, verdict: TakeResult) -> None:
        """Credit what was taken for a caller who has left."""
        if isinstance(verdict, Paired):
            self._credit(verdict.parent, request.consume, verdict.parent_grant)
            self._credit(request.bucket, request.consume, verdict.grant)
        elif isinstance(verdict, Grant):
            self._credit(request.bucket, request.consume, verdict)

    def _credit(self, bucket: BucketId, consume: dict[str, int], grant: Grant) -> None:
        terms = grant.terms
        held = tuple((name, amount * 1000) for name, amount in consume.items() if amount and name in terms.positions)
        if held:
            self._settle(bucket, Settlement(credits=held, birth=grant.birth), terms, self._until_s())


def _nothing(_: object) -> None:
    """Undo nothing: what is settled is settled."""


def _always(requests: Sequence[object], under_way: int) -> int:
    return len(requests)


def _some_under_way(requests: Sequence[object], under_way: int) -> int:
    return len(requests[:_MOST_TOGETHER]) if under_way < _WRITES_UNDER_WAY else 0


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
