"""Warnings of several processes on one file, and of a process that ends."""

import subprocess
import sys
import textwrap

from zae_limiter import Limit, SyncRateLimiter, SyncRepository

WORKER = textwrap.dedent(
    """
    import sys
    from zae_limiter import Limit, SyncRateLimiter, SyncRepository

    def tell(warning):
        print(warning.threshold, flush=True)

    with SyncRepository.open(sys.argv[1], on_warning=tell, deadline_s=60) as repo:
        limiter = SyncRateLimiter(repo)
        for _ in range(60):
            with limiter.acquire("user-1", "gpt-4", {"spend": 1}):
                pass
    """
)


def test_processes_that_share_a_file_warn_once(tmp_path):
    """Each of them sees the threshold reached, and one of them writes the mark."""
    url = f"sqlite:///{tmp_path / 'limiter.db'}"
    with SyncRepository.open(url) as repo:
        limits = [Limit.quota("spend", 1_000, every="month", warn_at=(0.1, 0.15))]
        SyncRateLimiter(repo).set_system_defaults(limits)
    command = [sys.executable, "-c", WORKER, url]
    started = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    told = [line for one in started for line in one.communicate()[0].split()]

    assert ["0.1", "0.15"] == sorted(told)
    assert [0, 0, 0] == [one.returncode for one in started]


def test_an_async_function_of_a_sync_repository_is_an_error_in_the_log(caplog):
    """No loop would run it."""

    async def tell(warning):
        pass

    with SyncRepository.open("memory://", on_warning=tell) as repo:
        limiter = SyncRateLimiter(repo)
        limiter.set_system_defaults([Limit.quota("spend", 10, every="month", warn_at=(0.5,))])
        with limiter.acquire("user-1", "gpt-4", {"spend": 6}):
            pass

    assert "needs a Repository" in caplog.text
