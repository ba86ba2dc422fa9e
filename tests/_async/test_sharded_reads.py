"""Sharded buckets are listed, counted and removed as one bucket."""

import pytest

from zae_limiter import EntityCapacity, Limit, RateLimiter, RateLimiterUnavailable
from zae_limiter._async.store.sharded_buckets import ShardedBuckets
from zae_limiter.core.outcome import Conflict, Unavailable
from zae_limiter.schema.bucket_item import bucket_key
from zae_limiter.schema.keys import BucketKey
from zae_limiter.schema.operations import Delete

from .clients import Wrapped, another, buckets_in, take
from .shards import OtherClient, counts, stored, total

HOUR_MS = 3_600_000
LIMITS = [Limit.custom("rpm", 101, 100, 60), Limit.custom("tpm", 10_001, 10_000, 60)]


@pytest.fixture
async def limiter(repo):
    made = RateLimiter(repo)
    await made.set_system_defaults(LIMITS)
    return made


@pytest.fixture
def other(repo):
    return OtherClient(repo)


class InterveningTable(Wrapped):
    """A table where another client acts before the next calls listed in ``between``."""

    def __init__(self, table):
        super().__init__(table)
        self.between = []
        self.outcomes = []
        self.transactions = []

    async def batch_get(self, keys, *, consistent=False, until_s=None):
        if self.between and self.between[0][0] == "batch_get":
            await self.between.pop(0)[1]()
        return await super().batch_get(keys, consistent=consistent, until_s=until_s)

    async def transact(self, operations, token, *, until_s=None):
        self.transactions.append(list(operations))
        if self.between and self.between[0][0] == "transact":
            await self.between.pop(0)[1]()
        if self.outcomes:
            return self.outcomes.pop(0)
        return await super().transact(operations, token, until_s=until_s)


async def used_by(repo, entity_id="user-1"):
    """Return the counters of the hourly usage windows of an entity."""
    snapshots, _ = await repo.get_usage_snapshots(entity_id, window_type="hourly")
    return [one.counters for one in snapshots]


async def test_get_buckets_returns_one_row_per_limit_for_all_shards(repo, limiter, other, clock):
    """Capacity is undivided; balance and consumption are the sums of all shards."""
    await take(limiter, {"rpm": 7, "tpm": 500})
    await other.grow(4)
    clock.advance(1_234)
    for _ in range(5):
        await take(limiter, {"rpm": 1})

    rows = await repo.get_buckets("user-1", "gpt-4")

    assert ["rpm", "tpm"] == [row.limit_name for row in rows]
    assert [101_000, 10_001_000] == [row.capacity_milli for row in rows]
    assert [12_000, 500_000] == [row.total_consumed_milli for row in rows]
    assert [89_000, 9_501_000] == [row.tokens_milli for row in rows]


async def test_get_buckets_balance_is_the_total_at_the_latest_baseline(repo, limiter, other, clock):
    """A merge has moved one shard to a later baseline than the others."""
    await take(limiter, {"rpm": 60, "tpm": 9_000})
    await other.grow(4)
    clock.advance(1_000)
    assert await other.merge(1, 3)

    rpm, tpm = await repo.get_buckets("user-1", "gpt-4")

    assert clock.now_ms() == rpm.last_refill_ms == tpm.last_refill_ms
    assert total(repo, "rpm", clock.now_ms()) == rpm.tokens_milli
    assert total(repo, "tpm", clock.now_ms()) == tpm.tokens_milli


async def test_resource_capacity_counts_a_sharded_bucket_once(repo, limiter, other):
    """The number of shards makes no difference."""
    await take(limiter, {"rpm": 7})
    await other.grow(8)
    await take(limiter, {"rpm": 1}, "user-2")

    found = await repo.get_resource_capacity("gpt-4", "rpm")

    assert [EntityCapacity("user-1", 101, 94), EntityCapacity("user-2", 101, 100)] == found.entities
    assert (202, 194) == (found.total_capacity, found.total_available)


async def test_get_buckets_reads_again_if_a_shard_was_split_during_the_read(repo, limiter, other):
    """The result is consistent: no token is counted twice or missed."""
    await take(limiter, {"rpm": 7})
    await other.grow(2)
    reader = another(repo, InterveningTable)
    table = reader.scope.table

    async def grow():
        await other.grow(8)

    table.between.append(("batch_get", grow))
    rpm, _ = await reader.get_buckets("user-1")

    assert (94_000, 101_000) == (rpm.tokens_milli, rpm.capacity_milli)


async def test_get_buckets_omits_a_bucket_deleted_during_the_read(repo, limiter, other):
    """Its index entries may still lead to some of its shards."""
    await take(limiter, {"rpm": 7})
    await other.grow(2)
    reader = another(repo, InterveningTable)

    async def remove(*shards):
        await repo.scope.table.batch_delete([bucket_key(repo.scope.namespace_id, "user-1", "gpt-4", n) for n in shards])

    async def first():
        await remove(0)

    async def second():
        await remove(1)

    reader.scope.table.between += [("batch_get", first), ("batch_get", second)]

    assert [] == await reader.get_buckets("user-1")


