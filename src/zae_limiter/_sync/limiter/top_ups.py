"""Buckets that this client created while it knew the server's time only roughly.

What their creation withheld is returned together with a take that would otherwise be rejected. What may be returned is
decided in ``core.top_up``.
"""  # generated from _async by tools/mirror.py; do not edit

from collections.abc import Callable

from zae_limiter._sync.table import Table
from zae_limiter.caches.buckets import Bounded, BucketId
from zae_limiter.caches.request import AcquireRequest
from zae_limiter.core.bucket import TimeBounds
from zae_limiter.core.top_up import Creation, Known, TopUp, created, top_up
from zae_limiter.core.view import Amounts, EffectiveLimits
from zae_limiter.schema.bucket_item import BucketView

_MOST = 1_000
"""Creations that are remembered; the oldest are forgotten first, and what they withheld is lost."""

_KEPT_MS = 60_000
"""Creations are remembered for this long; by then the time is known well, or no request lacks tokens."""


class TopUps:
    """What is remembered of these buckets until it was returned, or cannot be any more."""

    def __init__(self, table: Table, monotonic_s: Callable[[], float]) -> None:
        self._server = table.server_time
        self._monotonic_s = monotonic_s
        self.pending: Bounded[BucketId, Creation] = Bounded(_MOST)

    def created(self, bucket: BucketId, view: BucketView, now: TimeBounds) -> None:
        """Remember a bucket that this client has just created, as of ``now``."""
        if self._server is not None:
            creation = created(view, now, int(self._monotonic_s() * 1000))
            if creation is not None:
                self.pending.keep(bucket, creation)

    def note(self, bucket: BucketId, view: BucketView, amounts: Amounts) -> None:
        """Note a take of this client's own, by the view after it."""
        creation = self.pending.get(bucket)
        if creation is not None:
            if view.layout is creation.layout:
                self.pending[bucket] = creation.after(view, amounts, int(self._monotonic_s() * 1000))
            else:
                # Put on other limits, split, or created again.
                self.pending.pop(bucket, None)

    def due(
        self, request: AcquireRequest, view: BucketView, terms: EffectiveLimits, amounts: Amounts, now: TimeBounds
    ) -> TopUp | None:
        """Return the take that also returns what was withheld; None if nothing was, or not enough for the take."""
        bucket = request.bucket
        creation = self.pending.get(bucket)
        if creation is None or self._server is None:
            return None
        local_s = self._monotonic_s()
        if view.layout is not creation.layout or local_s * 1000 - creation.received_ms > _KEPT_MS:
            self.pending.pop(bucket, None)
            return None
        if not creation.is_certain(view) or not view.layout.follows(terms):
            return None
        if creation.is_worth_narrowing(amounts, now):
            self._server.narrow()
        created_ms = self._server.latest_ms(creation.received_ms / 1000)
        if created_ms is None:
            return None
        known = Known(now, created_ms, int(local_s * 1000))
        return top_up(creation, view, terms, amounts, known, request.reserve)
