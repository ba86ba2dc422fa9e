"""Settlements: what ended leases owe a bucket or get back from it, on one shard or on several.

A debit is charged whatever the bucket holds. A credit is never sent again, because it might be given twice.
"""  # generated from _async by tools/mirror.py; do not edit

import logging

from zae_limiter._sync.limiter.releases import Releaser
from zae_limiter._sync.limiter.shard_attempt import MOST_STEPS, AttemptContext
from zae_limiter._sync.limiter.shards import TRANSACTIONS, ShardClient
from zae_limiter._sync.store.buckets import ShardId, WriteResult
from zae_limiter._sync.store.configs import ConfigStore
from zae_limiter._sync.store.scope import Scope
from zae_limiter.caches.buckets import BucketId, Remembered
from zae_limiter.caches.request import Owed, contended
from zae_limiter.core.bucket_changes import Settlement, Settling, settle
from zae_limiter.core.errors import NamespaceNotFoundError, ValidationError, ZAELimiterError
from zae_limiter.core.lazy_dataclass import replace
from zae_limiter.core.multi_shard import credit_across, debit_across, due_across, has_no_room, if_covered, lacks
from zae_limiter.core.outcome import Applied, Item, Refused, RefusedInDoubt, Throttled
from zae_limiter.core.view import Amounts, EffectiveLimits
from zae_limiter.schema import bucket_writes
from zae_limiter.schema.bucket_item import BucketView, view_after_write
from zae_limiter.schema.operations import Put

_log = logging.getLogger("zae_limiter")


