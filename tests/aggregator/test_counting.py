"""Usage is counted once, however records are delivered, whatever gets lost, and wherever counting ends."""

from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.aggregator.stage import BUCKETS, NAMESPACE_ID, START_MS, Stage, change, namespace
from zae_limiter.core.errors import CorruptItemError
from zae_limiter.core.namespace import NamespaceStatus
from zae_limiter.core.outcome import Cancelled, Conflict, Throttled, Unavailable
from zae_limiter.core.usage import WINDOW_TYPES, window_at
from zae_limiter.schema import namespace_item, usage_item
from zae_limiter.schema.operations import Delete, Key, Update
from zae_limiter_aggregator.apply import (
    Ask,
    Counted,
    Pause,
    Read,
    TableAnswer,
    TableDialogue,
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
    """What happened to some buckets, in the order of its sequence."""
    parts = draw(st.lists(st.tuples(st.sampled_from(BUCKETS), st.integers(0, 30), st.integers(-5, 50)), max_size=20))
    return [change(number, *part) for number, part in enumerate(parts, start=1)]


def grouped(changes: Sequence[BucketChange], rules: Rules = APART) -> list[list[Count]]:
    return list(groups(accounts_of(changes, rules.window_types)))


def expected(history: Sequence[BucketChange]) -> dict[tuple[str, str], tuple[int, int]]:
    """What all snapshots should have counted."""
    sums: Counter[tuple[str, str]] = Counter()
    events: Counter[tuple[str, str]] = Counter()
    for one in history:
        for window_type in WINDOW_TYPES:
            key = usage_item.snapshot_key(one.bucket, window_at(window_type, one.at_ms))
            sums[(one.bucket.entity_id, key.sk)] += one.spent_milli["rpm"] // 1000
            events[(one.bucket.entity_id, key.sk)] += 1
    return {key: (sums[key], events[key]) for key in sums}


def deliver(stage: Stage, batch: Sequence[BucketChange], rules: Rules) -> None:
    for group in grouped(batch, rules):
        assert not stage.run(count(group, rules, stage.means)).left


rules = st.sampled_from([TOGETHER, APART])


@given(histories(), rules, st.data())
def test_a_batch_may_come_again_and_in_other_parts(history: list[BucketChange], rules: Rules, data: st.DataObject):
    """Whole or in part, in any order within, at any later time, it adds nothing."""
    stage = Stage()
    done = 0
    while done < len(history):
        done = data.draw(st.integers(done + 1, len(history)))
        begin = data.draw(st.integers(0, done))
        deliver(stage, data.draw(st.permutations(history[:done])), rules)
        deliver(stage, history[begin:done], rules)

    assert expected(history) == stage.usage()


@given(histories(), rules, st.data())
def test_answers_may_be_lost_and_writes_throttled(history: list[BucketChange], rules: Rules, data: st.DataObject):
    """A write whose answer was lost was carried out or not; either way it counts once."""
    stage = Stage()
    troubles = data.draw(st.lists(st.sampled_from(["kept", "lost", "never", "throttled", "conflict"]), max_size=12))

    def answer(ask: Ask) -> TableAnswer:
        trouble = troubles.pop() if troubles and not isinstance(ask, Read | Pause) else "kept"
        if trouble in ("kept", "lost"):
            answered = stage.answer(ask)
            return LOST if trouble == "lost" else answered
        if trouble == "never":
            return LOST
        return Conflict() if trouble == "conflict" and isinstance(ask, Transaction) else Throttled()

    for group in grouped(history, rules):
        assert not drive(count(group, rules, stage.means), answer).left

    assert expected(history) == stage.usage()


@given(histories(), rules, st.data())
def test_two_may_count_at_once_and_one_of_them_end_anywhere(
    history: list[BucketChange], rules: Rules, data: st.DataObject
):
    """A delivery whose process was thought dead goes on beside the one that replaced it."""
    stage = Stage()
    for group in grouped(history, rules):
        one, other = (Stepped(stage, count(group, rules, stage.means)) for _ in range(2))
        for first in data.draw(st.lists(st.booleans(), max_size=30)):
            (one if first else other).step()
        other.finish()
        for _ in range(data.draw(st.integers(0, 5))):
            one.step()

    assert expected(history) == stage.usage()


class Stepped:
    """A counting that goes on when it is told to."""

    def __init__(self, stage: Stage, counting: TableDialogue[Counted]) -> None:
        self._stage = stage
        self._counting = counting
        self._answer: TableAnswer = None
        self.ended = False

    def step(self) -> None:
        try:
            if not self.ended:
                self._answer = self._stage.answer(self._counting.send(self._answer))
        except StopIteration:
            self.ended = True

    def finish(self) -> None:
        while not self.ended:
            self.step()


def first_two() -> list[list[Count]]:
    return grouped([change(1, BUCKETS[0], 0, 5), change(2, BUCKETS[0], 0, 6)])


def test_a_snapshot_that_is_there_is_added_to_by_a_write_of_its_own():
    """A write alone is half the price of one in a transaction; only to begin a snapshot takes one."""
    stage = Stage()
    deliver(stage, [change(1, BUCKETS[0], 0, 5)], APART)
    begun = [type(ask) for ask in stage.asked]
    stage.asked.clear()
    deliver(stage, [change(2, BUCKETS[0], 0, 6)], APART)

    assert [Read, Transaction] == begun
    assert [Read, Update, Update, Update] == [type(ask) for ask in stage.asked]
    assert [False] == [ask.consistent for ask in stage.asked if isinstance(ask, Read)]


def test_another_shard_is_added_to_the_same_snapshot():
    """Each shard has a marker of its own."""
    stage = Stage()
    deliver(stage, [change(9, BUCKETS[0], 0, 5), change(1, BUCKETS[1], 0, 6)], APART)

    assert {(11, 2)} == set(stage.usage().values())


@pytest.mark.parametrize("rules", [TOGETHER, APART])
@pytest.mark.parametrize("status", [NamespaceStatus.PURGING, None])
@pytest.mark.parametrize("begun", [False, True])
@pytest.mark.parametrize("after", range(5))
def test_a_namespace_that_is_purged_gets_no_snapshots(
    rules: Rules, status: NamespaceStatus | None, begun: bool, after: int
):
    """Whenever the purge comes: what it has removed does not come back."""
    stage = Stage()
    if begun:
        deliver(stage, [change(1, BUCKETS[0], 0, 5)], rules)
    steps = 0

    def purge(_: Ask) -> None:
        nonlocal steps
        steps += 1
        if steps == after:
            registered = namespace_item.reverse_key(NAMESPACE_ID)
            stage.table.write(Delete(registered) if status is None else namespace(status))
            stage.table.batch_delete([Key(f"{NAMESPACE_ID}/ENTITY#user-1", sk) for _, sk in stage.usage()])

    stage.before = purge
    (group,) = grouped([change(2, BUCKETS[0], 0, 6)])
    counted = stage.run(count(group, rules, stage.means))

    assert () == tuple(counted.left)
    if 0 < after <= steps:
        assert {} == stage.usage()


def test_a_namespace_that_is_not_seen_yet_is_looked_for_twice():
    """A read that is not consistent may miss it, and usage that is not counted now never will be."""
    stage = Stage()
    (group,) = first_two()

    def answer(ask: Ask) -> TableAnswer:
        answered = stage.answer(ask)
        if isinstance(ask, Read) and not ask.consistent:
            return [None] * len(ask.keys)
        return answered

    drive(count(group, APART, stage.means), answer)

    assert {(11, 2)} == set(stage.usage().values())


def test_a_deleted_namespace_is_counted():
    """It may be recovered."""
    stage = Stage()
    stage.table.write(namespace(NamespaceStatus.DELETED))
    deliver(stage, [change(1, BUCKETS[0], 0, 5)], APART)

    assert {(5, 1)} == set(stage.usage().values())


def test_a_table_that_is_away_leaves_the_rest_to_be_counted():
    """What was counted stays, nothing more is asked for, and the cause is told."""
    stage = Stage()
    deliver(stage, [change(1, BUCKETS[0], 0, 5)], APART)
    (group,) = grouped([change(2, BUCKETS[0], 0, 6)])
    away = Unavailable(ConnectionError("away"), ambiguous=False)

    def answer(ask: Ask) -> TableAnswer:
        return away if isinstance(ask, Update) and "#2024-01-01" == ask.key.sk[-11:] else stage.answer(ask)

    counted = drive(count(group, APART, stage.means), answer)

    assert (1, ["daily", "monthly"], away.cause) == (
        counted.added,
        [one.account.window.type for one in counted.left],
        counted.cause,
    )


@pytest.mark.parametrize("outcome", [Cancelled((None,)), Conflict(), Throttled(), LOST])
def test_one_that_is_never_counted_gives_up(outcome: TableAnswer):
    """Others may be counting the same, or a partition be busy for long; the batch is delivered again."""
    stage = Stage()
    (group,) = first_two()

    def answer(ask: Ask) -> TableAnswer:
        return outcome if isinstance(ask, Transaction) else stage.answer(ask)

    counted = drive(count(group, APART, stage.means), answer)

    assert (0, 3) == (counted.added, len(counted.left))
    assert isinstance(counted.cause, TimeoutError)
    assert stage.now_ms < START_MS + 20_000


def test_a_damaged_snapshot_is_an_error():
    """It names the item."""
    stage = Stage()
    (group,) = first_two()
    key = usage_item.snapshot_key(*group[0].account)
    stage.table.write(Update(key, set={"s_0": 7}))

    with pytest.raises(CorruptItemError, match="USAGE"):
        stage.run(count(group, APART, stage.means))


def test_snapshots_expire_when_they_are_told_to():
    """So long after the end of their window."""
    stage = Stage()
    rules = Rules(window_types=("daily",), retention_s=3600)
    deliver(stage, [change(1, BUCKETS[0], 0, 5)], rules)
    item = stage.table.get(Key(f"{NAMESPACE_ID}/ENTITY#user-1", "#USAGE#gpt-4#2024-01-01"))

    assert item is not None
    assert START_MS // 1000 + 25 * 3600 == item["ttl"]


def test_a_shard_that_is_new_to_a_snapshot_does_not_bring_it_back():
    """It has no marker there, and a purge may have removed what was seen."""
    stage = Stage()
    deliver(stage, [change(1, BUCKETS[0], 0, 5)], APART)

    def purge(ask: Ask) -> None:
        if isinstance(ask, Update) and stage.usage():
            stage.table.write(namespace(NamespaceStatus.PURGING))
            stage.table.batch_delete([Key(f"{NAMESPACE_ID}/ENTITY#user-1", sk) for _, sk in stage.usage()])

    stage.before = purge
    (group,) = grouped([change(2, BUCKETS[1], 0, 6)])
    counted = stage.run(count(group, APART, stage.means))

    assert (0, {}) == (counted.added, stage.usage())


def test_what_was_refused_is_looked_at_anew():
    """Consistently, and after a pause where the partition was busy."""
    stage = Stage()
    (group,) = first_two()
    troubles = [Throttled(), Cancelled((None,) * 4)]

    def answer(ask: Ask) -> TableAnswer:
        if isinstance(ask, Transaction) and troubles:
            stage.asked.append(ask)
            return troubles.pop(0)
        return stage.answer(ask)

    drive(count(group, APART, stage.means), answer)

    kinds = [ask.consistent if isinstance(ask, Read) else type(ask) for ask in stage.asked]
    assert [False, Transaction, Pause, True, Transaction, True, Transaction] == kinds
