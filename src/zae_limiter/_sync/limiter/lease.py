"""SyncLease: takes on entering, can be changed while it is held, and settles or gives back on leaving.

Tokens that were taken are in the table already. Adjustments are kept in the lease and written once, when it ends.
"""  # generated from _async by tools/mirror.py; do not edit

import logging
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING

import zae_limiter.runtime.threads as runtime
from zae_limiter._sync.limiter import cascade
from zae_limiter._sync.limiter.client import BucketClient
from zae_limiter._sync.limiter.lease_facts import OnError
from zae_limiter._sync.limiter.lease_part import (
    ENDED,
    ENTERED,
    LEAVING,
    LEFT,
    NEW,
    WITH_SLOTS,
    InBatches,
    InPlace,
    LeasePart,
)
from zae_limiter._sync.limiter.lease_slots import NO_SLOTS
from zae_limiter.caches.buckets import BucketId
from zae_limiter.caches.request import (
    AcquireRequest,
    Cascaded,
    Charge,
    OwnLimits,
    Rejected,
    TakenChain,
    about,
    with_slots,
)
from zae_limiter.caches.slot_holds import SlotHold
from zae_limiter.core.errors import (
    AmountExceedsCapacityError,
    RateLimiterUnavailable,
    RateLimitExceeded,
    ValidationError,
    ZAELimiterError,
)
from zae_limiter.core.names import check_amount
from zae_limiter.core.status import OnUnavailable, check_on_unavailable
from zae_limiter.core.tracked import AdmittedMixed
from zae_limiter.core.view import Admitted
from zae_limiter.runtime.threads import WithGuard

if TYPE_CHECKING:
    from zae_limiter._sync.limiter.lease_also import AlsoLease

_log = logging.getLogger("zae_limiter")

GIVE_BACK: OnError = "give_back"
KEEP: OnError = "keep"

_NOT_SETTLED = (ENTERED, LEFT, WITH_SLOTS)
"""The stages in which an exit looks for something to settle."""


