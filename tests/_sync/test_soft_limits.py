"""Soft limits beside other limits: what a lease gives back, and what its statuses say."""  # generated from _async by tools/mirror.py; do not edit

import pytest

from zae_limiter import Limit

from .clients import another, buckets_in
from .shards import OtherClient

SLOW_S = 10**8
"""A period in which no test sees a refill."""

SOFT = Limit.custom("tries", 10, 1, SLOW_S, enforce=False)
HARD = Limit.custom("tries", 10, 1, SLOW_S)
SPEND = Limit.quota("spend", 100)
CACHED_MS = 61_000
"""Limits are read again after this time."""


class ModelError(Exception):
    """The failure of the caller's own work."""


def acquire(limiter, **consume):
    return limiter.acquire("user-1", "gpt-4", consume)


def stored(repo):
    """Return the balance and the total of the limit, over all shards, in whole tokens."""
    return tuple(sum(item[f"b_tries_{field}"] for item in buckets_in(repo)) // 1000 for field in ("tk", "tc"))


@pytest.mark.parametrize(("first", "then", "second"), [(HARD, SOFT, 5), (SOFT, HARD, 2)], ids=["softer", "harder"])
def test_lease_that_took_before_and_after_a_limit_became_soft_gives_back_what_was_charged(
    either_limiter, repo, clock, first, then, second
):
    """What was only counted gives nothing back, and what was charged is given back completely."""
    repo.set_system_defaults([first, SPEND])
    lease = acquire(either_limiter, tries=8)
    lease.__enter__()
    another(repo).set_system_defaults([then, SPEND])
    clock.advance(CACHED_MS)
    lease.consume(tries=second)
    lease.release(tries=1)
    lease.__exit__(ModelError, ModelError(), None)

    assert (10, 0) == stored(repo)


def test_soft_limit_that_only_counted_is_exceeded_in_the_statuses_of_the_lease(either_limiter, repo):
    """So a limit can be tried before it rejects."""
    repo.set_system_defaults([SOFT, SPEND])
    seen = []
    for amount in (8, 3, 2):
        with acquire(either_limiter, tries=amount) as lease:
            seen.append([one.limit_name for one in lease.statuses if one.exceeded])

    assert [[], ["tries"], []] == seen


def test_soft_limit_is_given_back_although_a_split_has_moved_the_quota_of_the_lease(either_limiter, repo):
    """What does not fit the shard that was charged is given back to all, and the rest with it."""
    repo.set_system_defaults([SOFT, SPEND])
    lease = acquire(either_limiter, tries=4, spend=80)
    lease.__enter__()
    OtherClient(repo).split()
    lease.__exit__(ModelError, ModelError(), None)

    assert (10, 0) == stored(repo)
    assert 100 == (either_limiter.available("user-1", "gpt-4"))["spend"]
