"""Changes are summed per bucket and window, however they are batched."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from zae_limiter.core.usage import WINDOW_TYPES, window_at
from zae_limiter.schema import usage_item
from zae_limiter.schema.keys import BucketKey
from zae_limiter.tables.evaluate import NO_ITEM, apply
from zae_limiter_aggregator.plan import UsageAccount, accounts_of, addition
from zae_limiter_aggregator.records import BucketChange

START_MS = 1_704_067_200_000
BUCKETS = [BucketKey("ns", entity, "gpt-4", shard) for entity in ("user-1", "user-2") for shard in (0, 1)]
Items = dict[tuple[str, str], dict[str, object]]


def change(number: int, bucket: BucketKey, hours: int, amount: int) -> BucketChange:
    sequence = usage_item.pad_sequence(str(number))
    return BucketChange(bucket, sequence, START_MS + hours * 3_600_000, {"rpm": amount * 1000}, 1)


@st.composite
def histories(draw: st.DrawFn) -> list[BucketChange]:
    """Return changes of some buckets, ordered by sequence."""
    parts = draw(
        st.lists(st.tuples(st.sampled_from(BUCKETS), st.integers(0, 24 * 40), st.integers(-5, 50)), max_size=30)
    )
    return [change(number, *part) for number, part in enumerate(parts, start=1)]


def fold(items: Items, batch: list[BucketChange]) -> None:
    """Carry out the plan of a batch."""
    accounts = accounts_of(batch)
    for account, changes in accounts.items():
        key = usage_item.snapshot_key(*account)
        item = items.get(key, NO_ITEM)
        counted = usage_item.last_counted(item, account.bucket.shard_id)
        usage = addition(account, changes, counted)
        if usage is not None:
            new = apply(usage_item.add(usage, counted, None), item)
            assert isinstance(new, dict)
            items[key] = new


def sums(items: Items) -> dict[tuple[str, str], tuple[object, object]]:
    return {key: (item["rpm"], item["total_events"]) for key, item in items.items()}


@given(histories(), st.data())
def test_split_repeated_and_shuffled_batches_have_the_same_sums(
    history: list[BucketChange], data: st.DataObject
) -> None:
    """A repeated batch, whole or in part, at any later time, adds nothing."""
    whole: Items = {}
    fold(whole, history)
    items: Items = {}
    done = 0
    while done < len(history):
        done = data.draw(st.integers(done + 1, len(history)))
        begin = data.draw(st.integers(0, done))
        again = data.draw(st.lists(st.sampled_from(history[:done]), max_size=5))
        fold(items, data.draw(st.permutations([*history[:done], *again])) if begin else history[:done])
        fold(items, data.draw(st.permutations(history[begin:done])))

    assert sums(whole) == sums(items)


@given(histories(), st.data())
def test_consecutive_batches_have_the_sums_of_one(history: list[BucketChange], data: st.DataObject) -> None:
    """Each may be delivered several times in a row, as a stream does after a failure."""
    items: Items = {}
    begin = 0
    while begin < len(history):
        end = data.draw(st.integers(begin + 1, len(history)))
        for _ in range(data.draw(st.integers(1, 3))):
            fold(items, data.draw(st.permutations(history[begin:end])))
        begin = end
    expected: Counter[tuple[str, str]] = Counter()
    for one in history:
        for window_type in WINDOW_TYPES:
            key = usage_item.snapshot_key(one.bucket, window_at(window_type, one.at_ms))
            expected[key] += one.spent_milli["rpm"] // 1000

    assert dict(expected) == {key: rpm for key, (rpm, _) in sums(items).items()}


def test_a_change_belongs_to_one_window_of_each_kind() -> None:
    """These are the hour, the day and the month of its time."""
    accounts = accounts_of([change(1, BUCKETS[0], 25, 7)])

    assert ["2024-01-02T01:00:00Z", "2024-01-02", "2024-01"] == [account.window.key for account in accounts]


def test_a_change_at_or_before_its_marker_adds_nothing() -> None:
    """The marker is the sequence of the last counted change."""
    account = UsageAccount(BUCKETS[0], window_at("hourly", START_MS))
    changes = {one.sequence: one for one in (change(1, BUCKETS[0], 0, 5), change(2, BUCKETS[0], 0, 6))}

    assert addition(account, changes, usage_item.pad_sequence("2")) is None
    usage = addition(account, changes, usage_item.pad_sequence("1"))
    assert usage is not None
    assert ({"rpm": 6_000}, 1, usage_item.pad_sequence("2")) == (usage.spent_milli, usage.events, usage.sequence)