class Settler:
    """Settles with the buckets of one namespace, one settlement at a time."""

    def __init__(self, scope: Scope, context: AttemptContext, shards: ShardClient) -> None:
        self._scope = scope
        self._caches = scope.caches
        self._configs = ConfigStore(scope)
        self._table = context.table
        self._buckets = context.buckets
        self._nonces = context.nonces
        self._shards = shards
        self._releases = Releaser(context, shards)

    def settle(self, owed: Owed) -> None:
        """Charge debits and give credits back.

        Raises:
            RateLimiterUnavailable: The table did not answer; some of it may still have been written.
        """
        if owed.settlement.is_bound:
            return self._settle_bound(owed)
        bucket, settlement, terms, until_s = owed
        memory = self._caches.of(bucket)
        shard = 0 if memory.shards is None else self._shard_to_settle(memory, settlement)
        view = memory.seen(shard)
        if _is_outdated(view, settlement):
            # Hazard: an old view may lack a limit or show a deleted bucket, and its part of the settlement would be
            # dropped. So the newest bucket decides.
            view = self._buckets.look((bucket, shard), terms, until_s, newest=True)
        refusals = 0
        for _ in range(MOST_STEPS):
            if memory.shards is not None:
                left = self._settle_across(owed, view, refusals)
                if not left.names:
                    return None
                if settlement.debits and not left.debits:
                    self._give_back(owed._replace(settlement=left))
                    return None
                owed = owed._replace(settlement=left)
                settlement = left
                # A bucket that no longer exists is created again as shard 0.
                view = memory.seen(shard)
                shard = shard if view is not None else 0
            # A new bucket is full, so it needs no credits. It is created only for debits.
            if view is None and shard == 0 and not (settlement.debits and self._has_namespace(bucket, until_s)):
                return None
            result, own = self._settle_once(owed, view, refusals)
            if result is None:
                return None
            if isinstance(result, Applied):
                self._learn(owed, (bucket, shard), view, result.new, own)
                return None
            refusals += self._learn_refusal(owed, (bucket, shard), view, result)
            owed = _after_refusal(owed, view, result)
            settlement = owed.settlement
            shard = self._shard_to_settle(memory, settlement) if memory.sharded else 0
            view = memory.seen(shard)
        raise contended(bucket)

    def _learn_refusal(self, owed: Owed, shard_id: ShardId, view: BucketView | None, result: WriteResult) -> bool:
        """Learn from a write that was not applied; return whether its estimate was wrong. Wait while it is throttled.

        Raises:
            RateLimiterUnavailable: The table takes no writes until the deadline.
        """
        if isinstance(result, Throttled):
            self._shards.relieve_and_wait(shard_id, owed.terms, owed.until_s, result)
            return False
        old = result.old if isinstance(result, Refused) else None
        guessed = old is not None and view is not None and view.layout.describes(old)
        self._buckets.learn(shard_id, old, owed.terms)
        return guessed

    def _settle_bound(self, owed: Owed) -> None:
        """Settle with the shard that was charged, and settle what that has left.

        Raises:
            RateLimiterUnavailable: The table did not answer; some of it may still have been written.
        """
        rest = self._releases.settle(owed)
        if rest is not None:
            self.settle(rest)

    def _learn(self, owed: Owed, shard_id: ShardId, view: BucketView | None, item: Item, own: Amounts) -> None:
        """Cache a shard as it is after a settlement."""
        memory = self._caches.of(owed.bucket)
        # A credit does not require the limits of the view. If the bucket has other limits now, the positions of ``own``
        # do not apply to it.
        same = view is not None and view.layout.describes(item)
        if same and view is not None and view is memory.view:
            memory.view = after = view_after_write(view, item, own, self._table.now()[1])
            if after.layout.shared.warned and self._scope.client.warner is not None:
                self._scope.client.warner.look(self._scope, owed.bucket, after)
        else:
            self._buckets.learn(shard_id, item, owed.terms, own if same else ())

    def _give_back(self, credits: Owed) -> None:
        """Give back the credits of a settlement whose debits were charged.

        A failure is logged. An error would mean that nothing was charged, and the debits might be charged again.
        """
        try:
            self.settle(credits)
        except ZAELimiterError as error:
            _log.warning("Not given back: %s of %s: %s", credits.settlement, credits.bucket, error)

    def _settle_across(self, owed: Owed, view: BucketView | None, refusals: int) -> Settlement:
        """Settle with all shards what one of them cannot pay or hold; return what is left to settle."""
        now_ms, settlement = self._table.now()[0], owed.settlement
        due = settlement if view is None else settlement.due(view.layout.birth)
        left: Settlement | None = None
        if due.debits and lacks(view, due, now_ms, refusals):
            left = self._settle_shards(owed, debits=True)
        elif due.credits and not due.debits and has_no_room(view, due, now_ms):
            left = self._settle_shards(owed, debits=False)
        return settlement if left is None else left

    def _settle_once(
        self, owed: Owed, view: BucketView | None, refusals: int
    ) -> tuple[WriteResult | None, Amounts]:
        """Send a settlement to a shard once; None if the shard has nothing of it. Without a view, create the bucket."""
        if view is None:
            creation = self._charged_from_full(owed.bucket, owed.settlement, owed.terms)
            try:
                return self._buckets.create(creation, owed.until_s), ()
            except NamespaceNotFoundError:
                return None, ()
        settling = settle(view, owed.settlement, self._table.now(), refusals)
        if not settling.parts:
            return None, ()
        own = [(part.position, part.spent) for part in settling.parts]
        if view.layout.shard_count > 1:
            settling = if_covered(view, settling, self._table.now()[0])
        return self._settle_with(view, settling, owed.until_s), own

    def _settle_with(self, view: BucketView, settling: Settling, until_s: float) -> WriteResult:
        """Send a settlement; after a lost answer only its debits are sent again, never a credit."""
        nonce = next(self._nonces)
        operation = bucket_writes.settle(view, settling, nonce)
        outcome = self._table.write(operation, until_s)
        if type(outcome) is Applied:
            return outcome
        # Hazard: after a lost answer the first write may have been applied. A debit that is charged again only limits
        # more, but a credit that is given again creates tokens.
        debits = [part for part in settling.parts if part.spent >= 0]
        again = bucket_writes.settle(view, Settling(debits, settling.held), nonce) if debits else None
        return self._buckets.result_of(operation, outcome, again, until_s)

    def _has_namespace(self, bucket: BucketId, until_s: float) -> bool:
        """Return whether the namespace still exists: a bucket that is gone may have gone with it."""
        try:
            self._configs.read_again(bucket, until_s, consistent=True)
        except NamespaceNotFoundError:
            return False
        except ValidationError:
            # Too many limits are in force now. The namespace exists all the same.
            return True
        return True

    def _charged_from_full(self, bucket: BucketId, settlement: Settlement, terms: EffectiveLimits) -> Put:
        owner, spent = self._buckets.owner(bucket), dict(settlement.debits)
        return bucket_writes.create(owner, terms, spent, self._table.now()[1], self._buckets.signature())

    def _settle_shards(self, owed: Owed, *, debits: bool) -> Settlement | None:
        """Settle the debits, or the credits, with all shards in one transaction.

        Return the rest of the settlement, None if the bucket does not exist. Debits are charged first to what the
        shards have, and credits are given where there is room.

        Raises:
            RateLimiterUnavailable: The table did not answer, or other clients kept changing the shards.
        """
        bucket, settlement, terms, until_s = owed
        backoff = self._shards.backoff(until_s)
        for _ in range(TRANSACTIONS):
            # Read consistently: the settlement of a limit that an old read lacks would be dropped.
            shards = self._shards.read_all(bucket, terms, until_s, again=True)
            if shards is None:
                return None
            due, now = due_across(shards, settlement), self._table.now()
            parts = debit_across(shards, due.debits, now) if debits else credit_across(shards, due, now)
            writes = {
                shard: bucket_writes.settle(shards[shard], part, next(self._nonces)) for shard, part in parts.items()
            }
            # A credit must not be given twice. It is dropped if it may have been given, or may still be.
            if not writes or self._shards.commit(bucket, writes, terms, until_s, once=not debits):
                return replace(due, debits=()) if debits else replace(due, credits=())
            backoff.wait_or_give_up()
        raise contended(bucket)

    def _shard_to_settle(self, memory: Remembered, settlement: Settlement) -> int:
        """Return the shard with the highest level for debits, or with the lowest level for credits."""
        now_ms = self._table.now()[0]
        first = memory.view
        due = settlement if first is None else settlement.due(first.layout.birth)

        def level(view: BucketView) -> float:
            found = [view.layout.position(name) for name in settlement.names]
            shares = view.layout.shared.shares
            levels = [view.level(one, now_ms) / max(1, shares[one].capacity_milli) for one in found if one is not None]
            return min(levels, default=0.0)

        views = memory.views()
        # A shard that lacks a limit, or has another birth number, would drop its part of the settlement.
        having = {shard: view for shard, view in views.items() if not _is_outdated(view, settlement)}
        views = having or views
        choose = max if due.debits else min
        return choose(views, key=lambda shard: level(views[shard]), default=0)


def _after_refusal(owed: Owed, view: BucketView | None, result: WriteResult) -> Owed:
    """Return what is left to settle after a write was refused, or throttled."""
    if not isinstance(result, RefusedInDoubt):
        return owed
    # Hazard: the first try may have given the credits, and a credit must not be given twice.
    due = owed.settlement if view is None else owed.settlement.due(view.layout.birth)
    return owed._replace(settlement=Settlement(due.debits))


def _is_outdated(view: BucketView | None, settlement: Settlement) -> bool:
    """Return whether a view lacks a limit of a settlement, or is of another bucket than the one that was charged."""
    if view is None or not settlement.credits_reach(view.layout.birth):
        return True
    # The same as ``has_all``, without making the names: this is done for every settlement.
    positions = view.layout.shared.positions
    for name, _ in settlement.debits or settlement.credits:
        if name not in positions:
            return True
    return bool(settlement.debits and settlement.credits) and not view.layout.has_all(settlement.names)
