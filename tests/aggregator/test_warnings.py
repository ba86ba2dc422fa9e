"""A threshold is reported once per period, whatever the stream delivers, and counting does not depend on it."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.aggregator.simulated_table import NAMESPACE_ID, SimulatedTable, Stream, namespace
from tests.aggregator.test_batch_processor import RefusingTable
from tests.many_shards import grown
from tests.one_bucket import NOON, at, created, stored
from zae_limiter.core.errors import RateLimiterUnavailable
from zae_limiter.core.limit import Limit
from zae_limiter.core.money import usd
from zae_limiter.core.namespace import NamespaceStatus
from zae_limiter.core.outcome import Cancelled, Conflict, Unavailable
from zae_limiter.core.quota import BAND
from zae_limiter.core.warnings import LimitWarning
from zae_limiter.schema import usage_item
from zae_limiter.schema.keys import BucketKey
from zae_limiter.schema.operations import Key, Query, Update
from zae_limiter_aggregator.apply import Read, TableAnswer, TableRequest, Transaction
from zae_limiter_aggregator.batch_processor import BatchReport, Worker
from zae_limiter_aggregator.plan import Rules

RULES = Rules(window_types=("hourly", "daily"))
SPEND = Limit.quota("spend", usd("100"), every="month", unit="USD", warn_at=(0.8, 1.0))
RPM = Limit.per_minute("rpm", 100, warn_at=(0.8,))
SLOTS = Limit.concurrent("slots", 10, hold_seconds=60, warn_at=(0.5,))
PLAIN = Limit.per_minute("rpm", 100)
MINUTE_MS = 60_000
MONTH_MS = 31 * 86_400_000
WHOLE = BucketKey(NAMESPACE_ID, "user-1", "gpt-4", 0)


class MemoryDelivery:
    """A destination in memory."""

    def __init__(self) -> None:
        self.sent: list[LimitWarning] = []
        self.error: Exception | None = None

    def send(self, warnings: Sequence[LimitWarning]) -> None:
        if self.error is not None:
            raise self.error
        self.sent += warnings


class Scenario:
    """A bucket, the stream of its writes, and two workers that have the same destination."""

    def __init__(self, *limits: Limit, order: Sequence[int] = ()) -> None:
        self.simulated = SimulatedTable(NOON)
        self.table = RefusingTable(self.simulated)
        self.stream = Stream()
        self.delivery = MemoryDelivery()
        terms = stored(*limits)
        items = grown(terms, list(order), at(NOON)) if order else {0: created(terms)}
        self.simulated.put(items.values())
        self.workers = [self.new_worker(), self.new_worker()]

    def new_worker(self) -> Worker:
        """Return a worker without memory of earlier batches."""
        return Worker(self.table, RULES, None, 1, self.delivery)

    def spend(self, dollars: int, shard: int = 0) -> None:
        """Charge the quota of a shard, or give back if it is negative."""
        amount = usd(str(abs(dollars))) * (1 if dollars >= 0 else -1)
        self.write(shard, b_spend_qk=-amount, b_spend_tc=amount * 1000)

    def take(self, tokens: int, shard: int = 0) -> None:
        """Take from the rate limit of a shard."""
        self.write(shard, b_rpm_tk=-tokens * 1000, b_rpm_tc=tokens * 1000)

    def write(self, shard: int, **added: int) -> None:
        key = Key(f"{NAMESPACE_ID}/BUCKET#user-1#gpt-4#{shard}", "#STATE")
        self.stream.write(self.simulated, Update(key, add={**added, "b_wcu_tc": 1}))

    def next_month(self) -> None:
        """Begin the next period on every shard, with nothing spent."""
        self.simulated.now_ms += MONTH_MS
        for shard, item in self.simulated.buckets().items():
            key = Key(f"{NAMESPACE_ID}/BUCKET#user-1#gpt-4#{shard}", "#STATE")
            lower = -BAND * 2 * (MONTH_MS // 1000) - (item["b_spend_qk"] % -BAND)
            self.stream.write(self.simulated, Update(key, add={"b_spend_qk": lower}))

    def deliver(self, start: int = 0, end: int | None = None, worker: int = 0) -> BatchReport:
        return self.workers[worker].work(self.stream.records[start:end], lambda: 60.0)

    @property
    def told(self) -> list[tuple[str, float]]:
        """The limits and thresholds of the warnings that were sent."""
        return [(one.limit.name, one.threshold) for one in self.delivery.sent]

    def counted(self) -> int:
        """Return the micro-dollars in the usage of the hour."""
        return sum(one.counters.get("spend", 0) for one in self.snapshots() if one.window_type == "hourly")

    def snapshots(self) -> list[Any]:
        found = self.simulated.table.query(Query(f"{NAMESPACE_ID}/ENTITY#user-1", prefix="#USAGE#")).items
        return [usage_item.from_item(item) for item in found]


def test_a_warning_names_what_was_used_of_what() -> None:
    """A program or a person needs nothing else to act."""
    scenario = Scenario(SPEND)
    scenario.spend(85)
    scenario.deliver()
    (told,) = scenario.delivery.sent

    assert {
        "namespace": "default",
        "entity_id": "user-1",
        "resource": "gpt-4",
        "limit_name": "spend",
        "kind": "quota",
        "enforce": True,
        "threshold": 0.8,
        "used": 85_000_000,
        "capacity": 100_000_000,
        "unit": "USD",
        "at": "2023-11-14T22:13:20.000Z",
        "message": "user-1 has used 85.00 of 100.00 USD of limit spend for gpt-4. The warning is set at 80 %. "
        "The limit resets at 2023-12-01 00:00 UTC.",
        "period_start": "2023-11-01T00:00:00.000Z",
        "period_end": "2023-12-01T00:00:00.000Z",
    } == told.as_dict()


def test_a_bucket_without_thresholds_costs_nothing() -> None:
    """Neither a read nor a write is added."""
    scenario = Scenario(PLAIN)
    scenario.take(100)
    scenario.deliver()
    before = scenario.deliver

    assert [] == scenario.told
    assert not [ask for ask in scenario.simulated.asked if "#WARNED#" in repr(ask)]
    assert "warnings" not in before().counts()


def test_a_level_below_the_thresholds_costs_nothing() -> None:
    """The record shows what is used, so nothing is read."""
    scenario = Scenario(SPEND)
    scenario.spend(79)
    scenario.deliver()

    assert [] == scenario.told
    assert not [ask for ask in scenario.simulated.asked if "#WARNED#" in repr(ask)]


def test_a_repeated_record_warns_once() -> None:
    """A stream delivers at least once, also to a function without memory."""
    scenario = Scenario(SPEND)
    scenario.spend(90)
    for worker in (0, 0, 1):
        scenario.deliver(worker=worker)
    again = scenario.new_worker().work(scenario.stream.records, lambda: 60.0)

    assert [("spend", 0.8)] == scenario.told
    assert (90_000_000, 0) == (scenario.counted(), len(again.warnings))


def test_reordered_records_warn_once() -> None:
    """A later record may come first if another one is delivered again."""
    scenario = Scenario(SPEND)
    for _ in range(4):
        scenario.spend(25)
    scenario.workers[0].work(scenario.stream.records[::-1], lambda: 60.0)
    scenario.deliver()

    assert [("spend", 0.8), ("spend", 1.0)] == scenario.told


def test_two_functions_at_once_warn_once() -> None:
    """Both read before one writes; the mark of the first refuses the second."""
    scenario = Scenario(SPEND)
    scenario.spend(90)
    rival = [True]

    def interrupt(ask: TableRequest) -> None:
        if rival and isinstance(ask, Transaction) and "#WARNED#" in repr(ask):
            rival.clear()
            scenario.deliver(worker=1)

    scenario.simulated.before = interrupt
    report = scenario.deliver()

    assert [("spend", 0.8)] == scenario.told
    assert (0, [], 90_000_000) == (len(report.warnings), report.troubles, scenario.counted())


@given(st.lists(st.integers(-30, 60), min_size=1, max_size=12), st.data())
def test_a_level_that_oscillates_warns_once_per_threshold(steps: list[int], data: st.DataObject) -> None:
    """Credits and debits cross a threshold any number of times, in any batches, to any function."""
    scenario, spent, most = Scenario(SPEND), 0, 0
    for step in steps:
        step = max(step, -spent)
        scenario.spend(step)
        spent += step
        most = max(most, spent)
    done = 0
    while done < len(steps):
        begin = data.draw(st.integers(0, done))
        done = data.draw(st.integers(done + 1, len(steps)))
        scenario.deliver(begin, done, worker=data.draw(st.integers(0, 1)))

    assert {("spend", part) for part in SPEND.warn_at if most >= part * 100} == set(scenario.told)
    assert len(scenario.told) == len(set(scenario.told))
    assert spent * 1_000_000 == scenario.counted()


def test_a_new_period_warns_again() -> None:
    """Each month has its own warning, with its own dates."""
    scenario = Scenario(SPEND)
    scenario.spend(90)
    scenario.deliver()
    scenario.next_month()
    scenario.spend(95)
    scenario.deliver()

    assert [("spend", 0.8), ("spend", 0.8)] == scenario.told
    assert ["2023-12-01", "2024-01-01"] == [one.as_dict()["period_end"][:10] for one in scenario.delivery.sent]


def test_a_late_record_of_the_last_period_is_reported_as_such() -> None:
    """The stored number proves the period, so a delayed stream does not lose the warning."""
    scenario = Scenario(SPEND)
    scenario.spend(90)
    scenario.next_month()
    scenario.deliver()

    assert ["2023-11-01"] == [one.as_dict()["period_start"][:10] for one in scenario.delivery.sent]


def test_a_soft_quota_warns_above_its_amount() -> None:
    """It is not refused, so its use may exceed the amount."""
    scenario = Scenario(Limit.quota("spend", usd("100"), unit="USD", enforce=False, warn_at=(1.0, 1.5, 2.0)))
    scenario.spend(160)
    scenario.deliver()

    assert [("spend", 1.0), ("spend", 1.5)] == scenario.told
    assert not scenario.delivery.sent[0].as_dict()["enforce"]


class TestShards:
    def test_the_use_of_one_shard_is_not_that_of_the_bucket(self) -> None:
        """A shard that is used up shows nothing, because the others have tokens."""
        scenario = Scenario(SPEND, order=[0])
        scenario.spend(50, shard=0)
        scenario.deliver()

        assert [] == scenario.told

    def test_thresholds_apply_to_all_shards_together(self) -> None:
        """The last record may be of a shard that has used less than its part."""
        scenario = Scenario(SPEND, order=[0])
        scenario.spend(50, shard=0)
        scenario.deliver()
        scenario.spend(30, shard=1)
        scenario.deliver(start=1, worker=1)

        assert [("spend", 0.8)] == scenario.told
        assert [80_000_000] == [one.used for one in scenario.delivery.sent]

    def test_shards_are_not_read_once_everything_is_marked(self) -> None:
        """A bucket above its last threshold adds no reads until the next period."""
        scenario = Scenario(SPEND, order=[0])
        scenario.spend(50, shard=0)
        scenario.spend(50, shard=1)
        scenario.deliver()
        scenario.simulated.asked.clear()
        scenario.spend(1, shard=1)
        scenario.deliver(start=2)

        assert [("spend", 0.8), ("spend", 1.0)] == scenario.told
        assert not [one for one in scenario.simulated.asked if isinstance(one, Read) and "#WARNED#" in repr(one)]

    def test_a_shard_in_the_last_period_has_spent_nothing_in_this_one(self) -> None:
        """An idle shard keeps the number of the last period."""
        scenario = Scenario(SPEND, order=[0])
        scenario.spend(50, shard=1)
        scenario.simulated.now_ms += MONTH_MS
        first = scenario.simulated.buckets()[0]["b_spend_qk"]
        december = -BAND * 2 * 1_701_388_800
        scenario.write(0, b_spend_qk=december - first - usd("50"), b_spend_tc=usd("50") * 1000)
        report = scenario.deliver(start=1)

        assert ([], []) == (scenario.told, report.troubles)


class TestRates:
    def test_a_rate_limit_warns_once_per_fill_time(self) -> None:
        """A limit of 100 per minute that stays used up warns once a minute."""
        scenario = Scenario(RPM)
        for seconds in range(0, 150, 10):
            scenario.simulated.now_ms = NOON + seconds * 1000
            scenario.take(100 if seconds == 0 else 16)
        scenario.deliver()
        scenario.deliver(worker=1)

        assert [0, 60, 120] == [(one.at_ms - NOON) // 1000 for one in scenario.delivery.sent]

    def test_a_level_that_has_refilled_does_not_warn(self) -> None:
        """The second of a record is not exact, so the level at its end counts: no warning comes too early."""
        scenario = Scenario(Limit.per_second("rpm", 100, warn_at=(0.8,)))
        scenario.take(90)
        scenario.deliver()

        assert [] == scenario.told

    def test_slots_in_use_warn_until_their_end(self) -> None:
        """Slots whose end has passed are free."""
        scenario = Scenario(SLOTS)
        later, before = NOON // 1000 + 90, NOON // 1000 - 30
        scenario.write(0, **{f"b_slots_h{before}": 5_000, "b_slots_tk": -5_000, "b_slots_tc": 5_000})
        scenario.deliver()
        ended = scenario.told
        scenario.write(0, **{f"b_slots_h{later}": 5_000, "b_slots_tk": -5_000, "b_slots_tc": 5_000})
        scenario.deliver()

        assert ([], [("slots", 0.5)]) == (ended, scenario.told)
        assert "user-1 is using 5 of 10 slots" in scenario.delivery.sent[0].text


class TestFailures:
    def test_a_failed_delivery_is_reported_and_not_repeated(self) -> None:
        """The mark was written, and usage is counted."""
        scenario = Scenario(SPEND)
        scenario.spend(90)
        scenario.delivery.error = RateLimiterUnavailable(ConnectionError("EventBridge: ThrottlingException"))
        report = scenario.deliver()
        scenario.delivery.error = None
        scenario.deliver(worker=1)

        assert [("delivery of 1 warnings", False)] == [(one.what, one.again) for one in report.troubles]
        assert (None, [], 90_000_000) == (report.first_failure, scenario.told, scenario.counted())

    @pytest.mark.parametrize("applied", [True, False])
    def test_a_mark_without_an_answer_is_sent_at_most_once(self, applied: bool) -> None:
        """If it was written, another function may have written it. If not, it is written again."""
        scenario = Scenario(SPEND)
        scenario.spend(90)
        lost: list[TableRequest] = []

        def lose(ask: TableRequest) -> TableAnswer | None:
            if not lost and isinstance(ask, Transaction) and "#WARNED#" in repr(ask):
                lost.append(ask)
                if applied:
                    scenario.simulated.answer(ask)
                return Unavailable(TimeoutError("lost"), ambiguous=True)
            return None

        scenario.table.trouble = lose
        scenario.deliver()
        late = scenario.simulated.answer(lost[0])
        scenario.deliver(worker=1)

        assert isinstance(late, Cancelled)
        assert ([] if applied else [("spend", 0.8)], 90_000_000) == (scenario.told, scenario.counted())

    def test_a_table_that_is_unavailable_marks_with_the_next_use(self) -> None:
        """Nothing was written, so nothing is lost."""
        scenario = Scenario(SPEND)
        scenario.spend(90)

        def cut(ask: TableRequest) -> TableAnswer | None:
            marks = isinstance(ask, Transaction) and "#WARNED#" in repr(ask)
            return Unavailable(TimeoutError("cut"), ambiguous=False) if marks else None

        scenario.table.trouble = cut
        scenario.deliver()
        nothing = scenario.told
        scenario.table.trouble = lambda ask: None
        scenario.spend(1)
        scenario.deliver(start=1)

        assert ([], [("spend", 0.8)]) == (nothing, scenario.told)

    def test_a_conflict_is_tried_again(self) -> None:
        """Another function may count usage in the same item at that time."""
        scenario = Scenario(SPEND)
        scenario.spend(90)
        conflicts = [Conflict(), Conflict()]

        def conflict(ask: TableRequest) -> TableAnswer | None:
            marks = isinstance(ask, Transaction) and "#WARNED#" in repr(ask)
            return conflicts.pop() if conflicts and marks else None

        scenario.table.trouble = conflict
        scenario.deliver()

        assert [("spend", 0.8)] == scenario.told

    @pytest.mark.parametrize("damage", ["8 x", "x" * 80])
    def test_a_damaged_mark_does_not_stop_counting(self, damage: str) -> None:
        """It is reported and set aside."""
        scenario = Scenario(SPEND)
        item = {"PK": f"{NAMESPACE_ID}/ENTITY#user-1", "SK": "#WARNED#gpt-4", "w_spend_800": damage}
        scenario.simulated.put([item])
        scenario.spend(90)
        report = scenario.deliver()

        assert ([], 90_000_000, 1) == (scenario.told, scenario.counted(), report.set_aside)
        assert report.first_failure is None

    def test_a_forged_threshold_does_not_stop_counting(self) -> None:
        """A tenant can write any item to its own bucket."""
        scenario = Scenario(SPEND)
        key = Key(f"{NAMESPACE_ID}/BUCKET#user-1#gpt-4#0", "#STATE")
        scenario.simulated.table.write(Update(key, set={"b_spend_wa": "9" * 400}))
        scenario.spend(90)
        report = scenario.deliver()

        assert ([], 90_000_000, None) == (scenario.told, scenario.counted(), report.first_failure)

    def test_a_purged_namespace_gets_no_mark(self) -> None:
        """Nothing is created after a purge has begun."""
        scenario = Scenario(SPEND)
        scenario.spend(90)
        scenario.simulated.table.write(namespace(NamespaceStatus.PURGING))
        scenario.deliver()
        left = scenario.simulated.table.query(Query(f"{NAMESPACE_ID}/ENTITY#user-1")).items

        assert ([], []) == (scenario.told, list(left))


def test_usage_shows_the_highest_threshold_of_its_window() -> None:
    """The mark is in the snapshots of the windows, whose usage is counted as before."""
    scenario = Scenario(SPEND)
    scenario.spend(85)
    scenario.deliver()
    scenario.spend(15)
    scenario.deliver(start=1)
    scenario.simulated.now_ms += 3_600_000
    scenario.spend(1)
    scenario.deliver(start=2)
    found = {(one.window_type, one.window_start[11:13]): one for one in scenario.snapshots()}

    assert {("hourly", "22"): {"spend": 1.0}, ("hourly", "23"): {}, ("daily", "00"): {"spend": 1.0}} == {
        key: one.warnings for key, one in found.items()
    }
    assert [100_000_000, 1_000_000, 101_000_000] == [
        found[key].counters["spend"] for key in (("hourly", "22"), ("hourly", "23"), ("daily", "00"))
    ]


def test_marks_expire_after_their_period() -> None:
    """They are kept as long as usage, from the end of the period on."""
    scenario = Scenario(SPEND)
    scenario.spend(90)
    scenario.deliver()
    (item,) = scenario.simulated.table.query(Query(f"{NAMESPACE_ID}/ENTITY#user-1", prefix="#WARNED#")).items

    assert item["ttl"] >= 1_701_388_800 + RULES.retention_s
    assert {"w_spend_800", "entity_id", "resource", "GSI4PK", "GSI4SK"} <= item.keys()
    assert WHOLE.resource == item["resource"]


def test_a_deleted_limit_and_a_lower_amount_use_the_newest_limits() -> None:
    """A lowered amount is reached by what was spent before, with the next use."""
    scenario = Scenario(SPEND)
    scenario.spend(50)
    scenario.deliver()
    key = Key(f"{NAMESPACE_ID}/BUCKET#user-1#gpt-4#0", "#STATE")
    scenario.simulated.table.write(Update(key, set={"b_spend_qa": usd("60")}))
    scenario.spend(1)
    scenario.deliver(start=1)

    assert [51_000_000, 60_000_000] == [scenario.delivery.sent[0].used, scenario.delivery.sent[0].limit.capacity]
