"""A file that another process keeps locked while it is opened: the deadline holds."""

from pathlib import Path

import pytest

from tests.tables.test_sqlite_processes import Start, go, line, start
from zae_limiter import StorageError, SyncRepository

__all__ = ["start"]


def test_a_file_that_stays_locked_is_an_error_until_it_is_let_go(tmp_path: Path, start: Start) -> None:
    """The error names the lock; afterwards the file opens as usual."""
    url = f"sqlite:///{tmp_path / 'limiter.db'}"
    SyncRepository.open(url).close()
    holder = start("lock", tmp_path / "limiter.db")
    assert "ready" == line(holder)

    with pytest.raises(StorageError, match=r"another program has kept it locked for \d+\.\d s"):
        SyncRepository.open(url, deadline_s=0.1)
    go(holder)
    holder.wait()
    with SyncRepository.open(url) as repo:
        assert repo.ping()
