"""Lease: takes on entering, can be changed while it is held, and settles or gives back on leaving.

Tokens that were taken are in the table already. Adjustments are kept in the lease and written once, when it ends.
"""

import logging
from collections.abc import Awaitable
from types import TracebackType
from typing import TYPE_CHECKING

import zae_limiter.runtime.aio as runtime
from zae_limiter._async.limiter import cascade
from zae_limiter._async.limiter.client import BucketClient, DirectClient
from zae_limiter._async.limiter.lease_facts import LeaseFacts, OnError
from zae_limiter.caches.buckets import BucketId
from zae_limiter.caches.request import AcquireRequest, Cascaded, HeldBucket, OwnLimits, Plan, Rejected, about
from zae_limiter.core.errors import (
    AmountExceedsCapacityError,
    LeaseExpiredError,
    RateLimiterUnavailable,
    RateLimitExceeded,
    ValidationError,
    ZAELimiterError,
)
from zae_limiter.core.names import MAX_AMOUNT, check_amount, check_limit_name, check_whole_number
from zae_limiter.core.status import OnUnavailable, check_on_unavailable
from zae_limiter.core.view import Admitted
from zae_limiter.runtime.aio import WithGuard

if TYPE_CHECKING:
    from zae_limiter._async.limiter.group_commit import BatchedClient

_log = logging.getLogger("zae_limiter")

GIVE_BACK: OnError = "give_back"
KEEP: OnError = "keep"

_NEW, _ENTERED, _LEFT, _LEAVING, _ENDED = range(5)
"""The stages of a lease. Verbs need an entered one. Only the step to leaving settles anything; a lease that has
nothing to settle is left without that step."""


