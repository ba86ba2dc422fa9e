"""Renews the slots that open leases hold, on a thread of its own, so that a busy event loop does not lose slots.

One write moves all slots of this process on one shard to a later end. It is a transaction with a token, so it can be
sent again after a lost answer. A lease whose slots were not renewed in time is lost: that is decided by the time, and
never by a refusal.
"""  # generated from _async by tools/mirror.py; do not edit

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import inf
from typing import Any

import zae_limiter.runtime.threads as runtime
from zae_limiter._sync.store.scope import Scope
from zae_limiter._sync.table import Table
from zae_limiter.caches.buckets import BucketId
from zae_limiter.caches.slot_holds import SlotGroup, SlotHold, SlotHolds
from zae_limiter.core.bucket_changes import Settling, expiry_s
from zae_limiter.core.errors import ZAELimiterError
from zae_limiter.core.outcome import Cancelled, Committed, TransactOutcome
from zae_limiter.core.slots import (
    Claim,
    MixedView,
    SlotRelease,
    SlotRenewal,
    by_shard,
    item_expiry_s,
    not_ended,
    released_across,
    renewed_together,
)
from zae_limiter.core.tracked import AdmittedMixed
from zae_limiter.schema import bucket_writes, slot_writes
from zae_limiter.schema.bucket_item import BucketView, bucket_key, view_of
from zae_limiter.schema.operations import Update

_log = logging.getLogger("zae_limiter")

_AT_ONCE = 16
"""The number of renewals in flight."""

_TTL_MULTIPLIER = 2
"""A renewed item lives for at least this many times the hold, as a taken one does."""

_TRIES = 3

Moved = dict[tuple[str, int], list[Claim]]
"""What the slots of a limit and an end have become."""


