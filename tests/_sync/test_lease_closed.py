"""A lease that ends after its repository was closed."""  # generated from _async by tools/mirror.py; do not edit

import pytest

from zae_limiter import Limit, RepositoryClosedError


@pytest.fixture(autouse=True)
def _limits(limiter):
    limiter.set_system_defaults([Limit.per_minute("rpm", 60)])


def adjust_and_close(limiter, repo, adjustment, failure=None, **options):
    """Adjust a lease, close the repository, and leave the lease."""
    with limiter.acquire("user-1", "gpt-4", {"rpm": 10}, **options) as lease:
        lease.adjust(rpm=adjustment)
        repo.close()
        if failure is not None:
            raise failure


@pytest.mark.parametrize("adjustment", [0, 5, -5])
def test_exit_after_close_keeps_the_callers_exception(limiter, repo, adjustment, caplog):
    """The credit that could not be written is logged."""
    with pytest.raises(KeyError, match="mine") as caught:
        adjust_and_close(limiter, repo, adjustment, KeyError("mine"))

    assert caught.value.__context__ is None
    assert "Not settled" in caplog.text


def test_debit_at_exit_after_close_raises_repository_closed(limiter, repo):
    """Otherwise consumption would silently not be counted."""
    with pytest.raises(RepositoryClosedError):
        adjust_and_close(limiter, repo, 5)


def test_debit_at_exit_after_close_is_logged_with_on_unavailable_allow(limiter, repo, caplog):
    """The caller has chosen to continue without the store."""
    adjust_and_close(limiter, repo, 5, on_unavailable="allow")

    assert "Not settled" in caplog.text


def test_credit_at_exit_after_close_is_logged(limiter, repo, caplog):
    """A lost credit only limits other requests until the refill."""
    adjust_and_close(limiter, repo, -5)

    assert "Not settled" in caplog.text


def test_exit_after_close_without_adjustments_logs_nothing(limiter, repo, caplog):
    """There is nothing to write."""
    adjust_and_close(limiter, repo, 0)

    assert "" == caplog.text


@pytest.mark.parametrize("verb", ["consume", "release"])
def test_lease_method_after_close_raises_repository_closed(limiter, repo, verb):
    """The exit of the lease does not replace that error."""

    def work():
        with limiter.acquire("user-1", "gpt-4", {"rpm": 10}) as lease:
            repo.close()
            getattr(lease, verb)(rpm=1)

    with pytest.raises(RepositoryClosedError):
        work()