async def test_get_buckets_returns_an_incomplete_bucket_as_it_is(repo, limiter, other):
    """A read does not fail because of an interrupted removal."""
    await take(limiter, {"rpm": 7})
    await other.grow(2)
    await repo.scope.table.batch_delete([bucket_key(repo.scope.namespace_id, "user-1", "gpt-4")])

    rpm, _ = await repo.get_buckets("user-1")

    assert (47_000, 101_000) == (rpm.tokens_milli, rpm.capacity_milli)


async def test_usage_is_counted_once_over_splits_and_merges(repo, limiter, other, clock):
    """A shard that was merged and split off again starts counting at zero."""
    expected = 0
    for size in (1, 2, 4, 2, 1, 4, 1, 2):
        if stored(repo):
            await (other.grow(size) if size > len(stored(repo)) else other.shrink(size))
        for _ in range(5):
            await take(limiter, {"rpm": 1, "tpm": 3})
        expected += 5
        assert [{"rpm": expected, "tpm": 3 * expected}] == await used_by(repo)
        assert [{"rpm": expected, "tpm": 3 * expected}] == await used_by(repo)
        clock.advance(10_000)


async def test_usage_read_after_several_splits_and_merges_is_counted_once(repo, limiter, other):
    """The consumption of a shard is not lost when it is merged."""
    await take(limiter, {"rpm": 1})
    for size in (4, 1, 4, 2, 1):
        await (other.grow(size) if size > len(stored(repo)) else other.shrink(size))
        for _ in range(8):
            await take(limiter, {"rpm": 1})

    assert [{"rpm": 41}] == [{"rpm": one["rpm"]} for one in await used_by(repo)]


async def test_request_taken_from_several_shards_is_counted_once_in_usage(repo, limiter, other):
    """This holds although no shard gives a whole number of tokens."""
    await take(limiter, {"rpm": 1})
    await other.grow(8)

    await take(limiter, {"rpm": 99})

    assert [100] == [one["rpm"] for one in await used_by(repo)]


async def test_delete_entity_removes_all_shards_in_one_transaction(repo, limiter, other):
    """If only shard 0 were removed, a full new bucket would be created next to the others."""
    await repo.create_entity("user-1")
    await take(limiter, {"rpm": 7})
    await other.grow(64)
    admin = another(repo, InterveningTable)

    await admin.delete_entity("user-1")

    assert [] == buckets_in(repo)
    (removal,) = [one for one in admin.scope.table.transactions if all(isinstance(each, Delete) for each in one)]
    assert 64 == len(removal)


async def test_delete_entity_removes_shards_that_are_split_concurrently(repo, limiter, other):
    """The removal is refused and decided again with the current shards."""
    await repo.create_entity("user-1")
    await take(limiter, {"rpm": 7})
    await other.grow(2)
    admin = another(repo, InterveningTable)
    table = admin.scope.table

    async def nothing():
        pass

    async def split():
        await other.split(1)

    table.between += [("transact", nothing), ("transact", split)]
    await admin.delete_entity("user-1")

    assert {} == counts(repo)


async def test_recreated_bucket_of_a_deleted_entity_has_one_shard(repo, limiter, other):
    """A client that knew the shards finds them missing and creates one bucket."""
    await repo.create_entity("user-1")
    await take(limiter, {"rpm": 7})
    await other.grow(4)
    await take(limiter, {"rpm": 1})
    await repo.delete_entity("user-1")

    await take(limiter, {"rpm": 1})

    assert {0: 1} == counts(repo)
    assert 100 == (await limiter.available("user-1", "gpt-4"))["rpm"]


@pytest.mark.parametrize("page", [1, 2, 3, 500])
async def test_purge_removes_all_shards_of_a_bucket_in_one_transaction(repo, page, monkeypatch):
    """This holds for every page boundary."""
    monkeypatch.setattr("zae_limiter._async.store.namespaces._KEYS_PER_PAGE", page)
    namespace_id = await repo.register_namespace("team-a")
    team = await repo.namespace("team-a")
    limiter = RateLimiter(team)
    await limiter.set_system_defaults(LIMITS)
    await take(limiter, {"rpm": 7})
    await OtherClient(team).grow(8)
    await take(limiter, {"rpm": 7}, "user-2")
    admin = another(repo, InterveningTable)
    await admin.delete_namespace("team-a")

    await admin.purge_namespace(namespace_id)

    removals = [one for one in admin.scope.table.transactions if all(isinstance(each, Delete) for each in one)]
    assert [] == buckets_in(repo)
    assert 8 == max(len(one) for one in removals)


async def test_bucket_removal_retries_conflicts_and_raises_after_too_many(repo, limiter, other):
    """An unavailable table raises immediately."""
    await take(limiter, {"rpm": 7})
    await other.grow(2)
    removing = another(repo, InterveningTable)
    buckets, table = ShardedBuckets(removing.scope.client), removing.scope.table
    bucket = BucketKey(repo.scope.namespace_id, "user-1", "gpt-4", 0)

    table.outcomes = [Unavailable(ConnectionError("away"), ambiguous=False)]
    with pytest.raises(RateLimiterUnavailable, match="away"):
        await buckets.remove(bucket, 1)
    table.outcomes = [Conflict()] * 16
    with pytest.raises(RateLimiterUnavailable, match="other clients kept changing"):
        await buckets.remove(bucket, 1)
    table.outcomes = [Conflict()]
    assert 2 == await buckets.remove(bucket, 1)
    assert 0 == await buckets.remove(bucket, 1)
