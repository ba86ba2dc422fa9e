"""A delivery is worked through to its report, whatever of it goes wrong."""

from collections.abc import Callable, Sequence
from typing import TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.aggregator.stage import HOUR_MS, NAMESPACE_ID, Stage, Stream, drive
from tests.one_bucket import NOON, created, stored
from zae_limiter.core.audit import AuditAction, AuditEvent
from zae_limiter.core.bucket import TimeBounds
from zae_limiter.core.errors import RateLimiterUnavailable
from zae_limiter.core.limit import Limit
from zae_limiter.core.outcome import Throttled
from zae_limiter.core.usage import Window, window_at
from zae_limiter.schema import audit_item, usage_item
from zae_limiter.schema.keys import BucketKey
from zae_limiter.schema.operations import Key, Put, Update
from zae_limiter_aggregator.apply import Ask, Read, TableAnswer, TableDialogue, Transaction
from zae_limiter_aggregator.batch_processor import BatchReport, Worker
from zae_limiter_aggregator.plan import Rules
from zae_limiter_aggregator.records import ExpiredEvent

T = TypeVar("T")

RULES = Rules(window_types=("hourly", "daily"))
TERMS = stored(Limit.per_minute("rpm", 1_000_000))
SERVICE = {"type": "Service", "principalId": "dynamodb.amazonaws.com"}