class Lease(LeaseFacts, WithGuard):
    """The tokens that one acquire took, from the start of its block to the end.

    Example:
        ```python
        async with limiter.acquire("user-1", "gpt-4", {"rpm": 1, "tpm": 500}) as lease:
            answer = await call_model()
            await lease.adjust(tpm=answer.tokens - 500)
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
        self._stage = _NEW

    async def __aenter__(self) -> "Lease":
        """Take, or raise."""
        self._check_entry()
        # The caller's dictionary may change while the take is in flight.
        self._taken = taken = self._consume.copy()
        # A copy of the process has another mutex, by which it finds that it did not take the tokens itself.
        self._mutex = self._client.lease_mutex
        self._admitted = None
        self._ancestors = ()
        try:
            self._hold_all(await self._take(taken))
        except RateLimiterUnavailable as error:
            self._go_without_store(error)
        except AmountExceedsCapacityError as error:
            raise await cascade.never_admitted(self._client, self._request(taken), error) from None
        self._stage = _ENTERED
        return self

    async def _take(self, amounts: dict[str, int]) -> Admitted | Cascaded:
        """Take from every bucket of the lease.

        Raises:
            RateLimitExceeded: One of them lacks the tokens; the others were credited.
        """
        raise NotImplementedError

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Write the adjustments, or give everything back after a failure. Leaving twice does nothing."""
        if self._stage != _ENTERED:
            return
        if kind is None and not self._pending:
            # In this order: an adjustment from another thread either is seen here, or sees that the lease has ended.
            self._stage = _LEFT
            if not self._pending:
                return
        changes = self._leave(failed=kind is not None)
        if changes:
            await self._settle_on_leaving(changes, failed=kind is not None)

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

    def _leave(self, *, failed: bool) -> dict[str, int]:
        """Return what is left to settle; nothing if another exit was faster."""
        with self._client.lease_mutex:
            # Read under the mutex: a commit of another thread that has returned is seen.
            gives_back = failed and self._on_error != KEEP
            if self._stage != _ENTERED and (gives_back or self._stage != _LEFT):
                return {}
            self._stage = _LEAVING
            return _negative(self._held()) if gives_back else self._own_pending()

    async def _settle_on_leaving(self, changes: dict[str, int], *, failed: bool) -> None:
        try:
            await self._client.see_through(lambda: self._settle(changes, now=self._durable))
        except ZAELimiterError as error:
            # A lost credit limits others for a while. A lost debit is use that is not counted, so it is reported.
            # After a failure of the caller's own, that failure is what the caller gets.
            owes = not failed and any(amount > 0 for amount in changes.values())
            if owes and self._client.choice(self._on_unavailable) is OnUnavailable.BLOCK:
                if isinstance(error, RateLimiterUnavailable):
                    raise about(error, self._bucket, self._client.stack_name) from error.cause
                raise
            _log.warning("Not settled: %s of %s: %s", changes, self._bucket, error)
        finally:
            self._stage = _ENDED

    def commit(self) -> Awaitable[None]:
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

    def adjust(self, /, **amounts: int) -> Awaitable[None]:
        """Correct what was consumed, up or down, once the true cost is known; a balance may go below zero.

        Every limit in force can be adjusted, also one that the acquire did not name. The adjustment takes effect when
        it is called, and awaiting the result is optional. It is written when the lease ends.

        Raises:
            ValidationError: The limit is not in force, or more is given back than is held.
            LeaseExpiredError: The lease has ended.
        """
        with self._client.lease_mutex:
            self._check("adjust", amounts, -MAX_AMOUNT)
            for name, amount in amounts.items():
                if amount < 0:
                    self._check_held(name, -amount)
            self._put_off("adjust", amounts)
        return runtime.DONE

    async def consume(self, /, **amounts: int) -> None:
        """Take more, now, of any limit in force.

        Raises:
            RateLimitExceeded: The bucket lacks the tokens; the lease keeps what it has.
            AmountExceedsCapacityError: An amount exceeds a capacity.
            ValidationError: The limit is not in force.
            LeaseExpiredError: The lease has ended, perhaps during this call; the call then gave its tokens back.
        """
        self._check("consume", amounts, 0)
        if self.degraded or not amounts:
            return self._hold(amounts)
        try:
            taken = self._holding(await self._take(amounts), amounts)
        except RateLimiterUnavailable as error:
            if self._client.choice(self._on_unavailable) is OnUnavailable.BLOCK:
                raise about(error, self._bucket, self._client.stack_name) from error.cause
            # Allowed, and charged with the adjustments when the lease ends.
            with self._client.lease_mutex:
                return self._put_off("consume", amounts)
        except AmountExceedsCapacityError as error:
            raise await cascade.never_admitted(self._client, self._request(amounts), error) from None
        if self._keep(amounts, taken):
            return None
        await cascade.give_back(self._client, taken, amounts, self._client.until_s())
        raise LeaseExpiredError("consume", *self._bucket)

    async def release(self, /, **amounts: int) -> None:
        """Give tokens back, now.

        Raises:
            ValidationError: More is given back than is held.
            LeaseExpiredError: The lease has ended.
            RateLimiterUnavailable: The store is unavailable, and ``on_unavailable`` is ``block``. The tokens may have
                been given back.
        """
        now = self._let_go(amounts)
        try:
            await self._client.see_through(lambda: self._settle(_negative(now), now=True))
        except RateLimiterUnavailable as error:
            if self._client.choice(self._on_unavailable) is OnUnavailable.BLOCK:
                raise about(error, self._bucket, self._client.stack_name) from error.cause
            _log.warning("Store unavailable; tokens not given back: %s of %s: %s", now, self._bucket, error)

    def _let_go(self, amounts: dict[str, int]) -> dict[str, int]:
        """Stop holding amounts, and return what of them was written and is to be given back."""
        now, later = {}, {}
        with self._client.lease_mutex:
            self._check("release", amounts, 0)
            for name, amount in amounts.items():
                self._check_held(name, amount)
                # What was only put off was never written: it is taken off there first.
                put_off = min(amount, max(0, (self._pending or {}).get(name, 0)))
                later[name], now[name] = -put_off, amount - put_off
            self._put_off("release", later)
            self._hold(_negative(now))
        return now

    def _keep(self, amounts: dict[str, int], taken: list[HeldBucket]) -> bool:
        """Hold what was taken; False if the lease has ended meanwhile."""
        with self._client.lease_mutex:
            if self._stage == _ENTERED:
                self._forget_untaken(amounts, taken)
                self._hold(amounts)
                return True
            return False

    def _request(self, amounts: dict[str, int]) -> AcquireRequest:
        return AcquireRequest(self._bucket, amounts, self._own, self._client.until_s())

    async def _settle(self, changes: dict[str, int], *, now: bool) -> None:
        if self._mutex is not self._client.lease_mutex:
            # This process is a copy of the one that took the tokens, and that one gives them back.
            changes = {name: amount for name, amount in changes.items() if amount > 0}
        owed = cascade.owed(self._client, self._buckets(), changes)
        if owed:
            await (self._client.settle_all(owed) if now else self._client.settle_later(owed))

    def _hold_all(self, taken: Admitted | Cascaded) -> None:
        self._admitted, self._ancestors = taken if isinstance(taken, Cascaded) else (taken, ())

    def _holding(self, taken: Admitted | Cascaded, amounts: dict[str, int]) -> list[HeldBucket]:
        """Return the buckets that amounts were taken from."""
        own, ancestors = taken if isinstance(taken, Cascaded) else (taken, ())
        return [HeldBucket(self._bucket, own, amounts), *ancestors]

    def _forget_untaken(self, amounts: dict[str, int], taken: list[HeldBucket]) -> None:
        """Never give back to an ancestor what it did not give.

        It may have lost a limit by the time that more was taken, and then gave nothing of it.
        """
        given = {one.bucket: one for one in taken[1:]}
        # Of a limit that the lease did not hold yet, an ancestor gave exactly these amounts.
        pending = self._pending or {}
        new = [name for name in amounts if not self._held().get(name) and not pending.get(name)]
        known = {one.bucket: one for one in self._ancestors}
        self._ancestors = []
        for bucket in {**known, **given}:
            before, after = known.get(bucket), given.get(bucket)
            had, has = () if before is None else before.names, () if after is None else after.names
            kept = [name for name in had if name not in amounts or name in has]
            gained = [name for name in new if name in has and name not in kept]
            one = before or after
            assert one is not None, "one of the two has the bucket"
            self._ancestors.append(HeldBucket(bucket, one.admitted, [*kept, *gained]))

    def _go_without_store(self, error: RateLimiterUnavailable) -> None:
        """Allow the request without limiting, if ``on_unavailable`` says so."""
        if self._client.choice(self._on_unavailable) is OnUnavailable.BLOCK:
            raise about(error, self._bucket, self._client.stack_name) from error.cause
        for name, amount in self._held().items():
            check_amount(f"consume[{name}]", amount)
        _log.warning(
            "Store unavailable; request allowed without limiting: %s of %s: %s", self._taken, self._bucket, error
        )

    def _hold(self, amounts: dict[str, int]) -> None:
        held = self._held()
        self._taken = {**held, **{name: held.get(name, 0) + amount for name, amount in amounts.items()}}

    def _check(self, verb: str, amounts: dict[str, int], least: int) -> None:
        held = self._held()
        if self._stage != _ENTERED:
            if self._stage == _NEW:
                raise RuntimeError("the lease has not been entered; use it in a with block")
            raise LeaseExpiredError(verb, *self._bucket)
        for name, amount in amounts.items():
            if name not in held:
                self._check_in_force(verb, name)
            check_whole_number(f"{verb}({name})", amount, least, MAX_AMOUNT)

    def _check_in_force(self, verb: str, name: str) -> None:
        """Require a limit in force. Without the store the limits are unknown, so any name is accepted."""
        if self._admitted is None:
            return check_limit_name(name)
        known = self._admitted.terms.positions
        if name not in known:
            raise ValidationError(verb, name, f"is not a limit in force; the limits in force are: {', '.join(known)}")
        return None

    def _check_held(self, name: str, amount: int) -> None:
        held = self.consumed.get(name, 0)
        if amount > held:
            raise ValidationError(name, amount, f"is more than the lease holds of it ({held})")

    def _put_off(self, verb: str, amounts: dict[str, int]) -> None:
        """Note changes that are written when the lease ends.

        Raises:
            LeaseExpiredError: The lease has ended.
        """
        before, known = self._pending, self._own_pending()
        self._adjusted_by = self._client.lease_mutex
        self._pending = {**known, **{name: known.get(name, 0) + amount for name, amount in amounts.items()}}
        # An exit that found nothing to settle has not waited for the mutex.
        if self._stage != _ENTERED:
            self._pending = before
            raise LeaseExpiredError(verb, *self._bucket)

    def _own_pending(self) -> dict[str, int]:
        """Return the adjustments of this process. A process that this one is a copy of writes its own."""
        pending = self._pending
        return pending if pending and self._adjusted_by is self._client.lease_mutex else {}

    def __repr__(self) -> str:
        kind, (entity_id, resource) = Lease.__name__, self._bucket
        if self._stage == _NEW:
            return f"<{kind} of {entity_id!r}, {resource!r}: not entered>"
        state = "held" if self._stage == _ENTERED else "ended"
        degraded = ", degraded" if self.degraded else ""
        return f"<{kind} of {entity_id!r}, {resource!r}: consumed {self.consumed}, {state}{degraded}>"


