"""The handler in a process of its own on real engines: stream records in; usage, shards and archive out."""

import functools
import gzip
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import botocore.session
import pytest

from tests.aggregator import lambda_process
from tests.aggregator.simulated_table import Stream
from tests.dynamodb.engines import fresh_table_name, running
from zae_limiter import Limit, SyncRateLimiter, SyncRepository
from zae_limiter.core.audit import AuditAction, AuditEvent
from zae_limiter.schema import audit_item
from zae_limiter.tables.dynamodb.requests import Calls

REGION = {"AWS_DEFAULT_REGION": "us-east-1", "AWS_ACCESS_KEY_ID": "engine", "AWS_SECRET_ACCESS_KEY": "secret"}
SERVICE = {"type": "Service", "principalId": "dynamodb.amazonaws.com"}


@functools.cache
def client(service: str) -> Any:
    return botocore.session.Session().create_client(
        service,
        endpoint_url=running("aws").url,
        region_name="us-east-1",
        aws_access_key_id="engine",
        aws_secret_access_key="secret",
    )


class Function:
    """A container of the function."""

    def __init__(self, table_name: str, bucket: str, **variables: str) -> None:
        environment = {
            **REGION,
            "AWS_ENDPOINT_URL": running("aws").url,
            "TABLE_NAME": table_name,
            "ARCHIVE_BUCKET": bucket,
            "PYTHONWARNINGS": "error",
            **variables,
        }
        self._process = subprocess.Popen(
            [sys.executable, str(Path(lambda_process.__file__))],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.said: list[dict[str, Any]] = []

    def handle(self, records: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """Send a batch and return the answer; log lines are kept."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"Records": records}) + "\n")
        self._process.stdin.flush()
        for line in self._process.stdout:
            if line.startswith(lambda_process.RESPONSE):
                answer: dict[str, Any] = json.loads(line.removeprefix(lambda_process.RESPONSE))
                return answer
            self.said.append(json.loads(line))
        assert self._process.stderr is not None
        raise AssertionError(self._process.stderr.read())

    def stop(self) -> None:
        self._process.communicate()


@pytest.fixture
def table_name() -> str:
    """A table with a stream."""
    name = fresh_table_name()
    stream = {"StreamEnabled": True, "StreamViewType": "NEW_AND_OLD_IMAGES"}
    client("dynamodb").create_table(**json.loads(Calls(name).create_table().body), StreamSpecification=stream)
    return name


@pytest.fixture
def bucket(table_name: str) -> str:
    name = f"archive-{table_name}"
    client("s3").create_bucket(Bucket=name)
    return name


@pytest.fixture
def function(table_name: str, bucket: str) -> Iterator[Function]:
    made = Function(table_name, bucket)
    yield made
    made.stop()


@pytest.fixture
def repo(table_name: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[SyncRepository]:
    for name, value in REGION.items():
        monkeypatch.setenv(name, value)
    url = f"dynamodb://{table_name}?region=us-east-1&endpoint_url={running('aws').url}&create=true"
    with SyncRepository.open(url, deadline_s=30) as opened:
        opened.set_system_defaults([Limit.per_minute("rpm", 1_000), Limit.per_minute("tpm", 100_000)])
        yield opened


def stream_of(table_name: str) -> list[dict[str, Any]]:
    """Return all records of the table's stream, as Lambda passes them."""
    described = client("dynamodb").describe_table(TableName=table_name)["Table"]
    streams = client("dynamodbstreams")
    arn = described["LatestStreamArn"]
    records: list[dict[str, Any]] = []
    for shard in streams.describe_stream(StreamArn=arn)["StreamDescription"]["Shards"]:
        iterator = streams.get_shard_iterator(
            StreamArn=arn, ShardId=shard["ShardId"], ShardIteratorType="TRIM_HORIZON"
        )["ShardIterator"]
        records += streams.get_records(ShardIterator=iterator, Limit=1000)["Records"]
    for record in records:
        data = record["dynamodb"]
        data["ApproximateCreationDateTime"] = data["ApproximateCreationDateTime"].timestamp()
    return records


def used(repo: SyncRepository) -> list[tuple[str, int, int]]:
    """Return the counted usage by kind of window; an hour may end in between."""
    sums: dict[str, Counter[str]] = {}
    for one in repo.get_usage_snapshots("user-1")[0]:
        sums.setdefault(one.window_type, Counter()).update(one.counters)
    return sorted((kind, counters["rpm"], counters["tpm"]) for kind, counters in sums.items())


def archived(bucket: str) -> list[list[dict[str, Any]]]:
    """Return the events of every archive object."""
    found = client("s3").list_objects_v2(Bucket=bucket).get("Contents", [])
    bodies = [client("s3").get_object(Bucket=bucket, Key=one["Key"])["Body"].read() for one in found]
    return [[json.loads(line) for line in gzip.decompress(body).splitlines()] for body in bodies]


def test_handler_counts_usage_of_a_stream_once(repo: SyncRepository, table_name: str, function: Function):
    """The stream is delivered as a whole, in halves and again."""
    limiter = SyncRateLimiter(repo)
    for _ in range(10):
        with limiter.acquire("user-1", "gpt-4", {"rpm": 1, "tpm": 50}):
            pass
    with limiter.acquire("user-1", "gpt-4", {"rpm": 1, "tpm": 50}) as lease:
        lease.adjust(tpm=7)
    records = stream_of(table_name)
    answers = [function.handle(part) for part in (records[:20], records, records[5:], records)]

    assert [("daily", 11, 557), ("hourly", 11, 557)] == used(repo)
    assert [[]] * 4 == [answer["batchItemFailures"] for answer in answers]
    assert [0, 0] == [answer["snapshots"] for answer in answers[2:]]
    assert all("wcu" not in name for one in repo.get_usage_snapshots("user-1")[0] for name in one.counters)


def test_handler_splits_shards_at_a_high_write_rate(repo: SyncRepository, table_name: str, function: Function):
    """No token is lost."""
    limiter = SyncRateLimiter(repo)
    with limiter.acquire("user-1", "gpt-4", {"rpm": 400, "tpm": 50}):
        pass
    record = next(one for one in stream_of(table_name) if one["dynamodb"]["Keys"]["SK"]["S"] == "#STATE")
    records = []
    for second in range(3):
        copied = json.loads(json.dumps(record))
        copied["dynamodb"]["SequenceNumber"] = str(10**20 + second)
        copied["dynamodb"]["ApproximateCreationDateTime"] += second
        copied["dynamodb"]["NewImage"]["b_wcu_tc"]["N"] = str(1 + 900 * second)
        records.append(copied)
    before = limiter.available("user-1", "gpt-4")
    answer = function.handle(records)
    after = limiter.available("user-1", "gpt-4")

    shards = [one["shard_count"]["N"] for one in client("dynamodb").scan(TableName=table_name)["Items"] if "rf" in one]
    assert (1, ["2", "2"]) == (answer["splits"], shards)
    # On a slow machine, more may have been refilled in between. The function and the client know the server's time
    # to the second, and both count by its strict side.
    a_second_of_refill = {"rpm": 17, "tpm": 1_667}
    assert all(before[name] <= after[name] + a_second_of_refill[name] for name in ("rpm", "tpm"))
    assert after["rpm"] <= 1_000


def test_handler_archives_expired_events_once(repo: SyncRepository, function: Function, bucket: str):
    """They are delivered twice."""
    stream = Stream()
    for number in range(3):
        event = AuditEvent(f"1700000000000-{number:016x}", "2023-11-14T22:13:20Z", AuditAction.LIMITS_SET, "user-1")
        item = audit_item.to_item("ns000000000", event, 1_700_000_000)
        stream.add(1_707_776_000_000, item, None, userIdentity=SERVICE)
    answers = [function.handle(stream.records) for _ in range(2)]

    assert [3, 3] == [answer["archived"] for answer in answers]
    assert [["user-1"] * 3] == [[event["entity_id"] for event in events] for events in archived(bucket)]


def test_handler_reports_and_logs_a_failure(table_name: str, function: Function, repo: SyncRepository):
    """The batch is delivered again from there. Logs and metrics are JSON."""
    stream = Stream()
    event = AuditEvent("1700000000000-000000000000000a", "2023-11-14T22:13:20Z", AuditAction.LIMITS_SET, "user-1")
    stream.add(1_707_776_000_000, audit_item.to_item("ns000000000", event, 1), None, userIdentity=SERVICE)
    client("s3").delete_bucket(Bucket=f"archive-{table_name}")
    answer = function.handle([*stream.records, {"dynamodb": {"SequenceNumber": "999"}}])

    assert [{"itemIdentifier": "100"}] == answer["batchItemFailures"]
    errors = [line for line in function.said if line.get("level") == "ERROR"]
    assert [False, True] == [line["delivered_again"] for line in errors]
    assert "NoSuchBucket" in errors[1]["error"]
    (metrics,) = [line for line in function.said if "_aws" in line]
    assert (1, 2, "zae-limiter") == (metrics["damaged"], metrics["troubles"], metrics["service"])


def test_handler_counts_a_forged_record_in_a_metric(function: Function):
    """The record is skipped and not delivered again."""
    stream = Stream()
    key = "hostile0000/BUCKET#mallory#gpt-4#0"
    forged = {"PK": key, "SK": "#STATE", "b_rpm_tc": 5_000, "b_wcu_tc": 5, "shard_count": 3}
    stream.add(1_707_776_000_000, None, forged)
    answer = function.handle(stream.records)

    assert ([], 1) == (answer["batchItemFailures"], answer.get("set_aside"))
    (metrics,) = [line for line in function.said if "_aws" in line]
    assert 1 == metrics["set_aside"]


def test_handler_accepts_an_empty_batch(function: Function):
    """There is nothing to do."""
    assert [] == function.handle([])["batchItemFailures"]
