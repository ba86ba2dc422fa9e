"""Opening a file that another process keeps locked: the deadline holds."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.tables.test_sqlite_processes import Start, go, line, start
from zae_limiter import StorageError, SyncRepository

__all__ = ["start"]

LONG_S = 120.0
SHORT_S = 0.1


def test_opening_a_locked_file_raises_until_it_is_unlocked(tmp_path: Path, start: Start) -> None:
    """The error names the lock."""
    url = f"sqlite:///{tmp_path / 'limiter.db'}"
    SyncRepository.open(url).close()
    holder = start("lock", tmp_path / "limiter.db")
    assert "ready" == line(holder)

    with pytest.raises(StorageError, match=r"another program has kept it locked for \d+\.\d s"):
        SyncRepository.open(url, deadline_s=SHORT_S)
    go(holder)
    holder.wait()
    with SyncRepository.open(url) as repo:
        assert repo.ping()


def test_each_opening_of_a_locked_file_keeps_its_own_deadline(tmp_path: Path, start: Start) -> None:
    """Two with a short deadline fail, while one with a long deadline waits and gets the file."""
    url = f"sqlite:///{tmp_path / 'limiter.db'}"
    SyncRepository.open(url).close()
    holder = start("lock", tmp_path / "limiter.db")
    assert "ready" == line(holder)

    with ThreadPoolExecutor(1) as threads:
        long_opening = threads.submit(SyncRepository.open, url, deadline_s=LONG_S)
        for _ in range(2):
            with pytest.raises(StorageError):
                SyncRepository.open(url, deadline_s=SHORT_S)
        waiting = not long_opening.done()
        go(holder)
        with long_opening.result() as repo:
            assert repo.ping()
    assert waiting
