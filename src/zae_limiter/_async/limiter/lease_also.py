"""Leases of several requests: what one acquire takes from several entities or resources, all or none."""

from collections.abc import Sequence
from types import TracebackType

from zae_limiter._async.limiter import cascade
from zae_limiter._async.limiter.lease import Lease
from zae_limiter._async.limiter.lease_facts import BucketUse, LeaseEntry
from zae_limiter._async.limiter.lease_part import ENTERED, InBatches, InPlace, LeasePart
from zae_limiter._async.limiter.lease_slots import NO_SLOTS
from zae_limiter.caches.buckets import BucketId
from zae_limiter.caches.request import AcquireRequest, Cascaded, Charge
from zae_limiter.core.batch import together
from zae_limiter.core.cascade import Also
from zae_limiter.core.errors import AmountExceedsCapacityError, RateLimiterUnavailable, ValidationError
from zae_limiter.core.names import check_amount, check_limit_name
from zae_limiter.core.reserve import Reserve


class AlsoLease(LeasePart):
    """What a lease holds of one of the requests in ``also``; ``adjust``, ``consume`` and ``release`` change it.

    It is settled with the lease.
    """

    __slots__ = ("_lease",)

    def __init__(self, lease: "SeveralLease", also: Also) -> None:
        self._lease = lease
        self._client = lease._client  # noqa: SLF001 - it is a part of this lease
        self._on_unavailable = lease._on_unavailable  # noqa: SLF001 - the same
        self._bucket = (also.entity_id, also.resource)
        self._consume = also.consume
        # Hazard: the same bucket is taken from once, by one set of limits. Stored ones would admit names here that the
        # limits of the call lack, and those amounts would be charged to nothing.
        self._own = lease._own if self._bucket == lease._bucket else None  # noqa: SLF001 - the same
        self._taken = None
        self._pending = None
        self._admitted = None
        self._others = ()
        self._slots = NO_SLOTS
        self._on_lost = None

    def begin(self) -> AcquireRequest:
        """Return the request; the lease is about to be entered."""
        # The caller's dictionary may change while the take is in flight.
        self._taken = taken = self._consume.copy()
        self._mutex = self._client.lease_mutex
        return self._request(taken)

    def hold(self, taken: Cascaded) -> None:
        """Hold what was taken."""
        self._hold_all(taken)
        if self._open_slots(self._buckets()):
            self._enter_with_slots()

    def _request(self, amounts: dict[str, int]) -> AcquireRequest:
        return super()._request(amounts)._replace(reserve=self._lease._reserve)  # noqa: SLF001 - part of this lease

    def charges(self, *, gives_back: bool) -> list[Charge]:
        """Return what is left to settle with each bucket."""
        return self._charges(gives_back=gives_back)

    def used(self) -> list[BucketUse]:
        """Return what this part of the lease uses of each bucket."""
        return self._used()

    @property
    def committed(self) -> bool:
        """True if what was taken is kept even if the block of the lease raises."""
        return self._lease.committed

    def _stage_now(self) -> int:
        return self._lease._stage_now()  # noqa: SLF001 - it is a part of this lease

    def _enter_with_slots(self) -> None:
        """Do nothing: a lease of several requests always looks for slots to return."""

    def __repr__(self) -> str:
        entity_id, resource = self._bucket
        return f"<part of {self._lease!r}: {entity_id!r}, {resource!r}>"


