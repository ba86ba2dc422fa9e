"""Counting usage costs what the costs page says, as measured by an engine."""

import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from typing import Any

import botocore.session
import pytest

from tests.docs.operator_pages import DOCS, text
from tests.dynamodb.engines import EngineAbsentError, fresh_table_name, running
from tests.dynamodb.metered_usage import KEYS, MeteredWorker
from zae_limiter import Limit, SyncRateLimiter, SyncRepository
from zae_limiter.infra.options import StackOptions

ROOT = DOCS.parent
PAGE = text("operations/costs.md")


class MeteredAggregator:
    """A table, a limiter on it, and an aggregator whose calls are metered."""

    def __init__(self, url: str) -> None:
        name = fresh_table_name()
        location = f"dynamodb://{name}?region=us-east-1&endpoint_url={url}&create=true"
        self._repo = SyncRepository.open(location, deadline_s=30)
        self._repo.set_system_defaults([Limit.per_minute("rpm", 1_000)])
        self._limiter = SyncRateLimiter(self._repo)
        self._client = botocore.session.Session().create_client("dynamodb", endpoint_url=url, region_name="us-east-1")
        self._name = name
        self._seen: dict[str, Any] = {}
        self._records = 0
        self._worker = MeteredWorker(url, name)
        # One time for all records, so that none begins a new window.
        self._at_s = self._worker.table.now()[0] / 1000

    def close(self) -> None:
        """Close all connections."""
        self._worker.close()
        self._client.close()
        self._repo.close()

    def warn_at(self, *parts: float) -> None:
        """Set thresholds of the limit; the next take stores them in the bucket."""
        self._repo.set_system_defaults([Limit.per_minute("rpm", 1_000, warn_at=parts)])

    def take(self, tokens: int = 1) -> dict[str, Any]:
        """Take once, and return the stream record of it."""
        with self._limiter.acquire("user-1", "gpt-4", {"rpm": tokens}):
            pass
        found = self._client.scan(TableName=self._name)["Items"]
        (item,) = [one for one in found if one["SK"]["S"] == "#STATE"]
        self._records += 1
        images = {"NewImage": item, **({"OldImage": self._seen} if self._seen else {})}
        self._seen, name = item, "MODIFY" if self._seen else "INSERT"
        key = {"PK": item["PK"], "SK": item["SK"]}
        told_of = {
            "Keys": key,
            "SequenceNumber": str(100 + self._records),
            "ApproximateCreationDateTime": self._at_s,
            **images,
        }
        return {"eventName": name, "dynamodb": told_of}

    def count(self, records: list[dict[str, Any]]) -> Counter[str]:
        """Count a batch, and return what that consumed."""
        return self._worker.count(records).units


@pytest.fixture
def metered(monkeypatch: pytest.MonkeyPatch) -> Iterator[MeteredAggregator]:
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)
    # The engine of a busy machine may be slow.
    for name in ("_CONNECT_S", "_READ_S"):
        monkeypatch.setattr(f"zae_limiter_aggregator.transport.{name}", 60)
    try:
        # The only engine that reports what a batch of reads consumes.
        url = running("dynoxide").url
    except EngineAbsentError as absent:
        pytest.skip(str(absent))
    made = MeteredAggregator(url)
    made.count([made.take()])
    yield made
    made.close()


def test_write_to_a_bucket_is_counted_at_the_cost_on_the_page(metered: MeteredAggregator) -> None:
    """One unit for each of two windows; snapshots and namespace are read eventually consistent."""
    spent = metered.count([metered.take()])
    (read,) = re.findall(r"two windows are two write units and ([\d.]+) read units", PAGE)

    assert {"read": float(read), "written": 2.0, "indexes": 0} == dict(spent)


def test_many_writes_in_a_batch_cost_as_much_as_one(metered: MeteredAggregator) -> None:
    """A busy bucket costs no more than one that is written once per batch."""
    one = metered.count([metered.take()])

    assert one == metered.count([metered.take() for _ in range(10)])


def test_warning_costs_what_the_page_says(metered: MeteredAggregator) -> None:
    """A bucket with thresholds that are not reached, or are marked already, costs as much as one without."""
    usual = metered.count([metered.take()])
    metered.warn_at(0.5)
    below = metered.count([metered.take()])
    reached = metered.count([metered.take(800)])
    marked = metered.count([metered.take()])
    (written, read) = re.findall(r"A warning\*\* costs at most ([\d.]+) write units and ([\d.]+) read unit", PAGE)[0]
    extra = {name: reached[name] - usual[name] for name in ("written", "indexes", "read")}

    assert (usual, usual) == (below, marked)
    assert 0 < extra["written"] + extra["indexes"] <= float(written)
    assert float(read) == extra["read"]


def test_price_of_the_example_is_what_the_command_prints() -> None:
    """Reads included, with the default interval, at most USD 3.50 a month."""
    interval_s = StackOptions().usage_interval_seconds
    options = ("--intervals", str(interval_s), "--stream-shards", "1")
    done = subprocess.run(
        [sys.executable, "-W", "error", "bench/usage.py", *options],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if "dynoxide" in done.stderr:
        pytest.skip(done.stderr)
    (row,) = [line for line in done.stdout.splitlines() if line.startswith(f"| {interval_s} s")]
    usd = float(row.split("**")[1])
    (total,) = re.findall(r"\*\*total, at most\*\* \| \| \| \*\*([\d.]+)\*\*", PAGE)
    parts = re.findall(r"^\| .* \| ([\d.]+) \|$", PAGE[PAGE.index("## An example") : PAGE.index(total)], re.MULTILINE)

    assert usd <= 3.5
    assert row in PAGE.splitlines()
    assert f"{usd:.2f}" == parts[-1]
    assert total == f"{sum(map(float, parts)):.2f}"
    assert f"including usage and limit lookups | {float(total) / 10:.2f} |" in (ROOT / "README.md").read_text()
