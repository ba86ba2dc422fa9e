"""Returns slots of ended leases, together with the rest of their settlement.

A release goes to the shard that was charged, and is never sent again: its slots may belong to another holder by then. A
release that is lost costs time only, because its cohort ends by itself.
"""

import logging

from zae_limiter._async.limiter.shard_attempt import MOST_STEPS, AttemptContext
from zae_limiter._async.limiter.shards import TRANSACTIONS, ShardClient
from zae_limiter._async.store.buckets import ShardId
from zae_limiter.caches.request import Owed, contended
from zae_limiter.core.bucket_changes import Settlement, Settling, settle
from zae_limiter.core.errors import RateLimiterUnavailable, ZAELimiterError
from zae_limiter.core.lazy_dataclass import replace
from zae_limiter.core.outcome import Applied, Item, Missing, Refused, Throttled, Unavailable, WriteOutcome
from zae_limiter.core.slots import SlotView, not_ended, released_across, releases_fit
from zae_limiter.schema import bucket_writes
from zae_limiter.schema.bucket_item import BucketView

_log = logging.getLogger("zae_limiter")


class Releaser:
    """Settles with the buckets of one namespace what releases slots."""

    def __init__(self, context: AttemptContext, shards: ShardClient) -> None:
        self._table = context.table
        self._buckets = context.buckets
        self._nonces = context.nonces
        self._shards = shards

    async def settle(self, owed: Owed) -> Owed | None:
        """Settle in one write with the shard that was charged; return what is left without slots, None if nothing is.

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
            if not settlement.releases:
                return _without_slots(owed, settlement)
            if not _fits(view, settlement):
                if not looked:
                    # An old view decides nothing: the newest item shows whether a split has moved the slots.
                    view, looked = await self._buckets.look(shard_id, terms, until_s, newest=True), True
                    continue
                await self._release_anywhere(owed._replace(settlement=settlement))
                return _without_slots(owed, settlement)
            assert view is not None, "a view that fits was seen"
            settling = settle(view, settlement, now, refusals)
            nonce = next(self._nonces)
            operation = bucket_writes.settle(view, settling, nonce)
            outcome = await self._table.write(operation, until_s)
            match outcome:
                case Applied(new=new):
                    self._learn(shard_id, view, new, settling)
                    return None
                case Refused(old=old):
                    view, looked = self._buckets.learn(shard_id, old, terms), True
                case Missing():
                    view, looked = self._buckets.learn(shard_id, None, terms), True
                case Throttled():
                    await self._shards.relieve_and_wait(shard_id, terms, until_s, outcome)
                    view = self._buckets.remembered(*shard_id)
                case _:
                    return await self._after_no_answer(owed, view, (settling, nonce), outcome)
        raise contended(bucket)

    def _learn(self, shard_id: ShardId, view: BucketView, item: Item, settling: Settling) -> None:
        """Cache a shard as it is after a settlement."""
        # The slots that are returned are no use of the limit, but the write is this client's own.
        own = [(0, 0), *((part.position, part.spent) for part in settling.parts)] if view.layout.describes(item) else []
        self._buckets.learn(shard_id, item, None, own)

    async def _after_no_answer(
        self, owed: Owed, view: BucketView, sent: tuple[Settling, int], outcome: WriteOutcome
    ) -> Owed | None:
        """Return what is left of a settlement whose answer was lost: debits that are sent again were not applied."""
        settling, nonce = sent
        assert isinstance(outcome, Unavailable), "every other outcome is an answer"
        if not outcome.ambiguous:
            raise RateLimiterUnavailable(outcome.cause)
        debits = [part for part in settling.parts if part.spent >= 0]
        if not debits:
            # The slots may have been returned. If not, their cohort ends by itself.
            return None
        operation = bucket_writes.settle(view, settling, nonce)
        again = bucket_writes.settle(view, Settling(debits, settling.held), nonce)
        result = await self._buckets.result_of(operation, outcome, again, owed.until_s)
        return None if isinstance(result, Applied) else owed._replace(settlement=Settlement(owed.settlement.debits))

    async def _release_anywhere(self, owed: Owed) -> None:
        """Return slots that a split or a merge has moved to other shards, in one transaction.

        A failure is logged: the slots are free again at the end of their cohort.
        """
        bucket, settlement, terms, until_s = owed
        backoff = self._shards.backoff(until_s)
        try:
            for _ in range(TRANSACTIONS):
                shards = await self._shards.read_all(bucket, terms, until_s, again=True)
                reached = {
                    shard: view for shard, view in (shards or {}).items() if view.layout.birth == settlement.birth
                }
                parts = released_across(reached, not_ended(settlement.releases, self._table.now()[0]))
                writes = {
                    shard: bucket_writes.settle(
                        reached[shard], Settling([], False, settlement.birth, tuple(part)), next(self._nonces)
                    )
                    for shard, part in parts.items()
                }
                # Sent once: slots that may have been returned are not returned again.
                if not writes or await self._shards.commit(bucket, writes, terms, until_s, once=True):
                    return
                await backoff.wait_or_give_up()
        except ZAELimiterError as error:
            _log.warning("Slots are free at the end of their hold: %s of %s: %s", settlement.releases, bucket, error)


def _fits(view: BucketView | None, settlement: Settlement) -> bool:
    """Return whether a shard can release all slots of a settlement."""
    if not isinstance(view, SlotView) or view.layout.birth != settlement.birth:
        return False
    return releases_fit(view, settlement.releases)


def _without_slots(owed: Owed, settlement: Settlement) -> Owed | None:
    """Return the rest of a settlement, None if nothing is left."""
    rest = replace(settlement, releases=())
    return owed._replace(settlement=rest) if rest.names else None
