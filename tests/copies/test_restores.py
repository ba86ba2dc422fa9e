"""Process images that are restored many times: each copy draws its own numbers, and drops old knowledge."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.copies.test_forks import said, stored
from tests.dynamodb.engines import fresh_table_name
from tests.dynamodb.faulty_table import FaultyTable
from tests.dynamodb.ledgers import quick_engine, table_url
from tests.dynamodb.trees import KINDS
from zae_limiter import SyncRateLimiter, SyncRepository, renew_clients

HERE = Path(__file__).parent


@pytest.fixture(scope="module", params=KINDS)
def faulty(request: pytest.FixtureRequest) -> Iterator[FaultyTable]:
    with ExitStack() as stack:
        yield FaultyTable(request.param, stack)


@pytest.mark.parametrize("kind", KINDS)
def test_takes_across_shards_in_restored_copies_are_all_stored(kind: str):
    """Four copies of one process learn of the restore only by the hook. Each wants 400 of 1,000 tokens, and two are
    admitted.
    """
    table = fresh_table_name()
    url = table_url(table, quick_engine().url)
    granted = said(kind, url, "across", "--way", "restore")

    assert [0, 0, 400, 400] == sorted(granted, key=str)
    assert 2 + 800 == stored(table, url)


def test_restored_copy_draws_other_numbers_than_its_original():
    """Nonces, birth numbers and jitter differ, even if the caller has seeded the randomness."""
    numbers = []
    for _ in range(2):
        with SyncRepository.open("memory://", random=Random(7)) as repo:
            client, limiter = repo.scope.client, SyncRateLimiter(repo)
            renew_clients()
            numbers.append((next(client.nonces), next(limiter._client.nonces), client.draw_birth()))

    assert not set(numbers[0]) & set(numbers[1])


def test_restored_copy_connects_and_learns_the_time_again(faulty: FaultyTable):
    """Its connections are closed and its clocks have jumped. It decides on no write before an answer has the time."""
    actor = faulty.actor()
    actor.take()
    faulty.proxy.forget()
    before = faulty.proxy.open_connections
    renew_clients()
    known = server_clock(actor.limiter).known
    actor.take()
    calls = faulty.proxy.seen

    assert before >= 1
    assert not known
    assert "BatchGetItem" == calls[0].target
    assert {"rpm": 2, "tpm": 20} == actor.used


def test_restored_copy_uses_no_connection_of_its_original(faulty: FaultyTable):
    """The other end of a connection in the image no longer exists."""
    actor = faulty.actor()
    actor.take()
    old = {seen.connection for seen in faulty.proxy.seen}
    faulty.proxy.forget()
    renew_clients()
    actor.take()

    assert not old & {seen.connection for seen in faulty.proxy.seen}


def test_open_of_a_repository_registers_the_lambda_snapstart_hook():
    """Without Lambda's module nothing happens."""
    program = (
        "import snapshot_restore_py as restoring\n"
        "from zae_limiter import SyncRepository, renew_clients\n"
        "repo = SyncRepository.open('memory://')\n"
        "before = next(repo.scope.client.nonces)\n"
        "[hook() for hook in restoring.hooks]\n"
        "print(restoring.hooks == [renew_clients], abs(next(repo.scope.client.nonces) - before) > 1)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=HERE, capture_output=True, text=True, check=False)

    assert ("True True\n", "") == (done.stdout, done.stderr)


def server_clock(limiter: Any) -> Any:
    """Return what a client knows of the server's clock."""
    client = getattr(limiter, "_target", limiter)._client
    return client._scope.table.now.__self__
