"""Lease: what an acquire took, and the ways to change it until it ends.

What it took is in the table already. Adjustments are kept back and written once, when the lease ends.
"""

from dataclasses import dataclass

from zae_limiter._async.caches import BucketId
from zae_limiter._async.limiter.acquire import BucketClient
from zae_limiter._async.limiter.resolve import OwnLimits
from zae_limiter.core.composite import Settlement
from zae_limiter.core.errors import LeaseExpiredError, ValidationError
from zae_limiter.core.names import MAX_AMOUNT, check_whole_number
from zae_limiter.core.view import Terms


@dataclass(frozen=True, slots=True)
class LeaseEntry:
    """What a lease holds of one bucket, adjustments included."""

    entity_id: str
    resource: str
    consumed: dict[str, int]


class Lease:
    """Tokens taken for one piece of work.

    Example:
        ```python
        async with limiter.acquire("user-1", "gpt-4", {"rpm": 1, "tpm": 500}) as lease:
            answer = await call_model()
            await lease.adjust(tpm=answer.tokens - 500)
        ```
    """

    __slots__ = ("_bucket", "_client", "_open", "_own", "_pending", "_taken", "_terms")

    def __init__(
        self, client: BucketClient, bucket: BucketId, taken: dict[str, int], own: OwnLimits, terms: Terms | None
    ) -> None:
        self._client = client
        self._bucket = bucket
        self._taken = taken
        self._own = own
        self._terms = terms
        self._pending: dict[str, int] | None = None
        self._open = True

    @property
    def consumed(self) -> dict[str, int]:
        """What the lease holds of each limit, adjustments included."""
        pending = self._pending or {}
        return {name: taken + pending.get(name, 0) for name, taken in self._taken.items()}

    @property
    def entries(self) -> list[LeaseEntry]:
        """What the lease holds of each bucket; nothing if it is degraded."""
        return [] if self.degraded else [LeaseEntry(*self._bucket, self.consumed)]

    @property
    def degraded(self) -> bool:
        """True if the store was away and the request was let through unlimited."""
        return self._terms is None

    async def adjust(self, /, **amounts: int) -> None:
        """Correct what was consumed, up or down, once the true cost is known; a balance may go below zero.

        It is written when the lease ends.

        Raises:
            ValidationError: A limit that was not named in the acquire, or more given back than is held.
            LeaseExpiredError: The lease has ended.
        """
        self._check("adjust", amounts, -MAX_AMOUNT)
        for name, amount in amounts.items():
            self._check_held(name, -amount)
        self._put_off(amounts)

    async def consume(self, /, **amounts: int) -> None:
        """Take more, now.

        Raises:
            RateLimitExceeded: The bucket lacks the tokens; the lease keeps what it has.
            ValidationError: A limit that was not named in the acquire, or more than its capacity.
            LeaseExpiredError: The lease has ended.
        """
        self._check("consume", amounts, 0)
        if not self.degraded and amounts:
            await self._client.take_whole(lambda: self._take(amounts), lambda _: self._give_back(amounts))
        for name, amount in amounts.items():
            self._taken[name] += amount

    async def release(self, /, **amounts: int) -> None:
        """Give tokens back, now.

        Raises:
            ValidationError: A limit that was not named in the acquire, or more given back than is held.
            LeaseExpiredError: The lease has ended.
        """
        self._check("release", amounts, 0)
        for name, amount in amounts.items():
            self._check_held(name, amount)
        now, later = {}, {}
        for name, amount in amounts.items():
            # What was only put off was never written: it is taken off there first.
            put_off = min(amount, max(0, (self._pending or {}).get(name, 0)))
            later[name], now[name] = -put_off, amount - put_off
        self._put_off(later)
        for name, amount in now.items():
            self._taken[name] -= amount
        if any(now.values()):
            await self._client.see_through(lambda: self._give_back(now))

    def end(self, *, failed: bool) -> Settlement | None:
        """End the lease and return what is to be settled, None for nothing; after a failure, all goes back."""
        self._open = False
        if failed:
            return _owed({name: -taken for name, taken in self._taken.items()}, self.degraded)
        return _owed(self._pending, self.degraded) if self._pending else None

    async def settle(self, settlement: Settlement) -> None:
        """Write what is to be settled."""
        assert self._terms is not None, "a degraded lease owes nothing"
        await self._client.settle(self._bucket, settlement, self._terms)

    async def _take(self, amounts: dict[str, int]) -> Terms:
        return await self._client.take(self._bucket, amounts, self._own)

    async def _give_back(self, amounts: dict[str, int]) -> None:
        settlement = _owed({name: -amount for name, amount in amounts.items()}, self.degraded)
        if settlement is not None:
            await self.settle(settlement)

    def _check(self, verb: str, amounts: dict[str, int], least: int) -> None:
        if not self._open:
            raise LeaseExpiredError(verb, *self._bucket)
        for name, amount in amounts.items():
            if name not in self._taken:
                named = ", ".join(self._taken)
                raise ValidationError(verb, name, f"is not a limit that the acquire named; it named: {named}")
            check_whole_number(f"{verb}({name})", amount, least, MAX_AMOUNT)

    def _check_held(self, name: str, amount: int) -> None:
        held = self.consumed[name]
        if amount > held:
            raise ValidationError(name, amount, f"is more than the lease holds of it ({held})")

    def _put_off(self, amounts: dict[str, int]) -> None:
        pending = self._pending or {}
        self._pending = {**pending, **{name: pending.get(name, 0) + amount for name, amount in amounts.items()}}


def _owed(changes: dict[str, int], degraded: bool) -> Settlement | None:
    """Return the settlement of changes in tokens, up or down; None if nothing is owed."""
    debits = tuple((name, amount * 1000) for name, amount in changes.items() if amount > 0)
    credits = tuple((name, -amount * 1000) for name, amount in changes.items() if amount < 0)
    return None if degraded or not (debits or credits) else Settlement(debits, credits)
