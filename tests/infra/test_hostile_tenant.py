"""A tenant with raw access to the table under each of the six policies: what IAM refuses, and what it cannot."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from random import getrandbits
from typing import Any

import pytest

from tests.aggregator.simulated_table import Stream
from tests.aggregator.test_client import table_by
from tests.dynamodb import raw
from tests.dynamodb.engines import fresh_table_name
from tests.dynamodb.ledgers import quick_engine
from tests.dynamodb.trees import session
from tests.infra.guard import TAG, Guard, Principal
from tests.infra.resolved import Resolved
from tests.infra.test_policies import POLICIES
from zae_limiter import Limit, SyncRateLimiter, SyncRepository
from zae_limiter._sync import dynamodb_table
from zae_limiter.core.usage import window_at
from zae_limiter.infra.options import StackOptions, template_parameters
from zae_limiter.schema import usage_item
from zae_limiter.schema.keys import BucketKey
from zae_limiter.schema.operations import Key
from zae_limiter_aggregator.batch_processor import Worker
from zae_limiter_aggregator.plan import Rules

LIMITS = [Limit.custom("rpm", 1_000, 1, 365 * 86_400)]
STACK = Resolved("my-app", template_parameters("my-app", StackOptions()))
DOCUMENTS = {name: STACK.properties(logical)["PolicyDocument"] for name, logical in POLICIES.items()}
EVERYWHERE = {"acq", "full", "read"}
RULES = Rules(window_types=("hourly", "daily"), retention_s=100 * 365 * 86_400)
"""The engine deletes expired items. The usage of these tests is of 2024, and must not expire."""
HOUR = window_at("hourly", 1_704_119_045_678).key


@dataclass(frozen=True, slots=True)
class World:
    """A table with a victim and a hostile tenant, each with a namespace of its own."""

    url: str
    table: str
    operator: SyncRepository
    victim: str
    hostile: str

    def principal(self, policy: str, namespace_id: str | None = None) -> Principal:
        """Return a principal with a policy, tagged with the hostile tenant's namespace or another."""
        return Principal(self.url, self.table, Guard(DOCUMENTS[policy], {TAG: namespace_id or self.hostile}))

    @contextmanager
    def client(self, policy: str, namespace: str) -> Iterator[SyncRepository]:
        """Open a client of a tenant, restricted to a policy and to its namespace."""
        guard = self.principal(policy, self.operator.get_namespace(namespace).id).guard
        original = dynamodb_table.choose_transport
        location = f"dynamodb://{self.table}?region=us-east-1&endpoint_url={self.url}"
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(dynamodb_table, "choose_transport", lambda *arguments: guard.wrapped(original(*arguments)))
            with SyncRepository.open(location, namespace=namespace, session=session(), deadline_s=30.0) as opened:
                yield opened


@pytest.fixture
def world() -> Iterator[World]:
    url, table = quick_engine().url, fresh_table_name()
    location = f"dynamodb://{table}?region=us-east-1&endpoint_url={url}&create=true"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dynamodb_table.DynamoTable, "index_lag_s", 0.001)
        with SyncRepository.open(location, session=session(), deadline_s=30.0) as operator:
            ids = operator.register_namespaces(["victim", "hostile"])
            yield World(url, table, operator, ids["victim"], ids["hostile"])


def key(pk: str, sk: str = "#STATE") -> dict[str, Any]:
    return {"PK": {"S": pk}, "SK": {"S": sk}}


Attempt = tuple[str, str, dict[str, Any], set[str]]
"""What is tried, by which call and with which body, and the policies that allow it."""


