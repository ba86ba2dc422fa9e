"""What is used is counted by the deployed aggregator, once, and hot buckets are split ahead of pressure."""

import time
from typing import Any

import pytest

from tests.e2e.stage import Stage, comes_to, counted, records_of, take
from zae_limiter import Limit

# Nothing comes back while a test lasts.
SLOW = Limit.custom("rpd", 1_000, 1, 10 * 365 * 24 * 3600)
# More writes than a partition takes in any time that a test could last.
MANY_WRITES = 1_000_000
LOOKS_APART_S = 1.5


@pytest.fixture(scope="module", autouse=True)
def limits(stage: Stage) -> None:
    with stage.opened() as repo:
        repo.set_system_defaults([SLOW])


def test_usage_arrives_through_the_stream_and_counts_once(stage: Stage) -> None:
    """A batch that is delivered again, whole or in parts, changes nothing."""
    with stage.opened() as repo:
        take(repo, 3, times=4)
        arrived = comes_to({"hourly": 12, "daily": 12}, lambda: counted(repo))
        records = records_of(stage)
        answers = [stage.hand_to_function(part) for part in (records, records[: len(records) // 2], records[-2:])]

        assert {"hourly": 12, "daily": 12} == arrived
        assert len(records) >= 4
        assert [{"batchItemFailures": []}] * 3 == [{"batchItemFailures": one["batchItemFailures"]} for one in answers]
        assert arrived == counted(repo)
        summary = repo.get_usage_summary("user-1", window_type="hourly")
        assert {"rpd": 12} == summary.total == stage.told("usage", "summary", "--entity", "user-1")["total"]


def test_a_hot_bucket_is_split_ahead_of_pressure(stage: Stage) -> None:
    """The aggregator reads the rate off the stream; here the write counter runs on as if others had written as well."""
    with stage.opened() as repo:
        take(repo, 400, entity_id="hot")
        shards = comes_to(2, lambda: pressed(stage, "hot"))
    with stage.opened() as repo:
        take(repo, 500, entity_id="hot")
        (bucket,) = repo.get_buckets("hot")

        assert 2 == shards
        assert 100 == bucket.tokens


def pressed(stage: Stage, entity_id: str) -> int:
    """Have a bucket seem to be written to by many, and return how many shards it has by then."""
    found = [item for item in stage.items() if is_shard(item, entity_id)]
    first = min(found, key=lambda item: item["PK"]["S"])
    if len(found) == 1:
        stage.clients.of("dynamodb").update_item(
            TableName=stage.name,
            Key={"PK": first["PK"], "SK": first["SK"]},
            UpdateExpression="ADD b_wcu_tc :writes",
            ExpressionAttributeValues={":writes": {"N": str(MANY_WRITES)}},
        )
        # A rate is told by looks that are a second apart.
        time.sleep(LOOKS_APART_S)
    return len(found)


def is_shard(item: dict[str, Any], entity_id: str) -> bool:
    return f"/BUCKET#{entity_id}#" in item["PK"]["S"] and item["SK"]["S"] == "#STATE"