class BatchedLease(Lease):
    """A lease on a networked table, whose takes travel with those of other callers."""

    __slots__ = ()

    _client: "BatchedClient"

    async def _take(self, amounts: dict[str, int]) -> Admitted | Cascaded:
        return await cascade.take(self._client, self._request(amounts))


class DirectLease(Lease):
    """A lease on an embedded table, which takes in place."""

    __slots__ = ()

    _client: DirectClient

    async def __aenter__(self) -> "Lease":
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
        self._ancestors = ()
        try:
            result = await client.take(self._bucket, taken, self._own)
            if isinstance(result, Plan):
                self._hold_all(await cascade.take_planned(client, result))
            elif isinstance(result, Admitted) and not result.terms.cascade:
                self._admitted = result
            elif isinstance(result, Rejected) and not result.terms.cascade:
                raise RateLimitExceeded(result)
            else:
                self._hold_all(await cascade.take_in_turn(client, self._request(taken), result))
        except RateLimiterUnavailable as error:
            self._go_without_store(error)
        except AmountExceedsCapacityError as error:
            raise await cascade.never_admitted(client, self._request(taken), error) from None
        self._stage = _ENTERED
        return self

    async def _take(self, amounts: dict[str, int]) -> Admitted | Cascaded:
        return await cascade.take_in_turn(self._client, self._request(amounts))


def _negative(amounts: dict[str, int]) -> dict[str, int]:
    return {name: -amount for name, amount in amounts.items()}
