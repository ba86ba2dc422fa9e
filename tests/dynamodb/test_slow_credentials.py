"""A slow `credential_process`: opening keeps its deadline, and the load is not lost."""

import asyncio
import sys
import textwrap
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.dynamodb.engines import fresh_table_name, running
from tests.dynamodb.ledgers import table_url
from tests.dynamodb.trees import KINDS, PATIENCE_S
from zae_limiter import RateLimiterUnavailable, Repository, SyncRepository

PROCESS = """
    import pathlib, time
    here = pathlib.Path(__file__).parent
    with (here / "runs").open("a") as runs:
        runs.write("run\\n")
    for _ in range(12_000):
        if (here / "released").exists():
            break
        time.sleep(0.005)
    print('{"Version": 1, "AccessKeyId": "AKIDEXAMPLE", "SecretAccessKey": "secret"}')
"""


class Provider:
    """A process that returns keys once it is released, and counts its runs."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.program = directory / "keys.py"
        self.program.write_text(textwrap.dedent(PROCESS))

    @property
    def runs(self) -> int:
        runs = self._directory / "runs"
        return len(runs.read_text().splitlines()) if runs.exists() else 0

    def release(self) -> None:
        (self._directory / "released").touch()


@pytest.fixture
def provider(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Provider]:
    made = Provider(tmp_path)
    config = tmp_path / "config"
    config.write_text(f"[default]\ncredential_process = {sys.executable} {made.program}\n")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(config))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    yield made
    made.release()


@pytest.fixture
def url() -> str:
    return table_url(fresh_table_name(), running().url)


def opened(kind: str, url: str, deadline_s: float) -> Any:
    """Open and close a repository of this kind in a loop of its own."""
    if kind == "sync":
        with SyncRepository.open(url, deadline_s=deadline_s) as repo:
            return repo.ping()

    async def run() -> bool:
        async with await Repository.open(url, deadline_s=deadline_s) as repo:
            return await repo.ping()

    return asyncio.run(run())


@pytest.mark.parametrize("kind", KINDS)
def test_opening_ends_at_its_deadline_and_the_next_uses_the_loaded_keys(
    kind: str, provider: Provider, url: str
) -> None:
    """The process runs once, although the caller that started it has left."""
    with pytest.raises(RateLimiterUnavailable, match="credentials were not loaded within 0"):
        opened(kind, url, deadline_s=0.02)
    provider.release()
    # The location contains the deadline of one attempt, so a retry uses the same one.
    until_opened(kind, url, deadline_s=0.02)

    assert 1 == provider.runs


def until_opened(kind: str, url: str, deadline_s: float) -> None:
    """Open until the credentials are loaded; on a busy machine the table may answer too late."""
    for _ in range(1_000):
        try:
            opened(kind, url, deadline_s)
        except RateLimiterUnavailable as late:
            if "credentials" in str(late):
                continue
        return
    raise AssertionError("it was never opened")


@pytest.mark.parametrize("kind", KINDS)
def test_concurrent_openings_share_one_load(kind: str, provider: Provider, url: str) -> None:
    """Four callers run one process."""
    results: list[bool] = []
    threads = [
        threading.Thread(target=lambda: results.append(opened(kind, url, deadline_s=PATIENCE_S))) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    wait_for_run(provider)
    provider.release()
    for thread in threads:
        thread.join(PATIENCE_S)

    assert [True] * 4 == results
    assert provider.runs < 4


def wait_for_run(provider: Provider) -> None:
    """Wait until the process runs."""
    paused = threading.Event()
    for _ in range(60_000):
        if provider.runs:
            return
        paused.wait(0.005)


def test_the_loop_continues_while_credentials_are_loaded(provider: Provider, url: str) -> None:
    """Other tasks run before the keys are loaded."""

    async def run() -> tuple[int, bool]:
        opening = asyncio.create_task(Repository.open(url, deadline_s=PATIENCE_S))
        ticks = 0
        while not provider.runs or ticks < 200:
            await asyncio.sleep(0.001)
            ticks += 1
        pending = not opening.done()
        provider.release()
        await (await opening).close()
        return ticks, pending

    ticks, pending = asyncio.run(run())

    assert pending
    assert ticks >= 200
