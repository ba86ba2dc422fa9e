"""Usage is counted once, however records are delivered, whatever is lost, and wherever counting stops."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.aggregator.simulated_table import BUCKETS, HOUR_MS, NAMESPACE_ID, START_MS, SimulatedTable, change, namespace
from zae_limiter.core.errors import CorruptItemError
from zae_limiter.core.namespace import NamespaceStatus
from zae_limiter.core.outcome import Cancelled, Conflict, Throttled, Unavailable
from zae_limiter.core.usage import WINDOW_TYPES, window_at
from zae_limiter.schema import namespace_item, usage_item
from zae_limiter.schema.keys import BucketKey
from zae_limiter.schema.operations import Delete, Key, Update
from zae_limiter_aggregator.apply import (
    Counted,
    Pause,
    Read,
    TableAnswer,
    TableDialogue,
    TableRequest,
    Transaction,
    count,
    drive,
)
from zae_limiter_aggregator.plan import Count, Rules, accounts_of, groups
from zae_limiter_aggregator.records import BucketChange

TOGETHER, APART = Rules(apart=False), Rules()
LOST = Unavailable(ConnectionError("lost"), ambiguous=True)


@st.composite
def histories(draw: st.DrawFn) -> list[BucketChange]:
    """Return changes of some buckets, ordered by sequence."""
    parts = draw(st.lists(st.tuples(st.sampled_from(BUCKETS), st.integers(0, 30), st.integers(-5, 50)), max_size=20))
    return [change(number, *part) for number, part in enumerate(parts, start=1)]


def grouped(changes: Sequence[BucketChange], rules: Rules = APART) -> list[list[Count]]:
    return list(groups(accounts_of(changes, rules.window_types)))


def expected(history: Sequence[BucketChange]) -> dict[tuple[str, str], tuple[int, int]]:
    """Return what all snapshots should have counted."""
    sums: Counter[tuple[str, str]] = Counter()
    events: Counter[tuple[str, str]] = Counter()
    for one in history:
        for window_type in WINDOW_TYPES:
            key = usage_item.snapshot_key(one.bucket, window_at(window_type, one.at_ms))
            sums[(one.bucket.entity_id, key.sk)] += one.spent_milli["rpm"] // 1000
            events[(one.bucket.entity_id, key.sk)] += 1
    return {key: (sums[key], events[key]) for key in sums}


def deliver(simulated: SimulatedTable, batch: Sequence[BucketChange], rules: Rules) -> None:
    for group in grouped(batch, rules):
        assert not simulated.run(count(group, rules, simulated.context)).left


rules = st.sampled_from([TOGETHER, APART])


@given(histories(), rules, st.data())
def test_a_batch_repeated_in_other_parts_adds_nothing(history: list[BucketChange], rules: Rules, data: st.DataObject):
    """The repetition may be partial, reordered and at any later time."""
    simulated = SimulatedTable()
    done = 0
    while done < len(history):
        done = data.draw(st.integers(done + 1, len(history)))
        begin = data.draw(st.integers(0, done))
        deliver(simulated, data.draw(st.permutations(history[:done])), rules)
        deliver(simulated, history[begin:done], rules)

    assert expected(history) == simulated.usage()


@given(histories(), rules, st.data())
def test_lost_answers_and_throttled_writes_are_counted_once(
    history: list[BucketChange], rules: Rules, data: st.DataObject
):
    """A write with a lost answer may or may not have been applied."""
    simulated = SimulatedTable()
    troubles = data.draw(st.lists(st.sampled_from(["kept", "lost", "never", "throttled", "conflict"]), max_size=12))

    def answer(ask: TableRequest) -> TableAnswer:
        trouble = troubles.pop() if troubles and not isinstance(ask, Read | Pause) else "kept"
        if trouble in ("kept", "lost"):
            answered = simulated.answer(ask)
            return LOST if trouble == "lost" else answered
        if trouble == "never":
            return LOST
        return Conflict() if trouble == "conflict" and isinstance(ask, Transaction) else Throttled()

    for group in grouped(history, rules):
        assert not drive(count(group, rules, simulated.context), answer).left

    assert expected(history) == simulated.usage()


@given(histories(), rules, st.data())
def test_two_concurrent_counts_of_a_batch_count_it_once(history: list[BucketChange], rules: Rules, data: st.DataObject):
    """A process that was assumed dead may continue beside its replacement, and stop anywhere."""
    simulated = SimulatedTable()
    for group in grouped(history, rules):
        one, other = (SteppedCounting(simulated, count(group, rules, simulated.context)) for _ in range(2))
        for first in data.draw(st.lists(st.booleans(), max_size=30)):
            (one if first else other).step()
        other.finish()
        for _ in range(data.draw(st.integers(0, 5))):
            one.step()

    assert expected(history) == simulated.usage()


class SteppedCounting:
    """A counting that advances one step at a time."""

    def __init__(self, simulated: SimulatedTable, counting: TableDialogue[Counted]) -> None:
        self._simulated = simulated
        self._counting = counting
        self._answer: TableAnswer = None
        self.ended = False

    def step(self) -> None:
        try:
            if not self.ended:
                self._answer = self._simulated.answer(self._counting.send(self._answer))
        except StopIteration:
            self.ended = True

    def finish(self) -> None:
        while not self.ended:
            self.step()


def first_two() -> list[list[Count]]:
    return grouped([change(1, BUCKETS[0], 0, 5), change(2, BUCKETS[0], 0, 6)])


def test_an_existing_snapshot_is_updated_by_a_single_write():
    """A single write costs half of a transaction, which only a new snapshot needs."""
    simulated = SimulatedTable()
    deliver(simulated, [change(1, BUCKETS[0], 0, 5)], APART)
    begun = [type(ask) for ask in simulated.asked]
    simulated.asked.clear()
    deliver(simulated, [change(2, BUCKETS[0], 0, 6)], APART)

    assert [Read, Transaction] == begun
    assert [Read, Update, Update, Update] == [type(ask) for ask in simulated.asked]
    assert [False] == [ask.consistent for ask in simulated.asked if isinstance(ask, Read)]


def test_usage_of_another_shard_is_added_to_the_same_snapshot():
    """Each shard has a marker of its own."""
    simulated = SimulatedTable()
    deliver(simulated, [change(9, BUCKETS[0], 0, 5), change(1, BUCKETS[1], 0, 6)], APART)

    assert {(11, 2)} == set(simulated.usage().values())


@pytest.mark.parametrize("rules", [TOGETHER, APART])
@pytest.mark.parametrize("status", [NamespaceStatus.PURGING, None])
@pytest.mark.parametrize("begun", [False, True])
@pytest.mark.parametrize("after", range(5))
def test_a_purged_namespace_gets_no_snapshots(rules: Rules, status: NamespaceStatus | None, begun: bool, after: int):
    """The purge may come at any time; what it removed is not created again."""
    simulated = SimulatedTable()
    if begun:
        deliver(simulated, [change(1, BUCKETS[0], 0, 5)], rules)
    steps = 0

    def purge(_: TableRequest) -> None:
        nonlocal steps
        steps += 1
        if steps == after:
            registered = namespace_item.reverse_key(NAMESPACE_ID)
            simulated.table.write(Delete(registered) if status is None else namespace(status))
            simulated.table.batch_delete([Key(f"{NAMESPACE_ID}/ENTITY#user-1", sk) for _, sk in simulated.usage()])

    simulated.before = purge
    (group,) = grouped([change(2, BUCKETS[0], 0, 6)])
    counted = simulated.run(count(group, rules, simulated.context))

    assert () == tuple(counted.left)
    if 0 < after <= steps:
        assert {} == simulated.usage()


def test_a_namespace_that_is_not_found_is_read_again_consistently():
    """An eventually consistent read may miss it, and its usage would never be counted."""
    simulated = SimulatedTable()
    (group,) = first_two()

    def answer(ask: TableRequest) -> TableAnswer:
        answered = simulated.answer(ask)
        if isinstance(ask, Read) and not ask.consistent:
            return [None] * len(ask.keys)
        return answered

    drive(count(group, APART, simulated.context), answer)

    assert {(11, 2)} == set(simulated.usage().values())


def test_usage_of_a_deleted_namespace_is_counted():
    """The namespace may be recovered."""
    simulated = SimulatedTable()
    simulated.table.write(namespace(NamespaceStatus.DELETED))
    deliver(simulated, [change(1, BUCKETS[0], 0, 5)], APART)

    assert {(5, 1)} == set(simulated.usage().values())


def test_counting_on_an_unavailable_table_leaves_the_rest():
    """Counted usage stays, no further request is made, and the cause is returned."""
    simulated = SimulatedTable()
    deliver(simulated, [change(1, BUCKETS[0], 0, 5)], APART)
    (group,) = grouped([change(2, BUCKETS[0], 0, 6)])
    unavailable = Unavailable(ConnectionError("unavailable"), ambiguous=False)

    def answer(ask: TableRequest) -> TableAnswer:
        return unavailable if isinstance(ask, Update) and "#2024-01-01" == ask.key.sk[-11:] else simulated.answer(ask)

    counted = drive(count(group, APART, simulated.context), answer)

    assert (1, ["daily", "monthly"], unavailable.cause) == (
        counted.added,
        [one.account.window.type for one in counted.left],
        counted.cause,
    )


@pytest.mark.parametrize("outcome", [Cancelled((None,)), Conflict(), Throttled(), LOST])
def test_counting_that_is_always_refused_gives_up(outcome: TableAnswer):
    """Another process may count the same, or a partition may be throttled. The batch is delivered again."""
    simulated = SimulatedTable()
    (group,) = first_two()

    def answer(ask: TableRequest) -> TableAnswer:
        return outcome if isinstance(ask, Transaction) else simulated.answer(ask)

    counted = drive(count(group, APART, simulated.context), answer)

    assert (0, 3) == (counted.added, len(counted.left))
    assert isinstance(counted.cause, TimeoutError)
    assert simulated.now_ms < START_MS + 20_000


def test_a_damaged_snapshot_raises_an_error():
    """The error names the item."""
    simulated = SimulatedTable()
    (group,) = first_two()
    key = usage_item.snapshot_key(*group[0].account)
    simulated.table.write(Update(key, set={"s_0": 7}))

    with pytest.raises(CorruptItemError, match="USAGE"):
        simulated.run(count(group, APART, simulated.context))


def test_snapshots_expire_after_the_retention_period():
    """The period starts at the end of their window."""
    simulated = SimulatedTable()
    rules = Rules(window_types=("daily",), retention_s=3600)
    deliver(simulated, [change(1, BUCKETS[0], 0, 5)], rules)
    item = simulated.table.get(Key(f"{NAMESPACE_ID}/ENTITY#user-1", "#USAGE#gpt-4#2024-01-01"))

    assert item is not None
    assert START_MS // 1000 + 25 * 3600 == item["ttl"]


def test_a_new_shard_does_not_create_a_purged_snapshot_again():
    """The shard has no marker in it, and a purge may have removed the snapshot that was read."""
    simulated = SimulatedTable()
    deliver(simulated, [change(1, BUCKETS[0], 0, 5)], APART)

    def purge(ask: TableRequest) -> None:
        if isinstance(ask, Update) and simulated.usage():
            simulated.table.write(namespace(NamespaceStatus.PURGING))
            simulated.table.batch_delete([Key(f"{NAMESPACE_ID}/ENTITY#user-1", sk) for _, sk in simulated.usage()])

    simulated.before = purge
    (group,) = grouped([change(2, BUCKETS[1], 0, 6)])
    counted = simulated.run(count(group, APART, simulated.context))

    assert (0, {}) == (counted.added, simulated.usage())


def test_a_refused_write_is_read_again_consistently():
    """If the partition was throttled, a pause comes first."""
    simulated = SimulatedTable()
    (group,) = first_two()
    troubles = [Throttled(), Cancelled((None,) * 4)]

    def answer(ask: TableRequest) -> TableAnswer:
        if isinstance(ask, Transaction) and troubles:
            simulated.asked.append(ask)
            return troubles.pop(0)
        return simulated.answer(ask)

    drive(count(group, APART, simulated.context), answer)

    kinds = [ask.consistent if isinstance(ask, Read) else type(ask) for ask in simulated.asked]
    assert [False, Transaction, Pause, True, Transaction, True, Transaction] == kinds


@given(st.lists(st.tuples(st.sampled_from(BUCKETS), st.integers(0, 3), st.integers(0, 20)), min_size=1, max_size=12))
def test_highest_number_in_use_is_the_maximum_however_often_records_are_delivered(
    takes: list[tuple[BucketKey, int, int]],
) -> None:
    """It is kept for each shard; the number of a bucket is their sum."""
    history = [
        replace(change(number, bucket, hours, 1), in_use_milli={"slots": slots * 1000})
        for number, (bucket, hours, slots) in enumerate(takes, start=1)
    ]
    simulated = SimulatedTable()
    for batch in (history[:3], history, history[3:], history):
        deliver(simulated, batch, APART)

    highest: dict[tuple[str, str], dict[int, int]] = {}
    for bucket, hours, slots in takes:
        key = usage_item.snapshot_key(bucket, window_at("hourly", START_MS + hours * HOUR_MS))
        shards = highest.setdefault(key, {})
        shards[bucket.shard_id] = max(slots, shards.get(bucket.shard_id, 0))
    for key, shards in highest.items():
        (item,) = simulated.table.batch_get([Key(*key)])
        assert item is not None
        assert {"slots": sum(shards.values())} == usage_item.from_item(item).highest_in_use
        assert {"rpm"} == usage_item.from_item(item).counters.keys()
