"""Reads and removes buckets with all their shards.

All shards are removed in one transaction. If shard 0 were removed alone, the next request would create a second bucket
beside the remaining shards.
"""

from collections.abc import Iterable

from zae_limiter._async.backoff import Pauses
from zae_limiter._async.store.scope import Client
from zae_limiter.core.outcome import Committed, Item
from zae_limiter.core.sharding import is_complete
from zae_limiter.schema import attributes
from zae_limiter.schema.bucket_item import bucket_key, counts_of
from zae_limiter.schema.keys import BucketKey, parse_bucket_pk
from zae_limiter.schema.operations import Delete, Equals, Key

_READS = 6
_MOST_TRIES = 16
_PAUSES = Pauses(0.001, 0.05, full_jitter=True)


class ShardedBuckets:
    """Reads and removes buckets, each with all its shards."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._table = client.table

    async def completed(self, items: Iterable[Item]) -> list[list[Item]]:
        """Group shards into buckets, and read a bucket again if some of its shards are missing."""
        grouped: dict[BucketKey, list[Item]] = {}
        for item in items:
            shard = parse_bucket_pk(item["PK"])
            if shard is not None:
                grouped.setdefault(shard._replace(shard_id=0), []).append(item)
        buckets = []
        for bucket, shards in grouped.items():
            counts = counts_of(shards)
            # A split between two reads leaves shards of different times, which do not add up to the bucket.
            buckets.append(shards if is_complete(counts) else await self.read(bucket, max(counts)))
        return [shards for shards in buckets if shards]

    async def read(self, bucket: BucketKey, known: int) -> list[Item]:
        """Return all shards of a bucket; ``known`` is the highest shard number seen so far.

        If shards stay missing, for example after an interrupted removal, the found ones are returned.
        """
        widest = 1 << known.bit_length()
        found: list[Item] = []
        backoff = self._client.backoff(_PAUSES)
        for _ in range(_READS):
            keys = [bucket_key(*bucket[:3], shard) for shard in range(widest)]
            found = [item for item in await self._table.batch_get(keys, consistent=True) if item is not None]
            counts = counts_of(found)
            if not found or is_complete(counts):
                return found
            # A larger count names shards that were not read yet. Otherwise the reads have mixed the states before and
            # after a split, so wait and read again.
            if max(counts.values()) <= widest:
                await backoff.wait()
            widest = max(widest, *counts.values())
        return found

    async def remove(self, bucket: BucketKey, known: int) -> int:
        """Remove all shards of a bucket, and return their number; ``known`` is the highest shard number seen so far.

        Raises:
            RateLimiterUnavailable: The table did not respond, or the shards kept changing.
        """
        outcome: object = None
        backoff = self._client.backoff(_PAUSES)
        for _ in range(_MOST_TRIES):
            shards = await self.read(bucket, known)
            if not shards:
                return 0
            outcome = await self._client.transact([_removal(item) for item in shards], "remove")
            if isinstance(outcome, Committed):
                return len(shards)
            await backoff.wait()
        raise self._client.unavailable(TimeoutError(f"other clients kept changing the shards of a bucket: {outcome}"))


def highest_shards(wanted: Iterable[Key]) -> dict[BucketKey, int]:
    """Return the buckets of these keys, each as the key of its shard 0, with their highest shard numbers."""
    highest: dict[BucketKey, int] = {}
    for key in wanted:
        shard = parse_bucket_pk(key.pk)
        if shard is not None:
            bucket = shard._replace(shard_id=0)
            highest[bucket] = max(shard.shard_id, highest.get(bucket, 0))
    return highest


def _removal(item: Item) -> Delete:
    """Return the delete of a shard, on condition that it was not split or merged since: its other half would remain."""
    count = item.get(attributes.SHARD_COUNT)
    return Delete(Key(item["PK"], item["SK"]), (Equals(attributes.SHARD_COUNT, count),) if type(count) is int else ())
