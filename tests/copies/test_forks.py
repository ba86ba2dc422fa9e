"""A repository that is opened before a fork: every child takes for itself, and no grant counts for another child."""

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.copies.worker import CHILDREN, LIMIT
from tests.dynamodb.engines import fresh_table_name
from tests.dynamodb.faults import Drop, Exchange, Nothing
from tests.dynamodb.ledgers import Ledger, quick_engine, table_url
from tests.dynamodb.proxy import Proxy
from tests.dynamodb.trees import KINDS, session_for
from zae_limiter import SyncRepository

PATIENCE_S = 300


@dataclass(slots=True)
class EverySecond:
    """Lose every second call before it arrives."""

    count: int = field(default=0)

    async def play(self, exchange: Exchange) -> None:
        self.count += 1
        await (Nothing() if self.count % 2 else Drop(applied=False)).play(exchange)


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    with Proxy(quick_engine().url) as started:
        yield started


@pytest.fixture
def table() -> str:
    return fresh_table_name()


def said(*words: str) -> list[Any]:
    """Return what the children of a worker printed."""
    command = [sys.executable, "-m", "tests.copies.worker", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert 0 == done.returncode, done.stderr
    found: list[Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def stored(table: str, url: str, entity_id: str = "user-1") -> int:
    """Return what the table has counted of an entity's bucket."""
    with SyncRepository.open(url, session=session_for(url), deadline_s=60.0) as repo:
        ledger = Ledger(quick_engine().url, table, repo.scope.namespace_id)
        return ledger.used(entity_id)["rpm"]


@pytest.mark.parametrize(("kind", "way"), [("async", "fork"), ("sync", "fork"), ("sync", "multiprocessing")])
def test_takes_across_shards_in_forked_children_are_all_stored(kind: str, way: str, proxy: Proxy, table: str):
    """Of four children that each want 400 of 1,000 tokens, two are admitted, each by its own transaction."""
    url = table_url(table, proxy.url)
    granted = said(kind, url, "across", "--way", way)

    assert [0, 0, 400, 400] == sorted(granted)
    assert 2 + 800 == stored(table, url)


@pytest.mark.parametrize(("kind", "seeded"), [("async", False), ("sync", True)])
def test_takes_with_lost_requests_in_forked_children_are_all_stored(kind: str, seeded: bool, proxy: Proxy, table: str):
    """Children never draw the same nonce, even if the caller has seeded the randomness."""
    url = table_url(table, proxy.url)
    proxy.always(EverySecond(), "UpdateItem")
    granted = said(kind, url, "plain", "--way", "in-turn", *(["--seeded"] if seeded else []))
    proxy.clear_faults()

    assert [1] * CHILDREN == granted
    assert 2 + CHILDREN == stored(table, url)


@pytest.mark.parametrize("scene", ["cascade", "configure"])
def test_transactions_of_forked_children_have_different_tokens(scene: str, proxy: Proxy, table: str):
    """DynamoDB refuses a token that was used for another transaction."""
    assert [1] * CHILDREN == said("sync", table_url(table, proxy.url), scene)


@pytest.mark.parametrize("store", ["memory", "sqlite"])
@pytest.mark.parametrize("kind", KINDS)
def test_forked_child_inherits_no_held_lock_and_no_running_upkeep(kind: str, store: str, tmp_path: Path):
    """A lock may be held, and upkeep run, by a thread that does not exist in the child."""
    url = "memory://" if store == "memory" else f"sqlite:///{tmp_path / 'limits.db'}"

    assert [1] == said(kind, url, "held")


def test_forked_children_on_one_file_share_its_limit(tmp_path: Path):
    """Each take is stored, and together the children get the capacity."""
    url = f"sqlite:///{tmp_path / 'limits.db'}"
    granted = said("sync", url, "across")
    with SyncRepository.open(url) as repo:
        (bucket,) = repo.get_buckets("user-1")

    assert [0, 0, 400, 400] == sorted(granted)
    assert (LIMIT.capacity - 802, 802) == (bucket.tokens, bucket.total_consumed_milli // 1000)


@pytest.mark.parametrize("kind", KINDS)
def test_lease_closed_in_every_forked_child_is_credited_once(kind: str, tmp_path: Path):
    """Four children and their parent close one lease by an error: only the process that took credits it."""
    url = f"sqlite:///{tmp_path / 'limits.db'}"
    left = said(kind, url, "leave")
    with SyncRepository.open(url) as repo:
        (bucket,) = repo.get_buckets("user-1")

    assert [1] * CHILDREN == left
    assert (LIMIT.capacity - 500, 500) == (bucket.tokens, bucket.total_consumed_milli // 1000)


@pytest.mark.parametrize("kind", KINDS)
def test_adjustment_before_a_fork_is_charged_once(kind: str, tmp_path: Path):
    """Four children and their parent leave one lease: each charges what it has adjusted itself."""
    url = f"sqlite:///{tmp_path / 'limits.db'}"
    left = said(kind, url, "adjusted")
    with SyncRepository.open(url) as repo:
        (bucket,) = repo.get_buckets("user-1")

    assert [1] * CHILDREN == left
    assert 500 + 100 + 20 + CHILDREN // 2 == bucket.total_consumed_milli // 1000
