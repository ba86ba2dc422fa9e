"""The methods of a lease that change what it holds: of the first request of an acquire, or of another one."""

import logging
from collections.abc import Awaitable
from typing import TYPE_CHECKING

import zae_limiter.runtime.aio as runtime
from zae_limiter._async.limiter import bypass, cascade
from zae_limiter._async.limiter.lease_slots import LeaseSlots
from zae_limiter.caches.request import (
    NOTHING_TAKEN,
    AcquireRequest,
    Cascaded,
    Charge,
    HeldBucket,
    TakenChain,
    about,
    admitted_twice,
)
from zae_limiter.core.errors import (
    AmountExceedsCapacityError,
    LeaseExpiredError,
    RateLimiterUnavailable,
    ValidationError,
)
from zae_limiter.core.names import MAX_AMOUNT, check_limit_name, check_whole_number
from zae_limiter.core.status import OnUnavailable
from zae_limiter.core.tracked import AdmittedMixed
from zae_limiter.core.view import Admitted

if TYPE_CHECKING:
    from zae_limiter._async.limiter.direct_client import DirectClient
    from zae_limiter._async.limiter.group_commit import BatchedClient

_log = logging.getLogger("zae_limiter")

NEW, ENTERED, LEFT, LEAVING, ENDED, WITH_SLOTS = range(6)
"""The stages of a lease. Verbs need an entered one. Only the step to leaving settles anything; a lease that has
nothing to settle is left without that step. A lease with slots is entered too, and always has them to return."""


