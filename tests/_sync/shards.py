"""Buckets that another client splits and merges, and what is stored of all their shards."""  # generated from _async by tools/mirror.py; do not edit

from zae_limiter import SyncRateLimiter
from zae_limiter.core import splitting
from zae_limiter.core.outcome import Committed
from zae_limiter.schema import bucket_writes

from .clients import another, buckets_in

BUCKET = ("user-1", "gpt-4")


def part_of(whole, shard, shard_count):
    """Return the share of a shard in a whole: at every doubling the lower shard gets the larger half."""
    while shard_count > 1:
        whole, shard, shard_count = (whole // 2 if shard % 2 else -(-whole // 2)), shard // 2, shard_count // 2
    return whole


def stored(repo):
    """Return the stored shards by their numbers."""
    return {int(item["PK"].rpartition("#")[2]): item for item in buckets_in(repo)}


def counts(repo):
    """Return the shard counts of the stored shards."""
    return {shard: item["shard_count"] for shard, item in sorted(stored(repo).items())}


def levels(repo, name, now_ms):
    """Return the level of each shard in millitokens, computed from the stored items."""
    found = {}
    for shard, item in stored(repo).items():
        position = shard, item["shard_count"]
        amount, period, since_ms = item[f"b_{name}_ra"], item[f"b_{name}_rp"], item["rf"]
        grids = [part_of(at_ms * amount // period, *position) for at_ms in (since_ms, max(now_ms, since_ms))]
        found[shard] = min(part_of(item[f"b_{name}_cp"], *position), item[f"b_{name}_tk"] + grids[1] - grids[0])
    return found


def total(repo, name, now_ms):
    """Return what can be taken from all shards together, in millitokens."""
    return sum(max(0, level) for level in levels(repo, name, now_ms).values())


def used(repo, name):
    """Return what all shards have counted, in tokens."""
    return sum(item[f"b_{name}_tc"] for item in stored(repo).values()) // 1000


def merge(client, bucket, staying, leaving):
    """Merge two shards, as the aggregator does; False if they are not halves of one, or lost a race."""
    scope, until_s = client._scope, client.until_s()
    shards = client.shards.read_all(bucket, None, until_s)
    if shards is None or staying not in shards or leaving not in shards:
        return False
    merging = splitting.merge(shards[staying], shards[leaving], scope.table.now())
    if merging is None:
        return False
    nonces = scope.client.nonces
    operations = bucket_writes.merge(shards[staying], shards[leaving], merging, next(nonces))
    outcome = scope.table.transact(operations, f"merge-{next(nonces)}", until_s=until_s)
    if not isinstance(outcome, Committed):
        return False
    keys = [client.buckets.key(bucket, shard) for shard in (leaving, staying)]
    items = scope.table.batch_get(keys, consistent=True, until_s=until_s)
    for shard, item in zip((leaving, staying), items, strict=True):
        client.buckets.learn((bucket, shard), item, None)
    return True


class OtherClient:
    """Another client, which splits and merges shards."""

    def __init__(self, repo):
        self.repo = repo
        self._client = SyncRateLimiter(another(repo))._client

    def split(self, shard=0):
        """Split a shard in two."""
        client = self._client
        view = client.buckets.look((BUCKET, shard), None, client.until_s())
        client.shards.split((BUCKET, shard), view, client.until_s())

    def merge(self, staying, leaving):
        """Merge two shards, and return whether it was done."""
        return merge(self._client, BUCKET, staying, leaving)

    def grow(self, shard_count):
        """Split all shards until there are this many."""
        found = counts(self.repo)
        while min(found.values()) < shard_count:
            self.split(min(found, key=found.get))
            found = counts(self.repo)

    def shrink(self, shard_count):
        """Merge shards of one size until there are this many."""
        size = len(counts(self.repo))
        while size > shard_count:
            for leaving in reversed(range(size // 2, size)):
                self.merge(leaving - size // 2, leaving)
            size //= 2
