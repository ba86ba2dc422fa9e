"""A lease that is left after its repository was closed."""

import pytest

from zae_limiter import Limit, RepositoryClosedError


@pytest.fixture(autouse=True)
async def _limits(limiter):
    await limiter.set_system_defaults([Limit.per_minute("rpm", 60)])


async def used(limiter, repo, adjustment, failure=None, **options):
    """Adjust a lease, close the repository, and leave the lease."""
    async with limiter.acquire("user-1", "gpt-4", {"rpm": 10}, **options) as lease:
        await lease.adjust(rpm=adjustment)
        await repo.close()
        if failure is not None:
            raise failure


@pytest.mark.parametrize("adjustment", [0, 5, -5])
async def test_an_exception_of_the_caller_is_not_replaced(limiter, repo, adjustment, caplog):
    """What could not be given back is logged."""
    with pytest.raises(KeyError, match="mine") as caught:
        await used(limiter, repo, adjustment, KeyError("mine"))

    assert caught.value.__context__ is None
    assert "Not settled" in caplog.text


async def test_a_debit_that_cannot_be_written_raises_a_named_error(limiter, repo):
    """Otherwise it would be use that is not counted."""
    with pytest.raises(RepositoryClosedError):
        await used(limiter, repo, 5)


async def test_a_debit_is_logged_if_calls_are_allowed_without_the_store(limiter, repo, caplog):
    """The caller has chosen to go on."""
    await used(limiter, repo, 5, on_unavailable="allow")

    assert "Not settled" in caplog.text


async def test_a_credit_that_cannot_be_written_is_logged(limiter, repo, caplog):
    """It limits others for a while, and no more."""
    await used(limiter, repo, -5)

    assert "Not settled" in caplog.text


async def test_a_lease_without_adjustments_is_left_as_always(limiter, repo, caplog):
    """There is nothing to write."""
    await used(limiter, repo, 0)

    assert "" == caplog.text


@pytest.mark.parametrize("verb", ["consume", "release"])
async def test_a_verb_after_close_raises_and_the_lease_can_still_be_left(limiter, repo, verb):
    """With the error of the verb."""

    async def work():
        async with limiter.acquire("user-1", "gpt-4", {"rpm": 10}) as lease:
            await repo.close()
            await getattr(lease, verb)(rpm=1)

    with pytest.raises(RepositoryClosedError):
        await work()