def reads(table: str, own: str, other: str) -> Iterator[Attempt]:
    """Yield reads and deletes by key."""
    named = {"TableName": table}
    mine, theirs = key(f"{own}/BUCKET#a#r#0"), key(f"{other}/BUCKET#a#r#0")
    registry, limits = key("_/SYSTEM#", f"#NSID#{other}"), key(f"{other}/SYSTEM#", "#CONFIG")
    event = key(f"{other}/AUDIT#a", "#AUDIT#1")
    for verb, allowed in (("GetItem", EVERYWHERE), ("DeleteItem", {"full"})):
        yield f"{verb} a bucket of another", verb, {**named, "Key": theirs}, allowed
        yield f"{verb} limits of another", verb, {**named, "Key": limits}, allowed
    yield "read the audit of another", "GetItem", {**named, "Key": event}, {"full", "read"}
    yield (
        "read in a transaction",
        "TransactGetItems",
        {"TransactItems": [{"Get": {**named, "Key": theirs}}]},
        EVERYWHERE,
    )
    mixed = {table: {"Keys": [mine, theirs]}}
    yield "read a mixed batch", "BatchGetItem", {"RequestItems": mixed}, EVERYWHERE
    yield "read the registry", "GetItem", {**named, "Key": registry}, set(POLICIES)
    yield "read audit of the registry", "GetItem", {**named, "Key": key("_/AUDIT#x")}, set(POLICIES) - {"acq", "ns-acq"}


def searches(table: str, own: str, other: str) -> Iterator[Attempt]:
    """Yield queries and scans of the table and of every index."""
    named = {"TableName": table}
    for index in (None, "GSI1", "GSI2", "GSI3", "GSI4"):
        asked = {**named, "KeyConditionExpression": f"{index or ''}PK = :p"}
        indexed = {} if index is None else {"IndexName": index}
        for partition, allowed in ((other, {"full", "read"}), (own, {"full", "read", "ns-full", "ns-read"})):
            pk = partition if index == "GSI4" else f"{partition}/ENTITY#a"
            values = {":p": {"S": pk}}
            query = {**asked, **indexed, "ExpressionAttributeValues": values}
            yield f"query {partition} by {index}", "Query", query, allowed
        yield f"scan {index}", "Scan", {**named, **indexed}, set()


def writes(table: str, own: str, other: str) -> Iterator[Attempt]:
    """Yield writes and checks: alone, in a batch, and in a transaction with an allowed write."""
    named = {"TableName": table}
    mine, theirs = key(f"{own}/BUCKET#a#r#0"), key(f"{other}/BUCKET#a#r#0")
    registry, limits = key("_/SYSTEM#", f"#NSID#{other}"), key(f"{other}/SYSTEM#", "#CONFIG")
    event = key(f"{other}/AUDIT#a", "#AUDIT#1")
    for what, item, allowed in (
        ("bucket of another", theirs, {"acq", "full"}),
        ("limits of another", limits, {"full"}),
        ("audit of another", event, {"full"}),
        ("the registry", registry, {"full"}),
        ("the version record", key("_/SYSTEM#", "#VERSION"), {"full"}),
        ("a bucket of the registry", key("_/BUCKET#a#r#0"), {"acq", "full"}),
        ("a bucket of its own", mine, {"acq", "full", "ns-acq", "ns-full"}),
        ("limits of its own", key(f"{own}/SYSTEM#", "#CONFIG"), {"full", "ns-full"}),
    ):
        yield f"put {what}", "PutItem", {**named, "Item": item}, allowed
        yield f"update {what}", "UpdateItem", {**named, "Key": item}, allowed
        put = {"Put": {**named, "Item": item}}
        both = {"TransactItems": [{"Put": {**named, "Item": mine}}, put]}
        yield f"put its own and {what} in a transaction", "TransactWriteItems", both, allowed
        batch = {"RequestItems": {table: [{"PutRequest": {"Item": mine}}, {"PutRequest": {"Item": item}}]}}
        yield f"put its own and {what} in a batch", "BatchWriteItem", batch, {"full"}
        check = {"ConditionCheck": {**named, "Key": item, "ConditionExpression": "attribute_exists(PK)"}}
        in_system = what in ("the registry", "the version record")
        checkers = {"full", "ns-full"} if in_system else {"full"}
        yield f"check {what}", "TransactWriteItems", {"TransactItems": [check]}, checkers