class LeasePart(LeaseSlots):
    """What a lease holds of one request, and the methods that change it."""

    __slots__ = ()

    def _stage_now(self) -> int:
        """Return the stage of the lease."""
        return ENTERED if self._stage == WITH_SLOTS else self._stage

    def _is_settled(self) -> bool:
        return self._stage_now() == ENDED

    def _enter_with_slots(self) -> None:
        """Note that the lease has slots."""
        self._stage = WITH_SLOTS

    async def _take(self, request: AcquireRequest) -> Admitted | Cascaded:
        """Take from every bucket of a request.

        Raises:
            RateLimitExceeded: One of them lacks the tokens; the others were credited.
        """
        raise NotImplementedError

    def _charges(self, *, gives_back: bool) -> list[Charge]:
        """Return what is left to settle with each bucket: everything that is held, or the adjustments."""
        held = self._held()
        changes = negative(held) if gives_back else self._own_pending()
        if self._slots and not gives_back:
            changes = self._with_slots_back(changes, held)
        return self._charges_of(changes, held)

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
            held = self._held()
            for name, amount in amounts.items():
                # A lease without slots that holds some of a limit may adjust it.
                if self._slots or not held.get(name):
                    self._refuse_slots("adjust", amounts)
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
            taken = self._holding(await self._take(self._request(amounts)))
        except RateLimiterUnavailable as error:
            if self._client.choice(self._on_unavailable) is OnUnavailable.BLOCK:
                raise about(error, self._bucket, self._client.stack_name) from error.cause
            # Allowed, and charged with the adjustments when the lease ends.
            with self._client.lease_mutex:
                return self._put_off("consume", self._without_slots(amounts))
        except AmountExceedsCapacityError as error:
            raise await cascade.never_admitted(self._client, [self._request(amounts)], error) from None
        if self._keep(amounts, taken):
            return None
        back = negative(amounts)
        await cascade.give_back(self._client, [Charge(one, back) for one in taken], self._client.until_s())
        raise LeaseExpiredError("consume", *self._bucket)

    async def release(self, /, **amounts: int) -> None:
        """Give tokens back, now.

        Raises:
            ValidationError: More is given back than is held.
            LeaseExpiredError: The lease has ended.
            RateLimiterUnavailable: The store is unavailable, and ``on_unavailable`` is ``block``. The tokens may have
                been given back.
        """
        charges = self._let_go(amounts)
        try:
            await self._client.see_through(lambda: self._settle(charges, now=True))
        except RateLimiterUnavailable as error:
            if self._client.choice(self._on_unavailable) is OnUnavailable.BLOCK:
                raise about(error, self._bucket, self._client.stack_name) from error.cause
            _log.warning("Store unavailable; tokens not given back: %s of %s: %s", amounts, self._bucket, error)

    def _let_go(self, amounts: dict[str, int]) -> list[Charge]:
        """Stop holding amounts, and return what of them was written and is to be given back to each bucket."""
        now, later = {}, {}
        with self._client.lease_mutex:
            self._check("release", amounts, 0)
            for name, amount in amounts.items():
                self._check_held(name, amount)
                # What was only put off was never written: it is taken off there first.
                put_off = min(amount, max(0, (self._pending or {}).get(name, 0)))
                later[name], now[name] = -put_off, amount - put_off
            self._put_off("release", later)
            held = self._held()
            self._hold(negative(now))
            charges = self._charges_of(negative(now), held)
            self._forget_charges(now, held)
            return charges

    def _forget_charges(self, back: dict[str, int], held: dict[str, int]) -> None:
        """Forget what quotas and soft limits were charged for amounts that are given back, of those that are held."""
        if isinstance(self._admitted, AdmittedMixed) and self._admitted.charges:
            own = HeldBucket(self._bucket, self._admitted, self._admitted.terms.positions)
            self._admitted = own.less(back, held).admitted
        if self._others and not isinstance(self._others, TakenChain):
            self._others = [one.less(back, held) for one in self._others]

    def _keep(self, amounts: dict[str, int], taken: list[HeldBucket]) -> bool:
        """Hold what was taken; False if the lease has ended meanwhile."""
        with self._client.lease_mutex:
            if self._stage_now() == ENTERED:
                if self._open_slots(taken):
                    self._enter_with_slots()
                elif self._has_returned_all_slots():
                    # An exit that returns slots has not waited for the mutex.
                    return False
                self._forget_untaken(amounts, taken)
                self._hold(amounts)
                return True
            return False

    def _request(self, amounts: dict[str, int]) -> AcquireRequest:
        return AcquireRequest(self._bucket, amounts, self._own, self._client.until_s())

    async def _settle(self, charges: list[Charge], *, now: bool) -> None:
        if self._mutex is not self._client.lease_mutex:
            # This process is a copy of the one that took the tokens, and that one gives them back.
            charges = [
                Charge(one.held, {name: amount for name, amount in one.changes.items() if amount > 0})
                for one in charges
            ]
        client = self._client
        counted = [one for one in charges if one.held.counted is not None]
        if counted:
            charges = [one for one in charges if one.held.counted is None]
        try:
            owed = cascade.owed(client, charges)
            if owed:
                await (client.settle_all(owed) if now else client.settle_later(owed))
        finally:
            if counted:
                await bypass.settle(client, counted)

    def _hold_all(self, taken: Admitted | Cascaded) -> None:
        self._admitted, self._others = taken if isinstance(taken, Cascaded) else (taken, ())

    def _holding(self, taken: Admitted | Cascaded) -> list[HeldBucket]:
        """Return the buckets that were taken from."""
        own, others = taken if isinstance(taken, Cascaded) else (taken, ())
        first = [] if own is NOTHING_TAKEN else [HeldBucket(self._bucket, own, own.terms.positions)]
        return [*first, *others]

    def _forget_untaken(self, amounts: dict[str, int], taken: list[HeldBucket]) -> None:
        """Note which buckets did not give what was taken: they get nothing back for it.

        A bucket may have lost a limit by then, or the entity may have been moved, or have been given a bypass.
        """
        known, given = {one.bucket: one for one in self._buckets()}, {one.bucket: one for one in taken}
        held = self._held()
        found = [_merged(known.get(one), given.get(one), amounts, held) for one in {**known, **given}]
        own = [one for one in found if one.bucket == self._bucket]
        if own and own[0].counted is own[0].missing is None and own[0].names == own[0].admitted.terms.positions.keys():
            self._admitted, self._others = own[0].admitted, [one for one in found if one is not own[0]]
        else:
            # The bucket of the entity gave only a part, so it is one of the others.
            self._admitted, self._others = NOTHING_TAKEN, found

    def _hold(self, amounts: dict[str, int]) -> None:
        held = self._held()
        self._taken = {**held, **{name: held.get(name, 0) + amount for name, amount in amounts.items()}}

    def _check(self, verb: str, amounts: dict[str, int], least: int) -> None:
        held = self._held()
        if self._stage_now() != ENTERED:
            if self._stage_now() == NEW:
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
        own = [self._admitted.terms, *(one.admitted.terms for one in self._others if one.bucket[0] == self._bucket[0])]
        known = sorted({known for terms in own for known in terms.positions})
        if name not in known:
            raise ValidationError(verb, name, f"is not a limit in force; the limits in force are: {', '.join(known)}")
        return None

    def _check_held(self, name: str, amount: int) -> None:
        # The same as in ``consumed``, without making it.
        held = self._held().get(name, 0) + (self._pending or {}).get(name, 0)
        if amount > held:
            raise ValidationError(name, amount, f"is more than the lease holds of it ({held})")

    def _put_off(self, verb: str, amounts: dict[str, int]) -> None:
        """Note changes that are written when the lease ends.

        Raises:
            LeaseExpiredError: The lease has ended.
        """
        before, known = self._pending, self._own_pending()
        self._adjusted_by = self._client.lease_mutex
        pending = known.copy()
        for name, amount in amounts.items():
            pending[name] = pending.get(name, 0) + amount
        self._pending = pending
        # An exit that found nothing to settle has not waited for the mutex.
        if self._stage_now() != ENTERED:
            self._pending = before
            raise LeaseExpiredError(verb, *self._bucket)

    def _own_pending(self) -> dict[str, int]:
        """Return the adjustments of this process. A process that this one is a copy of writes its own."""
        pending = self._pending
        return pending if pending and self._adjusted_by is self._client.lease_mutex else {}


