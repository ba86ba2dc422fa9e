"""Settles what is bound to the shard that was charged: slots that are returned, and refunds of quotas and soft limits.

A release is never sent again: its slots may belong to another holder by then. A release that is lost costs time only,
because its cohort ends by itself. A refund is never sent again either, because it might be given twice.
"""  # generated from _async by tools/mirror.py; do not edit

import logging

from zae_limiter._sync.limiter.shard_attempt import MOST_STEPS, AttemptContext
from zae_limiter._sync.limiter.shards import TRANSACTIONS, ShardClient
from zae_limiter._sync.store.buckets import ShardId
from zae_limiter.caches.request import Owed, contended
from zae_limiter.core.bucket_changes import Settlement, Settling, settle
from zae_limiter.core.errors import RateLimiterUnavailable, ZAELimiterError
from zae_limiter.core.lazy_dataclass import replace
from zae_limiter.core.multi_shard import given_back_across
from zae_limiter.core.outcome import Applied, Item, Missing, Refused, Throttled, Unavailable, WriteOutcome
from zae_limiter.core.slots import MixedView, not_ended, releases_fit
from zae_limiter.core.tracked import refunds_fit
from zae_limiter.schema import attributes, bucket_writes
from zae_limiter.schema.bucket_item import BucketView
from zae_limiter.schema.operations import Update

_log = logging.getLogger("zae_limiter")


class Releaser:
    """Settles with the buckets of one namespace what is bound to a shard."""

    def __init__(self, context: AttemptContext, shards: ShardClient) -> None:
        self._table = context.table
        self._buckets = context.buckets
        self._nonces = context.nonces
        self._shards = shards

    def settle(self, owed: Owed) -> Owed | None:
        """Settle in one write with the shard that was charged; return what is left for any shard, None if nothing is.

        Raises:
            RateLimiterUnavailable: The table did not answer; some of it may have been written.
        """
        bucket, settlement, terms, until_s = owed
        shard_id: ShardId = (bucket, settlement.shard)
        view = self._buckets.remembered(*shard_id)
        looked = False
        for refusals in range(MOST_STEPS):
            now = self._table.now()
            settlement = replace(settlement, releases=not_ended(settlement.releases, now[0]))
            if not settlement.is_bound:
                return _unbound(owed, settlement)
            if not _fits(view, settlement):
                if not looked:
                    # An old view decides nothing: the newest item shows whether a split has moved the slots.
                    view, looked = self._buckets.look(shard_id, terms, until_s, newest=True), True
                    continue
                self._give_back_anywhere(owed._replace(settlement=settlement))
                return _unbound(owed, settlement)
            assert view is not None, "a view that fits was seen"
            settling = settle(view, settlement, now, refusals)
            nonce = next(self._nonces)
            operation = bucket_writes.settle(view, settling, nonce)
            outcome = self._table.write(operation, until_s)
            match outcome:
                case Applied(new=new):
                    self._learn(shard_id, view, new, settling)
                    return None
                case Refused(old=old):
                    view, looked = self._buckets.learn(shard_id, old, terms), True
                case Missing():
                    view, looked = self._buckets.learn(shard_id, None, terms), True
                case Throttled():
                    self._shards.relieve_and_wait(shard_id, terms, until_s, outcome)
                    view = self._buckets.remembered(*shard_id)
                case _:
                    return self._after_no_answer(owed, view, bucket_writes.settle(view, settling, nonce), outcome)
        raise contended(bucket)

    def _learn(self, shard_id: ShardId, view: BucketView, item: Item, settling: Settling) -> None:
        """Cache a shard as it is after a settlement."""
        # The slots that are returned are no use of the limit, but the write is this client's own.
        own = [(0, 0), *((part.position, part.spent) for part in settling.parts)] if view.layout.describes(item) else []
        self._buckets.learn(shard_id, item, None, own)

    def _after_no_answer(self, owed: Owed, view: BucketView, sent: Update, outcome: WriteOutcome) -> Owed | None:
        """Return what is left of a settlement whose answer was lost: debits that are sent again were not applied."""
        assert isinstance(outcome, Unavailable), "every other outcome is an answer"
        if not outcome.ambiguous:
            raise RateLimiterUnavailable(outcome.cause)
        debits = Settlement(owed.settlement.debits)
        if not debits.names:
            # The slots may have been returned. If not, their cohort ends by itself.
            return None
        again = bucket_writes.settle(view, settle(view, debits, self._table.now(), 0), sent.set[attributes.NONCE])
        result = self._buckets.result_of(sent, outcome, again, owed.until_s)
        return None if isinstance(result, Applied) else owed._replace(settlement=debits)

    def _give_back_anywhere(self, owed: Owed) -> None:
        """Give back what a split or a merge has moved to other shards, in one transaction.

        A failure is logged: slots are free again at the end of their cohort, and a quota at the end of its period.
        """
        bucket, settlement, terms, until_s = owed
        backoff = self._shards.backoff(until_s)
        try:
            for _ in range(TRANSACTIONS):
                shards = self._shards.read_all(bucket, terms, until_s, again=True)
                reached = {
                    shard: view for shard, view in (shards or {}).items() if view.layout.birth == settlement.birth
                }
                now = self._table.now()
                writes = {
                    shard: bucket_writes.settle(
                        reached[shard], settle(reached[shard], part, now, 0), next(self._nonces)
                    )
                    for shard, part in given_back_across(reached, settlement, now).items()
                }
                # Sent once: what may have been given back is not given back again.
                if not writes or self._shards.commit(bucket, writes, terms, until_s, once=True):
                    return
                backoff.wait_or_give_up()
        except ZAELimiterError as error:
            given = [*settlement.releases, *settlement.refunds]
            _log.warning("Free at the end of the hold or of the period: %s of %s: %s", given, bucket, error)


def _fits(view: BucketView | None, settlement: Settlement) -> bool:
    """Return whether a shard can take back all that a settlement gives back to it."""
    if view is None or view.layout.birth != settlement.birth:
        return False
    if settlement.releases and not (isinstance(view, MixedView) and releases_fit(view, settlement.releases)):
        return False
    return refunds_fit(view, settlement.refunds)


def _unbound(owed: Owed, settlement: Settlement) -> Owed | None:
    """Return what of a settlement any shard may settle, None if nothing is left."""
    rest = replace(settlement, releases=(), refunds=())
    return owed._replace(settlement=rest) if rest.names else None