def keyless(table: str) -> Iterator[Attempt]:
    """Yield calls in which IAM sees no key."""
    named = {"TableName": table}
    for statement in ("SELECT * FROM t", "INSERT INTO t VALUE {}", "UPDATE t SET a=1", "DELETE FROM t WHERE PK='a'"):
        yield statement, "ExecuteStatement", {"Statement": statement}, set()
        yield (
            f"{statement} as one of several",
            "BatchExecuteStatement",
            {"Statements": [{"Statement": statement}]},
            set(),
        )
        one = {"TransactStatements": [{"Statement": statement}]}
        yield f"{statement} in a transaction", "ExecuteTransaction", one, set()
    for verb in ("UpdateTable", "DeleteTable", "UpdateTimeToLive", "CreateBackup"):
        yield verb, verb, named, set()
    yield "DescribeTable", "DescribeTable", named, {"full", "read"}


@pytest.mark.parametrize("policy", POLICIES)
def test_iam_refuses_every_call_that_a_policy_does_not_need(policy: str) -> None:
    """The calls are those of a hostile principal without this package: single, batched and transactional."""
    principal = Principal("", "limiter", Guard(DOCUMENTS[policy], {TAG: "hostile0000"}))
    place = ("limiter", "hostile0000", "victim00000")
    tried = [*reads(*place), *searches(*place), *writes(*place), *keyless("limiter")]
    refused = [what for what, verb, body, _ in tried if not principal.guard.lets_through(verb, body)]

    assert [what for what, _, _, allowed in tried if policy not in allowed] == refused


@pytest.mark.parametrize("policy", ["ns-acq", "ns-full"])
def test_iam_refuses_writes_of_a_principal_tagged_as_the_registry(policy: str) -> None:
    """The reserved namespace belongs to no tenant, whatever the tag."""
    guard = Guard(DOCUMENTS[policy], {TAG: "_"})
    items = [key("_/SYSTEM#", "#VERSION"), key("_/BUCKET#a#r#0"), key("_/AUDIT#$NAMESPACE:a", "#AUDIT#1")]

    assert not [item for item in items if guard.lets_through("PutItem", {"TableName": "limiter", "Item": item})]


def poison(world: World, policy: str) -> Iterator[dict[str, Any]]:
    """Yield items of the hostile namespace that claim to belong to the victim, or that no client would write."""
    own, other = world.hostile, world.victim
    wrong: dict[str, Any] = {"shard_count": {"N": "10000000"}, "b_rpm_tc": {"S": "x"}, "rf": {"B": "AA=="}}
    sources = [(f"{own}/BUCKET#child-a#gpt-4#0", "#STATE"), (f"{own}/BUCKET#x#gpt-4#0", f"#USAGE#gpt-4#{HOUR}")]
    sources += [(f"{own}/BUCKET#x#gpt-4#0", sk) for sk in ("#META", "#CONFIG#gpt-4", "#AUDIT#1", "#BUCKET#gpt-4")]
    if policy == "ns-full":
        entity = f"{own}/ENTITY#child-a"
        sources += [(entity, sk) for sk in ("#META", "#CONFIG#gpt-4", f"#USAGE#gpt-4#{HOUR}", "#BUCKET#gpt-4")]
        sources += [(f"{own}/SYSTEM#", "#CONFIG"), (f"{own}/AUDIT#a", "#AUDIT#1"), (other.replace("/", ""), "#X")]
    claims = {
        "GSI1": (f"{other}/PARENT#parent", "CHILD#child-a"),
        "GSI2": (f"{other}/RESOURCE#gpt-4", "BUCKET#child-a#0"),
        "GSI3": (f"{other}/ENTITY#child-a", "BUCKET#gpt-4#0"),
        "GSI4": (other, f"{other}/ENTITY#child-a"),
    }
    for pk, sk in sources:
        yield {**key(pk, sk), **wrong, **_claimed(claims)}
        # The other kinds of entries in the second and the third index.
        usage, config = (claims["GSI2"][0], f"USAGE#{HOUR}#child-a"), (f"{other}/ENTITY_CONFIG#gpt-4", "child-a")
        yield {**key(pk, f"{sk}-"), **wrong, **_claimed({**claims, "GSI2": usage, "GSI3": config})}
    # The lists of a whole namespace: the hostile items have the keys of their kind, and claim the victim's list.
    event = "1704119045678-0000000000000001"
    listed = [
        (f"{own}/ENTITY#child-b", "#META", "ENTITY#child-b"),
        (f"{own}/AUDIT#a", f"#AUDIT#{event}", f"AUDIT#{event}"),
    ]
    listed += [(f"{own}/ENTITY#child-b", f"#USAGE#gpt-4#{HOUR}", f"USAGE#{HOUR}#child-b#gpt-4")]
    listed += [(f"{own}/BUCKET#{sort}#gpt-4#0", "#STATE", sort) for _, _, sort in listed]
    for pk, sk, sort in listed:
        if policy == "ns-full" or "/BUCKET#" in pk:
            yield {**key(pk, sk), **wrong, **_claimed({"GSI4": (other, sort)})}
    for shard in (1, 63, 64, 10**7):
        yield {**key(f"{own}/BUCKET#fat#gpt-4#{shard}"), **wrong, "fat": {"S": "x" * 300_000}, **_claimed(claims)}


