"""Keeping what was taken although the block fails: ``commit()`` and ``on_error``."""

import pytest

from zae_limiter import LeaseExpiredError, Limit, RateLimiter, RateLimiterUnavailable, ValidationError

from .clients import FailingTable, another

LIMITS = [Limit.per_minute("rpm", 60), Limit.per_minute("tpm", 6_000)]


class ModelError(Exception):
    """The failure of the caller's own work."""


@pytest.fixture(autouse=True)
async def _limits(limiter):
    await limiter.set_system_defaults(LIMITS)


def acquire(limiter, **options):
    return limiter.acquire("user-1", "gpt-4", {"rpm": 1, "tpm": 500}, **options)


async def fail_within(lease, *calls):
    """Enter a lease, make calls on it, and leave it by an exception."""
    async with lease as entered:
        for call in calls:
            await call(entered)
        raise ModelError


def commit(lease):
    return lease.commit()


def use_more(lease):
    return lease.adjust(tpm=230)


async def left(limiter):
    available = await limiter.available("user-1", "gpt-4")
    return available["rpm"], available["tpm"]


async def test_committed_lease_left_by_an_exception_keeps_what_was_taken(limiter):
    """The work has a cost, although it failed."""
    with pytest.raises(ModelError):
        await fail_within(acquire(limiter), commit)

    assert (59, 5_500) == await left(limiter)


@pytest.mark.parametrize("calls", [(use_more, commit), (commit, use_more)], ids=["before", "after"])
async def test_committed_lease_left_by_an_exception_writes_its_adjustments(limiter, calls):
    """It does not matter whether an adjustment was made before or after the commit."""
    with pytest.raises(ModelError):
        await fail_within(acquire(limiter), *calls)

    assert (59, 5_270) == await left(limiter)


async def test_lease_that_is_not_committed_and_fails_gives_everything_back(limiter):
    """This is the default."""
    with pytest.raises(ModelError):
        await fail_within(acquire(limiter), use_more)

    assert (60, 6_000) == await left(limiter)


async def test_lease_that_keeps_on_error_writes_its_adjustments(limiter):
    """``on_error="keep"`` is a commit from the start."""
    with pytest.raises(ModelError):
        await fail_within(acquire(limiter, on_error="keep"), use_more)

    assert (59, 5_270) == await left(limiter)


async def test_commit_on_a_cascading_lease_keeps_every_bucket(limiter):
    """The parent's tokens are kept too."""
    await limiter.create_entity("project")
    await limiter.create_entity("key", parent_id="project", cascade=True)

    with pytest.raises(ModelError):
        await fail_within(limiter.acquire("key", "gpt-4", {"rpm": 1}), commit, lambda lease: lease.adjust(rpm=2))

    assert 57 == (await limiter.available("key", "gpt-4"))["rpm"]
    assert 57 == (await limiter.available("project", "gpt-4"))["rpm"]


async def test_call_of_adjust_without_await_is_charged(limiter):
    """A forgotten ``await`` loses nothing: an adjustment takes effect when it is called."""
    async with acquire(limiter) as lease:
        lease.adjust(tpm=230)

    assert (59, 5_270) == await left(limiter)


async def test_call_of_commit_without_await_takes_effect(limiter):
    """The result may be awaited, but need not be."""
    lease = acquire(limiter)
    await lease.__aenter__()
    lease.commit()
    await lease.__aexit__(ModelError, ModelError(), None)

    assert (59, 5_500) == await left(limiter)


async def test_commit_of_a_lease_that_has_ended_raises(limiter):
    """It could no longer have an effect."""
    async with acquire(limiter) as lease:
        pass

    with pytest.raises(LeaseExpiredError, match="commit"):
        lease.commit()


@pytest.mark.parametrize("value", ["", "give back", None, True, ["keep"]], ids=str)
async def test_acquire_with_an_unknown_on_error_raises(limiter, value):
    """Nothing was taken."""
    with pytest.raises(ValidationError) as caught:
        await acquire(limiter, on_error=value).__aenter__()

    assert ("on_error", value) == (caught.value.field, caught.value.value)
    assert (60, 6_000) == await left(limiter)


async def test_unwritten_adjustment_of_a_committed_lease_does_not_replace_the_error_of_the_block(repo):
    """The caller's own failure is what the caller gets; the log has the other one."""
    other = another(repo, FailingTable)
    table, limiter = other.scope.table, RateLimiter(other)

    async def lose_the_store(_):
        table.unavailable = True

    with pytest.raises(ModelError):
        await fail_within(acquire(limiter), commit, use_more, lose_the_store)


async def test_unwritten_adjustment_of_a_lease_that_ends_normally_is_reported(repo):
    """A lost debit is use that is not counted."""
    other = another(repo, FailingTable)
    table, limiter = other.scope.table, RateLimiter(other)

    lease = acquire(limiter)
    await lease.__aenter__()
    await lease.adjust(tpm=230)
    table.unavailable = True

    with pytest.raises(RateLimiterUnavailable):
        await lease.__aexit__(None, None, None)
