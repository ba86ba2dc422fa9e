"""Real processes on one bucket of a real engine, which grows to eight shards and shrinks again meanwhile."""

import itertools
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from tests._sync.shards import merge
from tests.dynamodb.shard_worker import BUCKET, LIMIT_NAME
from tests.dynamodb.test_processes import fastest
from tests.many_shards import offered
from tests.stress.fleet import ROOT
from zae_limiter import Limit, SyncRateLimiter, SyncRepository

PROCESSES = 4
EACH = 4
CAPACITY = 6_000
# More than an eighth.
LARGE = 760
# A bucket that is never full, since a full one may lose a few tokens.
FIRST = 500
MOST_SHARDS = 8
DEADLINE_S = 60.0


@pytest.fixture
def limiter(table_name: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[SyncRateLimiter, str]]:
    """A limiter with almost no refill, and its URL for other processes."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "engine")
    url = f"dynamodb://{table_name}?region=us-east-1&endpoint_url={fastest().url}"
    with SyncRepository.open(f"{url}&create=true", deadline_s=DEADLINE_S) as repo:
        repo.set_system_defaults([Limit.custom(LIMIT_NAME, CAPACITY, 1, 86_400)])
        made = SyncRateLimiter(repo)
        with made.acquire(*BUCKET, {LIMIT_NAME: FIRST}):
            pass
        yield made, url


def started(url: str) -> list[subprocess.Popen[str]]:
    """Start processes that are ready to work."""
    command = [sys.executable, "-m", "tests.dynamodb.shard_worker", url, str(EACH), str(LARGE)]
    processes = [
        subprocess.Popen([*command, str(seed)], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for seed in range(PROCESSES)
    ]
    for process in processes:
        assert process.stdout is not None
        assert "ready\n" == process.stdout.readline()
    return processes


def stored(limiter: SyncRateLimiter) -> dict[int, Any]:
    """Return all shards as stored."""
    client = limiter._client
    keys = [client.buckets.key(BUCKET, shard) for shard in range(MOST_SHARDS)]
    found = enumerate(limiter.repository.scope.table.batch_get(keys, consistent=True))
    return {shard: item for shard, item in found if item is not None}


def start_work(process: subprocess.Popen[str]) -> None:
    """Let a process work."""
    assert process.stdin is not None
    process.stdin.write("go\n")
    process.stdin.flush()


def grow_and_shrink(limiter: SyncRateLimiter, processes: list[subprocess.Popen[str]]) -> set[int]:
    """Split and merge one shard after the other until all processes end; return the numbers of shards seen.

    The last process starts after all numbers of shards were seen.
    """
    shards, until_s = limiter._client.shards, limiter._client.until_s
    seen: set[int] = set()
    order = [(0, 1), (0, 2), (1, 3), (0, 4), (1, 5), (2, 6), (3, 7)]
    back = list(reversed(order))
    for staying, leaving in itertools.cycle([*order, *back]):
        items = stored(limiter)
        if len(items) not in seen and len(seen) == MOST_SHARDS - 1:
            start_work(processes[-1])
        seen.add(len(items))
        if all(process.poll() is not None for process in processes):
            return seen
        if leaving in items:
            merge(limiter._client, BUCKET, staying, leaving)
        elif staying in items:
            view = limiter._client.buckets.look((BUCKET, staying), None, until_s())
            if view is not None:
                shards.split((BUCKET, staying), view, until_s())
    return seen


def test_processes_share_a_bucket_that_grows_and_shrinks(limiter: tuple[SyncRateLimiter, str]) -> None:
    """Together they are admitted exactly the available tokens. No request is rejected too early."""
    controller, url = limiter
    processes = started(url)
    try:
        for process in processes[:-1]:
            start_work(process)
        seen = grow_and_shrink(controller, processes)
        outputs = [process.communicate()[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.communicate()
    tallies = [[int(word) for word in output.split()] for output in outputs]
    now_ms = controller._client.now()[1]
    left = sum(offered(item, LIMIT_NAME, now_ms) for item in stored(controller).values())

    assert [0] * PROCESSES == [process.returncode for process in processes]
    assert CAPACITY - FIRST == sum(tally[0] for tally in tallies)
    assert 0 <= left < 1_000
    assert sum(tally[1] for tally in tallies) >= LARGE
    assert set(range(1, MOST_SHARDS + 1)) == seen