def _claimed(claims: dict[str, tuple[str, str]]) -> dict[str, Any]:
    return {
        f"{index}{part}": {"S": value}
        for index, pair in claims.items()
        for part, value in zip(("PK", "SK"), pair, strict=True)
    }


def use(repo: SyncRepository) -> None:
    """Put items of every kind into a namespace."""
    repo.set_system_defaults(LIMITS)
    repo.create_entity("parent")
    for name in ("child-a", "child-b"):
        repo.create_entity(name, parent_id="parent")
        repo.set_limits(name, LIMITS, "gpt-4")
        with SyncRateLimiter(repo).acquire(name, "gpt-4", {"rpm": 3}):
            pass
        usage = usage_item.AddUsage(
            BucketKey(repo.scope.namespace_id, name, "gpt-4", 0),
            window_at("hourly", 1_704_119_045_678),
            {"rpm": 3_000},
            1,
            "1",
        )
        repo.scope.table.write(usage_item.add(usage, None, None))


def seen(repo: SyncRepository) -> list[object]:
    """Return everything that a tenant sees."""
    limiter = SyncRateLimiter(repo)
    return [
        repo.get_system_defaults(),
        repo.list_entities_with_custom_limits("gpt-4"),
        repo.list_entities_with_custom_limits("gpt-4", limit=1),
        repo.list_resources_with_entity_configs(),
        [one.id for one in repo.get_children("parent")],
        [(one.resource, one.tokens_milli) for one in repo.get_buckets("child-a")],
        repo.get_resource_capacity("gpt-4", "rpm"),
        repo.get_usage_snapshots(resource="gpt-4"),
        repo.get_usage_summary(resource="gpt-4"),
        [event.event_id for event in repo.get_audit_events("child-a")],
        [event.event_id for event in repo.get_audit_events()],
        repo.get_audit_events(limit=3),
        [one.id for one in repo.list_entities()[0]],
        repo.list_entities(limit=1),
        repo.get_usage_snapshots(),
        repo.get_usage_snapshots(window_type="hourly", limit=1),
        repo.get_usage_summary(),
        limiter.available("child-a", "gpt-4"),
        [(one.name, one.status) for one in repo.list_namespaces()],
    ]


@pytest.mark.parametrize("policy", ["ns-acq", "ns-full"])
def test_items_that_iam_cannot_refuse_do_not_affect_another_tenant(world: World, policy: str) -> None:
    """All results of a victim under its own policy are the same as without the hostile items."""
    with world.client("ns-full", "victim") as victim:
        use(victim)
        before = seen(victim)
        hostile = world.principal(policy)
        assert all(hostile.put(item) for item in poison(world, policy) if item["PK"]["S"].startswith(world.hostile))
    with world.client("ns-full", "victim") as victim:
        assert before == seen(victim)
        with SyncRateLimiter(victim).acquire("child-a", "gpt-4", {"rpm": 1}):
            pass
        victim.delete_entity("child-a")

        assert ["child-b"] == [one.id for one in victim.get_children("parent")]
        assert [] == victim.get_buckets("child-a")


