"""Lists of a whole namespace, and the migration that makes them, cost what the costs page says."""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID

import pytest

from tests.docs.operator_pages import text
from tests.dynamodb.billing import reported
from tests.dynamodb.engines import EngineAbsentError, fresh_table_name, running
from tests.dynamodb.trees import session
from zae_limiter import Limit, SyncRepository
from zae_limiter._sync import dynamodb_table
from zae_limiter._sync.store.migrations import REGISTRY, Migrations
from zae_limiter.core.usage import window_at
from zae_limiter.core.version import VersionRecord
from zae_limiter.schema import usage_item, version_item
from zae_limiter.schema.keys import BucketKey
from zae_limiter.schema.operations import Key, Put
from zae_limiter.tables.dynamodb.requests import DynamoDbCall

COSTS, MIGRATIONS = text("operations/costs.md"), text("operations/migrations.md")
ENTITIES = [str(UUID(int=number, version=4)) for number in range(100)]
RESOURCE = "openai/gpt-4o"


class Metered:
    """A transport that asks the engine what each call consumes."""

    def __init__(self, caller: Any, spent: Counter[str]) -> None:
        self._caller = caller
        self._spent = spent
        self.close = caller.close
        self.replace_keys = caller.replace_keys

    @property
    def signer(self) -> Any:
        return self._caller.signer

    def call(self, call: DynamoDbCall, until_s: float) -> Any:
        body = {**json.loads(call.body), "ReturnConsumedCapacity": "INDEXES"}
        answer = self._caller.call(call._replace(body=json.dumps(body).encode()), until_s)
        verb = call.target.rpartition(".")[2]
        told = json.loads(answer.body).get("ConsumedCapacity", [])
        parts = told if isinstance(told, list) else [told]
        if verb == "Query":
            # A query of an index reads only the index.
            self._spent["read"] += sum(part["CapacityUnits"] for part in parts)
        else:
            units = reported(parts, verb)
            self._spent.update(read=units.read, written=units.written, indexes=sum(units.indexes.values()))
        return answer


@pytest.fixture
def spent(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """What the engine has reported."""
    spent: Counter[str] = Counter()
    original = dynamodb_table.choose_transport
    monkeypatch.setattr(dynamodb_table, "choose_transport", lambda *given: Metered(original(*given), spent))
    monkeypatch.setattr(dynamodb_table.DynamoTable, "index_lag_s", 0.0)
    return spent


@pytest.fixture
def repo(spent: Counter[str]) -> Iterator[SyncRepository]:
    """A table with 100 entities, 100 changes, and the usage of one day."""
    try:
        # The only engine that reports what a batch of reads consumes.
        url = running("dynoxide").url
    except EngineAbsentError as absent:
        pytest.skip(str(absent))
    location = f"dynamodb://{fresh_table_name()}?region=us-east-1&endpoint_url={url}&create=true"
    with SyncRepository.open(location, session=session(), deadline_s=60) as repo:
        for entity_id in ENTITIES:
            repo.create_entity(entity_id)
        for entity_id in ENTITIES:
            repo.set_limits(entity_id, [Limit.per_minute("rpm", 60), Limit.per_minute("tpm", 6_000)], RESOURCE, "alice")
            bucket = BucketKey(repo.scope.namespace_id, entity_id, RESOURCE, 0)
            usage = usage_item.AddUsage(bucket, window_at("daily", 1_704_119_045_678), {"rpm": 1, "tpm": 9}, 1, "1")
            repo.scope.table.write(usage_item.add(usage, None, 1_800_000_000))
        spent.clear()
        yield repo


LISTS: dict[str, Callable[[SyncRepository], Any]] = {
    "100 entities": lambda repo: repo.list_entities(100)[0],
    "100 audit events": lambda repo: repo.get_audit_events(limit=100),
    "100 usage snapshots": lambda repo: repo.get_usage_snapshots(window_type="daily", limit=100)[0],
}


def test_lists_of_a_namespace_cost_the_read_units_on_the_page(repo: SyncRepository, spent: Counter[str]) -> None:
    """Each is one query of keys, and one batch of 100 items at half a unit each."""
    measured = {}
    for title, read in LISTS.items():
        spent.clear()
        assert 100 == len(read(repo))
        measured[title] = (spent["read"], spent["written"])
    on_page = {title: float(units) for title, units in re.findall(r"^\| (100 [a-z ]+?) +\| +([\d.]+) \|", COSTS, re.M)}

    assert {title: (units, 0) for title, units in on_page.items()} == measured


def test_migration_to_lists_costs_the_write_units_on_the_page(repo: SyncRepository, spent: Counter[str]) -> None:
    """A transaction doubles the units of an item, and an index entry that moves is deleted and put."""
    table, items = repo.scope.table, 0
    for kind in ("META", "USAGE"):
        for entity_id in ENTITIES:
            sk = "#META" if kind == "META" else f"#USAGE#{RESOURCE}#2024-01-01"
            pk = f"{repo.scope.namespace_id}/ENTITY#{entity_id}"
            (item,) = table.batch_get([Key(pk, sk)], consistent=True)
            table.write(Put({**item, "GSI4SK": pk}))
            items += 1
    table.write(Put(version_item.to_item(VersionRecord("1.0.0"))))
    spent.clear()
    (done,) = Migrations(repo.scope.client, REGISTRY[1:]).run()
    (on_page,) = re.findall(r"an item\s+of up to 1 KB costs about (\d+) write units", MIGRATIONS)

    assert items == done.moved
    assert int(on_page) == round((spent["written"] + spent["indexes"]) / items)
