"""A batch is processed to its report, whatever fails in it."""

from collections.abc import Callable, Sequence
from typing import TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.aggregator.simulated_table import HOUR_MS, NAMESPACE_ID, SimulatedTable, Stream, drive
from tests.one_bucket import NOON, created, stored
from zae_limiter.core.audit import AuditAction, AuditEvent
from zae_limiter.core.bucket import TimeBounds
from zae_limiter.core.errors import RateLimiterUnavailable
from zae_limiter.core.limit import Limit
from zae_limiter.core.outcome import Throttled
from zae_limiter.core.usage import Window, window_at
from zae_limiter.core.version import VersionRecord
from zae_limiter.schema import audit_item, usage_item, version_item
from zae_limiter.schema.keys import BucketKey
from zae_limiter.schema.operations import Key, Put, Update
from zae_limiter_aggregator.apply import Read, TableAnswer, TableDialogue, TableRequest, Transaction
from zae_limiter_aggregator.batch_processor import BatchReport, Worker
from zae_limiter_aggregator.plan import Rules
from zae_limiter_aggregator.records import ExpiredEvent

T = TypeVar("T")

RULES = Rules(window_types=("hourly", "daily"))
TERMS = stored(Limit.per_minute("rpm", 1_000_000))
SERVICE = {"type": "Service", "principalId": "dynamodb.amazonaws.com"}


class RefusingTable:
    """A table in memory that refuses chosen requests."""

    def __init__(self, simulated: SimulatedTable) -> None:
        self.simulated = simulated
        self.trouble: Callable[[TableRequest], TableAnswer | None] = lambda ask: None

    def now(self) -> TimeBounds:
        return self.simulated.now_ms, self.simulated.now_ms

    def run(self, dialogue: TableDialogue[T], in_time: Callable[[], bool]) -> T:
        def answer(ask: TableRequest) -> TableAnswer:
            if not in_time():
                raise RateLimiterUnavailable(TimeoutError("late"))
            trouble = self.trouble(ask)
            return self.simulated.answer(ask) if trouble is None else trouble

        return drive(dialogue, answer)


class MemoryArchive:
    """An archive in memory."""

    def __init__(self) -> None:
        self.kept: list[str] = []
        self.error: Exception | None = None

    def write(self, events: Sequence[ExpiredEvent]) -> None:
        if self.error is not None:
            raise self.error
        self.kept += [one.event.event_id for one in events]