@pytest.mark.parametrize("policy", ["ns-acq", "ns-full"])
def test_a_purge_removes_one_tenant_and_nothing_of_another(world: World, policy: str) -> None:
    """Either tenant may be purged first, whatever the hostile one has written."""
    with world.client("ns-full", "victim") as victim:
        use(victim)
    hostile = world.principal(policy)
    for item in poison(world, policy):
        hostile.put(item)
    keys = stored_keys(world)
    operator = world.operator
    operator.delete_namespace("victim")
    operator.purge_namespace(world.victim)

    assert {one for one in keys if one.pk.startswith(f"{world.hostile}/")} == {
        one for one in stored_keys(world) if one.pk.startswith(f"{world.hostile}/")
    }
    assert not [one for one in stored_keys(world) if one.pk.startswith(f"{world.victim}/")]
    # Items that a tenant hides from its own index are never found. Items in the index are removed, however
    # malformed.
    for item in poison(world, policy):
        claimed = {"GSI4PK": {"S": world.hostile}, "GSI4SK": item["PK"]}
        hostile.put({**item, **claimed})
    operator.delete_namespace("hostile")
    operator.purge_namespace(world.hostile)
    assert not [one for one in stored_keys(world) if one.pk.startswith(f"{world.hostile}/")]


def stored_keys(world: World) -> set[Key]:
    """Return the keys of all items, read directly from the engine."""
    found: set[Key] = set()
    start: dict[str, Any] = {}
    while True:
        page: Any = raw.call(
            world.url, "Scan", {"TableName": world.table, "ProjectionExpression": "PK, SK", **start}
        ).json
        found |= {Key(item["PK"]["S"], item["SK"]["S"]) for item in page["Items"]}
        if "LastEvaluatedKey" not in page:
            return found
        start = {"ExclusiveStartKey": page["LastEvaluatedKey"]}


@pytest.mark.parametrize("policy", ["ns-full", "ns-read"])
def test_a_tenant_reads_the_lists_of_its_own_namespace_only(world: World, policy: str) -> None:
    """The policies for readers of a namespace are enough for its lists, and refuse those of another."""
    with world.client("ns-full", "victim") as victim:
        use(victim)
        expected = seen(victim)
    with world.client(policy, "victim") as reader:
        found = seen(reader)
    with world.client(policy, "hostile") as hostile:
        others = [hostile.list_entities(), hostile.get_usage_snapshots()]
        hostile_events = {event.entity_id for event in hostile.get_audit_events()}
    query = {"TableName": world.table, "IndexName": "GSI4"}
    values = {":p": {"S": world.victim}, ":s": {"S": "ENTITY#"}}
    query |= {"KeyConditionExpression": "GSI4PK = :p AND begins_with(GSI4SK, :s)", "ExpressionAttributeValues": values}

    assert expected == found
    assert ([([], None), ([], None)], {"$NAMESPACE:hostile"}) == (others, hostile_events)
    assert not world.principal(policy).guard.lets_through("Query", query)


def test_the_aggregator_counts_a_victim_exactly_beside_hostile_items(world: World) -> None:
    """The table and the same batch contain every item that a hostile tenant could write."""
    with world.client("ns-full", "victim") as victim:
        victim.set_system_defaults(LIMITS)
        with SyncRateLimiter(victim).acquire("user", "gpt-4", {"rpm": 3}):
            pass
        table = victim.scope.table
        bucket = dict(table.get(Key(f"{world.victim}/BUCKET#user#gpt-4#0", "#STATE"), consistent=True))
    hostile = world.principal("ns-full")
    stream = Stream()
    for item in poison(world, "ns-full"):
        if hostile.put(item):
            stream.add(1_704_119_045_000, None, {"PK": item["PK"]["S"], "SK": item["SK"]["S"]})
            stream.records[-1]["dynamodb"]["NewImage"] = item
    stream.add(1_704_119_045_000, None, bucket)
    with table_by("direct", world.url, world.table) as shared:
        report = Worker(shared, RULES, None, getrandbits(60)).work(
            json.loads(json.dumps(stream.records)), lambda: 600.0
        )

    assert report.first_failure is None
    assert report.set_aside > 0
    with world.client("ns-read", "victim") as victim:
        counted = victim.get_usage_snapshots("user")[0]
        assert [{"rpm": 3}, {"rpm": 3}] == [one.counters for one in counted]