class SyncLease(LeasePart, WithGuard):
    """The tokens that one acquire took, from the start of its block to the end.

    Example:
        ```python
        with limiter.acquire("user-1", "gpt-4", {"rpm": 1, "tpm": 500}) as lease:
            answer = call_model()
            lease.adjust(tpm=answer.tokens - 500)
        ```

    A lease can be entered only once, and ends once. A second exit has no effect, even from another task or thread at
    the same time. After the end, its methods raise ``LeaseExpiredError``.

    If the block raises, everything is given back, unless ``commit()`` was called or ``on_error`` is ``keep``.
    """

    __slots__ = ()

    def __init__(
        self,
        client: BucketClient,
        bucket: BucketId,
        consume: dict[str, int],
        own: OwnLimits,
        on_unavailable: OnUnavailable | str | None,
        on_error: OnError,
        durable: bool,
    ) -> None:
        self._client = client
        self._bucket = bucket
        self._consume = consume
        self._own = own
        self._on_unavailable = on_unavailable
        self._on_error = on_error
        self._taken = None
        self._pending = None
        self._durable = durable
        self._slots = NO_SLOTS
        self._on_lost = None
        self._stage = NEW

    def report_loss_to(self, on_lost: Callable[["SyncLease"], object]) -> "SyncLease":
        """Call a function if slots of the lease are lost, and return the lease; it was not entered yet."""
        if not callable(on_lost):
            raise ValidationError("on_lost", on_lost, "must be a function that takes the lease")
        self._on_lost = on_lost
        return self

    @property
    def also(self) -> "Sequence[AlsoLease]":
        """What the lease holds of each request of ``also``, none if there were none."""
        return ()

    def __enter__(self) -> "SyncLease":
        """Take, or raise."""
        self._check_entry()
        # The caller's dictionary may change while the take is in flight.
        self._taken = taken = self._consume.copy()
        # A copy of the process has another mutex, by which it finds that it did not take the tokens itself.
        self._mutex = self._client.lease_mutex
        self._admitted = None
        self._others = ()
        # What ``_request`` and ``_hold_all`` do, inlined because every acquire does it.
        request = AcquireRequest(self._bucket, taken, self._own, self._client.until_s())
        try:
            result = self._take(request)
            if isinstance(result, Cascaded):
                self._admitted, self._others = result
            else:
                self._admitted = result
        except RateLimiterUnavailable as error:
            self._go_without_store(error)
        except AmountExceedsCapacityError as error:
            raise cascade.never_admitted(self._client, [self._request(taken)], error) from None
        self._stage = ENTERED
        if (self._others or type(self._admitted) is AdmittedMixed) and self._open_slots(self._buckets()):
            self._stage = WITH_SLOTS
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Write the adjustments, or give everything back after a failure. Leaving twice does nothing."""
        if self._stage != ENTERED:
            if self._stage != WITH_SLOTS:
                return
        elif kind is None and not self._pending:
            # In this order: an adjustment from another thread either is seen here, or sees that the lease has ended.
            self._stage = LEFT
            if not self._pending:
                return
        charges = self._leave(failed=kind is not None)
        if charges:
            self._settle_on_leaving(charges, failed=kind is not None)

    def _check_entry(self) -> None:
        """Check the arguments of ``acquire``, and that the lease is entered once."""
        if self._taken is not None:
            raise RuntimeError("a lease can be entered only once; call acquire() again")
        if type(self._consume) is not dict or not self._consume:
            raise ValidationError("consume", self._consume, "must be a dict of limit names and amounts, not empty")
        if self._on_unavailable is not None:
            check_on_unavailable(self._on_unavailable)
        if self._on_error not in (GIVE_BACK, KEEP):
            raise ValidationError("on_error", self._on_error, "must be 'give_back' or 'keep'")
        if type(self._durable) is not bool:
            raise ValidationError("durable", self._durable, "must be True or False")

    def _leave(self, *, failed: bool) -> list[Charge]:
        """Return what is left to settle; nothing if another exit was faster."""
        with self._client.lease_mutex:
            # Read under the mutex: a commit of another thread that has returned is seen.
            gives_back = failed and self._on_error != KEEP
            if self._stage_now() != ENTERED and (gives_back or self._stage != LEFT):
                return []
            self._stage = LEAVING
            return self._charges(gives_back=gives_back)

    def _settle_on_leaving(self, charges: list[Charge], *, failed: bool) -> None:
        try:
            self._client.see_through(lambda: self._settle(charges, now=self._durable))
        except ZAELimiterError as error:
            # A lost credit limits others for a while. A lost debit is use that is not counted, so it is reported.
            # After a failure of the caller's own, that failure is what the caller gets.
            owes = not failed and any(amount > 0 for one in charges for amount in one.changes.values())
            if owes and self._client.choice(self._on_unavailable) is OnUnavailable.BLOCK:
                if isinstance(error, RateLimiterUnavailable):
                    raise about(error, self._bucket, self._client.stack_name) from error.cause
                raise
            _log.warning("Not settled: %s: %s", [(one.held.bucket, one.changes) for one in charges], error)
        finally:
            self._stage = ENDED

    def commit(self) -> None:
        """Keep what was taken, even if the block raises after this call. Adjustments are then written as usual.

        Call it once the work has a cost: when a model has begun to answer, for example. It takes effect when it is
        called, and awaiting the result is optional.

        Raises:
            LeaseExpiredError: The lease has ended.
        """
        with self._client.lease_mutex:
            self._check("commit", {}, 0)
            self._on_error = KEEP
        return runtime.DONE

    def _go_without_store(self, error: RateLimiterUnavailable) -> None:
        """Allow the request without limiting, if ``on_unavailable`` says so."""
        if self._client.choice(self._on_unavailable) is OnUnavailable.BLOCK:
            raise about(error, self._bucket, self._client.stack_name) from error.cause
        for name, amount in self._held().items():
            check_amount(f"consume[{name}]", amount)
        _log.warning(
            "Store unavailable; request allowed without limiting: %s of %s: %s", self._taken, self._bucket, error
        )

    def __repr__(self) -> str:
        kind, (entity_id, resource) = SyncLease.__name__, self._bucket
        if self._stage == NEW:
            return f"<{kind} of {entity_id!r}, {resource!r}: not entered>"
        state = "held" if self._stage_now() == ENTERED else "ended"
        degraded = ", degraded" if self.degraded else ""
        return f"<{kind} of {entity_id!r}, {resource!r}: consumed {self.consumed}, {state}{degraded}>"


class BatchedLease(InBatches, SyncLease):
    """A lease on a networked table."""

    __slots__ = ()

    def _take(self, request: AcquireRequest) -> Admitted | Cascaded:
        # The same as in ``InBatches``, without entering its module for every acquire.
        return cascade.take(self._client, request)


class DirectLease(InPlace, SyncLease):
    """A lease on an embedded table."""

    __slots__ = ()

    def __enter__(self) -> "SyncLease":
        """Take, or raise."""
        consume = self._consume
        if (
            type(consume) is not dict
            or not consume
            or self._taken is not None
            or self._on_unavailable is not None
            or self._on_error is not GIVE_BACK
            or self._durable is not False
        ):
            self._check_entry()
        # The caller's dictionary may change while the take is in flight.
        self._taken = taken = consume.copy()
        client = self._client
        self._mutex = client.lease_mutex
        self._admitted = None
        self._others = ()
        try:
            result = client.take(self._bucket, taken, self._own)
            if result is None:
                result = with_slots(cascade.take_in_turn(client, self._request(taken)))
            if isinstance(result, Admitted):
                self._admitted = result
            elif isinstance(result, Rejected):
                raise RateLimitExceeded(result)
            elif isinstance(result, SlotHold):
                self._admitted = result.admitted
                self._slots = {self._bucket: result}
                if self._on_lost is not None:
                    result.on_lost = self._loss_notifier()
                self._stage = WITH_SLOTS
                return self
            else:
                self._admitted, self._others = result
                if type(self._others) is not TakenChain and self._open_all_slots():
                    self._stage = WITH_SLOTS
                    return self
        except RateLimiterUnavailable as error:
            self._go_without_store(error)
        except AmountExceedsCapacityError as error:
            raise cascade.never_admitted(client, [self._request(taken)], error) from None
        self._stage = ENTERED
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Write the adjustments, or give everything back after a failure. Leaving twice does nothing."""
        # This does what the method of ``Lease`` does. But it returns the slots of the usual lease in one write.
        if kind is None and not self._pending:
            if self._stage == ENTERED:
                self._stage = LEFT
                if not self._pending:
                    return
            elif self._stage == WITH_SLOTS and len(self._slots) == 1:
                self._stage = LEAVING
                (hold,) = self._slots.values()
                client = self._client
                # Of two exits at the same time, one returns the slots. The other one finds nothing to return.
                if not self._pending and (client.return_prepared(hold) or client.return_slots(hold)):
                    self._stage = ENDED
                    return
                self._stage = WITH_SLOTS
        if self._stage in _NOT_SETTLED:
            charges = self._leave(failed=kind is not None)
            if charges:
                self._settle_on_leaving(charges, failed=kind is not None)
