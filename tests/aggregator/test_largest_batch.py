"""The largest batch that Lambda delivers is counted once, within the memory and the time of the function."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from tests.aggregator import lambda_process
from tests.aggregator.stream_batches import deployed
from tests.dynamodb.engines import EngineAbsentError, fresh_table_name, running
from tests.dynamodb.metered_usage import KEYS, RULES, MeteredWorker, create_table
from tests.dynamodb.test_bucket_size import SHORT, worn_bucket
from zae_limiter.infra.options import StackOptions
from zae_limiter.tables.dynamodb.codec import encode_item

MOST_BYTES = 6 * 1024 * 1024
"""Lambda invokes a function with at most this much."""
DEFAULTS = StackOptions()
RECORDS = deployed(DEFAULTS.usage_interval_seconds).records
RESERVED = 0.2
"""The part of its time in which the function begins nothing new."""
CALL_S = 0.010
"""What a call takes in a function with 256 MB: 5 ms on the network, 0.75 ms of CPU on a seventh of a processor."""
NAMESPACE_ID = "ns000000000"
START_S = int(time.time())
MEBIBYTE = 1024 * 1024


def record(number: int, write: int, **names: str) -> dict[str, Any]:
    """Return a record of a bucket as Lambda delivers it, with all attributes of both images."""
    entity_id = names.get("entity_id", str(UUID(int=number)))
    resource = names.get("resource", "gpt-4o")
    item = worn_bucket(*SHORT[:2], entity_id=entity_id, resource=resource)
    pk = f"{NAMESPACE_ID}/BUCKET#{entity_id}#{resource}#0"

    def image(total: int) -> dict[str, Any]:
        totals = {name: total for name in item if name.endswith("_tc")}
        return encode_item({**item, **totals, "PK": pk, "shard_count": 1})

    return {
        "eventID": f"{number:032}",
        "eventName": "MODIFY",
        "eventVersion": "1.1",
        "eventSource": "aws:dynamodb",
        "awsRegion": "us-east-1",
        "dynamodb": {
            "ApproximateCreationDateTime": START_S,
            "Keys": {"PK": {"S": pk}, "SK": {"S": "#STATE"}},
            "NewImage": image(write + 1),
            "OldImage": image(write),
            "SequenceNumber": str(10**20 + write * RECORDS + number),
            "SizeBytes": 2_000,
            "StreamViewType": "NEW_AND_OLD_IMAGES",
        },
        "eventSourceARN": "arn:aws:dynamodb:us-east-1:123456789012:table/my-app/stream/2024-11-01T00:00:00.000",
    }


def event(records: list[dict[str, Any]]) -> str:
    return json.dumps({"Records": records}, separators=(",", ":"))


def longest_names(number: int, write: int) -> dict[str, Any]:
    return record(number, write, entity_id=f"{number:0256}", resource="r" * 128)


@pytest.fixture
def url(monkeypatch: pytest.MonkeyPatch) -> str:
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)
    # The engine of a busy machine may be slow.
    for name in ("_CONNECT_S", "_READ_S"):
        monkeypatch.setattr(f"zae_limiter_aggregator.transport.{name}", 60)
    try:
        return running("dynoxide").url
    except EngineAbsentError as absent:
        pytest.skip(str(absent))


@pytest.fixture
def function(url: str) -> Iterator[subprocess.Popen[str]]:
    """A container of the function."""
    name = fresh_table_name()
    create_table(url, name, NAMESPACE_ID)
    process = subprocess.Popen(
        [sys.executable, str(Path(lambda_process.__file__))],
        env={**os.environ, "AWS_ENDPOINT_URL": url, "TABLE_NAME": name, "USAGE_INTERVAL_SECONDS": "3600"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    yield process
    process.communicate()


def handled(function: subprocess.Popen[str], records: list[dict[str, Any]]) -> dict[str, Any]:
    """Send a batch, and return the answer."""
    assert function.stdin is not None
    assert function.stdout is not None
    function.stdin.write(event(records) + "\n")
    function.stdin.flush()
    line = next(line for line in function.stdout if line.startswith(lambda_process.RESPONSE))
    answer: dict[str, Any] = json.loads(line.removeprefix(lambda_process.RESPONSE))
    return answer


def peak_bytes(pid: int) -> int:
    """Return the most memory that a process has used."""
    (line,) = [one for one in Path(f"/proc/{pid}/status").read_text().splitlines() if one.startswith("VmHWM")]
    return int(line.split()[1]) * 1024


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux reports the memory of another process")
def test_batch_of_6_megabytes_is_counted_once_within_the_memory(function: subprocess.Popen[str]) -> None:
    """Buckets with the longest names fill the largest event. A batch that is delivered again adds nothing."""
    each = len(event([longest_names(0, 0)]))
    number = min(RECORDS, MOST_BYTES // each)
    batches = [[longest_names(one, write) for one in range(number)] for write in (0, 1, 1)]
    answers = [handled(function, batch) for batch in batches]

    assert 0.95 * MOST_BYTES < len(event(batches[0])) <= MOST_BYTES
    assert [2 * number, 2 * number, 0] == [one["snapshots"] for one in answers]
    assert [[]] * 3 == [one["batchItemFailures"] for one in answers]
    assert peak_bytes(function.pid) < DEFAULTS.lambda_memory * MEBIBYTE / 2


def test_largest_number_of_buckets_in_a_batch_fits_into_the_time(url: str) -> None:
    """A batch with a bucket per record makes the most calls."""
    name = fresh_table_name()
    create_table(url, name, NAMESPACE_ID)
    worker = MeteredWorker(url, name, RULES)
    counted = [worker.count([record(one, write) for one in range(RECORDS)]) for write in (0, 1)]
    worker.close()

    assert [2 * RECORDS] * 2 == [one.report.snapshots for one in counted]
    assert max(one.calls for one in counted) * CALL_S < DEFAULTS.lambda_timeout * (1 - RESERVED)


def test_usual_records_fill_less_than_half_of_an_event() -> None:
    """So their number ends a batch, not their size."""
    assert len(event([record(one, 0) for one in range(RECORDS)])) < MOST_BYTES / 2
