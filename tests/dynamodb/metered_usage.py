"""The aggregator on an engine, with the capacity that each of its batches consumes."""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from random import getrandbits
from typing import Any

import botocore.session

from tests.dynamodb.billing import Units, reported
from zae_limiter.core.namespace import Namespace, NamespaceStatus
from zae_limiter.core.outcome import Unavailable
from zae_limiter.schema import namespace_item
from zae_limiter.tables.dynamodb.codec import encode_item
from zae_limiter.tables.dynamodb.requests import Calls, DynamoDbCall
from zae_limiter_aggregator.batch_processor import BatchReport, Worker
from zae_limiter_aggregator.client import AggregatorTable
from zae_limiter_aggregator.plan import Rules
from zae_limiter_aggregator.transport import AggregatorTransport, Direct, TransportAnswer, caller_of

KEYS = {"AWS_ACCESS_KEY_ID": "engine", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_DEFAULT_REGION": "us-east-1"}
RULES = Rules(window_types=("hourly", "daily"), retention_s=3600)


def create_table(url: str, name: str, namespace_id: str) -> None:
    """Create a table with one namespace."""
    client = botocore.session.Session().create_client("dynamodb", endpoint_url=url, region_name="us-east-1")
    client.create_table(**json.loads(Calls(name).create_table().body))
    namespace = Namespace(namespace_id, "default", NamespaceStatus.ACTIVE, "2024-01-01T00:00:00Z")
    client.put_item(TableName=name, Item=encode_item(namespace_item.reverse_item(namespace)))
    client.close()


class Metered:
    """A caller that asks the engine what each call consumes."""

    def __init__(self, caller: AggregatorTransport) -> None:
        self._caller = caller
        self.units: list[Units] = []
        self.reconnect = caller.reconnect

    @property
    def connection(self) -> int:
        return self._caller.connection

    def call(self, call: DynamoDbCall, now_s: int) -> TransportAnswer | Unavailable:
        body = {**json.loads(call.body), "ReturnConsumedCapacity": "INDEXES"}
        answer = self._caller.call(call._replace(body=json.dumps(body).encode()), now_s)
        assert not isinstance(answer, Unavailable)
        consumed = json.loads(answer.body)["ConsumedCapacity"]
        parts = consumed if isinstance(consumed, list) else [consumed]
        self.units.append(reported(parts, call.target.rpartition(".")[2]))
        return answer


@dataclass(frozen=True, slots=True)
class Counted:
    """The report of a batch, the calls it made, and the units that they consumed."""

    report: BatchReport
    calls: int
    units: Counter[str]


class MeteredWorker:
    """An aggregator on a table of an engine whose calls are metered. It requires the keys of ``KEYS``."""

    def __init__(self, url: str, table_name: str, rules: Rules = RULES) -> None:
        caller = caller_of(botocore.session.Session(), {"AWS_ENDPOINT_URL": url})
        assert isinstance(caller, Direct)
        self._connection = caller
        self._metered = Metered(caller)
        self.table = AggregatorTable(self._metered, table_name)
        self._worker = Worker(self.table, rules, None, getrandbits(60))

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def count(self, records: Sequence[dict[str, Any]]) -> Counted:
        """Count a batch."""
        self._metered.units.clear()
        report = self._worker.work(records, lambda: 60.0)
        assert not report.troubles, report.troubles
        spent: Counter[str] = Counter()
        for one in self._metered.units:
            spent.update(read=one.read, written=one.written, indexes=sum(one.indexes.values()))
        return Counted(report, len(self._metered.units), spent)
