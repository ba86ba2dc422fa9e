"""What a lease knows about itself: what it holds, and what is left of its limits. Nothing here makes a call."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, NamedTuple

import zae_limiter.runtime.aio as runtime
from zae_limiter._async.limiter.client import BucketClient
from zae_limiter.caches.buckets import BucketId
from zae_limiter.caches.request import NOTHING_TAKEN, HeldBucket, OwnLimits
from zae_limiter.caches.slot_holds import SlotHold
from zae_limiter.core.lazy_dataclass import dataclass, replace
from zae_limiter.core.limit import Limit
from zae_limiter.core.status import LimitStatus, OnUnavailable
from zae_limiter.core.view import Admitted
from zae_limiter.core.waiting import Standing

OnError = Literal["give_back", "keep"]
"""What a lease does when its block raises: give everything back, or keep what was taken."""


@dataclass(frozen=True, slots=True)
class LeaseEntry:
    """What a lease holds of one bucket, adjustments included."""

    entity_id: str
    resource: str
    consumed: dict[str, int]


class BucketUse(NamedTuple):
    """What a lease uses of one bucket: the tokens that it holds, and its adjustments that are not written yet."""

    held: HeldBucket
    consumed: Mapping[str, int]
    pending: Mapping[str, int]


class LeaseFacts:
    """The fields of a lease, and its properties."""

    __slots__ = (
        "_adjusted_by",
        "_admitted",
        "_bucket",
        "_client",
        "_consume",
        "_durable",
        "_mutex",
        "_on_error",
        "_on_lost",
        "_on_unavailable",
        "_others",
        "_own",
        "_pending",
        "_slots",
        "_stage",
        "_taken",
        "_wait",
    )

    _adjusted_by: runtime.Mutex
    _admitted: Admitted | None
    _others: Iterable[HeldBucket]
    _bucket: BucketId
    _client: BucketClient
    _consume: dict[str, int]
    _mutex: runtime.Mutex
    _on_error: OnError
    _on_unavailable: OnUnavailable | str | None
    _on_lost: Callable[[Any], object] | None
    _own: OwnLimits
    _pending: dict[str, int] | None
    _durable: bool
    _slots: Mapping[BucketId, SlotHold]
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
    def waited(self) -> float:
        """The seconds that the lease has waited for its tokens, 0 without ``max_wait``."""
        return 0.0

    @property
    def waiting(self) -> Standing | None:
        """The place of the request among those that wait, and the estimated seconds left; None if it does not wait.

        Another task or thread can read it.
        """
        return None

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
        """The limits in force for the entity: for its resource, then across resources; empty if it is degraded."""
        self._held()
        own = [one for one in self._buckets() if one.bucket[0] == self._bucket[0]]
        return [limit for one in own for limit in one.admitted.terms.limits]

    @property
    def statuses(self) -> list[LimitStatus]:
        """Every limit of every bucket of the lease, from the cached views, without a call.

        ``available`` is what is left now, with adjustments counted as written. ``requested`` is what the lease holds.
        ``exceeded`` is True for a soft limit that would have rejected the lease. With a bypass, it is True for a limit
        that was used without being charged.
        Nothing is listed for a degraded lease, or for a bucket that is not cached completely.
        """
        found: list[LimitStatus] = []
        for one, held, pending in self._used():
            of_bucket = self._client.levels.held_statuses(one.bucket, one.admitted.terms, held, pending)
            names = {*(one.counted or ()), *one.only_counted(self._held())}
            if names:
                of_bucket = [replace(each, exceeded=True) if each.limit_name in names else each for each in of_bucket]
            found += of_bucket
        return found

    def _is_settled(self) -> bool:
        """Return whether the adjustments of the lease were written."""
        raise NotImplementedError

    def _used(self) -> list[BucketUse]:
        """Return what the lease uses of each bucket."""
        # What was written is in the cached view.
        held, pending = self.consumed, {} if self._is_settled() else self._pending or {}
        return [BucketUse(one, held, pending) for one in self._buckets()]

    @property
    def remaining(self) -> dict[str, int]:
        """The tokens left of each limit of the entity, from the cached views, without a call; the least of all buckets.

        Adjustments count as written. Below zero, the limit is in debt. It is empty if ``statuses`` is empty.
        """
        left: dict[str, int] = {}
        statuses = self.statuses
        own = {status.limit_name for status in statuses if status.entity_id == self._bucket[0]}
        for status in statuses:
            name = status.limit_name
            if name in own:
                left[name] = min(status.available, left.get(name, status.available))
        return left

    @property
    def entries(self) -> list[LeaseEntry]:
        """What the lease holds of each bucket, the entity's first; nothing if it is degraded."""
        consumed = self.consumed
        return [LeaseEntry(*one.bucket, one.gave(consumed)) for one in self._buckets()]

    @property
    def degraded(self) -> bool:
        """True if the store was unavailable and the request was allowed without limiting."""
        self._held()
        return self._admitted is None

    def _buckets(self) -> list[HeldBucket]:
        """Return the buckets that the lease holds tokens of; none if it is degraded."""
        if self._admitted is None:
            return []
        if self._admitted is NOTHING_TAKEN:
            return list(self._others)
        return [HeldBucket(self._bucket, self._admitted, self._admitted.terms.positions), *self._others]

    def _held(self) -> dict[str, int]:
        if self._taken is None:
            raise RuntimeError("the lease has not been entered; use it in a with block")
        return self._taken
