"""The migration of old buckets on real engines, async and sync, with clients before and after it."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.dynamodb.engines import Engine
from tests.dynamodb.trees import KINDS, session, tree
from tests.old_buckets import START_MS, OldLimit, old_bucket
from zae_limiter import IncompatibleSchemaError, Limit
from zae_limiter._async import dynamodb_table as async_table
from zae_limiter._async.upgrade import upgrade as upgrade_async
from zae_limiter._sync import dynamodb_table as sync_table
from zae_limiter._sync.upgrade import upgrade as upgrade_sync
from zae_limiter.core.version import VersionRecord
from zae_limiter.schema import version_item
from zae_limiter.schema.operations import Put

TEN_YEARS_S = 10 * 365 * 24 * 3600
SLOW = Limit.custom("rpm", 90, 1, TEN_YEARS_S)
KEPT = OldLimit(balance_milli=40_000, capacity=60, burst=90, refill_amount=1, period_s=TEN_YEARS_S)
DEADLINE_S = 60.0


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> Iterator[Any]:
    with tree(request.param) as entered:
        yield entered


@pytest.fixture
def place(engine: Engine, table_name: str) -> str:
    return f"dynamodb://{table_name}?region=us-east-1&endpoint_url={engine.url}"


@pytest.fixture(autouse=True)
def no_lag(monkeypatch: pytest.MonkeyPatch) -> None:
    """Skip the wait for indexes, since those of an engine are always current."""
    for table in (async_table, sync_table):
        monkeypatch.setattr(table.DynamoTable, "index_lag_s", 0.0)


def upgrade(kind: Any, place: str, **options: Any) -> Any:
    if hasattr(kind, "run"):
        return kind.run(upgrade_async(place, session=session(), **options))
    return upgrade_sync(place, session=session(), **options)


def put(kind: Any, repo: Any, item: Any) -> None:
    written = repo.scope.table.write(Put(item))
    if hasattr(kind, "run"):
        kind.run(written)


def test_migrated_buckets_keep_their_levels(kind: Any, place: str) -> None:
    """A table of the old schema is refused, upgraded, and then used with its balances."""
    with kind.open(f"{place}&create=true", deadline_s=DEADLINE_S) as repo:
        repo.set_system_defaults([SLOW])
        for number in range(30):
            item = old_bucket(repo.scope.namespace_id, f"user-{number}", "gpt-4", {"rpm": KEPT}, rf=START_MS)
            put(kind, repo, item)
        put(kind, repo, version_item.to_item(VersionRecord("0.9.0")))
    with pytest.raises(IncompatibleSchemaError):
        kind.open(place, deadline_s=DEADLINE_S)
    dry, done, again = upgrade(kind, place, dry_run=True), upgrade(kind, place), upgrade(kind, place)
    with kind.open(place, deadline_s=DEADLINE_S) as repo:
        limiter = kind.limiter(repo)
        with limiter.acquire("user-7", "gpt-4", {"rpm": 15}):
            pass
        left = [limiter.available(f"user-{number}", "gpt-4")["rpm"] for number in range(30)]
        buckets = len(repo.get_buckets("user-7"))

    assert ([30, 0], [30, 0], []) == ([one.moved for one in dry], [one.moved for one in done], again)
    assert ([25], [40]) == (left[7:8], sorted(set(left[:7] + left[8:])))
    assert 1 == buckets
