"""Names with signs, and the longest names, on real engines: from limits through acquire to reports."""

import json
import shlex
from collections.abc import Iterator
from random import getrandbits
from typing import Any

import pytest
from click.testing import CliRunner

from tests.aggregator.simulated_table import Stream
from tests.aggregator.test_batch_processor import RULES
from tests.aggregator.test_client import table_by
from tests.dynamodb import raw
from tests.dynamodb.engines import Engine
from tests.dynamodb.trees import KINDS, tree
from tests.real_names import ALIKE, ENTITY, PARENT, RESOURCES
from zae_limiter import Limit, RateLimitExceeded
from zae_limiter.cli import acquire, main
from zae_limiter.schema.bucket_item import bucket_key
from zae_limiter.tables.dynamodb.codec import decode_item, encode_item
from zae_limiter_aggregator.batch_processor import Worker

LIMITS = [Limit.custom("rpd", 10, 1, 10 * 365 * 24 * 3600)]
"""A limit of which nothing comes back while a test runs."""
DEADLINE_S = 60.0
NOON_MS = 1_704_110_400_000
LONGEST = ("e" + "/|" * 127 + "x", "@" + ":=" * 63 + "x")


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> Iterator[Any]:
    with tree(request.param) as entered:
        yield entered


@pytest.fixture
def place(engine: Engine, table_name: str) -> str:
    return f"dynamodb://{table_name}?region=us-east-1&endpoint_url={engine.url}"


@pytest.fixture
def repo(kind: Any, place: str) -> Iterator[Any]:
    opened = kind.open(f"{place}&create=true", deadline_s=DEADLINE_S)
    yield opened
    opened.close()


@pytest.fixture
def limiter(kind: Any, repo: Any) -> Any:
    return kind.limiter(repo)


def take(limiter: Any, entity_id: str, resource: str, amount: int) -> None:
    """Take and keep."""
    with limiter.acquire(entity_id, resource, {"rpd": amount}):
        pass


def test_a_request_with_signs_in_its_names_takes_from_its_bucket(repo: Any, limiter: Any) -> None:
    """Child and parent are charged, a second request finds the same buckets, and every list has the names."""
    repo.create_entity(PARENT)
    repo.create_entity(ENTITY, parent_id=PARENT, cascade=True)
    for resource in RESOURCES:
        repo.set_resource_defaults(resource, LIMITS)
        repo.set_limits(ENTITY, LIMITS, resource)
        take(limiter, ENTITY, resource, 6)
        with pytest.raises(RateLimitExceeded):
            take(limiter, ENTITY, resource, 6)

    names = sorted(RESOURCES)
    assert [ENTITY] == [child.id for child in repo.get_children(PARENT)]
    assert names == repo.list_resources_with_defaults() == repo.list_resources_with_entity_configs()
    for entity_id in (ENTITY, PARENT):
        assert [(name, 4) for name in names] == sorted(
            (one.resource, one.tokens) for one in repo.get_buckets(entity_id)
        )
    for resource in RESOURCES:
        assert [ENTITY] == repo.list_entities_with_custom_limits(resource)[0]
        capacity = repo.get_resource_capacity(resource, "rpd")
        assert {ENTITY: 4, PARENT: 4} == {one.entity_id: one.available for one in capacity.entities}


def test_audit_events_with_signs_in_their_names_are_found(repo: Any) -> None:
    """Those of a resource are apart from those of an entity."""
    for resource in RESOURCES:
        repo.set_resource_defaults(resource, LIMITS)
        repo.set_limits(ENTITY, LIMITS, resource)

    assert [*reversed(RESOURCES)] == [event.resource for event in repo.get_audit_events(ENTITY)]
    for resource in RESOURCES:
        found = [(event.action, event.resource) for event in repo.get_audit_events(f"$RESOURCE:{resource}")]
        assert [("resource_defaults_set", resource)] == found


def test_names_that_begin_alike_are_kept_apart(repo: Any, limiter: Any) -> None:
    """A query by prefix finds only one of them."""
    repo.set_system_defaults(LIMITS)
    for number, name in enumerate(ALIKE, 1):
        take(limiter, ENTITY, name, number)
        take(limiter, name, "gpt-4", number)

    for number, name in enumerate(ALIKE, 1):
        assert [10 - number] == [one.tokens for one in repo.get_buckets(ENTITY, name)]
        assert [("gpt-4", 10 - number)] == [(one.resource, one.tokens) for one in repo.get_buckets(name)]


def test_the_aggregator_counts_buckets_with_signs_in_their_names(
    repo: Any, limiter: Any, engine: Engine, table_name: str
) -> None:
    """No record is set aside, and each snapshot has the names of its bucket."""
    repo.set_system_defaults(LIMITS)
    namespace_id = repo.get_namespace("default").id
    stream = Stream()
    for number, resource in enumerate(RESOURCES, 1):
        take(limiter, ENTITY, resource, number)
        key = bucket_key(namespace_id, ENTITY, resource)
        wanted = {"TableName": table_name, "ConsistentRead": True, "Key": encode_item({"PK": key.pk, "SK": key.sk})}
        stream.add(NOON_MS, None, decode_item(raw.call(engine.url, "GetItem", wanted).json["Item"]))
    with table_by("direct", engine.url, table_name) as shared:
        report = Worker(shared, RULES, None, getrandbits(60)).work(
            json.loads(json.dumps(stream.records)), lambda: 600.0
        )

    assert (None, 0) == (report.first_failure, report.set_aside)
    for number, resource in enumerate(RESOURCES, 1):
        for filters in ({"entity_id": ENTITY, "resource": resource}, {"resource": resource}):
            found, _ = repo.get_usage_snapshots(**filters, window_type="daily")
            assert [(ENTITY, resource, {"rpd": number})] == [
                (one.entity_id, one.resource, one.counters) for one in found
            ]


def test_the_longest_names_are_stored_and_found(repo: Any, limiter: Any) -> None:
    """An entity id has up to 256 characters, and a resource 128."""
    entity_id, resource = LONGEST
    repo.create_entity(entity_id)
    repo.set_limits(entity_id, LIMITS, resource)
    take(limiter, entity_id, resource, 3)

    assert (256, 128) == (len(entity_id), len(resource))
    assert [resource] == repo.list_resources_with_entity_configs()
    assert [entity_id] == repo.list_entities_with_custom_limits(resource)[0]
    assert [(resource, 7)] == [(one.resource, one.tokens) for one in repo.get_buckets(entity_id)]


@pytest.mark.parametrize("resource", RESOURCES)
def test_commands_accept_names_with_signs(place: str, resource: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The words are those that a shell makes of a quoted command line."""
    monkeypatch.setattr(acquire, "QUICK_S", DEADLINE_S)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "engine")

    def printed(command: str, url: str = place) -> Any:
        words = [*shlex.split(command), "--url", url, "--json"]
        done = CliRunner().invoke(main, words, prog_name="zae-limiter", catch_exceptions=False)
        assert (0, "") == (done.exit_code, done.stderr)
        return json.loads(done.stdout)

    printed(f"resource set-defaults {shlex.quote(resource)} -l rpd:10/d", f"{place}&create=true")
    taken = printed(f"acquire {shlex.quote(ENTITY)} {shlex.quote(resource)} -c rpd:3")
    events = printed(f"audit list --of-resource={shlex.quote(resource)}")["events"]

    assert (ENTITY, resource, {"rpd": 7}) == (taken["entity_id"], taken["resource"], taken["available"])
    assert [resource] == [event["resource"] for event in events]