class Scenario:
    """A table with a bucket per entity, the stream of its writes, and a worker."""

    def __init__(self, rules: Rules = RULES) -> None:
        self.simulated = SimulatedTable(NOON)
        self.stream = Stream()
        self.table = RefusingTable(self.simulated)
        self.archive = MemoryArchive()
        self.rules = rules
        self.worker = self.new_worker()
        self.expected: dict[tuple[str, str], int] = {}

    def new_worker(self) -> Worker:
        """Return a worker without memory of earlier batches."""
        return Worker(self.table, self.rules, self.archive, 1)

    def use(self, entity: str, amount: int, writes: int = 1) -> None:
        """Take from a bucket of an entity, and create the bucket if it is missing."""
        item = created(TERMS)
        pk = BucketKey(NAMESPACE_ID, entity, "gpt-4", 0)
        key = Key(item["PK"].replace("user-1", entity), "#STATE")
        if self.simulated.table.get(key) is None:
            self.stream.write(self.simulated, Put({**item, "PK": key.pk, "b_wcu_tc": 0}))
        taken = {"b_rpm_tk": -amount * 1000, "b_rpm_tc": amount * 1000, "b_wcu_tc": writes}
        self.stream.write(self.simulated, Update(key, add=taken))
        for window in ("hourly", "daily"):
            sk = usage_item.snapshot_key(pk, self.window(window)).sk
            self.expected[(entity, sk)] = self.expected.get((entity, sk), 0) + amount

    def window(self, window_type: str) -> Window:
        return window_at(window_type, self.simulated.now_ms)

    def expire(self, number: int) -> str:
        """Let an audit event expire."""
        event = AuditEvent(f"{NOON}-{number:016x}", "2023-11-14T22:13:20Z", AuditAction.LIMITS_SET, "user-1")
        item = audit_item.to_item(NAMESPACE_ID, event, NOON // 1000)
        self.stream.add(self.simulated.now_ms, item, None, userIdentity=SERVICE)
        return event.event_id

    def deliver(self, start: int = 0, end: int | None = None, worker: Worker | None = None) -> BatchReport:
        return (worker or self.worker).work(self.stream.records[start:end], lambda: 60.0)

    def used(self) -> dict[tuple[str, str], int]:
        return {key: used for key, (used, _) in self.simulated.usage().items()}


@given(st.lists(st.tuples(st.sampled_from(["user-1", "user-2"]), st.integers(0, 9), st.booleans())), st.data())
def test_a_repeated_delivery_does_not_change_usage(steps: list[tuple[str, int, bool]], data: st.DataObject):
    """It may start at any record, and go to the same worker or to a new one."""
    scenario = Scenario()
    for entity, amount, later in steps:
        scenario.simulated.now_ms += HOUR_MS * later
        scenario.use(entity, amount)
    total = len(scenario.stream.records)
    done = 0
    while done < total:
        begin = data.draw(st.integers(0, done))
        done = data.draw(st.integers(done + 1, total))
        worker = scenario.new_worker() if data.draw(st.booleans()) else None
        assert scenario.deliver(begin, done, worker).first_failure is None

    assert scenario.expected == scenario.used()


def test_the_batch_report_counts_what_was_done():
    """The function returns it."""
    scenario = Scenario()
    scenario.use("user-1", 5)
    scenario.use("user-2", 6)
    scenario.expire(1)
    scenario.stream.add(0, None, {"PK": f"{NAMESPACE_ID}/ENTITY#user-1", "SK": "#META"})
    scenario.stream.records.append({"dynamodb": {"SequenceNumber": "999"}})
    report = scenario.deliver()

    assert {
        "batchItemFailures": [],
        "records": 7,
        "changes": 4,
        "ignored": 1,
        "damaged": 1,
        "snapshots": 4,
        "splits": 0,
        "merges": 0,
        "archived": 1,
        "troubles": 1,
        "set_aside": 1,
    } == report.response()
    assert [("record 999", False)] == [(trouble.what, trouble.again) for trouble in report.troubles]


def test_a_failed_batch_is_delivered_again_from_its_first_failed_record():
    """Records that were counted beside it are not counted again."""
    scenario = Scenario()
    for entity in ("user-2", "user-1", "user-2", "user-1"):
        scenario.use(entity, 1)
    first = next(one for one in scenario.stream.records if "user-1" in one["dynamodb"]["Keys"]["PK"]["S"])

    def refuse(ask: TableRequest) -> TableAnswer | None:
        if isinstance(ask, Read | Transaction) and any("ENTITY#user-1" in key for key in keys_of(ask)):
            return Throttled() if isinstance(ask, Transaction) else None
        return None

    scenario.deliver(0, 1)
    scenario.deliver(1, 2)
    scenario.table.trouble = refuse
    report = scenario.deliver()
    failed = scenario.used()
    scenario.table.trouble = lambda ask: None
    begin = [one["dynamodb"]["SequenceNumber"] for one in scenario.stream.records].index(str(report.first_failure))
    again = scenario.deliver(begin)

    assert first["dynamodb"]["SequenceNumber"] == report.first_failure
    assert {("user-2", 2)} == {(entity, used) for (entity, _), used in failed.items()}
    assert all(trouble.again for trouble in report.troubles)
    assert again.first_failure is None
    assert scenario.expected == scenario.used()


def keys_of(ask: Read | Transaction) -> list[str]:
    return [key.pk for key in ask.keys] if isinstance(ask, Read) else [one.key.pk for one in ask.operations]


def test_a_worker_that_lags_behind_writes_many_snapshots_in_one_transaction():
    """It does so until it has caught up."""
    scenario = Scenario()
    for late_ms, kinds in ((0, [Update] * 4), (60_000, [Transaction])):
        for entity in ("user-1", "user-2"):
            scenario.use(entity, 1)
        scenario.deliver(0, 4)
        scenario.use("user-1", 1)
        scenario.use("user-2", 1)
        scenario.simulated.now_ms += late_ms
        scenario.simulated.asked.clear()
        scenario.deliver()
        assert kinds == [type(ask) for ask in scenario.simulated.asked if not isinstance(ask, Read)]

    assert sum(scenario.expected.values()) == sum(scenario.used().values())


def test_a_damaged_snapshot_does_not_block_others():
    """It is reported and not delivered again, since it would fail again."""
    scenario = Scenario()
    scenario.use("user-1", 5)
    scenario.use("user-2", 6)
    damaged = usage_item.snapshot_key(BucketKey(NAMESPACE_ID, "user-1", "gpt-4", 0), scenario.window("daily"))
    scenario.simulated.table.write(Update(damaged, set={"s_0": 7}))
    report = scenario.deliver()

    assert (None, 3) == (report.first_failure, report.snapshots)
    assert [False] == [trouble.again for trouble in report.troubles]
    assert "user-1" in report.troubles[0].what


def test_a_batch_on_an_unavailable_table_is_delivered_again():
    """Delivery starts at the first record."""
    scenario = Scenario()
    scenario.use("user-1", 5)

    def unavailable(ask: TableRequest) -> TableAnswer | None:
        raise RateLimiterUnavailable(ConnectionError("unavailable"))

    scenario.table.trouble = unavailable
    report = scenario.deliver()

    assert (scenario.stream.records[0]["dynamodb"]["SequenceNumber"], 0) == (report.first_failure, report.snapshots)


def test_an_unexpected_error_in_one_effect_stops_no_other():
    """The error is reported, and its records are delivered again."""
    scenario = Scenario()
    scenario.use("user-1", 5)
    event = scenario.expire(1)

    def break_down(ask: TableRequest) -> TableAnswer | None:
        if isinstance(ask, Read) and ask.keys == (version_item.key(),):
            return None
        raise ZeroDivisionError

    scenario.table.trouble = break_down
    report = scenario.deliver()

    assert ["ZeroDivisionError()"] == [repr(trouble.error) for trouble in report.troubles]
    assert scenario.stream.records[0]["dynamodb"]["SequenceNumber"] == report.first_failure
    assert event not in scenario.archive.kept


def test_a_worker_without_time_left_reports_what_it_has_not_begun():
    """A fifth of the time is reserved for the report."""
    scenario = Scenario()
    scenario.use("user-1", 5)
    times = iter([60.0])
    report = scenario.worker.work(scenario.stream.records, lambda: next(times, 11.9))

    assert (0, "100") == (report.snapshots, report.first_failure)
    assert [] == scenario.simulated.asked


def test_events_are_archived_up_to_the_first_failed_record():
    """An event is archived once, although a batch is delivered in two parts."""
    scenario = Scenario()
    scenario.use("user-1", 5)
    scenario.deliver()
    before = scenario.expire(1)
    scenario.use("user-1", 6)
    after = scenario.expire(2)
    scenario.table.trouble = lambda ask: Throttled() if isinstance(ask, Update) else None
    report = scenario.deliver(2)

    assert ([before], 1) == (scenario.archive.kept, report.archived)
    scenario.table.trouble = lambda ask: None
    begin = [one["dynamodb"]["SequenceNumber"] for one in scenario.stream.records].index(str(report.first_failure))
    scenario.deliver(begin)
    assert [before, after] == scenario.archive.kept


def test_events_of_a_failed_archive_write_are_delivered_again():
    """Usage that was counted is not counted again."""
    scenario = Scenario()
    scenario.use("user-1", 5)
    scenario.expire(1)
    scenario.archive.error = ConnectionError("unavailable")
    report = scenario.deliver()
    scenario.archive.error = None
    scenario.deliver()

    assert (2, 0, "102") == (report.snapshots, report.archived, report.first_failure)
    assert (1, scenario.expected) == (len(scenario.archive.kept), scenario.used())


def test_events_without_an_archive_are_ignored():
    """They have expired nevertheless."""
    scenario = Scenario()
    scenario.expire(1)
    report = Worker(scenario.table, RULES, None, 1).work(scenario.stream.records, lambda: 60.0)

    assert (0, None) == (report.archived, report.first_failure)


def test_high_write_rates_split_and_low_rates_merge_shards():
    """No token is lost."""
    scenario = Scenario()
    for _ in range(3):
        scenario.use("user-1", 900, writes=900)
        scenario.simulated.now_ms += 1_000
    split = scenario.deliver()
    shards = [len(scenario.simulated.buckets())]
    merges = []
    for _ in range(4):
        begin = len(scenario.stream.records)
        bucket = scenario.simulated.buckets()[0]
        scenario.stream.add(scenario.simulated.now_ms, bucket, {**bucket, "b_wcu_tc": bucket["b_wcu_tc"] + 1})
        merges.append(scenario.deliver(begin).merges)
        scenario.simulated.now_ms += 60_000

    assert (1, [2], [0, 0, 0, 1]) == (split.splits, shards, merges)
    assert {0} == set(scenario.simulated.buckets())


@pytest.mark.parametrize("trouble", [Throttled(), None])
def test_a_failed_split_is_not_delivered_again(trouble: TableAnswer | None):
    """A later batch will request it."""
    scenario = Scenario()
    for _ in range(3):
        scenario.use("user-1", 900, writes=900)
        scenario.simulated.now_ms += 1_000

    def refuse(ask: TableRequest) -> TableAnswer | None:
        if isinstance(ask, Transaction) and ask.token.startswith("split"):
            if trouble is None:
                raise ZeroDivisionError
            return trouble
        return None

    scenario.table.trouble = refuse
    report = scenario.deliver()

    assert (0, None, trouble is None) == (report.splits, report.first_failure, len(report.troubles) == 1)
    assert scenario.expected == scenario.used()


def test_a_survey_of_a_damaged_bucket_is_not_repeated_immediately():
    """It fails once a minute, not in every batch."""
    scenario = Scenario()
    scenario.use("user-1", 1)
    bucket = scenario.simulated.buckets()[0]
    scenario.stream.add(scenario.simulated.now_ms, bucket, {**bucket, "shard_count": 2})
    scenario.simulated.put([{name: value for name, value in bucket.items() if name != "rf"}])
    troubles = [len(scenario.deliver().troubles) for _ in range(3)]

    assert [1, 0, 0] == troubles


def test_a_survey_without_time_left_keeps_what_is_known():
    """It is repeated a minute later with the earlier knowledge."""
    scenario = Scenario()
    scenario.use("user-1", 1)
    bucket = scenario.simulated.buckets()[0]
    scenario.stream.add(scenario.simulated.now_ms, bucket, {**bucket, "shard_count": 2})
    merges = []
    for minute in range(4):
        shard = {**bucket, "shard_count": 2, "b_wcu_tc": 1}
        scenario.simulated.put([shard, {**shard, "PK": bucket["PK"][:-1] + "1"}])
        late = [60.0, 60.0, *[1.0] * 9] if minute == 2 else [60.0] * 99
        merges.append(scenario.worker.work(scenario.stream.records, iter(late).__next__).merges)
        scenario.simulated.now_ms += 60_000

    assert [0, 0, 0, 1] == merges


def test_a_table_with_an_unknown_kind_is_not_counted_and_delivered_again():
    """The function would misread its items. Once it is updated, nothing is lost."""
    scenario = Scenario()
    scenario.use("user-1", 5)
    item = version_item.to_item(VersionRecord("1.0.0", kinds={"yak": "9.0.0"}))
    scenario.table.trouble = lambda ask: [item] if ask == Read((version_item.key(),), False) else None

    refused = scenario.deliver()
    scenario.table.trouble = lambda ask: None
    counted = scenario.deliver()

    assert scenario.stream.records[0]["dynamodb"]["SequenceNumber"] == refused.first_failure
    assert (0, ["yak"]) == (refused.snapshots, [trouble.error.kind for trouble in refused.troubles])
    assert (None, 2) == (counted.first_failure, counted.snapshots)


def test_a_delivery_without_changes_of_buckets_does_not_read_the_kinds():
    """Only counting depends on them."""
    scenario = Scenario()
    scenario.deliver()

    assert [] == scenario.simulated.asked


def test_report_has_the_highest_number_of_slots_in_use_only_if_there_are_slots() -> None:
    """A table without slots has no such metric, which would be billed."""
    assert "slots_in_use" not in BatchReport(1, 1, 0, 0).counts()
    assert 7 == BatchReport(1, 1, 0, 0, slots_in_use=7).counts()["slots_in_use"]
