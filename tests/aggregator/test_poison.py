"""A tenant may write any item to its own partitions. The aggregator skips it and serves the other tenants."""

import json
from random import getrandbits
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.aggregator.simulated_table import NAMESPACE_ID, SimulatedTable, namespace
from tests.aggregator.test_batch_processor import RULES, SERVICE, Scenario
from tests.aggregator.test_client import client, new_table, table_by
from tests.dynamodb.engines import running
from tests.one_bucket import NOON
from zae_limiter.core.audit import AuditAction, AuditEvent
from zae_limiter.core.sharding import MOST_SHARDS
from zae_limiter.schema import audit_item
from zae_limiter.schema.operations import Put
from zae_limiter.tables.dynamodb.codec import encode_item
from zae_limiter_aggregator.apply import Read
from zae_limiter_aggregator.batch_processor import BatchReport, Worker
from zae_limiter_aggregator.records import read_all

HOSTILE = "hostile0000"
KEY = f"{HOSTILE}/BUCKET#mallory#gpt-4#0"
BUCKET = {"PK": KEY, "SK": "#STATE", "b_rpm_tc": 5_000, "b_wcu_tc": 5, "shard_count": 1}
HUGE = 10**125

# Values of every type that a table stores, small and far out of range.
numbers = st.integers(-100, 100) | st.sampled_from([10**7, 10**21, 10**30, 10**31, 10**37, HUGE, -(10**31), -HUGE])
scalars = st.none() | st.booleans() | numbers | st.text(max_size=5)
values = scalars | st.lists(scalars, max_size=2) | st.dictionaries(st.just("N"), scalars, max_size=1)
FORGED_NAMES = """
b_wcu_tc b__tc b_rpm_tc b_other_tc b_rpm_tk b_rpm_cp b_rpm_ra b_rpm_rp b_PK_tc b_ttl_tc b_s_1_tc
rf cv ld gn op tf ttl shard_count cascade parent_id s_0 total_events status event_id
"""
MEMBERS = "dynamodb Keys PK SK S N NewImage OldImage SequenceNumber userIdentity"
attribute_names = st.sampled_from(FORGED_NAMES.split())
forged = st.dictionaries(attribute_names, values, max_size=8)
forged_keys = st.sampled_from(
    [
        *(KEY, f"{HOSTILE}/BUCKET#mallory#gpt-4#63", f"{HOSTILE}/BUCKET#mallory#gpt-4#{'9' * 1500}"),
        *(f"{HOSTILE}/BUCKET#a#b", f"{HOSTILE}/BUCKET#a#b#00", f"{HOSTILE}/BUCKET#\n#gpt-4#0", f"{HOSTILE}/AUDIT#x"),
        *("/BUCKET#a#b#0", f"{HOSTILE}/ENTITY#mallory", "", f"{NAMESPACE_ID}x/BUCKET#user-1#gpt-4#1"),
    ]
)
json_names = st.sampled_from(MEMBERS.split())
json_values = st.recursive(
    scalars | st.floats(),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(json_names, inner, max_size=3),
    max_leaves=8,
)


def is_unharmed(scenario: Scenario, report: BatchReport) -> None:
    """Return whether all usage of well-behaved tenants is counted, and nothing is to be delivered again."""
    assert scenario.expected == scenario.used()
    assert report.first_failure is None


def read_keys(simulated: SimulatedTable) -> int:
    """Return the largest number of keys that were read together."""
    return max((len(ask.keys) for ask in simulated.asked if isinstance(ask, Read)), default=0)


def test_a_forged_shard_count_is_skipped() -> None:
    """The count decides how many keys are read, so one out of range is refused."""
    scenario = Scenario()
    scenario.use("user-1", 3)
    scenario.simulated.table.write(namespace(namespace_id=HOSTILE))
    scenario.stream.add(NOON, None, {**BUCKET, "shard_count": 10**7})
    scenario.use("user-2", 4)
    report = scenario.deliver()

    is_unharmed(scenario, report)
    assert read_keys(scenario.simulated) <= MOST_SHARDS
    assert (1, 1) == (report.damaged, report.set_aside)
    (trouble,) = report.troubles
    assert KEY in trouble.what
    assert not trouble.again


@pytest.mark.parametrize(
    "change",
    [
        *({"shard_count": count} for count in (0, -1, 3, 65, 128, 10**18, "1", True, None, [1])),
        *({"b_rpm_tc": total} for total in (10**31, -(10**31), HUGE, "5", False, None, {"N": 5})),
        *({"b_wcu_tc": total} for total in (10**31, "many", [5])),
        *({f"b_{name}_tc": 5} for name in ("PK", "ttl", "s_1", "total_events", "~rpm", "a b", "é", "x" * 65, "")),
        *(
            {"PK": f"{HOSTILE}/BUCKET#{rest}"}
            for rest in ("a#b#64", "a#b#007", f"a#b#{'1' * 1500}", "a#_default_#0", "a#b")
        ),
        {"PK": f"{HOSTILE}/BUCKET#mallory#gpt-4#1"},
    ],
    ids=repr,
)
def test_a_forged_attribute_is_skipped(change: dict[str, Any]) -> None:
    """Every value has the type and the range of this package's writes, or its record is not used."""
    scenario = Scenario()
    scenario.use("user-1", 3)
    scenario.stream.add(NOON, None, {**BUCKET, **change})
    report = scenario.deliver()

    is_unharmed(scenario, report)
    assert 1 == report.set_aside


