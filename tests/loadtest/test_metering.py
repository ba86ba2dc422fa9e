"""The meter of DynamoDB calls, on a real engine and with the failures that DynamoDB reports."""

from typing import Any

import pytest

from tests.dynamodb.engines import EngineAbsentError, fresh_table_name, running
from tests.many_shards import grown, looks
from tests.one_bucket import stored
from zae_limiter import Limit, RateLimiter, SyncRateLimiter
from zae_limiter.loadtest.costs import capacity_cost
from zae_limiter.loadtest.metering import RecordingMeter, open_metered, open_metered_sync, sample_shards
from zae_limiter.loadtest.recorder import Recorder
from zae_limiter.tables.dynamodb.errors import failure_of

LIMIT = Limit.per_minute("rpm", 1_000_000)


@pytest.fixture
def url(monkeypatch: pytest.MonkeyPatch) -> str:
    """A new table on an engine that reports the capacity of all calls."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    try:
        engine = running("dynoxide")
    except EngineAbsentError:
        engine = running("ministack")
    return f"dynamodb://{fresh_table_name()}?region=us-east-1&endpoint_url={engine.url}&create=true"


def failure(code: str, body: str, status: int = 400) -> Any:
    return failure_of(status, code, body.encode(), "limiter")


async def test_meter_of_admitted_calls_counts_one_write_each(url: str) -> None:
    """As docs/operations/costs.md says."""
    recorder = Recorder()
    async with await open_metered(url, recorder) as repository:
        limiter = RateLimiter(repository)
        await limiter.set_system_defaults([LIMIT])
        async with limiter.acquire("user", "api", {"rpm": 1}):
            pass
        recorder.take_measurements()

        for _ in range(5):
            async with limiter.acquire("user", "api", {"rpm": 1}):
                pass
        measured = recorder.take_measurements()

    assert {"UpdateItem": 5} == measured.calls
    assert (5.0, 0.0, 0.0) == (measured.write_units, measured.index_write_units, measured.read_units)


def test_meter_of_a_new_bucket_counts_its_indexes(url: str) -> None:
    """The sync tree is metered in the same way."""
    recorder = Recorder()
    with open_metered_sync(url, recorder) as repository:
        limiter = SyncRateLimiter(repository)
        limiter.set_system_defaults([LIMIT])
        recorder.take_measurements()

        with limiter.acquire("user", "api", {"rpm": 1}):
            pass
        measured = recorder.take_measurements()

    assert (1.0, 3.0) == (measured.write_units, measured.index_write_units)
    assert measured.read_units > 0


def test_meter_of_a_refused_write_counts_the_unit_that_is_billed() -> None:
    """DynamoDB does not report it."""
    recorder = Recorder()

    RecordingMeter(recorder).failed("UpdateItem", failure("ConditionalCheckFailedException", "{}"))
    measured = recorder.take_measurements()

    assert (1, 1) == (measured.refused_write_units, measured.calls["UpdateItem"])
    assert not measured.throttles
    assert 0.625 / 1_000_000 == capacity_cost(measured).usd


def test_meter_of_a_cancelled_transaction_counts_two_units_for_each_write() -> None:
    """A transaction costs twice."""
    recorder = Recorder()
    body = '{"CancellationReasons": [{"Code": "ConditionalCheckFailed"}, {"Code": "None"}]}'

    RecordingMeter(recorder).failed("TransactWriteItems", failure("TransactionCanceledException", body))

    assert 4 == recorder.take_measurements().refused_write_units


@pytest.mark.parametrize(
    ("code", "body", "reasons"),
    [
        (
            "ThrottlingException",
            '{"ThrottlingReasons": [{"reason": "TableWriteKeyRangeThroughputExceeded", "resource": "arn"}]}',
            {"TableWriteKeyRangeThroughputExceeded": 1},
        ),
        ("ProvisionedThroughputExceededException", "{}", {"ProvisionedThroughputExceededException": 1}),
        (
            "TransactionCanceledException",
            '{"CancellationReasons": [{"Code": "None"}, {"Code": "ThrottlingError"}]}',
            {"ThrottlingError": 1},
        ),
        ("InternalServerError", "{}", {}),
    ],
)
def test_meter_of_a_throttle_counts_its_reasons(code: str, body: str, reasons: dict[str, int]) -> None:
    """The reason says whether a partition is hot, or the table has too little capacity."""
    recorder = Recorder()

    RecordingMeter(recorder).failed("UpdateItem", failure(code, body))
    measured = recorder.take_measurements()

    assert reasons == measured.throttles
    assert {"UpdateItem": 1} == measured.calls


def test_sample_of_a_bucket_with_one_shard_notes_nothing() -> None:
    """Only buckets that were split are listed."""
    recorder = Recorder()
    with open_metered_sync("memory://", recorder) as repository:
        repository.set_system_defaults([LIMIT])
        with SyncRateLimiter(repository).acquire("user", "api", {"rpm": 1}):
            pass

        sample_shards(repository.scope, recorder)

    assert {} == recorder.take_measurements().shards


def test_sample_of_a_split_bucket_notes_its_shards() -> None:
    """It makes no call: the cached views are counted."""
    recorder = Recorder(lambda: 100.5)
    with open_metered_sync("memory://", recorder) as repository:
        for shard, view in looks(grown(stored(LIMIT), [0, 0])).items():
            repository.scope.caches.keep_view(("user", "api"), view, shard)

        sample_shards(repository.scope, recorder)

    assert {"user api": {100: 3}} == recorder.take_measurements().shards