def _merged(
    before: HeldBucket | None, after: HeldBucket | None, amounts: dict[str, int], held: dict[str, int]
) -> HeldBucket:
    """Return what is held of a bucket ``before`` and ``after`` more was taken; None if nothing was held or taken.

    ``amounts`` were taken, and the lease ``held`` others before.
    """
    one = before or after
    assert one is not None, "one of the two has the bucket"
    had, has = set(() if before is None else before.names), set(() if after is None else after.names)
    missing = dict(one.missing or {})
    missing |= {name: missing.get(name, 0) + amount for name, amount in amounts.items() if name in had - has}
    missing |= {name: held[name] for name in has - had if held.get(name)}
    # A limit that was only counted once is never credited, because it is not known how much was charged.
    counted = [each.counted for each in (before, after) if each is not None and each.counted is not None]
    all_counted = frozenset().union(*counted) if counted else None
    admitted = one.admitted if before is None or after is None else admitted_twice(before, after, held, amounts)
    return HeldBucket(one.bucket, admitted, had | has, all_counted, missing or None)


def negative(amounts: dict[str, int]) -> dict[str, int]:
    """Return amounts with the opposite sign."""
    return {name: -amount for name, amount in amounts.items()}


class InPlace(LeasePart):
    """A lease on an embedded table, which takes in place."""

    __slots__ = ()

    _client: "DirectClient"

    async def _take(self, request: AcquireRequest) -> Admitted | Cascaded:
        return await cascade.take_in_turn(self._client, request)


class InBatches(LeasePart):
    """A lease on a networked table, whose takes travel with those of other callers."""

    __slots__ = ()

    _client: "BatchedClient"

    async def _take(self, request: AcquireRequest) -> Admitted | Cascaded:
        return await cascade.take(self._client, request)