@pytest.mark.parametrize(
    "change", [{"entity_id": "other"}, {"event_id": "other"}, {"PK": f"{HOSTILE}/BUCKET#mallory#gpt-4#0"}], ids=repr
)
def test_a_forged_audit_event_is_not_archived(change: dict[str, Any]) -> None:
    """Its attributes have to agree with the namespace in its key."""
    scenario = Scenario()
    event = AuditEvent(f"{NOON}-{1:016x}", "2023-11-14T22:13:20Z", AuditAction.LIMITS_SET, "mallory")
    item = audit_item.to_item(HOSTILE, event, 1)
    kept = scenario.expire(2)
    scenario.stream.add(NOON, {**item, **change}, None, userIdentity=SERVICE)
    report = scenario.deliver()

    assert [kept] == scenario.archive.kept
    assert (1, None) == (report.set_aside, report.first_failure)


@given(st.lists(json_values, max_size=5), json_values)
def test_any_record_leaves_the_other_records_of_a_batch_usable(records: list[Any], inner: Any) -> None:
    """Each record is used, ignored or skipped."""
    keys = {"PK": {"S": KEY}, "SK": inner}
    members = {
        "Keys": keys,
        "SequenceNumber": "1",
        "ApproximateCreationDateTime": inner,
        "NewImage": {"b_rpm_tc": inner},
    }
    nested: list[Any] = [{"dynamodb": inner}, {"dynamodb": members}, {"dynamodb": {**members, "Keys": inner}}]
    delivered: list[Any] = [*records, *nested]
    batch = read_all(delivered)

    assert len(delivered) == len(batch.changes) + len(batch.expired) + len(batch.damaged) + batch.ignored


@settings(max_examples=60)
@example([(KEY, {}, {})], {"b_wcu_tc": None, "s_0": None}, {})
@example([(KEY, {}, {})], {"s_0": None}, {})
@example([(KEY, {}, {})], {"b_wcu_tc": None}, {})
@given(st.lists(st.tuples(forged_keys, forged, forged), max_size=6), forged, forged)
def test_forged_items_do_not_affect_other_tenants(
    written: list[tuple[str, dict[str, Any], dict[str, Any]]], snapshot: dict[str, Any], shard: dict[str, Any]
) -> None:
    """Items of any content in the stream and the table leave other usage exact and the reads bounded."""
    scenario = Scenario()
    scenario.simulated.table.write(namespace(namespace_id=HOSTILE))
    scenario.use("user-1", 3)
    for key in (f"{HOSTILE}/BUCKET#mallory#gpt-4#1", KEY):
        scenario.simulated.table.write(Put({**BUCKET, **shard, "PK": key}))
    for window in ("hourly", "daily"):
        sk = f"#USAGE#gpt-4#{scenario.window(window).key}"
        scenario.simulated.table.write(Put({**snapshot, "PK": f"{HOSTILE}/ENTITY#mallory", "SK": sk}))
    for key, old, new in written:
        scenario.stream.add(NOON, None, {**BUCKET, **new, "PK": key})
        scenario.simulated.now_ms += 2_000
        scenario.stream.add(
            scenario.simulated.now_ms, {**BUCKET, **old, "PK": key}, {**BUCKET, **new, "PK": key, "shard_count": 2}
        )
        scenario.stream.add(NOON, {**new, "PK": key, "SK": "#AUDIT#1"}, None, userIdentity=SERVICE)
    scenario.use("user-2", 4)
    report = scenario.deliver()

    is_unharmed(scenario, report)
    assert read_keys(scenario.simulated) <= MOST_SHARDS
    assert len(scenario.simulated.asked) <= 40 * (len(written) + 1)


def test_items_too_large_to_parse_are_skipped() -> None:
    """A tenant may fill its shards with tiny attributes, which would need too much memory when parsed together."""
    url = running().url
    name = new_table(url)
    fat = {f"a{number:04x}": 1 for number in range(20_000)}
    scenario = Scenario()
    scenario.use("user-1", 3)
    with table_by("direct", url, name) as table:
        for item in (namespace().item, namespace(namespace_id=HOSTILE).item):
            client(url).put_item(TableName=name, Item=encode_item(item))
        for shard in range(4):
            item = {**BUCKET, **fat, "PK": f"{HOSTILE}/BUCKET#mallory#gpt-4#{shard}", "shard_count": 4}
            client(url).put_item(TableName=name, Item=encode_item(item))
        scenario.stream.add(NOON, None, {**BUCKET, "shard_count": 4})
        worker = Worker(table, RULES, None, getrandbits(60))
        report = worker.work(scenario.stream.records, lambda: 600.0)

    assert report.first_failure is None
    assert (1, 4) == (report.set_aside, report.snapshots)
    assert "merge" in report.troubles[0].what
    assert "bytes" in str(report.troubles[0].error)


def test_an_event_with_lone_surrogates_can_be_archived() -> None:
    """JSON can contain them, but UTF-8 cannot. One such event must not block the archive."""
    from zae_limiter_aggregator.archive import object_of

    event = AuditEvent(f"{NOON}-{1:016x}", "2023-11-14T22:13:20Z", AuditAction.LIMITS_SET, "mallory")
    item = encode_item(audit_item.to_item(HOSTILE, event, 1))
    item["principal"] = {"S": json.loads('"\\ud800"')}
    keys = {name: item[name] for name in ("PK", "SK")}
    members = {"Keys": keys, "OldImage": item, "SequenceNumber": "1", "ApproximateCreationDateTime": 1.0}
    batch = read_all([{"eventName": "REMOVE", "dynamodb": members, "userIdentity": SERVICE}])

    assert object_of(batch.expired).body
