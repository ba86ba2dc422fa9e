"""A lease that is left after its repository was closed."""  # generated from _async by tools/mirror.py; do not edit

import pytest

from zae_limiter import Limit, RepositoryClosedError


@pytest.fixture(autouse=True)
def _limits(limiter):
    limiter.set_system_defaults([Limit.per_minute("rpm", 60)])


def used(limiter, repo, adjustment, failure=None, **options):
    """Adjust a lease, close the repository, and leave the lease."""
    with limiter.acquire("user-1", "gpt-4", {"rpm": 10}, **options) as lease:
        lease.adjust(rpm=adjustment)
        repo.close()
        if failure is not None:
            raise failure


@pytest.mark.parametrize("adjustment", [0, 5, -5])
def test_an_exception_of_the_caller_is_not_replaced(limiter, repo, adjustment, caplog):
    """What could not be given back is logged."""
    with pytest.raises(KeyError, match="mine") as caught:
        used(limiter, repo, adjustment, KeyError("mine"))

    assert caught.value.__context__ is None
    assert "Not settled" in caplog.text


def test_a_debit_that_cannot_be_written_raises_a_named_error(limiter, repo):
    """Otherwise it would be use that is not counted."""
    with pytest.raises(RepositoryClosedError):
        used(limiter, repo, 5)


def test_a_debit_is_logged_if_calls_are_allowed_without_the_store(limiter, repo, caplog):
    """The caller has chosen to go on."""
    used(limiter, repo, 5, on_unavailable="allow")

    assert "Not settled" in caplog.text


def test_a_credit_that_cannot_be_written_is_logged(limiter, repo, caplog):
    """It limits others for a while, and no more."""
    used(limiter, repo, -5)

    assert "Not settled" in caplog.text


def test_a_lease_without_adjustments_is_left_as_always(limiter, repo, caplog):
    """There is nothing to write."""
    used(limiter, repo, 0)

    assert "" == caplog.text


@pytest.mark.parametrize("verb", ["consume", "release"])
def test_a_verb_after_close_raises_and_the_lease_can_still_be_left(limiter, repo, verb):
    """With the error of the verb."""

    def work():
        with limiter.acquire("user-1", "gpt-4", {"rpm": 10}) as lease:
            repo.close()
            getattr(lease, verb)(rpm=1)

    with pytest.raises(RepositoryClosedError):
        work()
