"""The deployed aggregator counts usage once, and splits hot buckets before they throttle."""

import time
from typing import Any

import pytest

from tests.e2e.deployment import Deployment, comes_to, counted, records_of, take
from zae_limiter import Limit

# Nothing is refilled during a test.
SLOW = Limit.custom("rpd", 1_000, 1, 10 * 365 * 24 * 3600)
# More writes than a partition accepts in any time that a test could take.
MANY_WRITES = 1_000_000
LOOKS_APART_S = 1.5


@pytest.fixture(scope="module", autouse=True)
def limits(deployment: Deployment) -> None:
    with deployment.opened() as repo:
        repo.set_system_defaults([SLOW])


def test_usage_through_the_stream_is_counted_once(deployment: Deployment) -> None:
    """A batch that is delivered again, completely or in part, changes nothing."""
    with deployment.opened() as repo:
        take(repo, 3, times=4)
        arrived = comes_to({"hourly": 12, "daily": 12}, lambda: counted(repo))
        records = records_of(deployment)
        answers = [deployment.hand_to_function(part) for part in (records, records[: len(records) // 2], records[-2:])]

        assert {"hourly": 12, "daily": 12} == arrived
        assert len(records) >= 4
        assert [{"batchItemFailures": []}] * 3 == [{"batchItemFailures": one["batchItemFailures"]} for one in answers]
        assert arrived == counted(repo)
        summary = repo.get_usage_summary("user-1", window_type="hourly")
        assert {"rpd": 12} == summary.total == deployment.printed("usage", "summary", "--entity", "user-1")["total"]


def test_hot_bucket_is_split_before_it_throttles(deployment: Deployment) -> None:
    """The aggregator reads the rate from the stream; here the write counter rises as if others had written too."""
    with deployment.opened() as repo:
        take(repo, 400, entity_id="hot")
        shards = comes_to(2, lambda: pressed(deployment, "hot"))
    with deployment.opened() as repo:
        take(repo, 500, entity_id="hot")
        (bucket,) = repo.get_buckets("hot")

        assert 2 == shards
        assert 100 == bucket.tokens


def pressed(deployment: Deployment, entity_id: str) -> int:
    """Raise the write counter of a bucket as many writers would, and return its number of shards."""
    found = [item for item in deployment.items() if is_shard(item, entity_id)]
    first = min(found, key=lambda item: item["PK"]["S"])
    if len(found) == 1:
        deployment.clients.of("dynamodb").update_item(
            TableName=deployment.name,
            Key={"PK": first["PK"], "SK": first["SK"]},
            UpdateExpression="ADD b_wcu_tc :writes",
            ExpressionAttributeValues={":writes": {"N": str(MANY_WRITES)}},
        )
        # A rate needs two reads that are a second apart.
        time.sleep(LOOKS_APART_S)
    return len(found)


def is_shard(item: dict[str, Any], entity_id: str) -> bool:
    return f"/BUCKET#{entity_id}#" in item["PK"]["S"] and item["SK"]["S"] == "#STATE"
