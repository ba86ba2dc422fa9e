"""A limiter as its operator and its users have it: a command line, other processes, and AWS itself."""

import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.dynamodb.engines import fresh_table_name
from tests.dynamodb.trees import session
from tests.long_waits import LONG_DEADLINE
from zae_limiter import SyncRateLimiter, SyncRepository
from zae_limiter.infra.clients import Clients

REGION = "us-east-1"
ROOT = Path(__file__).resolve().parents[2]
# A busy machine is slow: look often, and give up late.
PATIENCE_S = 180.0
DEADLINE_S = 30.0
POLL_S = 0.2


def comes_to(expected: Any, look: Callable[[], Any]) -> Any:
    """Return what is seen: as soon as it is the expected value, or at the end of the waiting time."""
    end_s = time.monotonic() + PATIENCE_S
    while (seen := look()) != expected and time.monotonic() < end_s:
        time.sleep(POLL_S)
    return seen


@dataclass(frozen=True, slots=True)
class Deployment:
    """One limiter on a local AWS."""

    name: str
    aws_url: str

    @property
    def place(self) -> tuple[str, ...]:
        """The options that name the limiter to a command."""
        return ("--name", self.name, "--region", REGION, "--endpoint-url", self.aws_url)

    @property
    def url(self) -> str:
        return f"dynamodb://{self.name}?region={REGION}&endpoint_url={self.aws_url}"

    def command(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a command on the limiter and its stack, as a shell would."""
        return self._run("-m", "zae_limiter", *arguments, *self.place)

    def printed(self, *arguments: str) -> Any:
        """Run such a command, require success, and return its JSON."""
        return _read(self.command(*arguments, "--json"))

    def printed_data(self, *arguments: str) -> Any:
        """Run a command on the limiter's data, require success, and return its JSON."""
        return _read(self._run("-m", "zae_limiter", *arguments, "--url", self.url, "--json"))

    def program(self, source: str) -> Any:
        """Run a program in a process of its own, with the place of the limiter, and return its JSON."""
        return _read(self._run("-c", source, self.name, REGION, self.aws_url))

    @contextmanager
    def opened(self, namespace: str = "default") -> Iterator[SyncRepository]:
        """Open the limiter as an administrator does."""
        with SyncRepository.open(self.url, namespace=namespace, session=session(), deadline_s=DEADLINE_S) as repo:
            yield repo

    @property
    def clients(self) -> Clients:
        return Clients(REGION, self.aws_url, session())

    def hand_to_function(self, records: list[dict[str, Any]]) -> Any:
        """Return the answer of the deployed function to a batch of records."""
        client = self.clients.of("lambda")
        payload = json.dumps({"Records": records}).encode()
        answer = client.invoke(FunctionName=f"{self.name}-aggregator", Payload=payload)
        assert "FunctionError" not in answer, answer["Payload"].read()
        return json.loads(answer["Payload"].read())

    def items(self) -> list[dict[str, Any]]:
        """Return all items of the table, as DynamoDB has them."""
        pages = self.clients.of("dynamodb").get_paginator("scan").paginate(TableName=self.name, ConsistentRead=True)
        return [item for page in pages for item in page["Items"]]

    def _run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        known = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", **LONG_DEADLINE}
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "ZAE_"))}
        command = [sys.executable, *arguments]
        return subprocess.run(
            command,
            env=environment | known,
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE_S,
        )


def _read(done: subprocess.CompletedProcess[str]) -> Any:
    assert 0 == done.returncode, done.stderr
    return json.loads(done.stdout)


def new_deployment(aws_url: str) -> Deployment:
    return Deployment(fresh_table_name(), aws_url)


def take(repo: SyncRepository, amount: int, times: int = 1, entity_id: str = "user-1") -> None:
    """Take tokens of ``rpd`` this many times."""
    limiter = SyncRateLimiter(repo)
    for _ in range(times):
        with limiter.acquire(entity_id, "gpt-4", {"rpd": amount}):
            pass


def counted(repo: SyncRepository, entity_id: str = "user-1") -> dict[str, int]:
    """Return the usage of ``rpd`` so far, by kind of window; an hour may end in between."""
    sums: Counter[str] = Counter()
    for one in repo.get_usage_snapshots(entity_id)[0]:
        sums[one.window_type] += one.counters.get("rpd", 0)
    return dict(sums)


def records_of(deployment: Deployment) -> list[dict[str, Any]]:
    """Return all records of the limiter's stream, as the function receives them."""
    client = deployment.clients.of("dynamodbstreams")
    (stream,) = client.list_streams(TableName=deployment.name)["Streams"]
    found: list[dict[str, Any]] = []
    for shard in client.describe_stream(StreamArn=stream["StreamArn"])["StreamDescription"]["Shards"]:
        place = {"StreamArn": stream["StreamArn"], "ShardId": shard["ShardId"], "ShardIteratorType": "TRIM_HORIZON"}
        iterator = client.get_shard_iterator(**place)["ShardIterator"]
        found += client.get_records(ShardIterator=iterator, Limit=1000)["Records"]
    for record in found:
        change = record["dynamodb"]
        change["ApproximateCreationDateTime"] = change["ApproximateCreationDateTime"].timestamp()
    return found
