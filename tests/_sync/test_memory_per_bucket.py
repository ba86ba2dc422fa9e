"""The memory that a client uses per cached bucket, and the bound on the number of cached buckets."""  # generated from _async by tools/mirror.py; do not edit

import gc
import tracemalloc

import pytest

from zae_limiter import Limit, SyncRateLimiter, SyncRepository
from zae_limiter.caches.buckets import Bounded, NamespaceCaches

LIMITS = [Limit.per_minute("rpm", 1_000_000), Limit.per_minute("tpm", 100_000_000)]
BUCKETS = 1_000
MOST_OBJECTS = 6
MOST_BYTES = 1_200


@pytest.fixture(autouse=True)
def few_rows(monkeypatch):
    """Let a SQLite table cache the rows of few buckets, so that only the client's memory is measured."""
    monkeypatch.setattr("zae_limiter.tables.sqlite.table._REMEMBERED", 4)


def use(limiter, buckets):
    for number in range(buckets):
        with limiter.acquire(f"user-{number:06}", "gpt-4", {"rpm": 1, "tpm": 500}) as lease:
            lease.adjust(tpm=number % 2)


def collect_garbage():
    """Collect garbage until nothing changes; a tuple of tuples is untracked a collection after its parts are."""
    for _ in range(3):
        gc.collect()


def test_cached_bucket_with_two_limits_has_few_tracked_objects(repo, limiter):
    """The garbage collector visits at most 6 objects per bucket: equal limits, names and readers are shared."""
    limiter.set_system_defaults(LIMITS)
    freed = []
    for _ in range(3):
        use(limiter, BUCKETS)
        collect_garbage()
        before = len(gc.get_objects())
        repo.scope.caches.buckets.clear()
        collect_garbage()
        freed.append(before - len(gc.get_objects()))

    # Threads of earlier tests may end during a round and free their own objects, so the minimum counts.
    assert BUCKETS < min(freed) <= MOST_OBJECTS * BUCKETS


def test_cached_bucket_with_two_limits_takes_little_memory(repo, limiter):
    """At most 1.2 KB per bucket, with its key in the cache."""
    limiter.set_system_defaults(LIMITS)
    use(limiter, 1)
    tracemalloc.start()
    try:
        use(limiter, BUCKETS)
        collect_garbage()
        before = tracemalloc.get_traced_memory()[0]
        repo.scope.caches.buckets.clear()
        collect_garbage()
        freed = before - tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()

    assert freed <= MOST_BYTES * BUCKETS


def test_client_caches_at_most_the_configured_number_of_buckets(url, clock, random):
    """The oldest are evicted, and an acquire from one of them reads it again."""
    with SyncRepository.open(url, clock=clock, random=random, remembered_buckets=10) as repo:
        limiter = SyncRateLimiter(repo)
        limiter.set_system_defaults(LIMITS)
        use(limiter, 25)
        remembered = [entity_id for entity_id, _ in repo.scope.caches.buckets]
        use(limiter, 1)

        assert len(remembered) <= 10
        assert [f"user-{number:06}" for number in range(25)][-len(remembered) :] == remembered
        assert 999_998 == (repo.get_buckets("user-000000", "gpt-4"))[0].tokens


def test_bounded_dictionary_evicts_its_oldest_entries():
    """Few are evicted at a time, so that no insertion takes long."""
    kept = Bounded(1_000)
    for number in range(5_000):
        kept.keep(number, str(number))

        assert len(kept) <= 1_000
    assert list(range(5_000 - len(kept), 5_000)) == list(kept)
    assert len(kept) > 900


def test_changed_limits_of_one_entity_are_read_again_for_all_its_resources(repo, limiter):
    """Cached limits of other entities stay."""
    limiter.set_system_defaults(LIMITS)
    for resource in ("gpt-4", "gpt-4o", "claude"):
        limiter.available("user-1", resource)
        limiter.available("user-2", resource)
    limiter.set_limits("user-1", [Limit.per_minute("rpm", 7)])

    for resource in ("gpt-4", "gpt-4o", "claude"):
        assert {"rpm": 7} == limiter.available("user-1", resource)
        assert repo.scope.caches.limits(("user-2", resource)) is not None


def test_resources_without_cached_buckets_are_evicted():
    """A client that meets ever new resources caches at most twice as many as buckets."""
    caches = NamespaceCaches(4)
    for number in range(100):
        caches.of(("user-1", f"model-{number}"))
    caches.keep_limits(("user-1", "model-99"), object())
    caches.forget_limits_of("user-1")

    assert caches.limits(("user-1", "model-99")) is None