class Renewals:
    """The slots of the open leases of one client, and the thread that renews them."""

    def __init__(self, scope: Scope) -> None:
        self._scope = scope
        self._now = scope.table.now
        self.holds = SlotHolds(scope.client.random.random)
        own_thread = scope.client.own_thread or runtime.OwnThread
        self._thread = own_thread(self.renew_due, self._end_thread)
        self._table: Table | None = None
        # The thread wakes at this time, or earlier.
        self.wakes_ms = inf

    def renew(self) -> None:
        """Forget the slots in a copy of the process: the original renews and returns them."""
        self.holds.renew()
        self._table = None
        self.wakes_ms = inf

    def open(self, bucket: BucketId, admitted: AdmittedMixed, on_lost: Callable[[], None] | None) -> SlotHold:
        """Renew the slots of a lease until they are returned."""
        hold = self.holds.open(bucket, admitted, self._now()[1], on_lost)
        self.wake(hold.earliest_ms)
        return hold

    def add(self, hold: SlotHold, admitted: AdmittedMixed) -> bool:
        """Renew slots too that a lease has taken since; False if the lease has ended."""
        if not self.holds.add(hold, admitted):
            return False
        self.wake(hold.earliest_ms)
        return True

    def take_out(self, hold: SlotHold, amounts: Mapping[str, int]) -> Sequence[Claim]:
        """Remove slots that are returned now; slots that have ended before are lost."""
        if self.is_lost(hold):
            hold.is_lost = True
        return self.holds.take_out(hold, amounts)

    def is_lost(self, hold: SlotHold) -> bool:
        """Return whether the end of a slot has passed without a renewal, at the latest time that it may be now."""
        end_ms = hold.end_ms
        return hold.is_lost or (end_ms is not None and end_ms <= self._now()[1])

    def finish(self) -> None:
        """End the thread, because the repository is closed. Slots of leases that are open end by themselves."""
        self._thread.stop()

    def renew_due(self) -> float:
        """Renew what is due, report what is lost, and return the seconds until there is more to do."""
        self.wakes_ms = inf
        # Again, because the thread before this one may have removed them when it ended.
        if not self._scope.client.put_off.add(self):
            return inf
        for hold in self.holds.lost(self._now()[1]):
            _log.warning("Slots lost, as they were not renewed in time: %s", hold.bucket)
            if hold.on_lost is not None:
                hold.on_lost()
        groups = self.holds.begin(self._now()[1])
        for first in range(0, len(groups), _AT_ONCE):
            some = groups[first : first + _AT_ONCE]
            self._scope.client.parallel.run_to_end([partial(self._renew_group, one) for one in some])
        next_ms = self.holds.next_ms()
        return inf if next_ms is None else max(0.0, (next_ms - self._now()[1]) / 1000)

    def wake(self, earliest_ms: int) -> None:
        """Let the thread run at this time, or earlier."""
        # No slots are renewed in the first half of their hold.
        if earliest_ms < self.wakes_ms and self._scope.client.put_off.add(self):
            self.wakes_ms = earliest_ms
            if not self._thread.wake_in(max(0.0, (earliest_ms - self._now()[1]) / 1000)):
                # The next lease tries again.
                self.wakes_ms = inf

    def _renew_group(self, group: SlotGroup) -> None:
        """Renew the slots of one shard, and return those of leases that have ended meanwhile."""
        moved: Moved | None = None
        group = group._replace(renewals=renewed_together(group.renewals))
        try:
            moved = self._moved(group)
        except ZAELimiterError as error:
            # Slots of a closed repository end by themselves.
            if not self._scope.client.put_off.closed:
                _log.warning("Slots not renewed; this is tried again until their end: %s: %s", group.bucket, error)
        finally:
            ended = self.holds.end(group, moved, self._now()[1])
        for hold, claims in ended:
            self._release(hold, claims)

    def _moved(self, group: SlotGroup) -> Moved | None:
        """Move slots to their later end, and return what they have become; None if the table did not answer."""
        if not group.renewals:
            return {}
        view = self._view(group.bucket, group.shard, cached=True)
        for _ in range(_TRIES):
            if (
                not isinstance(view, MixedView)
                or view.layout.birth != group.birth
                or not _has_all(view, group.renewals)
            ):
                return self._moved_across(group)
            token = f"renew-{next(self._scope.client.nonces)}"
            outcome = self._transact([self._write(view, group.renewals)], token, group.end_ms)
            if isinstance(outcome, Committed):
                return {
                    (one.name, one.end_s): [Claim(group.shard, one.name, one.later_s, one.milli)]
                    for one in group.renewals
                }
            if not isinstance(outcome, Cancelled):
                return None
            view = self._view(group.bucket, group.shard)
        return None

    def _write(self, view: BucketView, renewals: Sequence[SlotRenewal]) -> Update:
        """Return the write of a renewal. It moves the expiry of an item that has one."""
        expires_s = None
        if isinstance(view, MixedView) and view.expires_s is not None:
            found = expiry_s(self._now()[1], view.layout.fill_time_ms, _TTL_MULTIPLIER)
            expires_s = item_expiry_s(view, found)
        return slot_writes.renew(view, renewals, expires_s, next(self._scope.client.nonces))

    def _transact(self, writes: Sequence[Update], token: str, end_ms: int) -> TransactOutcome:
        """Carry out a renewal; with its token it is sent again after a lost answer."""
        clock = self._scope.client.clock
        # Not beyond the end of the slots: others may hold them after that.
        left_s = max(0.0, (end_ms - self._now()[1]) / 1000)
        until_s = clock.monotonic_s() + min(left_s, self._scope.settings.deadline_s)
        return self._own_table().transact(writes, token, until_s=until_s)

    def _moved_across(self, group: SlotGroup) -> Moved | None:
        """Renew slots that a split or a merge has moved to other shards, in one transaction.

        Slots that no shard has are left out: their bucket is gone, or they have ended.
        """
        shards = {
            shard: view
            for shard, view in (self._read_all(group.bucket)).items()
            if view.layout.birth == group.birth
        }
        live = not_ended([SlotRelease(one.name, one.end_s, one.milli) for one in group.renewals], self._now()[0])
        later = {(one.name, one.end_s): one.later_s for one in group.renewals}
        moved: Moved = {key: [] for key in later}
        writes: list[Update] = []
        for shard, parts in released_across(shards, live).items():
            renewals = [SlotRenewal(*one[:2], later[one.name, one.end_s], one.milli) for one in parts]
            writes.append(self._write(shards[shard], renewals))
            for one in renewals:
                moved[one.name, one.end_s].append(Claim(shard, one.name, one.later_s, one.milli))
        if not writes:
            return moved
        token = f"renew-{next(self._scope.client.nonces)}"
        outcome = self._transact(writes, token, group.end_ms)
        if isinstance(outcome, Cancelled) and outcome.in_doubt:
            # It may have been applied, or may still be. The slots end by themselves.
            return {key: [] for key in later}
        return moved if isinstance(outcome, Committed) else None

    def _release(self, hold: SlotHold, claims: Sequence[Claim]) -> None:
        """Return slots of a lease that ended during a renewal; a failure is logged, and their cohort ends by itself."""
        for shard, releases in by_shard(claims).items():
            live = not_ended(releases, self._now()[0])
            try:
                view = self._view(hold.bucket, shard)
                if live and isinstance(view, MixedView) and view.layout.birth == hold.birth:
                    settling = Settling([], held=False, birth=hold.birth, releases=live)
                    write = bucket_writes.settle(view, settling, next(self._scope.client.nonces))
                    self._own_table().write(write)
            except ZAELimiterError as error:
                _log.warning("Slots are free at the end of their hold: %s of %s: %s", live, hold.bucket, error)

    def _view(self, bucket: BucketId, shard: int, *, cached: bool = False) -> BucketView | None:
        """Return a shard as it is cached, or as it is stored; None if it does not exist."""
        known = self._scope.caches.view(bucket, shard) if cached else None
        if known is not None:
            return known
        item = self._own_table().get(bucket_key(self._scope.namespace_id, *bucket, shard), consistent=True)
        return None if item is None else view_of(item, self._now()[1], None)

    def _read_all(self, bucket: BucketId) -> Mapping[int, BucketView]:
        """Read all shards of a bucket."""
        first = self._view(bucket, 0)
        if first is None:
            return {}
        views, known = {0: first}, 1
        while known < max(view.layout.shard_count for view in views.values()):
            count = max(view.layout.shard_count for view in views.values())
            for shard in range(known, count):
                view = self._view(bucket, shard)
                if view is not None:
                    views[shard] = view
            known = count
        return views

    def _own_table(self) -> Table:
        """Return the table for calls of this thread."""
        if self._table is None:
            self._table = self._scope.table.for_thread()
        return self._table

    def _end_thread(self) -> None:
        """Close what the thread has opened; a limiter without slots is not kept alive any more."""
        self._scope.client.put_off.discard(self)
        table, self._table = self._table, None
        if table is not None and table is not self._scope.table:
            table.close()


def _has_all(view: MixedView[Any], renewals: Sequence[SlotRenewal]) -> bool:
    """Return whether a shard has all slots that are renewed."""
    shares = view.layout.shared.shares
    found = {(shares[at].name, end_s): milli for at, some in view.cohorts.items() for end_s, milli in some}
    return all(found.get((one.name, one.end_s), 0) >= one.milli for one in renewals)