class SeveralLease(Lease):
    """The tokens that one acquire took for several requests, or for one that must leave a reserve."""

    __slots__ = ("_also", "_asked", "_reserve")

    _asked: object
    _also: Sequence[AlsoLease]
    _reserve: Reserve | None

    def ask(self, also: object, reserve: Reserve | None) -> "Lease":
        """Add the requests of ``also``, and what all of them must leave, before the lease is entered; return it."""
        self._asked = also
        self._also = ()
        self._reserve = reserve
        return self

    @property
    def also(self) -> Sequence[AlsoLease]:
        """What the lease holds of each request of ``also``."""
        return self._also

    async def __aenter__(self) -> "Lease":
        """Take for all requests, or raise."""
        self._check_entry()
        self._also = also = tuple(self._parts())
        self._taken = taken = self._consume.copy()
        self._mutex = self._client.lease_mutex
        self._admitted = None
        self._others = ()
        requests = [self._request(taken), *(part.begin() for part in also)]
        try:
            own, *others = await self._take_several(requests)
            self._hold_all(own)
            self._open_slots(self._buckets())
            for part, result in zip(also, others, strict=True):
                part.hold(result)
        except RateLimiterUnavailable as error:
            self._go_without_store(error)
        except AmountExceedsCapacityError as error:
            raise await cascade.never_admitted(self._client, requests, error) from None
        self._stage = ENTERED
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Write the adjustments, or give everything back after a failure. Leaving twice does nothing."""
        if self._stage_now() == ENTERED:
            charges = self._leave(failed=kind is not None)
            if charges:
                await self._settle_on_leaving(charges, failed=kind is not None)

    @property
    def lost(self) -> bool:
        """True if slots of any request were not renewed in time, so that others may use them now."""
        return super().lost or any(part.lost for part in self._also)

    @property
    def adjusted(self) -> bool:
        """True if there are adjustments that are written when the lease ends."""
        return super().adjusted or any(part.adjusted for part in self._also)

    def _used(self) -> list[BucketUse]:
        """Return what all requests use of each bucket. One that occurs several times has the sums."""
        found: dict[BucketId, BucketUse] = {}
        for use in [*super()._used(), *(one for part in self._also for one in part.used())]:
            before = found.get(use.held.bucket)
            if before is not None:
                consumed = together([before.consumed, use.consumed])
                use = BucketUse(before.held, consumed, together([before.pending, use.pending]))
            found[use.held.bucket] = use
        return list(found.values())

    @property
    def entries(self) -> list[LeaseEntry]:
        """What the lease holds of each bucket, for all requests together; nothing if it is degraded."""
        found: dict[tuple[str, str], dict[str, int]] = {}
        for entry in [*super().entries, *(entry for part in self._also for entry in part.entries)]:
            consumed = found.setdefault((entry.entity_id, entry.resource), {})
            for name, amount in entry.consumed.items():
                consumed[name] = consumed.get(name, 0) + amount
        return [LeaseEntry(*bucket, consumed) for bucket, consumed in found.items()]

    def _request(self, amounts: dict[str, int]) -> AcquireRequest:
        return super()._request(amounts)._replace(reserve=self._reserve)

    async def _take_several(self, requests: Sequence[AcquireRequest]) -> list[Cascaded]:
        """Take for several requests, all or none.

        Raises:
            RateLimitExceeded: A bucket lacks the tokens.
        """
        raise NotImplementedError

    def _charges(self, *, gives_back: bool) -> list[Charge]:
        own = super()._charges(gives_back=gives_back)
        return [*own, *(charge for part in self._also for charge in part.charges(gives_back=gives_back))]

    def _check_entry(self) -> None:
        """Check the arguments of ``acquire``, and that the lease is entered once."""
        super()._check_entry()
        if not isinstance(self._asked, list | tuple) or not all(isinstance(one, Also) for one in self._asked):
            raise ValidationError("also", self._asked, "must be a list of Also(entity_id, resource, consume)")
        for consume in (self._consume, *(one.consume for one in self._asked)):
            if type(consume) is not dict or not consume:
                raise ValidationError("consume", consume, "must be a dict of limit names and amounts, not empty")
            # Amounts for the same bucket are added up, so they are checked before.
            for name, amount in consume.items():
                check_limit_name(name)
                check_amount(f"consume[{name}]", amount)

    def _parts(self) -> list[AlsoLease]:
        raise NotImplementedError


class DirectAlsoLease(InPlace, AlsoLease):
    """A part of a lease on an embedded table."""

    __slots__ = ()


class DirectSeveralLease(InPlace, SeveralLease):
    """A lease of several requests on an embedded table."""

    __slots__ = ()

    _asked: Sequence[Also]

    async def _take_several(self, requests: Sequence[AcquireRequest]) -> list[Cascaded]:
        return await cascade.take_several_in_turn(self._client, requests)

    def _parts(self) -> list[AlsoLease]:
        return [DirectAlsoLease(self, one) for one in self._asked]


class BatchedAlsoLease(InBatches, AlsoLease):
    """A part of a lease on a networked table."""

    __slots__ = ()


class BatchedSeveralLease(InBatches, SeveralLease):
    """A lease of several requests on a networked table."""

    __slots__ = ()

    _asked: Sequence[Also]

    async def _take_several(self, requests: Sequence[AcquireRequest]) -> list[Cascaded]:
        return await cascade.take_several(self._client, requests)

    def _parts(self) -> list[AlsoLease]:
        return [BatchedAlsoLease(self, one) for one in self._asked]
