"""What a lease knows about itself: what it holds, and what is left of its limits. Nothing here makes a call."""

from collections.abc import Sequence
from typing import Literal

import zae_limiter.runtime.aio as runtime
from zae_limiter._async.limiter.client import BucketClient
from zae_limiter.caches.buckets import BucketId
from zae_limiter.caches.request import HeldBucket, OwnLimits
from zae_limiter.core.lazy_dataclass import dataclass
from zae_limiter.core.limit import Limit
from zae_limiter.core.status import LimitStatus, OnUnavailable
from zae_limiter.core.view import Admitted

OnError = Literal["give_back", "keep"]
"""What a lease does when its block raises: give everything back, or keep what was taken."""


@dataclass(frozen=True, slots=True)
class LeaseEntry:
    """What a lease holds of one bucket, adjustments included."""

    entity_id: str
    resource: str
    consumed: dict[str, int]


class LeaseFacts:
    """The fields of a lease, and its properties."""

    __slots__ = (
        "_adjusted_by",
        "_admitted",
        "_ancestors",
        "_bucket",
        "_client",
        "_consume",
        "_durable",
        "_mutex",
        "_on_error",
        "_on_unavailable",
        "_own",
        "_pending",
        "_stage",
        "_taken",
    )

    _adjusted_by: runtime.Mutex
    _admitted: Admitted | None
    _ancestors: Sequence[HeldBucket]
    _bucket: BucketId
    _client: BucketClient
    _consume: dict[str, int]
    _mutex: runtime.Mutex
    _on_error: OnError
    _on_unavailable: OnUnavailable | str | None
    _own: OwnLimits
    _pending: dict[str, int] | None
    _durable: bool
    _stage: int
    _taken: dict[str, int] | None

    @property
    def entity_id(self) -> str:
        """The entity that is limited."""
        return self._bucket[0]

    @property
    def resource(self) -> str:
        """The resource that is used."""
        return self._bucket[1]

    @property
    def consumed(self) -> dict[str, int]:
        """What the lease holds of each limit, adjustments included."""
        consumed = self._held().copy()
        for name, amount in (self._pending or {}).items():
            consumed[name] = consumed.get(name, 0) + amount
        return consumed

    @property
    def adjusted(self) -> bool:
        """True if there are adjustments that are written when the lease ends."""
        return any((self._pending or {}).values())

    @property
    def committed(self) -> bool:
        """True if what was taken is kept even if the block raises: after ``commit()``, or with ``on_error="keep"``."""
        return self._on_error == "keep"

    @property
    def limits(self) -> list[Limit]:
        """The limits in force for the entity's own bucket; empty if the lease is degraded."""
        self._held()
        return [] if self._admitted is None else list(self._admitted.terms.limits)

    @property
    def statuses(self) -> list[LimitStatus]:
        """Every limit of every bucket of the lease, from the cached views, without a call.

        ``available`` is what is left now, with adjustments counted as written. ``requested`` is what the lease holds.
        Nothing is listed for a degraded lease, or for a bucket that is not cached completely.
        """
        held, pending = self.consumed, self._pending or {}
        return [
            status
            for one in self._buckets()
            for status in self._client.levels.held_statuses(one.bucket, one.admitted.terms, held, pending)
        ]

    @property
    def remaining(self) -> dict[str, int]:
        """The tokens left of each limit of the entity, from the cached views, without a call; the least of all buckets.

        Adjustments count as written. Below zero, the limit is in debt. It is empty if ``statuses`` is empty.
        """
        left: dict[str, int] = {}
        for status in self.statuses:
            name, own = status.limit_name, status.entity_id == self._bucket[0]
            if own or name in left:
                left[name] = min(status.available, left.get(name, status.available))
        return left

    @property
    def entries(self) -> list[LeaseEntry]:
        """What the lease holds of each bucket, the entity's and its parent's; nothing if it is degraded."""
        consumed = self.consumed
        return [
            LeaseEntry(*one.bucket, {name: amount for name, amount in consumed.items() if name in one.names})
            for one in self._buckets()
        ]

    @property
    def degraded(self) -> bool:
        """True if the store was unavailable and the request was allowed without limiting."""
        self._held()
        return self._admitted is None

    def _buckets(self) -> list[HeldBucket]:
        """Return the buckets that the lease holds tokens of; none if it is degraded."""
        if self._admitted is None:
            return []
        return [HeldBucket(self._bucket, self._admitted, self._admitted.terms.positions), *self._ancestors]

    def _held(self) -> dict[str, int]:
        if self._taken is None:
            raise RuntimeError("the lease has not been entered; use it in a with block")
        return self._taken