class StagedTable:
    """A table in memory that refuses what it is told to."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.trouble: Callable[[Ask], TableAnswer | None] = lambda ask: None

    def now(self) -> TimeBounds:
        return self.stage.now_ms, self.stage.now_ms

    def run(self, asking: TableDialogue[T], in_time: Callable[[], bool]) -> T:
        def answer(ask: Ask) -> TableAnswer:
            if not in_time():
                raise RateLimiterUnavailable(TimeoutError("late"))
            trouble = self.trouble(ask)
            return self.stage.answer(ask) if trouble is None else trouble

        return drive(asking, answer)


class Shelf:
    """An archive in memory."""

    def __init__(self) -> None:
        self.kept: list[str] = []
        self.error: Exception | None = None

    def write(self, events: Sequence[ExpiredEvent]) -> None:
        if self.error is not None:
            raise self.error
        self.kept += [one.event.event_id for one in events]


class Play:
    """A stage with a bucket per entity, the stream of what happens to them, and a worker."""

    def __init__(self, rules: Rules = RULES) -> None:
        self.stage = Stage(NOON)
        self.stream = Stream()
        self.table = StagedTable(self.stage)
        self.shelf = Shelf()
        self.rules = rules
        self.worker = self.new_worker()
        self.expected: dict[tuple[str, str], int] = {}

    def new_worker(self) -> Worker:
        """A worker that remembers nothing."""
        return Worker(self.table, self.rules, self.shelf, 1)

    def use(self, entity: str, amount: int, writes: int = 1) -> None:
        """Take from a bucket of an entity, and create it first where it is absent."""
        item = created(TERMS)
        pk = BucketKey(NAMESPACE_ID, entity, "gpt-4", 0)
        key = Key(item["PK"].replace("user-1", entity), "#STATE")
        if self.stage.table.get(key) is None:
            self.stream.write(self.stage, Put({**item, "PK": key.pk, "b_wcu_tc": 0}))
        taken = {"b_rpm_tk": -amount * 1000, "b_rpm_tc": amount * 1000, "b_wcu_tc": writes}
        self.stream.write(self.stage, Update(key, add=taken))
        for window in ("hourly", "daily"):
            sk = usage_item.snapshot_key(pk, self.window(window)).sk
            self.expected[(entity, sk)] = self.expected.get((entity, sk), 0) + amount

    def window(self, window_type: str) -> Window:
        return window_at(window_type, self.stage.now_ms)

    def expire(self, number: int) -> str:
        """Let an audit event expire."""
        event = AuditEvent(f"{NOON}-{number:016x}", "2023-11-14T22:13:20Z", AuditAction.LIMITS_SET, "user-1")
        item = audit_item.to_item(NAMESPACE_ID, event, NOON // 1000)
        self.stream.add(self.stage.now_ms, item, None, userIdentity=SERVICE)
        return event.event_id

    def deliver(self, start: int = 0, end: int | None = None, worker: Worker | None = None) -> BatchReport:
        return (worker or self.worker).work(self.stream.records[start:end], lambda: 60.0)

    def used(self) -> dict[tuple[str, str], int]:
        return {key: used for key, (used, _) in self.stage.usage().items()}


@given(st.lists(st.tuples(st.sampled_from(["user-1", "user-2"]), st.integers(0, 9), st.booleans())), st.data())
def test_what_is_delivered_again_leaves_usage_as_it_is(steps: list[tuple[str, int, bool]], data: st.DataObject):
    """From any record on, to workers that remember and to new ones."""
    play = Play()
    for entity, amount, later in steps:
        play.stage.now_ms += HOUR_MS * later
        play.use(entity, amount)
    total = len(play.stream.records)
    done = 0
    while done < total:
        begin = data.draw(st.integers(0, done))
        done = data.draw(st.integers(done + 1, total))
        worker = play.new_worker() if data.draw(st.booleans()) else None
        assert play.deliver(begin, done, worker).first_failure is None

    assert play.expected == play.used()


def test_the_report_counts_what_was_done():
    """And the function answers with it."""
    play = Play()
    play.use("user-1", 5)
    play.use("user-2", 6)
    play.expire(1)
    play.stream.add(0, None, {"PK": f"{NAMESPACE_ID}/ENTITY#user-1", "SK": "#META"})
    play.stream.records.append({"dynamodb": {"SequenceNumber": "999"}})
    report = play.deliver()

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


def test_what_fails_is_delivered_again_from_its_first_record_on():
    """What was counted beside it is not counted again."""
    play = Play()
    for entity in ("user-2", "user-1", "user-2", "user-1"):
        play.use(entity, 1)
    first = next(one for one in play.stream.records if "user-1" in one["dynamodb"]["Keys"]["PK"]["S"])

    def refuse(ask: Ask) -> TableAnswer | None:
        if isinstance(ask, Read | Transaction) and any("ENTITY#user-1" in key for key in keys_of(ask)):
            return Throttled() if isinstance(ask, Transaction) else None
        return None

    play.deliver(0, 1)
    play.deliver(1, 2)
    play.table.trouble = refuse
    report = play.deliver()
    failed = play.used()
    play.table.trouble = lambda ask: None
    begin = [one["dynamodb"]["SequenceNumber"] for one in play.stream.records].index(str(report.first_failure))
    again = play.deliver(begin)

    assert first["dynamodb"]["SequenceNumber"] == report.first_failure
    assert {("user-2", 2)} == {(entity, used) for (entity, _), used in failed.items()}
    assert all(trouble.again for trouble in report.troubles)
    assert again.first_failure is None
    assert play.expected == play.used()


def keys_of(ask: Read | Transaction) -> list[str]:
    return [key.pk for key in ask.keys] if isinstance(ask, Read) else [one.key.pk for one in ask.operations]


def test_who_is_behind_writes_many_snapshots_at_once():
    """Until it has caught up."""
    play = Play()
    for late_ms, kinds in ((0, [Update] * 4), (60_000, [Transaction])):
        for entity in ("user-1", "user-2"):
            play.use(entity, 1)
        play.deliver(0, 4)
        play.use("user-1", 1)
        play.use("user-2", 1)
        play.stage.now_ms += late_ms
        play.stage.asked.clear()
        play.deliver()
        assert kinds == [type(ask) for ask in play.stage.asked if not isinstance(ask, Read)]

    assert sum(play.expected.values()) == sum(play.used().values())


def test_a_damaged_snapshot_holds_up_no_other():
    """It is told of, and not delivered again: it would fail again."""
    play = Play()
    play.use("user-1", 5)
    play.use("user-2", 6)
    damaged = usage_item.snapshot_key(BucketKey(NAMESPACE_ID, "user-1", "gpt-4", 0), play.window("daily"))
    play.stage.table.write(Update(damaged, set={"s_0": 7}))
    report = play.deliver()

    assert (None, 3) == (report.first_failure, report.snapshots)
    assert [False] == [trouble.again for trouble in report.troubles]
    assert "user-1" in report.troubles[0].what


def test_a_table_that_is_away_has_all_delivered_again():
    """From the first record."""
    play = Play()
    play.use("user-1", 5)

    def away(ask: Ask) -> TableAnswer | None:
        raise RateLimiterUnavailable(ConnectionError("away"))

    play.table.trouble = away
    report = play.deliver()

    assert (play.stream.records[0]["dynamodb"]["SequenceNumber"], 0) == (report.first_failure, report.snapshots)


def test_a_mistake_in_one_effect_stops_no_other():
    """Whatever it is, it is told of and delivered again."""
    play = Play()
    play.use("user-1", 5)
    event = play.expire(1)

    def break_down(ask: Ask) -> TableAnswer | None:
        raise ZeroDivisionError

    play.table.trouble = break_down
    report = play.deliver()

    assert ["ZeroDivisionError()"] == [repr(trouble.error) for trouble in report.troubles]
    assert play.stream.records[0]["dynamodb"]["SequenceNumber"] == report.first_failure
    assert event not in play.shelf.kept


def test_who_has_no_time_left_reports_what_was_not_begun():
    """A fifth of the time is kept for the report."""
    play = Play()
    play.use("user-1", 5)
    times = iter([60.0])
    report = play.worker.work(play.stream.records, lambda: next(times, 11.9))

    assert (0, "100") == (report.snapshots, report.first_failure)
    assert [] == play.stage.asked


def test_events_are_archived_up_to_what_is_delivered_again():
    """So an event is archived once, though a batch is delivered in two parts."""
    play = Play()
    play.use("user-1", 5)
    play.deliver()
    before = play.expire(1)
    play.use("user-1", 6)
    after = play.expire(2)
    play.table.trouble = lambda ask: Throttled() if isinstance(ask, Update) else None
    report = play.deliver(2)

    assert ([before], 1) == (play.shelf.kept, report.archived)
    play.table.trouble = lambda ask: None
    begin = [one["dynamodb"]["SequenceNumber"] for one in play.stream.records].index(str(report.first_failure))
    play.deliver(begin)
    assert [before, after] == play.shelf.kept


def test_an_archive_that_fails_has_its_events_delivered_again():
    """Usage that was counted stays counted."""
    play = Play()
    play.use("user-1", 5)
    play.expire(1)
    play.shelf.error = ConnectionError("away")
    report = play.deliver()
    play.shelf.error = None
    play.deliver()

    assert (2, 0, "102") == (report.snapshots, report.archived, report.first_failure)
    assert (1, play.expected) == (len(play.shelf.kept), play.used())


def test_without_an_archive_events_are_left():
    """They have expired all the same."""
    play = Play()
    play.expire(1)
    report = Worker(play.table, RULES, None, 1).work(play.stream.records, lambda: 60.0)

    assert (0, None) == (report.archived, report.first_failure)


def test_pressure_splits_and_calm_merges():
    """All tokens are there in the end."""
    play = Play()
    for _ in range(3):
        play.use("user-1", 900, writes=900)
        play.stage.now_ms += 1_000
    split = play.deliver()
    shards = [len(play.stage.buckets())]
    merges = []
    for _ in range(4):
        begin = len(play.stream.records)
        bucket = play.stage.buckets()[0]
        play.stream.add(play.stage.now_ms, bucket, {**bucket, "b_wcu_tc": bucket["b_wcu_tc"] + 1})
        merges.append(play.deliver(begin).merges)
        play.stage.now_ms += 60_000

    assert (1, [2], [0, 0, 0, 1]) == (split.splits, shards, merges)
    assert {0} == set(play.stage.buckets())


@pytest.mark.parametrize("trouble", [Throttled(), None])
def test_a_split_that_fails_is_not_delivered_again(trouble: TableAnswer | None):
    """The next batch will ask for it."""
    play = Play()
    for _ in range(3):
        play.use("user-1", 900, writes=900)
        play.stage.now_ms += 1_000

    def refuse(ask: Ask) -> TableAnswer | None:
        if isinstance(ask, Transaction) and ask.token.startswith("split"):
            if trouble is None:
                raise ZeroDivisionError
            return trouble
        return None

    play.table.trouble = refuse
    report = play.deliver()

    assert (0, None, trouble is None) == (report.splits, report.first_failure, len(report.troubles) == 1)
    assert play.expected == play.used()


def test_a_look_at_a_damaged_bucket_is_not_repeated_at_once():
    """It fails once a minute, not with every batch."""
    play = Play()
    play.use("user-1", 1)
    bucket = play.stage.buckets()[0]
    play.stream.add(play.stage.now_ms, bucket, {**bucket, "shard_count": 2})
    play.stage.put([{name: value for name, value in bucket.items() if name != "rf"}])
    troubles = [len(play.deliver().troubles) for _ in range(3)]

    assert [1, 0, 0] == troubles


def test_a_look_that_there_is_no_time_for_forgets_nothing():
    """It is made a minute later, with what was known."""
    play = Play()
    play.use("user-1", 1)
    bucket = play.stage.buckets()[0]
    play.stream.add(play.stage.now_ms, bucket, {**bucket, "shard_count": 2})
    merges = []
    for minute in range(4):
        shard = {**bucket, "shard_count": 2, "b_wcu_tc": 1}
        play.stage.put([shard, {**shard, "PK": bucket["PK"][:-1] + "1"}])
        late = [60.0, 60.0, *[1.0] * 9] if minute == 2 else [60.0] * 99
        merges.append(play.worker.work(play.stream.records, iter(late).__next__).merges)
        play.stage.now_ms += 60_000

    assert [0, 0, 0, 1] == merges
